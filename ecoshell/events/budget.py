"""Events of money and tokens: reservations, settlements, caps and limits."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ecoshell.budget import CapState, Unit
from ecoshell.events.base import Event
from ecoshell.messages import Usage


@dataclass(frozen=True, slots=True)
class BudgetHeld(Event):
    """The worst case of the next model call was reserved."""

    type: ClassVar[str] = "budget_held"
    entry: int
    role: str
    model: str
    held_nano: int | None
    """None if the price is unknown."""
    held_tokens: int
    max_tokens: int
    clamped: bool
    """Whether `max_tokens` was lowered to fit the remaining budget."""
    held_ms: int | None = None
    """The working time reserved first, in milliseconds; None without a cap in time."""


@dataclass(frozen=True, slots=True)
class BudgetSettled(Event):
    """A model call was settled with its reported usage, or with the whole reservation if no usage was reported."""

    type: ClassVar[str] = "budget_settled"
    entry: int
    role: str
    model: str
    spent_nano: int | None
    """None if the price is unknown."""
    usage: Usage
    reported: bool
    seconds: float
    overrun_nano: int = 0
    estimate: Usage | None = None
    """If no usage was reported: a tokenizer's count of the prompt and the reply, for display only."""
    estimate_nano: int | None = None
    """The price of `estimate`; None if unknown or equal to what was settled."""
    why: str = ""
    """Why no usage was reported, such as `the call was stopped`."""
    prompt: str = ""
    """Digest of the counted prompt, by which a resumed session recognizes it; empty if the count is not reused."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """Price and usage for display: a call without reported usage counts as estimated, not as reserved."""

    nano: int | None = 0
    """None if any part is unknown."""
    usage: Usage = field(default_factory=Usage)
    estimated: bool = False
    """Whether part of the usage is an estimate."""
    estimated_nano: bool = False
    """Whether part of the price is an estimate."""

    def plus(self, call: BudgetSettled) -> "Consumption":
        """Add a model call."""
        nano = call.spent_nano if call.estimate_nano is None else call.estimate_nano
        return Consumption(
            nano=None if self.nano is None or nano is None else self.nano + nano,
            usage=self.usage + (call.estimate or call.usage),
            estimated=self.estimated or call.estimate is not None,
            estimated_nano=self.estimated_nano or call.estimate_nano is not None,
        )

    def plus_subagent(self, nano: int | None, usage: Usage) -> "Consumption":
        """Add the calls of a subagent."""
        total = None if self.nano is None or nano is None else self.nano + nano
        return replace(self, nano=total, usage=self.usage + usage)

    def plus_price(self, nano: int) -> "Consumption":
        """Add the price of a tool call."""
        return self if self.nano is None else replace(self, nano=self.nano + nano)


@dataclass(frozen=True, slots=True)
class BudgetChanged(Event):
    """The current caps."""

    type: ClassVar[str] = "budget_changed"
    caps: tuple[CapState, ...]


@dataclass(frozen=True, slots=True)
class CapNear(Event):
    """At least 80 % of a cap is spent; reported once per cap and limit."""

    type: ClassVar[str] = "cap_near"
    scope: str
    unit: Unit
    limit: int
    spent: int


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """An alternative model for the pending step, and the step's worst case with it."""

    name: str
    local: bool
    most_nano: int | None
    """Worst case in nano-dollars; None if the price is unknown."""
    most_tokens: int
    fits: bool
    """Whether every cap has room for the worst case."""


@dataclass(frozen=True, slots=True)
class LimitHit(Event):
    """The next call could exceed a cap; the turn waits for a choice, or answers from the results so far."""

    type: ClassVar[str] = "limit_hit"
    scope: str
    unit: Unit
    need: int
    left: int
    message: str
    offers: tuple[ModelOffer, ...] = ()
    """Cheaper and local models, best first."""
    enough: int = 0
    """A cap in `unit` with room for the longest step and the answer; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class LimitChosen(Event):
    """The user's choice at a limit."""

    type: ClassVar[str] = "limit_chosen"
    choice: str


@dataclass(frozen=True, slots=True)
class CostWanted(Event):
    """The next step may cost more than `budget.ask_above`; the turn waits for a choice."""

    type: ClassVar[str] = "cost_wanted"
    role: str
    model: str
    low_nano: int
    """The price with the whole prompt cached and a short answer of SHORT_ANSWER tokens (agent/approval.py)."""
    high_nano: int
    """The worst case, which is the amount that will be reserved."""
    threshold_nano: int
    offers: tuple[ModelOffer, ...] = ()


@dataclass(frozen=True, slots=True)
class CostChosen(Event):
    """The user's choice before an expensive step."""

    type: ClassVar[str] = "cost_chosen"
    choice: str
