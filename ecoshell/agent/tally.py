"""What a turn has cost so far."""

import time
from dataclasses import dataclass, field

from ecoshell.events import (
    BranchLeft,
    BudgetSettled,
    CallFinished,
    Event,
    StepStarted,
    Taken,
    ToolRegistered,
    ToolsOffered,
)
from ecoshell.messages import Usage


@dataclass(slots=True)
class Tally:
    """Adds up what a turn costs from its events; money becomes unknown once any part of it is."""

    started: float = field(default_factory=time.monotonic)
    spent_nano: int | None = 0
    usage: Usage = field(default_factory=Usage)
    taken: Taken = field(default_factory=Taken)
    """The same as people are shown it."""
    steps: int = 0
    worked: float = 0.0
    """Seconds of models and tools, one after another; the person's own are not in it."""
    saved_tokens: int = 0
    registered: list[str] = field(default_factory=list[str])
    _sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens of what the agent registered."""
    _carried: int = 0
    _everything: int = 0

    def see(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case BudgetSettled():
                unknown = self.spent_nano is None or event.spent_nano is None
                self.spent_nano = None if unknown else (self.spent_nano or 0) + (event.spent_nano or 0)
                self.usage += event.usage
                self.taken = self.taken.plus(event)
                self.worked += event.seconds
            case CallFinished():
                self.spent_nano = None if self.spent_nano is None else self.spent_nano + event.spent_nano
                self.taken = self.taken.paid(event.spent_nano)
                self.worked += event.seconds
            case StepStarted():
                self.steps = event.step
                self.saved_tokens += max(0, self._everything - self._carried)
            case ToolsOffered():
                self._carried, self._everything = event.context_tokens, event.everything_tokens
            case ToolRegistered():
                self._sizes[event.name] = event.tokens if event.by == "agent" else 0
                self._carried += self._sizes[event.name]
                self.registered.append(event.name)
            case BranchLeft():
                self._carried -= sum(self._sizes.get(name, 0) for name in event.unregistered)
            case _:
                pass
