"""Caps and the calls under them: what a call requests, reserves and settles, and how much output the caps allow."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from ecoshell.budget.amounts import Unit, amount_text
from ecoshell.budget.price import Price
from ecoshell.errors import LimitReached, PriceUnknown
from ecoshell.messages import Usage

Scope = Literal["turn", "session", "day", "month"]
SCOPES: tuple[Scope, ...] = ("turn", "session", "day", "month")

TASK = "task"
"""Scope of the cap that limits a subagent and those it delegates to; its owner is the path of the task."""
NEAR_CAP_SHARE = Decimal("0.8")
"""The spent share of a cap from which it is reported as nearly used up."""
_CALL_TOKENS = 8_192
"""Output that a repeatable call may reserve however little of a cap it leaves."""
_CALL_DIVISOR = 4
"""A repeatable call with more output than that may reserve what a cap has left, divided by this."""
SLICE_MS = 15_000
"""Working time that a running call reserves at once, so that parallel calls and other processes share a cap."""
MIN_CALL_MS = 1_000
"""A call that has less time than this is refused."""
_MAX_ANSWER_MS = 60_000
_ANSWER_SHARE = 4
"""The final answer gets this fraction of the time that is left, within bounds."""


@dataclass(frozen=True, slots=True)
class CapState:
    """A cap and its use, in nano-dollars, tokens or milliseconds as `unit` says.

    `own` is this user's part of `spent` if the cap is shared with other users.
    """

    scope: str
    unit: Unit
    limit: int
    spent: int
    held: int
    own: int | None = None

    @property
    def left(self) -> int:
        """The amount that can still be reserved; never negative."""
        return max(0, self.limit - self.spent - self.held)

    def over(self, model: str) -> bool:
        """Return whether the cap applies to calls of this model; a team's `model:NAME` cap applies to one model."""
        if not self.scope.startswith("model:"):
            return True
        return self.scope.rpartition(" ")[0] == f"model:{model}"


@dataclass(frozen=True, slots=True)
class Account:
    """The session, turn and role that a call is booked to."""

    session: str
    turn: int
    role: str
    model: str
    purpose: str
    lease: str = ""
    """The team lease that the call is reserved from; empty without a team ledger."""
    task: str = ""
    """The subagent that makes the call, as the path of its task from the outermost; empty for the session's agent."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A requested call with upper bounds for its prompt and its output.

    `min_tokens` is the smallest useful output: the call is refused rather than clamped below it. The default is a
    quarter of `max_tokens`, at least 16 and at most 256. `repeatable` calls are made again with more output if their
    reply is cut, so they reserve only a part of what the caps allow.
    """

    price: Price | None
    prompt_tokens: int
    max_tokens: int
    account: Account
    min_tokens: int | None = None
    repeatable: bool = False

    @property
    def floor(self) -> int:
        """The smallest `max_tokens` that the call may be clamped to."""
        minimum = self.min_tokens
        if minimum is None:
            minimum = min(256, max(16, self.max_tokens // 4))
        return min(minimum, self.max_tokens)

    @property
    def usual_tokens(self) -> int:
        """The `max_tokens` that is granted where caps allow it, however little of them it leaves."""
        return (
            max(self.floor, min(self.max_tokens, _CALL_TOKENS))
            if self.repeatable
            else self.max_tokens
        )


@dataclass(frozen=True, slots=True)
class Hold:
    """The reserved worst case of a call; `nano` is None if the price is unknown, which no dollar cap allows.

    `ms` is the time reserved first, and None without a cap in time.
    """

    entry: int
    nano: int | None
    tokens: int
    max_tokens: int
    clamped: bool
    account: Account
    price: Price | None
    ms: int | None = None

    def amount(self, unit: Unit) -> int:
        """Return the reserved amount in a unit; 0 if unknown."""
        return {"usd": self.nano or 0, "tokens": self.tokens, "ms": self.ms or 0}[unit]

    @property
    def prompt_tokens(self) -> int:
        """The upper bound of the prompt."""
        return self.tokens - self.max_tokens


@dataclass(frozen=True, slots=True)
class ToolHold:
    """A running tool: its price is paid, and its time is reserved under a cap in time.

    `entry` is None if nothing had to be booked before the run, `ms` without a cap in time.
    """

    account: Account
    tool: str
    entry: int | None = None
    ms: int | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """The final usage and price of a call: as reported, or the whole reservation without a report."""

    entry: int
    spent_nano: int | None
    usage: Usage
    reported: bool
    overrun_nano: int = 0
    overrun_tokens: int = 0
    estimate: Usage | None = None
    """Tokenizer count of a call that reported no usage; displayed, but never counted under a cap."""
    estimate_nano: int | None = None
    """Price of the estimate; None if it is unknown or equal to the counted price."""

    @property
    def overran(self) -> bool:
        """Whether the provider billed more than was reserved."""
        return self.overrun_nano > 0 or self.overrun_tokens > 0

    @property
    def overrun_text(self) -> str:
        """The overrun, formatted."""
        if self.overrun_nano:
            return amount_text(self.overrun_nano, "usd")
        return amount_text(self.overrun_tokens, "tokens")


def binding_cap(
    caps: Iterable[CapState], amount_left: Callable[[CapState], int]
) -> CapState | None:
    """Return the cap that is used up first: the smallest amount left in a unit, the smallest share left among units."""
    smallest = {cap.unit: cap for cap in sorted(caps, key=amount_left, reverse=True)}
    return min(
        smallest.values(), key=lambda cap: amount_left(cap) / max(1, cap.limit), default=None
    )


def fitting_output(ask: Ask, caps: Iterable[CapState]) -> int:
    """Return the largest `max_tokens` that all caps allow.

    Raises LimitReached for the tightest cap if the floor does not fit, and PriceUnknown if a cap is in dollars and
    the model has no price.
    """
    allowed, tightest = ask.max_tokens, None
    for cap in caps:
        if not cap.over(ask.account.model):
            continue
        if cap.unit == "ms":
            if cap.left < MIN_CALL_MS:
                raise limit_reached(cap, MIN_CALL_MS)
            continue
        room = _room(ask, cap, cap.left)
        if room < allowed:
            allowed, tightest = room, cap
    if tightest is not None and allowed < ask.floor:
        need = ask.prompt_tokens + ask.floor
        if tightest.unit == "usd" and ask.price is not None:
            need = ask.price.worst(ask.prompt_tokens, ask.floor)
        raise limit_reached(tightest, need)
    return allowed


def reserved_output(ask: Ask, caps: Sequence[CapState]) -> int:
    """Return the `max_tokens` of a call; raises as `fitting_output` does.

    A repeatable call leaves room under all caps: whatever a stopped or broken call has reserved counts, and other
    processes need room under the same caps.
    """
    allowed, usual = fitting_output(ask, caps), ask.usual_tokens
    for cap in caps:
        if cap.unit != "ms" and cap.over(ask.account.model):
            allowed = min(allowed, max(usual, _room(ask, cap, cap.left // _CALL_DIVISOR)))
    return allowed


def _room(ask: Ask, cap: CapState, amount: int) -> int:
    """Return the output that an amount under a cap pays for; negative if it does not pay for the prompt."""
    if cap.unit == "tokens":
        return amount - ask.prompt_tokens
    if ask.price is None:
        raise price_unknown(ask.account.model, cap)
    return ask.price.affordable_output(ask.prompt_tokens, amount)


def fitting_ms(wanted: int, caps: Iterable[CapState]) -> int | None:
    """Return the working time that all caps allow, at most `wanted`; None without a cap in time."""
    left = [cap.left for cap in caps if cap.unit == "ms"]
    return min(wanted, *left) if left else None


def answer_ms(caps: Iterable[CapState]) -> int | None:
    """Return the working time to reserve for the final answer; None without a cap in time."""
    left = fitting_ms(_ANSWER_SHARE * _MAX_ANSWER_MS, caps)
    return None if left is None else min(left, max(MIN_CALL_MS, left // _ANSWER_SHARE))


def exchanged_output(ask: Ask, caps: Sequence[CapState], old: Hold) -> int:
    """Return the `max_tokens` of a call that replaces `old`: what a new call would reserve, or what `old` covers."""
    try:
        allowed, refusal = reserved_output(ask, caps), None
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
    """Return the error for a call without a price under a dollar cap."""
    fix = f'Set it in the configuration under [models."{model}".price]'
    if cap.scope in SCOPES:  # Team caps are always in dollars.
        fix += f", or use a token cap instead: /budget {cap.scope} off, then /budget {cap.scope} 100000tok"
    return PriceUnknown(
        f"The price of {model} is unknown, and the {cap.scope} has a cap of {amount_text(cap.limit, 'usd')}.",
        fix=f"{fix}.",
    )


def limit_reached(cap: CapState, need: int) -> LimitReached:
    """Return the error for a reservation that exceeds what the cap has left."""
    cheaper = "use a faster model" if cap.unit == "ms" else "use a cheaper or local model"
    return LimitReached(
        f"The next call may need {amount_text(need, cap.unit)}, and the {cap.scope}'s cap of "
        f"{amount_text(cap.limit, cap.unit)} has {amount_text(cap.left, cap.unit)} left{_held_text(cap)}.",
        scope=cap.scope,
        need=need,
        left=cap.left,
        unit=cap.unit,
        fix=f"Raise the cap ({_raise_command(cap)}), or {cheaper}.",
    )


def _held_text(cap: CapState) -> str:
    if not cap.held:
        return ""
    return f", besides {amount_text(cap.held, cap.unit)} reserved for the answer and running calls"


def time_is_up(caps: Iterable[CapState], text: str = "") -> LimitReached:
    """Return the error for a call that a cap in time stopped; `text` is what the model had written."""
    cap = min((cap for cap in caps if cap.unit == "ms"), key=lambda cap: cap.left)
    limit = LimitReached(
        f"The {cap.scope}'s cap of {amount_text(cap.limit, 'ms')} working time stopped the running call.",
        scope=cap.scope,
        need=MIN_CALL_MS,
        left=cap.left,
        unit="ms",
        fix=f"Raise the cap ({_raise_command(cap)}), or use a faster model.",
    )
    limit.text = text
    return limit


def _raise_command(cap: CapState) -> str:
    """Return how to raise a cap."""
    if cap.scope == "session":
        return "/budget AMOUNT in a chat, or --budget AMOUNT on the command line"
    if cap.scope == TASK:
        return "delegate it with a larger budget"
    if cap.scope not in SCOPES:
        return f"administrators: ecoshell budget set {cap.scope} AMOUNT"
    return f"/budget {cap.scope} AMOUNT in a chat"
