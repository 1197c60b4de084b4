"""Costs of tool runs by input size, their storage, and the quality of plans.

The price of a run is time × memory, as cloud functions are billed (CATP-LLM Table B.2), in OpenCATP's price units.
These are not dollars, because the paper multiplies rates per memory tier by the memory again; they compare tools. The
setting `[plan] resource_price` converts a unit to dollars.
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
"""Weight of performance against cost, 0 to 1."""
OPENCATP_MAX_COST = Decimal("0.5669374317944147")
"""C_max of OpenCATP: the most expensive measured plan, in its price units."""
LEVELS = 4
"""Number of size levels, as in OpenCATP; up to this many distinct sizes get a level each."""
_ROUNDS = 20
"""Rounds of k-means, which settles after a few."""

Tiers = tuple[tuple[int, Decimal], ...]
"""Pairs of maximum MB and price per MB and millisecond, in rising order."""


def quality(
    performance: float,
    cost: Decimal,
    *,
    alpha: float = ALPHA,
    max_cost: Decimal = OPENCATP_MAX_COST,
) -> float:
    """Return QoP = α·P − (1 − α)·C/C_max, with P in 0..1 and both costs in one unit; not clipped."""
    return alpha * performance - (1 - alpha) * float(cost / max_cost)


def worth(
    performance: float | None, cost_nano: int | None, *, alpha: float, most_nano: int
) -> float | None:
    """Return the quality for amounts in nano-dollars; None if performance or cost is unknown."""
    if performance is None or cost_nano is None:
        return None
    return quality(performance, Decimal(cost_nano), alpha=alpha, max_cost=Decimal(most_nano))


@dataclass(frozen=True, slots=True)
class Tariff:
    """A fee per run, and rates per MB and millisecond of constant and instant memory."""

    run: Decimal
    cpu: Tiers
    gpu: Tiers
    cpu_instant: Decimal
    gpu_instant: Decimal

    def price(self, milliseconds: float, footprint: Footprint) -> Decimal:
        """Return the price of a run; unknown memory counts as 0, and the last tier has no upper limit."""
        rate = Decimal(0)
        for constant, tiers, instant, instant_rate in (
            (footprint.cpu_mb, self.cpu, footprint.cpu_instant_mb, self.cpu_instant),
            (footprint.gpu_mb, self.gpu, footprint.gpu_instant_mb, self.gpu_instant),
        ):
            if constant is not None:
                rate += _number(constant) * next(
                    (price for limit, price in tiers if constant <= limit), tiers[-1][1]
                )
            rate += _number(instant) * instant_rate
        return self.run + _number(milliseconds) * rate


def tiers_of(rates: Mapping[int, Decimal]) -> Tiers:
    """Sort rates by their maximum MB."""
    return tuple(sorted(rates.items()))


def _number(figure: float | None) -> Decimal:
    """Convert a measured figure by its decimal notation."""
    return Decimal(0) if figure is None else Decimal(repr(figure))


_CPU = {
    128: "2.1e-9",
    512: "8.3e-9",
    1024: "1.67e-8",
    1536: "2.5e-8",
    2048: "3.33e-8",
    3072: "5e-8",
    4096: "6.67e-8",
    5120: "8.33e-8",  # the paper prints 8.83e-8, which breaks the sequence; its code has this value (SPEC §3)
    6144: "1e-7",
    7168: "1.167e-7",
    8192: "1.333e-7",
    9216: "1.5e-7",
    10240: "1.667e-7",
}

_GPU_PER_CPU = 3
"""Ratio of GPU rates to CPU rates in Table B.2."""

TABLE_B2 = Tariff(
    run=Decimal("2e-7"),
    cpu=tiers_of({limit: Decimal(rate) for limit, rate in _CPU.items()}),
    gpu=tiers_of({limit: _GPU_PER_CPU * Decimal(rate) for limit, rate in _CPU.items()}),
    cpu_instant=Decimal("3.02e-14"),
    gpu_instant=Decimal("9.06e-14"),
)
"""CATP-LLM's Table B.2."""


def size_levels(sizes: Iterable[float]) -> tuple[float, ...]:
    """Return the centres of the size levels in rising order, by one-dimensional k-means.

    Compares logarithms of sizes, because 1 kB and 2 kB differ as much as 1 MB and 2 MB; a centre is a geometric mean.
    """
    points = sorted(map(_scale, sizes))
    distinct = sorted(set(points))
    count = min(LEVELS, len(distinct))
    centres = [distinct[(2 * place + 1) * len(distinct) // (2 * count)] for place in range(count)]
    for _ in range(_ROUNDS):
        groups: dict[float, list[float]] = {}
        for point in points:
            nearest = min(centres, key=lambda centre: abs(centre - point))
            groups.setdefault(nearest, []).append(point)
        centres = [statistics.fmean(group) for group in groups.values()]
    return tuple(round(math.exp(centre), 6) for centre in centres)


def level_of(size: float, levels: Sequence[float]) -> int:
    """Return the level, from 0 on, whose centre is nearest by ratio; the lower one in a tie."""
    return min(range(len(levels)), key=lambda place: abs(_scale(levels[place]) - _scale(size)))


def importance(count: int, level: int) -> tuple[float, ...]:
    """Return the weights of the costs of all levels for an input at `level`: cos(π(i − l)/(2k)) (eq. 2)."""
    return tuple(math.cos(math.pi * (place - level) / (2 * count)) for place in range(count))


def _scale(size: float) -> float:
    """Return the logarithm of a size, which counts as at least 1."""
    return math.log(max(size, 1.0))


@dataclass(frozen=True, slots=True)
class CostVector:
    """The cost of one run at each size level, in price units, or its duration in milliseconds."""

    costs: tuple[Decimal, ...]
    measured: tuple[bool, ...]
    """Whether each cost was measured; others are interpolated."""

    def at(self, level: int | None) -> Decimal:
        """Return the cost at a level; for None (unknown size), the mean weighted by importance for the middle level."""
        if level is not None:
            return self.costs[level]
        weights = [_number(weight) for weight in importance(len(self.costs), len(self.costs) // 2)]
        weighted = (weight * cost for weight, cost in zip(weights, self.costs, strict=True))
        return sum(weighted, Decimal(0)) / sum(weights, Decimal(0))


def cost_vector(
    runs: Iterable[tuple[float, Decimal]], levels: Sequence[float]
) -> CostVector | None:
    """Return the mean costs by level of runs given as pairs of input size and price (or time); None without runs.

    Levels without runs are interpolated linearly, and extrapolated as constant.
    """
    prices: dict[int, list[Decimal]] = {}
    for size, price in runs:
        prices.setdefault(level_of(size, levels), []).append(price)
    if not prices:
        return None
    means = {level: sum(some, Decimal(0)) / len(some) for level, some in prices.items()}
    costs: list[Decimal] = []
    for place, size in enumerate(levels):
        lower = max((level for level in means if level <= place), default=min(means))
        upper = min((level for level in means if level >= place), default=max(means))
        costs.append(means[lower])
        if lower < upper:  # otherwise measured or extrapolated
            part = _number((size - levels[lower]) / (levels[upper] - levels[lower]))
            costs[-1] += part * (means[upper] - means[lower])
    return CostVector(tuple(costs), tuple(place in means for place in range(len(levels))))


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """One run on an input of `size` bytes."""

    size: int
    milliseconds: float
    footprint: Footprint

    def price(self, tariff: Tariff = TABLE_B2) -> Decimal:
        """Return the price in OpenCATP's units."""
        return tariff.price(self.milliseconds, self.footprint)


@dataclass(frozen=True, slots=True)
class Profile:
    """The cost of a tool by input size."""

    levels: tuple[float, ...]
    """Centres of the size levels of its inputs, in bytes."""
    vector: CostVector

    @classmethod
    def of(cls, runs: Iterable[ProfiledRun]) -> "Profile | None":
        """Compute the profile of runs; None without runs."""
        profiled = [*runs]
        levels = size_levels([run.size for run in profiled])
        vector = cost_vector([(run.size, run.price()) for run in profiled], levels)
        return vector and cls(levels, vector)

    @property
    def usual(self) -> Decimal:
        """The cost for an unknown input: the mean over the levels."""
        return statistics.mean(self.vector.costs)


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs and durations of several tools at common size levels."""

    levels: tuple[float, ...] = ()
    vectors: Mapping[str, CostVector] = field(default_factory=dict[str, CostVector])
    milliseconds: Mapping[str, CostVector] = field(default_factory=dict[str, CostVector])

    def seconds(self, tool: str, size: float | None = None) -> float | None:
        """Return the duration of a run on an input of a size, or on average; None for an unknown tool."""
        vector = self.milliseconds.get(tool)
        if vector is None:
            return None
        if size is None:
            return float(statistics.mean(vector.costs) / 1000)
        return float(vector.at(level_of(size, self.levels)) / 1000)

    def prompt(self, tools: Iterable[str], size: float | None) -> str:
        """Return a line per known tool for a planner's prompt; empty without known tools.

        Costs are relative to the cheapest tool for the input size, because models read these better than small
        decimals. None is an unknown size.
        """
        vectors = {tool: self.vectors[tool] for tool in tools if tool in self.vectors}
        if not vectors:
            return ""
        level = None if size is None else level_of(size, self.levels)
        costs = {tool: vector.at(level) for tool, vector in vectors.items()}
        least, size_word = min(costs.values()) or Decimal(1), "a usual" if level is None else "this"
        lines = [f"Cost of one use of each tool for {size_word} input, in uses of the cheapest:"]
        for tool, vector in vectors.items():
            first, last = vector.costs[0], vector.costs[-1]
            growth = ""
            if first and last >= 2 * first:
                growth = f" (large inputs cost {_times(last / first)} of small ones)"
            lines.append(f"- {tool}: {_times(costs[tool] / least)}{growth}")
        return "\n".join(lines)


def _times(ratio: Decimal) -> str:
    return f"×{ratio:.1f}" if ratio < 10 else f"×{ratio:,.0f}"


def cost_table(runs: Mapping[str, Sequence[ProfiledRun]]) -> CostTable:
    """Compute the costs of several tools at common size levels."""
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
        """Replace the runs of a tool; `at` is UTC, ISO 8601."""
        rows = [(tool, at, run.size, run.milliseconds, *astuple(run.footprint)) for run in runs]
        columns = ("tool", "at", "size", "milliseconds", *_MEMORY)
        marks = ", ".join("?" * len(columns))
        with self._database.writing("The earlier profile is kept.") as connection:
            connection.execute("DELETE FROM runs WHERE tool = ?", (tool,))
            connection.executemany(
                f"INSERT INTO runs ({', '.join(columns)}) VALUES ({marks})", rows
            )

    def runs(self) -> dict[str, list[ProfiledRun]]:
        """Return the runs of each profiled tool."""
        runs: dict[str, list[ProfiledRun]] = {}
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT tool, size, milliseconds, {', '.join(_MEMORY)} FROM runs ORDER BY id"
            )
            for tool, size, milliseconds, *memory in rows:
                runs.setdefault(tool, []).append(
                    ProfiledRun(size, milliseconds, Footprint(*memory))
                )
        return runs

    def profiles(self) -> dict[str, Profile]:
        """Return the profile of each profiled tool."""
        made = {tool: Profile.of(runs) for tool, runs in self.runs().items()}
        return {tool: profile for tool, profile in made.items() if profile is not None}

    def close(self) -> None:
        """Close the file."""
        self._database.close()
