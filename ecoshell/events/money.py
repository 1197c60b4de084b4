"""Events of money: held, settled, and what a person chooses where a cap or a price stands in the way."""

from dataclasses import dataclass
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
    """A step that finds its whole prompt cached and answers shortly, in SHORT_ANSWER tokens (agent/cashier)."""
    high_nano: int
    """The worst case, which is what will be reserved."""
    threshold_nano: int
    offers: tuple[ModelOffer, ...] = ()


@dataclass(frozen=True, slots=True)
class CostChosen(Event):
    """What was chosen before an expensive step."""

    type: ClassVar[str] = "cost_chosen"
    choice: str
