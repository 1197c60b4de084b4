"""Events of money and tokens: reservations, settlements, caps and limits."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ecoshell.budget import CapState, Unit, amount_text
from ecoshell.events.base import Event
from ecoshell.events.lines import Line
from ecoshell.messages import Usage


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

    @classmethod
    def of(
        cls, nano: int | None, usage: Usage, estimate: Usage | None, estimate_nano: int | None
    ) -> "Consumption":
        """The consumption from what was settled and the estimates that differ from it, if any."""
        return cls(
            nano=nano if estimate_nano is None else estimate_nano,
            usage=estimate or usage,
            estimated=estimate is not None,
            estimated_nano=estimate_nano is not None,
        )

    @property
    def estimate(self) -> Usage | None:
        """The usage if part of it is an estimate."""
        return self.usage if self.estimated else None

    @property
    def estimate_nano(self) -> int | None:
        """The price if part of it is an estimate."""
        return self.nano if self.estimated_nano else None

    def __add__(self, other: "Consumption") -> "Consumption":
        return Consumption(
            nano=None if self.nano is None or other.nano is None else self.nano + other.nano,
            usage=self.usage + other.usage,
            estimated=self.estimated or other.estimated,
            estimated_nano=self.estimated_nano or other.estimated_nano,
        )


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
    """Whether the remaining budget allows less output than a step usually needs, or than the call wants."""
    held_ms: int | None = None
    """The working time reserved first, in milliseconds; None without a cap in time."""

    def render(self) -> Line:
        if self.clamped:
            text = f"the budget allows this reply {self.max_tokens:,} tokens"
            return Line("note", "!", text, self.model)
        return Line("progress", "◦", "thinking", self.model)


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

    @property
    def consumption(self) -> Consumption:
        """Price and usage of the call, for display."""
        return Consumption.of(self.spent_nano, self.usage, self.estimate, self.estimate_nano)

    def render(self) -> Line | None:
        if self.overrun_nano:
            amount = amount_text(self.overrun_nano, "usd")
            return Line("note", "!", overrun_text(self.model, amount))
        if self.reported:
            return None
        reservation = amount_text(self.usage.total, "tokens")
        if self.spent_nano:
            reservation = amount_text(self.spent_nano, "usd")
        reason = self.why or "no usage was reported"
        likely = ""
        if self.estimate is not None:
            nano = self.estimate_nano
            price = "" if nano is None else f", ≈ {amount_text(nano, 'usd')}"
            likely = f": ≈ {self.estimate.input:,} tokens in and {self.estimate.output:,} out by a tokenizer{price}"
        text = (
            f"{reason[:1].upper()}{reason[1:]}, so its cost is unknown{likely}. Under a cap the whole reservation "
            f"({reservation}) counts until you correct it with `/cost reconcile {self.entry}=AMOUNT` in this "
            f"session, or `ecoshell cost --reconcile {self.entry}=AMOUNT`."
        )
        return Line("note", "!", text)


@dataclass(frozen=True, slots=True)
class BudgetReconciled(Event):
    """The user set the cost of a settled model call, or its working time."""

    type: ClassVar[str] = "budget_reconciled"
    entry: int
    spent_nano: int | None
    """None if the price is unknown."""
    usage: Usage
    estimate: Usage | None = None
    """A tokenizer's count, for display, if only the price was set."""
    estimate_nano: int | None = None
    """The estimated price, for display, if only the tokens were set."""
    seconds: float | None = None
    """The working time, if only that was set: everything else is unchanged."""

    def render(self) -> None:
        """Panels show the costs."""

    def applied_to(self, call: BudgetSettled) -> BudgetSettled:
        """The settlement as it is now."""
        if self.seconds is not None:
            return replace(call, seconds=self.seconds)
        return replace(
            call,
            spent_nano=self.spent_nano,
            usage=self.usage,
            reported=True,
            estimate=self.estimate,
            estimate_nano=self.estimate_nano,
        )


def overrun_text(model: str, amount: str) -> str:
    """The warning about a model that charged more than was reserved, by an amount of money or tokens."""
    return (
        f"{model} billed {amount} more than the prompt and max_tokens allow, and than was reserved; "
        "the overrun is recorded, and the model is not called under a cap from now on."
    )


@dataclass(frozen=True, slots=True)
class BudgetChanged(Event):
    """The current caps."""

    type: ClassVar[str] = "budget_changed"
    caps: tuple[CapState, ...]

    def render(self) -> None:
        """Panels show the caps."""


@dataclass(frozen=True, slots=True)
class CapNear(Event):
    """At least 80 % of a cap is spent; reported once per cap and limit."""

    type: ClassVar[str] = "cap_near"
    scope: str
    unit: Unit
    limit: int
    spent: int

    def render(self) -> Line:
        limit = amount_text(self.limit, self.unit)
        remainder = amount_text(max(0, self.limit - self.spent), self.unit)
        percent = 100 * self.spent // self.limit
        text = f"{percent} % of the {self.scope}'s cap of {limit} is used: {remainder} left"
        return Line("warning", "■", text)


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

    def render(self) -> Line:
        return Line("warning", "■", "limit reached", self.message)


@dataclass(frozen=True, slots=True)
class LimitChosen(Event):
    """The user's choice at a limit; `again` if it was impossible, so that the user is asked again."""

    type: ClassVar[str] = "limit_chosen"
    choice: str

    def render(self) -> Line:
        return Line("info", "→", _CHOICES.get(self.choice, self.choice))


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

    def render(self) -> Line:
        amounts = (self.low_nano, self.high_nano, self.threshold_nano)
        low, high, threshold = (amount_text(nano, "usd") for nano in amounts)
        text = f"the next step with {self.model} may cost {low} to {high}"
        return Line("question", "?", text, f"more than ask_above ({threshold}) in the settings")


@dataclass(frozen=True, slots=True)
class CostChosen(Event):
    """The user's choice before an expensive step."""

    type: ClassVar[str] = "cost_chosen"
    choice: str

    def render(self) -> Line:
        return Line("info", "→", _CHOICES.get(self.choice, self.choice))


_CHOICES = {
    "raise": "the cap is raised",
    "model": "continuing with another model",
    "answer": "answering with the results so far",
    "stop": "stopping",
    "again": "asking again",
    "go": "continuing",
    "always": "continuing without asking again in this session",
}
