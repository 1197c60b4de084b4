"""What goes through the gate: an ask, the hold it becomes, its settlement, and how large it may be under the caps."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ecoshell.budget.money import Unit, amount_text
from ecoshell.budget.price import Price
from ecoshell.errors import LimitReached, PriceUnknown
from ecoshell.messages import Usage

Scope = Literal["turn", "session", "day", "month"]
SCOPES: tuple[Scope, ...] = ("turn", "session", "day", "month")


@dataclass(frozen=True, slots=True)
class CapState:
    """One cap and what is used of it; amounts are nano-dollars or tokens, as `unit` says.

    `own` is what of `spent` is this person's, under a cap that others spend under, too.
    """

    scope: str
    unit: Unit
    limit: int
    spent: int
    held: int
    own: int | None = None

    @property
    def left(self) -> int:
        """What may still be reserved; never negative."""
        return max(0, self.limit - self.spent - self.held)


@dataclass(frozen=True, slots=True)
class Account:
    """On whose behalf a call is made."""

    session: str
    turn: int
    role: str
    model: str
    purpose: str
    lease: str = ""
    """What of a team's ledger it is reserved from; empty without one."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that wants to be made: at most `prompt_tokens` in, and at most `max_tokens` out.

    `min_tokens` is the least output the call is of any use with; below it the call is refused rather than clamped.
    """

    price: Price | None
    prompt_tokens: int
    max_tokens: int
    account: Account
    min_tokens: int = 16

    @property
    def floor(self) -> int:
        """The least `max_tokens` this call may be lowered to."""
        return min(self.min_tokens, self.max_tokens)

    @property
    def worst_nano(self) -> int | None:
        """The most it may cost; None when the price is unknown."""
        return None if self.price is None else self.price.worst(self.prompt_tokens, self.max_tokens)


@dataclass(frozen=True, slots=True)
class Hold:
    """The worst case of a call, reserved; `nano` is None when the price is unknown and no cap in dollars stands."""

    entry: int
    nano: int | None
    tokens: int
    max_tokens: int
    clamped: bool
    account: Account
    price: Price | None

    @property
    def prompt_tokens(self) -> int:
        """The prompt's bound."""
        return self.tokens - self.max_tokens


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a call came to; without a report the whole hold, and an overrun where the report says more than was held."""

    entry: int
    spent_nano: int | None
    usage: Usage
    reported: bool
    overrun_nano: int = 0
    overrun_tokens: int = 0
    estimate: Usage | None = None
    """Of a call that reported no usage: what a tokenizer counts in what was sent and received, for people to see."""
    estimate_nano: int | None = None
    """The price of that; None where it is unknown, and where it is no other than what is counted."""

    @property
    def overran(self) -> bool:
        """Whether the provider billed more than the prompt and `max_tokens` allow."""
        return self.overrun_nano > 0 or self.overrun_tokens > 0

    @property
    def overrun_text(self) -> str:
        """By how much, as people read it."""
        return (
            amount_text(self.overrun_nano, "usd") if self.overrun_nano else amount_text(self.overrun_tokens, "tokens")
        )


def fitting_output(ask: Ask, caps: Iterable[CapState]) -> int:
    """The `max_tokens` that every cap leaves room for.

    Raises LimitReached for the tightest cap when not even the floor fits, and PriceUnknown when a cap is in dollars and
    the model has no price.
    """
    allowed, tightest = ask.max_tokens, None
    for cap in caps:
        if cap.unit == "tokens":
            room = cap.left - ask.prompt_tokens
        elif ask.price is None:
            raise price_unknown(ask.account.model, cap)
        else:
            room = ask.price.affordable_output(ask.prompt_tokens, cap.left)
        if room < allowed:
            allowed, tightest = room, cap
    if tightest is not None and allowed < ask.floor:
        need = ask.prompt_tokens + ask.floor
        if tightest.unit == "usd" and ask.price is not None:
            need = ask.price.worst(ask.prompt_tokens, ask.floor)
        raise limit_reached(tightest, need)
    return allowed


def exchanged_output(ask: Ask, caps: Iterable[CapState], old: Hold) -> int:
    """The `max_tokens` of a call that takes a hold's place: what the caps leave, or what the hold already covers."""
    try:
        allowed, refusal = fitting_output(ask, caps), None
    except LimitReached as error:
        allowed, refusal = -1, error
    covered = old.tokens - ask.prompt_tokens
    if ask.price is not None:
        covered = min(covered, ask.price.affordable_output(ask.prompt_tokens, old.nano or 0))
    best = min(max(allowed, covered), ask.max_tokens)
    if refusal is not None and best < ask.floor:
        raise refusal
    return best


def price_unknown(model: str, cap: CapState) -> PriceUnknown:
    """The refusal of a call that nobody can price under a cap in dollars."""
    return PriceUnknown(
        f"The price of {model} is not known, and a cap of {amount_text(cap.limit, 'usd')} stands for the {cap.scope}.",
        fix=f'Give it in the configuration under [models."{model}".price], or set the cap in tokens.',
    )


def limit_reached(cap: CapState, need: int) -> LimitReached:
    """The refusal of something that needs more than the cap has left."""
    how = f"/budget {cap.scope} AMOUNT in a chat"
    if cap.scope == "session":
        how = "/budget AMOUNT in a chat, --budget AMOUNT before one"
    elif cap.scope not in SCOPES:
        how = f"an administrator does: {set_by_admin(cap.scope)}"
    return LimitReached(
        f"The next call may need {amount_text(need, cap.unit)}, and the {cap.scope}'s cap of "
        f"{amount_text(cap.limit, cap.unit)} has {amount_text(cap.left, cap.unit)} left.",
        scope=cap.scope,
        need=need,
        left=cap.left,
        unit=cap.unit,
        fix=f"Raise it ({how}), or go on with a cheaper or local model.",
    )


def set_by_admin(scope: str) -> str:
    """How a shared cap is set."""
    return f"ecoshell budget set {scope} AMOUNT"
