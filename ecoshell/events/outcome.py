"""What a turn came to, read from its events, and the exit status and the error that say so."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar

from ecoshell import errors
from ecoshell.budget import nano_to_usd_text
from ecoshell.errors import BudgetError, EcoshellError, GaveUp, LimitReached, StepsSpent, TurnStopped
from ecoshell.events import (
    ApprovalGiven,
    ApprovalWanted,
    BudgetSettled,
    ErrorHappened,
    Event,
    LimitChosen,
    LimitHit,
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


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cost and usage with calls that reported none as a tokenizer counts them."""

    cost_usd: str | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class Result(Event):
    """What the turn came to: the last line of `ask --json`, which no session holds."""

    type: ClassVar[str] = "result"
    status: Status
    answer: str
    cost_usd: str | None
    """Decimal dollars; null when a part of the price is unknown."""
    usage: Usage
    estimate: Estimate | None
    """Null where all calls have reported."""
    steps: int
    registered: tuple[str, ...]
    refused: tuple[str, ...]
    """Calls that needed an approval while nobody was there to ask."""
    session: str | None
    """Null when no turn could begin."""


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
    _limit: LimitHit | None = None
    """At which the turn stands, or has ended."""
    _error: ErrorHappened | None = None

    @property
    def exit_status(self) -> int:
        """What the process ends with; an answer beside a call that nobody could approve is not all that was asked."""
        return EXIT_STATUS["gave_up" if self.refused and self.status == "answered" else self.status]

    @property
    def cost_usd(self) -> Decimal | None:
        """Dollars; None when a part of the price is unknown."""
        return None if self.spent_nano is None else Decimal(nano_to_usd_text(self.spent_nano))

    @property
    def failure(self) -> EcoshellError | None:
        """Why there is no answer, or none but one from what there was; None where the turn was answered."""
        match self.status:
            case "answered":
                return None
            case "gave_up":
                return GaveUp(self.answer or "The agent gave up.")
            case "interrupted":
                return TurnStopped("The turn was stopped.", kept="The session is kept.")
            case "limit" if (hit := self._limit) is not None:
                return LimitReached(hit.message, scope=hit.scope, need=hit.need, left=hit.left, unit=hit.unit)
            case "limit":
                return StepsSpent("The turn ended before it was done.", fix="Allow more steps, or ask for less.")
            case "error":
                event = self._error or ErrorHappened("", "The turn ended without an answer.", fix="Ask again.")
                found = getattr(errors, event.kind, None)
                kind = found if isinstance(found, type) and issubclass(found, EcoshellError) else EcoshellError
                return (BudgetError if kind is LimitReached else kind)(event.message, kept=event.kept, fix=event.fix)

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
            case LimitHit():
                self._limit = event
            case LimitChosen(choice="raise" | "model"):
                self._limit = None
            case ErrorHappened():
                self._error = event
            case _:
                pass

    def result(self) -> Result:
        """What it came to, as programs are told it."""
        taken, estimate = self.taken, None
        if taken.estimated or taken.estimated_nano:
            estimate = Estimate(None if taken.nano is None else nano_to_usd_text(taken.nano), taken.usage)
        return Result(
            status=self.status,
            answer=self.answer,
            cost_usd=None if self.spent_nano is None else nano_to_usd_text(self.spent_nano),
            usage=self.usage,
            estimate=estimate,
            steps=self.steps,
            registered=self.registered,
            refused=self.refused,
            session=self.session,
        )
