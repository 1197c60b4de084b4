"""Size levels of inputs, and what a tool costs at each of them (CATP-LLM §3.2.1)."""

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEVELS = 4
"""As many as OpenCATP has; so few distinct sizes are a level each, and so many there are where there is no elbow."""
MOST_LEVELS = 8
_NO_ERROR = 1e-9
"""A clustering that leaves this share of the variance is as good as exact."""
_SHARP = 1.0
"""At an elbow the error falls by a factor e more with this level than with the next one."""


def size_levels(sizes: Sequence[float], most: int = MOST_LEVELS) -> tuple[float, ...]:
    """Centres of the size levels in rising order: k-means in one dimension, with k by the elbow.

    Sizes are compared by their logarithm, as 1 kB and 2 kB differ as much as 1 MB and 2 MB; a centre is a geometric
    mean. Exact and so the same on every run: an optimal clustering of numbers cuts them, sorted, into pieces.
    """
    distinct = len({_scale(size) for size in sizes})
    if distinct <= LEVELS:
        return centres(sizes, distinct)
    clusterings = _clusterings(sorted(map(_scale, sizes)), min(most + 1, distinct))
    return _unscaled(clusterings[_elbow([error for error, _ in clusterings])][1])


def centres(sizes: Sequence[float], count: int) -> tuple[float, ...]:
    """Centres of exactly `count` levels, or of as many as there are distinct sizes."""
    scaled = sorted(map(_scale, sizes))
    found = _clusterings(scaled, min(count, len(set(scaled))))
    return _unscaled(found[-1][1]) if found else ()


def level_of(size: float, levels: Sequence[float]) -> int:
    """The level whose centre is nearest by ratio, from 0 on; the lower one of two that are as near."""
    return min(range(len(levels)), key=lambda place: abs(_scale(levels[place]) - _scale(size)))


def importance(count: int, level: int) -> tuple[float, ...]:
    """How much the cost at each level says of an input at `level`: cos(π(i − l)/(2k)) (eq. 2)."""
    return tuple(math.cos(math.pi * (place - level) / (2 * count)) for place in range(count))


@dataclass(frozen=True, slots=True)
class CostVector:
    """What one run of a tool costs at each size level, in price units; or takes, in milliseconds."""

    costs: tuple[Decimal, ...]
    measured: tuple[bool, ...]
    """Which of them come from runs; the others are interpolated."""

    def at(self, level: int) -> Decimal:
        """The cost at a level."""
        return self.costs[level]

    def around(self, level: int) -> Decimal:
        """The mean over all levels by their importance for an input at this one, of which one is not sure."""
        weights = [Decimal(repr(weight)) for weight in importance(len(self.costs), level)]
        weighted = (weight * cost for weight, cost in zip(weights, self.costs, strict=True))
        return sum(weighted, Decimal(0)) / sum(weights, Decimal(0))


def cost_vector(runs: Iterable[tuple[float, Decimal]], levels: Sequence[float]) -> CostVector | None:
    """The means of runs, each an input's size and a price (or a time), by level; None when there is no run.

    A level without a run takes the straight line between its neighbours', and beyond the last run its cost.
    """
    prices: dict[int, list[Decimal]] = {}
    for size, price in runs:
        prices.setdefault(level_of(size, levels), []).append(price)
    if not prices:
        return None
    means = {level: sum(some, Decimal(0)) / len(some) for level, some in prices.items()}
    return CostVector(
        tuple(_interpolated(place, means, levels) for place in range(len(levels))),
        tuple(place in means for place in range(len(levels))),
    )


@dataclass(frozen=True, slots=True)
class CostTable:
    """What tools cost at size levels that they have in common, and how long a run of each takes there."""

    levels: tuple[float, ...] = ()
    vectors: Mapping[str, CostVector] = field(default_factory=dict[str, CostVector])
    milliseconds: Mapping[str, CostVector] = field(default_factory=dict[str, CostVector])

    def seconds(self, tool: str, size: float | None = None) -> float | None:
        """How long a run takes on an input of a size, or of any; None for a tool that is not known."""
        vector = self.milliseconds.get(tool)
        if vector is None:
            return None
        usual = statistics.mean(vector.costs) if size is None else vector.at(level_of(size, self.levels))
        return float(usual / 1000)

    def told(self, tools: Iterable[str], size: float | None) -> str:
        """What the prompt says of those of the tools that are known; `size` is the present input's, None is unknown."""
        known = {tool: self.vectors[tool] for tool in tools if tool in self.vectors}
        return told(known, None if size is None or not known else level_of(size, self.levels))


def told(vectors: Mapping[str, CostVector], level: int | None) -> str:
    """What a planner's prompt says of costs: a line for each tool, with its cost for an input of the present level.

    Relative to the cheapest tool there, which models read better than many zeros. None is an input of unknown size.
    """
    if not vectors:
        return ""
    costs = {tool: _cost(vector, level) for tool, vector in vectors.items()}
    least, given = min(costs.values()) or Decimal(1), "a usual" if level is None else "this"
    lines = [f"- {tool}: {_times(costs[tool] / least)}{_growth(vector)}" for tool, vector in vectors.items()]
    return "\n".join((f"Cost of one use of each tool for {given} input, in uses of the cheapest:", *lines))


def _cost(vector: CostVector, level: int | None) -> Decimal:
    """The cost at a level; of an input of unknown size, that around the middle one."""
    return vector.around(len(vector.costs) // 2) if level is None else vector.at(level)


def _growth(vector: CostVector) -> str:
    """How much dearer the largest inputs are than the smallest, where that matters."""
    first, last = vector.costs[0], vector.costs[-1]
    if not first or last < 2 * first:
        return ""
    return f" (large inputs cost {_times(last / first)} of small ones)"


def _times(ratio: Decimal) -> str:
    return f"×{ratio:.1f}" if ratio < 10 else f"×{ratio:,.0f}"


def _scale(size: float) -> float:
    """Where a size stands among others; nothing is smaller than one."""
    return math.log(max(size, 1.0))


def _unscaled(places: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(math.exp(place), 6) for place in places)


def _interpolated(place: int, means: Mapping[int, Decimal], levels: Sequence[float]) -> Decimal:
    known = sorted(means)
    after = bisect_left(known, place)
    if after < len(known) and known[after] == place:
        return means[place]
    if after in (0, len(known)):
        return means[known[0 if after == 0 else -1]]
    left, right = known[after - 1], known[after]
    part = Decimal(repr((levels[place] - levels[left]) / (levels[right] - levels[left])))
    return means[left] + part * (means[right] - means[left])


def _clusterings(ordered: Sequence[float], most: int) -> list[tuple[float, tuple[float, ...]]]:
    """The least squared error and the centres of the best clustering into 1, 2, … `most` pieces.

    `best[k, j]` is the error of the first j numbers in k pieces: the last piece begins where the sum is least.
    """
    import numpy as np

    points = np.asarray(ordered, np.float64)
    count = len(points)
    shifted = points - points.mean() if count else points  # so that squares of large sizes keep their digits
    sums = np.concatenate(([0.0], np.cumsum(shifted)))
    squares = np.concatenate(([0.0], np.cumsum(shifted**2)))
    best = np.full((most + 1, count + 1), np.inf)
    best[0, 0] = 0.0
    cut = np.zeros((most + 1, count + 1), np.int64)
    for end in range(1, count + 1):
        begins = np.arange(end)
        width = end - begins
        errors = np.maximum(squares[end] - squares[:end] - (sums[end] - sums[:end]) ** 2 / width, 0.0)
        for pieces in range(1, most + 1):
            totals = best[pieces - 1, :end] + errors
            cut[pieces, end] = begin = int(np.argmin(totals))
            best[pieces, end] = totals[begin]
    return [(float(best[k, count]), _means(points, cut, k)) for k in range(1, most + 1)]


def _means(points: "Floats", cut: "NDArray[np.int64]", pieces: int) -> tuple[float, ...]:
    """The mean of each piece, in rising order."""
    end, found = len(points), list[float]()
    for left in range(pieces, 0, -1):
        begin = int(cut[left, end])
        found.append(float(points[begin:end].mean()))
        end = begin
    return tuple(reversed(found))


def _elbow(errors: Sequence[float]) -> int:
    """The place of the sharpest bend of the errors' logarithms; that of LEVELS where none is sharp.

    The last error is of one level more than may be chosen.
    """
    logs = [math.log(max(error / errors[0], _NO_ERROR)) for error in errors]
    bends = [logs[place - 1] - 2 * logs[place] + logs[place + 1] for place in range(1, len(logs) - 1)]
    sharpest = max(range(len(bends)), key=lambda place: round(bends[place], 9))
    return 1 + sharpest if bends[sharpest] >= _SHARP else LEVELS - 1
