"""What runs of tools cost by the size of their input, what is kept of that, and what a plan was worth.

A run's price is time × memory, as functions in a cloud are billed (CATP-LLM Table B.2), in OpenCATP's price units. They
are not dollars, as the paper multiplies rates for a whole size of memory by the memory once more: they compare tools.
The setting `[plan] resource_price` says what one is worth in dollars.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from decimal import Decimal
from pathlib import Path

from ecoshell.budget.database import Database
from ecoshell.messages import Footprint

ALPHA = 0.5
"""How much performance weighs beside cost, 0 to 1."""
OPENCATP_MOST = Decimal("0.5669374317944147")
"""C_max of OpenCATP: the dearest plan that was measured for it, in its price units."""
LEVELS = 4
"""As many as OpenCATP has; so few distinct sizes are a level each, and so many there are where there is no elbow."""
MOST_LEVELS = 8
_NO_ERROR = 1e-9
"""A clustering that leaves this share of the variance is as good as exact."""
_SHARP = 1.0
"""At an elbow the error falls by a factor e more with this level than with the next one."""

Tiers = tuple[tuple[int, Decimal], ...]
"""Up to so many MB, and the price of a MB and millisecond there; in rising order."""


def quality(performance: float, cost: Decimal, *, alpha: float = ALPHA, most: Decimal = OPENCATP_MOST) -> float:
    """QoP = α·P − (1 − α)·C/C_max, with P in 0..1 and cost and most in one unit.

    Nothing is clipped: a plan that costs more than `most` is that much worse.
    """
    return alpha * performance - (1 - alpha) * float(cost / most)


def worth(performance: float | None, cost_nano: int | None, *, alpha: float, most_nano: int) -> float | None:
    """The same of amounts in nano-dollars; None where performance or cost is unknown."""
    if performance is None or cost_nano is None:
        return None
    return quality(performance, Decimal(cost_nano), alpha=alpha, most=Decimal(most_nano))


@dataclass(frozen=True, slots=True)
class Tariff:
    """The rates of a run: a fee, and per MB and millisecond those of constant and of instant memory."""

    run: Decimal
    cpu: Tiers
    gpu: Tiers
    cpu_instant: Decimal
    gpu_instant: Decimal

    def price(self, milliseconds: float, footprint: Footprint) -> Decimal:
        """The price of a run; memory that is not known counts as none, so that the price is the least it can be.

        Beyond the last tier its rate holds on.
        """
        rate = Decimal(0)
        for constant, tiers, instant, instant_rate in (
            (footprint.cpu_mb, self.cpu, footprint.cpu_instant_mb, self.cpu_instant),
            (footprint.gpu_mb, self.gpu, footprint.gpu_instant_mb, self.gpu_instant),
        ):
            if constant is not None:
                rate += _number(constant) * next((price for most, price in tiers if constant <= most), tiers[-1][1])
            rate += _number(instant) * instant_rate
        return self.run + _number(milliseconds) * rate


def tiers_of(rates: Mapping[int, Decimal]) -> Tiers:
    """Rates by the most MB they hold for, in rising order."""
    return tuple(sorted(rates.items()))


def _number(figure: float | None) -> Decimal:
    """A measured figure as the decimal it is written with."""
    return Decimal(0) if figure is None else Decimal(repr(figure))


_CPU = {
    128: "2.1e-9",
    512: "8.3e-9",
    1024: "1.67e-8",
    1536: "2.5e-8",
    2048: "3.33e-8",
    3072: "5e-8",
    4096: "6.67e-8",
    5120: "8.33e-8",  # 8.83e-8 in the paper breaks the row of tiers; its code has this (SPEC §3)
    6144: "1e-7",
    7168: "1.167e-7",
    8192: "1.333e-7",
    9216: "1.5e-7",
    10240: "1.667e-7",
}

_GPU_PER_CPU = 3
"""Every rate of Table B.2 for the GPU is this multiple of that for the CPU."""

TABLE_B2 = Tariff(
    run=Decimal("2e-7"),
    cpu=tiers_of({most: Decimal(rate) for most, rate in _CPU.items()}),
    gpu=tiers_of({most: _GPU_PER_CPU * Decimal(rate) for most, rate in _CPU.items()}),
    cpu_instant=Decimal("3.02e-14"),
    gpu_instant=Decimal("9.06e-14"),
)
"""CATP-LLM's Table B.2."""


def size_levels(sizes: Sequence[float]) -> tuple[float, ...]:
    """Centres of the size levels in rising order: k-means in one dimension, with k by the elbow.

    Sizes are compared by their logarithm, as 1 kB and 2 kB differ as much as 1 MB and 2 MB; a centre is a geometric
    mean. Exact and so the same on every run: an optimal clustering of numbers cuts them, sorted, into pieces.
    """
    scaled = sorted(map(_scale, sizes))
    distinct = len(set(scaled))
    clusterings = _clusterings(scaled, min(MOST_LEVELS + 1, distinct))
    if distinct <= LEVELS:
        return clusterings[-1][1] if clusterings else ()
    # the elbow is the sharpest bend of the errors' logarithms; the last is of one level more than may be chosen
    logs = [math.log(max(error / clusterings[0][0], _NO_ERROR)) for error, _ in clusterings]
    bends = [logs[place - 1] - 2 * logs[place] + logs[place + 1] for place in range(1, len(logs) - 1)]
    sharpest = max(range(len(bends)), key=lambda place: round(bends[place], 9))
    return clusterings[1 + sharpest if bends[sharpest] >= _SHARP else LEVELS - 1][1]


def level_of(size: float, levels: Sequence[float]) -> int:
    """The level whose centre is nearest by ratio, from 0 on; the lower one of two that are as near."""
    return min(range(len(levels)), key=lambda place: abs(_scale(levels[place]) - _scale(size)))


def importance(count: int, level: int) -> tuple[float, ...]:
    """How much the cost at each level says of an input at `level`: cos(π(i − l)/(2k)) (eq. 2)."""
    return tuple(math.cos(math.pi * (place - level) / (2 * count)) for place in range(count))


def _scale(size: float) -> float:
    """Where a size stands among others; nothing is smaller than one."""
    return math.log(max(size, 1.0))


def _clusterings(ordered: Sequence[float], most: int) -> list[tuple[float, tuple[float, ...]]]:
    """The least squared error and the centres, as sizes, of the best clustering into 1, 2, … `most` pieces.

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
    clusterings: list[tuple[float, tuple[float, ...]]] = []
    for pieces in range(1, most + 1):
        end, means = count, list[float]()
        for left in range(pieces, 0, -1):
            begin = int(cut[left, end])
            means.append(float(points[begin:end].mean()))
            end = begin
        sizes = tuple(round(math.exp(mean), 6) for mean in reversed(means))
        clusterings.append((float(best[pieces, count]), sizes))
    return clusterings


@dataclass(frozen=True, slots=True)
class CostVector:
    """What one run of a tool costs at each size level, in price units; or takes, in milliseconds."""

    costs: tuple[Decimal, ...]
    measured: tuple[bool, ...]
    """Which of them come from runs; the others are interpolated."""

    def at(self, level: int | None) -> Decimal:
        """The cost at a level; None is an input of unknown size, for which all count by their importance for the middle
        one."""
        if level is not None:
            return self.costs[level]
        weights = [_number(weight) for weight in importance(len(self.costs), len(self.costs) // 2)]
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
    costs: list[Decimal] = []
    for place, size in enumerate(levels):
        left = max((known for known in means if known <= place), default=min(means))
        right = min((known for known in means if known >= place), default=max(means))
        costs.append(means[left])
        if left < right:  # else it is known, or lies beyond all that are
            part = _number((size - levels[left]) / (levels[right] - levels[left]))
            costs[-1] += part * (means[right] - means[left])
    return CostVector(tuple(costs), tuple(place in means for place in range(len(levels))))


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """One run on an input of `size` bytes."""

    size: int
    milliseconds: float
    footprint: Footprint

    def price(self, tariff: Tariff = TABLE_B2) -> Decimal:
        """What it costs, in OpenCATP's units."""
        return tariff.price(self.milliseconds, self.footprint)


@dataclass(frozen=True, slots=True)
class Profile:
    """What a tool costs by the size of its input."""

    levels: tuple[float, ...]
    """Centres of the size levels of what it was run on, in bytes."""
    vector: CostVector

    @classmethod
    def of(cls, runs: Iterable[ProfiledRun]) -> "Profile | None":
        """The profile of some runs; None of none."""
        known = [*runs]
        levels = size_levels([run.size for run in known])
        vector = cost_vector([(run.size, run.price()) for run in known], levels)
        return vector and cls(levels, vector)

    @property
    def usual(self) -> Decimal:
        """The cost on an input of which nothing is known: the mean over the levels."""
        return statistics.mean(self.vector.costs)


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
        took = statistics.mean(vector.costs) if size is None else vector.at(level_of(size, self.levels))
        return float(took / 1000)

    def told(self, tools: Iterable[str], size: float | None) -> str:
        """What a planner's prompt says of those of the tools that are known, a line for each; empty if there are none.

        Relative to the cheapest one for an input of the present size, which models read better than many zeros. None is
        an unknown size.
        """
        known = {tool: self.vectors[tool] for tool in tools if tool in self.vectors}
        if not known:
            return ""
        level = None if size is None else level_of(size, self.levels)
        costs = {tool: vector.at(level) for tool, vector in known.items()}
        least, given = min(costs.values()) or Decimal(1), "a usual" if level is None else "this"
        lines = [f"Cost of one use of each tool for {given} input, in uses of the cheapest:"]
        for tool, vector in known.items():
            first, last = vector.costs[0], vector.costs[-1]
            growth = f" (large inputs cost {_times(last / first)} of small ones)" if first and last >= 2 * first else ""
            lines.append(f"- {tool}: {_times(costs[tool] / least)}{growth}")
        return "\n".join(lines)


def _times(ratio: Decimal) -> str:
    return f"×{ratio:.1f}" if ratio < 10 else f"×{ratio:,.0f}"


def cost_table(runs: Mapping[str, Sequence[ProfiledRun]]) -> CostTable:
    """The costs of several tools, by size levels of all that they were run on."""
    levels = size_levels([run.size for some in runs.values() for run in some])
    prices: dict[str, CostVector] = {}
    times: dict[str, CostVector] = {}
    for tool, some in runs.items():
        price = cost_vector([(run.size, run.price()) for run in some], levels)
        time = cost_vector([(run.size, _number(run.milliseconds)) for run in some], levels)
        if price is not None and time is not None:
            prices[tool], times[tool] = price, time
    return CostTable(levels, prices, times)


VERSION = 1
SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, tool TEXT NOT NULL, at TEXT NOT NULL, size INTEGER NOT NULL,
    milliseconds REAL NOT NULL, cpu_mb REAL, cpu_instant_mb REAL, gpu_mb REAL, gpu_instant_mb REAL
);
CREATE INDEX runs_of_tool ON runs (tool)
"""
_MEMORY = tuple(spec.name for spec in fields(Footprint))


class ProfileStore:
    """Profiled runs by tool, in one SQLite file; opening and every method may block and raise StoreError."""

    def __init__(self, path: Path, *, busy_seconds: float = 10.0) -> None:
        self._database = Database(path, schema=SCHEMA, version=VERSION, busy_seconds=busy_seconds)

    def replace(self, tool: str, at: str, runs: Iterable[ProfiledRun]) -> None:
        """Keep these runs of a tool in the place of earlier ones; `at` is UTC, ISO 8601."""
        rows = [(tool, at, run.size, run.milliseconds, *astuple(run.footprint)) for run in runs]
        columns = ("tool", "at", "size", "milliseconds", *_MEMORY)
        marks = ", ".join("?" * len(columns))
        with self._database.writing("The earlier profile is kept.") as connection:
            connection.execute("DELETE FROM runs WHERE tool = ?", (tool,))
            connection.executemany(f"INSERT INTO runs ({', '.join(columns)}) VALUES ({marks})", rows)

    def runs(self) -> dict[str, list[ProfiledRun]]:
        """The runs of each tool that was profiled."""
        found: dict[str, list[ProfiledRun]] = {}
        with self._database.reading() as connection:
            rows = connection.execute(f"SELECT tool, size, milliseconds, {', '.join(_MEMORY)} FROM runs ORDER BY id")
            for tool, size, milliseconds, *memory in rows:
                found.setdefault(tool, []).append(ProfiledRun(size, milliseconds, Footprint(*memory)))
        return found

    def profiles(self) -> dict[str, Profile]:
        """The profile of each tool that was profiled."""
        made = {tool: Profile.of(runs) for tool, runs in self.runs().items()}
        return {tool: profile for tool, profile in made.items() if profile is not None}

    def close(self) -> None:
        """Close the file."""
        self._database.close()
