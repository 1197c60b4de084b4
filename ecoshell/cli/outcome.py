"""What a one-shot question came to, and the exit status that says so."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ecoshell.budget.money import nano_to_usd_text
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    BudgetSettled,
    Event,
    Status,
    StepStarted,
    Taken,
    TextArrived,
    ToolRegistered,
    TurnFinished,
)
from ecoshell.messages import Call, Usage
from ecoshell.untrusted import visible_line

EXIT_STATUS: Mapping[Status, int] = {"answered": 0, "error": 1, "limit": 3, "gave_up": 4, "interrupted": 130}


@dataclass(slots=True)
class Outcome:
    """Read from the events as they come, so that it is true at every moment, also when the last event never comes."""

    status: Status = "error"
    answer: str = ""
    spent_nano: int | None = 0
    usage: Usage = field(default_factory=Usage)
    taken: Taken = field(default_factory=Taken)
    """What it took as people are shown it."""
    steps: int = 0
    registered: tuple[str, ...] = ()
    session: str | None = None
    refused: tuple[str, ...] = ()
    """Calls that needed an approval while nobody was there to ask."""
    _asked: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def exit_status(self) -> int:
        """What the process ends with; an answer beside a call that nobody could approve is not all that was asked."""
        return EXIT_STATUS["gave_up" if self.refused and self.status == "answered" else self.status]

    def see(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case TurnFinished():
                self.status, self.answer = event.status, event.answer or self.answer
                self.spent_nano, self.usage, self.taken = event.spent_nano, event.usage, event.taken
                self.steps, self.registered = event.steps, event.registered
            case TextArrived(channel="answer"):
                self.answer += event.text
            case StepStarted():
                self.steps, self.answer = event.step, ""
            case ApprovalWanted():
                self._asked[event.id] = visible_line(Call(event.name, event.arguments).signature())
            case ApprovalGiven(by="nobody"):
                self.refused += (self._asked.get(event.id, event.id),)
            case ToolRegistered():
                self.registered += (event.name,)
            case BudgetSettled():
                unknown = self.spent_nano is None or event.spent_nano is None
                self.spent_nano = None if unknown else (self.spent_nano or 0) + (event.spent_nano or 0)
                self.usage += event.usage
                self.taken = self.taken.plus(event)
            case _:
                pass

    def to_json(self) -> dict[str, Any]:
        """The last line of `ask --json`."""
        return {
            "type": "result",
            "status": self.status,
            "answer": self.answer,
            "cost_usd": None if self.spent_nano is None else nano_to_usd_text(self.spent_nano),
            "usage": asdict(self.usage),
            "estimate": self._estimate(),
            "steps": self.steps,
            "registered": list(self.registered),
            "refused": list(self.refused),
            "session": self.session,
        }

    def _estimate(self) -> dict[str, Any] | None:
        """Cost and usage with calls that reported none as a tokenizer counts them; None where all have reported."""
        taken = self.taken
        if not (taken.estimated or taken.estimated_nano):
            return None
        return {"cost_usd": None if taken.nano is None else nano_to_usd_text(taken.nano), "usage": asdict(taken.usage)}
