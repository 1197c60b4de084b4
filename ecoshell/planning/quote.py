"""Quotes: what planned work is expected to cost and to take, with an interval that holds 90 % of the bills."""

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ecoshell.planning.btp.evidence import Figure

COVERAGE = 0.9
"""The share of bills that the interval is meant to hold."""
PRIOR_VARIATION = 0.8
"""Standard deviation of a cost without history, relative to its mean."""
_PRIOR_WEIGHT = 2
"""Runs for which the prior variation counts in addition to a history."""
_DRAWS = 400


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of planned work and its past costs; a figure of None is unknown, and one without samples an estimate."""

    label: str
    price: Figure | None
    seconds: Figure | None
    after: Collection[str] = ()
    """Labels of the parts that must end before it starts."""
    max_price: float = math.inf
    """The share that its price cannot exceed."""
    max_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Interval:
    """An expected amount with the bounds that hold 90 % of the outcomes."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True)
class QuotedCost:
    """The price in the unit of the parts, and the times; None if a part is unknown."""

    price: Interval | None
    seconds: Interval | None
    """The elapsed time: the longest path."""
    working_seconds: Interval | None
    """The working time: the sum of the parts, also of those that run in parallel."""
    sample_count: int = 0
    """Runs behind the least known part; 0 for a prior."""


def quote(parts: Sequence[Part]) -> QuotedCost:
    """Quote parts in topological order: price and working time are sums, the duration is that of the longest path.

    Each cost is drawn from the gamma distribution with its mean and variance. The result is deterministic.
    """
    source = random.Random(len(parts))
    prices: list[float] = []
    durations: list[float] = []
    working_times: list[float] = []
    for _ in range(_DRAWS):
        total, working, ends = 0.0, 0.0, dict[str, float]()
        for part in parts:
            deviation = source.gauss(0.0, 1.0)
            total += min(part.max_price, _drawn(part.price, deviation))
            start = max((ends[label] for label in part.after if label in ends), default=0.0)
            seconds = min(part.max_seconds, _drawn(part.seconds, deviation))
            working += seconds
            ends[part.label] = start + seconds
        prices.append(total)
        durations.append(max(ends.values(), default=0.0))
        working_times.append(working)
    figures = [
        figure
        for part in parts
        for figure in (part.price, part.seconds)
        if figure is not None and figure.mean
    ]
    is_timed = all(part.seconds is not None for part in parts)
    return QuotedCost(
        None if any(part.price is None for part in parts) else _interval(prices),
        _interval(durations) if is_timed else None,
        _interval(working_times) if is_timed else None,
        min((figure.count for figure in figures), default=0),
    )


def _drawn(figure: Figure | None, deviation: float) -> float:
    """The cost at a standard normal deviation, by Wilson and Hilferty's approximation; 0 for an unknown one."""
    if figure is None or figure.mean <= 0:
        return 0.0
    variance = _variation(figure) ** 2 / 9
    return figure.mean * max(0.0, 1 - variance + deviation * math.sqrt(variance)) ** 3


def _variation(figure: Figure) -> float:
    """The relative standard deviation of the next cost, with the uncertainty of the mean of few samples."""
    weight = max(0, figure.count - 1)
    history = (figure.spread / figure.mean) ** 2 if figure.count > 1 else 0.0
    variance = (weight * history + _PRIOR_WEIGHT * PRIOR_VARIATION**2) / (weight + _PRIOR_WEIGHT)
    return math.sqrt(variance * (1 + 1 / max(1, figure.count)))


def _interval(outcomes: Sequence[float]) -> Interval:
    ordered, tail = sorted(outcomes), (1 - COVERAGE) / 2
    low, high = math.floor(tail * len(ordered)), math.ceil((1 - tail) * len(ordered)) - 1
    return Interval(ordered[low], sum(ordered) / len(ordered), ordered[high])
