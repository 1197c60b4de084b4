"""What a turn consumes, added up from its events."""

import time
from dataclasses import dataclass, field

from ecoshell.events import (
    BranchLeft,
    BudgetSettled,
    CallFinished,
    Consumption,
    Event,
    StepStarted,
    SubagentFinished,
    ToolRegistered,
    ToolsOffered,
)
from ecoshell.messages import Usage


@dataclass(slots=True)
class TurnUsage:
    """Adds up a turn's money, tokens, steps and registrations."""

    started: float = field(default_factory=time.monotonic)
    known_nano: int = 0
    unpriced: int = 0
    """Number of model calls of unknown cost."""
    usage: Usage = field(default_factory=Usage)
    consumption: Consumption = field(default_factory=Consumption)
    """Price and usage for display."""
    steps: int = 0
    worked: float = 0.0
    """Seconds spent by models and tools, added up; the user's own time is not included."""
    saved_tokens: int = 0
    registered: list[str] = field(default_factory=list[str])
    _sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens of the schemas that the agent registered."""
    _loaded: int = 0
    """Tokens of names and loaded schemas."""
    _everything: int = 0
    """Tokens of all schemas."""

    @property
    def spent_nano(self) -> int | None:
        """The money spent; None if any part is unknown."""
        return None if self.unpriced else self.known_nano

    def see(self, event: Event) -> None:
        """Count one event."""
        match event:
            case BudgetSettled():
                self.known_nano += event.spent_nano or 0
                self.unpriced += event.spent_nano is None
                self.usage += event.usage
                self.consumption = self.consumption.plus(event)
                self.worked += event.seconds
            case CallFinished():
                self.known_nano += event.spent_nano
                self.consumption = self.consumption.plus_price(event.spent_nano)
                self.worked += event.seconds
            case SubagentFinished():
                self.known_nano += event.spent_nano or 0
                self.unpriced += event.spent_nano is None
                self.usage += event.usage
                self.consumption = self.consumption.plus_subagent(event.spent_nano, event.usage)
            case StepStarted():
                if event.step > self.steps:  # a step that met a limit starts twice
                    self.saved_tokens += max(0, self._everything - self._loaded)
                self.steps = event.step
            case ToolsOffered():
                self._loaded, self._everything = event.context_tokens, event.everything_tokens
            case ToolRegistered():
                self._sizes[event.name] = event.tokens if event.by in ("agent", "first_call") else 0
                self._loaded += self._sizes[event.name]
                self.registered.append(event.name)
            case BranchLeft():
                self._loaded -= sum(self._sizes.get(name, 0) for name in event.unregistered)
            case _:
                pass
