"""Events of money: held, settled, and what a person chooses where a cap or a price stands in the way."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ecoshell.budget.caps import CapState
from ecoshell.budget.money import Unit
from ecoshell.events.base import Event
from ecoshell.messages import Usage


@dataclass(frozen=True, slots=True)
class BudgetHeld(Event):
    """The worst case of the next model call is reserved; `held_nano` is None when the price is unknown."""

    type: ClassVar[str] = "budget_held"
    entry: int
    role: str
    model: str
    held_nano: int | None
    held_tokens: int
    max_tokens: int
    clamped: bool
    """Whether `max_tokens` was lowered to what is left."""


@dataclass(frozen=True, slots=True)
class BudgetSettled(Event):
    """A model call is paid; without reported usage the whole reservation counts; None is an unknown price."""

    type: ClassVar[str] = "budget_settled"
    entry: int
    role: str
    model: str
    spent_nano: int | None
    usage: Usage
    reported: bool
    seconds: float
    overrun_nano: int = 0
    estimate: Usage | None = None
    """Where no usage was reported: what a tokenizer counts in what was sent and received, for people to see."""
    estimate_nano: int | None = None
    """The price of that; None where it is unknown, and where it is no other than what counts."""
    why: str = ""
    """Why no usage was reported: `the call was stopped`."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What calls took as people are shown it: one that reported no usage counts as it is estimated, not as reserved."""

    nano: int | None = 0
    """None once a part of it is unknown."""
    usage: Usage = field(default_factory=Usage)
    estimated: bool = False
    """Whether a part of the usage is an estimate."""
    estimated_nano: bool = False
    """Whether a part of the price is."""

    def plus(self, call: BudgetSettled) -> "Taken":
        """The same with one more call."""
        nano = call.spent_nano if call.estimate_nano is None else call.estimate_nano
        return Taken(
            nano=None if self.nano is None or nano is None else self.nano + nano,
            usage=self.usage + (call.estimate or call.usage),
            estimated=self.estimated or call.estimate is not None,
            estimated_nano=self.estimated_nano or call.estimate_nano is not None,
        )

    def paid(self, nano: int) -> "Taken":
        """The same with what a tool has cost."""
        return self if self.nano is None else replace(self, nano=self.nano + nano)


@dataclass(frozen=True, slots=True)
class BudgetChanged(Event):
    """The caps as they stand now."""

    type: ClassVar[str] = "budget_changed"
    caps: tuple[CapState, ...]


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """Another model to go on with, and what the step that waits could cost there."""

    name: str
    local: bool
    most_nano: int | None
    """The worst case in nano-dollars; None when the price is unknown."""
    most_tokens: int
    fits: bool
    """Whether every cap has room for it."""


@dataclass(frozen=True, slots=True)
class LimitHit(Event):
    """The next call could pass a cap; the turn waits for a choice, or answers from what there is."""

    type: ClassVar[str] = "limit_hit"
    scope: str
    unit: Unit
    need: int
    left: int
    message: str
    offers: tuple[ModelOffer, ...] = ()
    """Cheaper and local models, the best first."""
    enough: int = 0
    """A cap that leaves room for the step at its longest and for the answer, in the cap's unit; 0 is not known."""


@dataclass(frozen=True, slots=True)
class LimitChosen(Event):
    """What was chosen at a limit."""

    type: ClassVar[str] = "limit_chosen"
    choice: str


@dataclass(frozen=True, slots=True)
class CostWanted(Event):
    """The next step may cost more than the person wants to spend unasked; the turn waits for a word."""

    type: ClassVar[str] = "cost_wanted"
    role: str
    model: str
    low_nano: int
    """A step that finds its whole prompt cached and answers shortly, in SHORT_ANSWER tokens (agent/spending)."""
    high_nano: int
    """The worst case, which is what will be reserved."""
    threshold_nano: int
    offers: tuple[ModelOffer, ...] = ()


@dataclass(frozen=True, slots=True)
class CostChosen(Event):
    """What was chosen before an expensive step."""

    type: ClassVar[str] = "cost_chosen"
    choice: str
