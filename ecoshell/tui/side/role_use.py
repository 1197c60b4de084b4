"""What roles have used, and what share of it each has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ecoshell.events import BudgetSettled, Taken
from ecoshell.messages import Usage
from ecoshell.options import ROLES

Thinker = tuple[str, str]
"""A role and the model that plays it."""
Basis = Literal["price", "tokens", "time"]
"""What shares are shares of."""
_ORDER = {role: place for place, role in enumerate(ROLES)}
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class RoleUse:
    """What one model has been paid and has taken in one role; an unknown price makes the sum unknown."""

    role: str
    model: str
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    spent_nano: int | None = 0
    seconds: float = 0.0
    estimated: bool = False
    """Whether a part of the usage is an estimate, as of calls that reported none."""
    estimated_nano: bool = False
    """Whether a part of the price is."""

    @property
    def thinker(self) -> Thinker:
        return self.role, self.model

    def plus(self, call: BudgetSettled) -> "RoleUse":
        """The same with one more call."""
        taken = Taken(self.spent_nano, self.usage, self.estimated, self.estimated_nano).plus(call)
        return replace(
            self,
            calls=self.calls + 1,
            usage=taken.usage,
            spent_nano=taken.nano,
            seconds=self.seconds + call.seconds,
            estimated=taken.estimated,
            estimated_nano=taken.estimated_nano,
        )


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares in percent, 100 together."""

    basis: Basis
    why: str
    """Why they are not of the price; empty where they are."""
    percent: tuple[int, ...]
    """One for each use, in the order of the uses."""


def in_order(uses: Iterable[RoleUse]) -> list[RoleUse]:
    """The planner first, then the caller and the summarizer; others as they come."""
    return sorted(uses, key=lambda use: _ORDER.get(use.role, len(_ORDER)))


def shares(uses: Sequence[RoleUse]) -> Shares | None:
    """Shares of the price, where it is known and not zero, else of the tokens, else of the time; None without calls."""
    prices = [use.spent_nano for use in uses]
    known = [price for price in prices if price is not None]
    if len(known) == len(prices) and any(known):
        return Shares("price", "", _in_percent(known))
    why = "free of charge" if len(known) == len(prices) else "price unknown"
    tokens = [use.usage.total for use in uses]
    if any(tokens):
        return Shares("tokens", why, _in_percent(tokens))
    times = [round(use.seconds * _MICROSECONDS) for use in uses]
    return Shares("time", why, _in_percent(times)) if any(times) else None


def _in_percent(parts: Sequence[int]) -> tuple[int, ...]:
    """Whole percent that add up to 100: what rounding down leaves goes to the largest remainders, of equals the first.

    The parts are not negative, and at least one is more than nothing.
    """
    whole = sum(parts)
    percent = [100 * part // whole for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda at: -(100 * parts[at] % whole))
    for at in by_remainder[: 100 - sum(percent)]:
        percent[at] += 1
    return tuple(percent)
