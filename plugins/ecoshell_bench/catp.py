"""`ecoshell bench catp`: what recorded branching plans cost, take and are worth (CATP-LLM, OpenCATP's pools).

- Prices of recorded plans, recomputed from time and memory, and QoP of the rows of the paper's Tables 2 and 3.
- How many plans of a random policy are valid, with the mask and without (Table 4).
- Which recorded plan the cost model would pick, beside the best one and the cheapest, which only hindsight knows.
- How long plans take when their branches run at the same time: by reckoning, and by the executor's clock.
"""

import argparse
import asyncio
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

from ecoshell.errors import UsageError
from ecoshell.messages import Footprint
from ecoshell.planning.catp.costs import CostVector, Tariff, Tiers, cost_vector, level_of, quality, tiers_of
from ecoshell.planning.catp.executor import run_graph
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node, longest_path
from ecoshell_bench.catp_random import problems, random_plan, valid
from ecoshell_bench.printing import show
from ecoshell_bench.reading import read_objects

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INPUT = "input_of_query"
"""How the pools write the dependency on what the task gives."""
_GIVEN = 1
"""The size level of what a task gives: the second, that of ordinary photographs, as the pools do not record sizes."""
_ENLARGED = {"image_super_resolution": 4.0}
"""Pixels a tool gives for each it takes; the recorded GPU memory of tools behind it grows as much."""
_RIDGE = 10.0
"""How strongly the effects of tools on the score are drawn to nothing."""
_AT_ONCE = 64
"""Plans that are carried out at the same time; their tools only sleep."""
_MS = 1_000
_FIX = "Give OpenCATP's recorded plans, one JSON object a line."
_FIX_CONSTANTS = "Give OpenCATP's constants.json."


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    constants = read_constants(args.constants)
    plans = read_plans([*dict.fromkeys(args.pool)], constants)
    rows = printed_rows()
    figures = Figures(
        plans=len(plans),
        price_error_max=max(map(price_error, plans)),
        qop_rows=len(rows),
        qop_error_max=max(row.error for row in rows),
        validity=validity(constants, args.plans),
        choice=choose(plans, constants),
        parallel=carried_out(plans),
    )
    show((as_json if args.json else as_table)(figures))
    return 0


# What was recorded


@dataclass(frozen=True, slots=True)
class Constants:
    """What holds for all recorded plans."""

    tariff: Tariff
    cpu_mb: Mapping[str, float]
    """Constant memory of each tool."""
    gpu_mb: Mapping[str, float]
    types: Mapping[str, tuple[tuple[str, ...], str]]
    """Types of each tool's inputs, and of its output: image, text."""
    image_levels: tuple[float, ...]
    """Centres of the size levels of images, in pixels."""
    most_cost: Decimal
    """C_max."""
    alpha: float


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """A plan as it was once carried out on one sample of a task."""

    task: int
    sample: int
    plan: GraphPlan
    score: float
    """How well it did, 0 to 1."""
    price: Decimal
    """What it cost, as recorded."""
    milliseconds: tuple[float, ...]
    """Of each node."""
    prices: tuple[Decimal, ...]
    """Of each node, reckoned from its time and its memory."""

    @property
    def tools(self) -> list[str]:
        """The tool of each node."""
        return [node.tool for node in self.plan.nodes]


def read_constants(path: Path) -> Constants:
    """The constants of a file; raises UsageError."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as failure:
        raise UsageError(f"{path} cannot be read: {failure}.", fix=_FIX_CONSTANTS) from failure
    try:
        most = _decimal(record["max_cost"])
        if most == 0:
            raise ValueError("max_cost is 0")
        return Constants(
            tariff=Tariff(
                run=_decimal(record["price_per_request"]),
                cpu=_tiers(record["cpu_long_memory_pricing"]),
                gpu=_tiers(record["gpu_long_memory_pricing"]),
                cpu_instant=_decimal(record["cpu_short_price_per_mb_ms"]),
                gpu_instant=_decimal(record["gpu_short_price_per_mb_ms"]),
            ),
            cpu_mb={tool: _figure(mb) for tool, mb in record["tools_cpu_long_term_mem_mb"].items()},
            gpu_mb={tool: _figure(mb) for tool, mb in record["tools_gpu_long_term_mem_mb"].items()},
            types={tool: (tuple(taken.split("-")), given) for tool, (taken, given) in record["tool_io"].items()},
            image_levels=tuple(sorted(map(_figure, record["image_size_levels_px"]))),
            most_cost=most,
            alpha=_figure(record["alpha"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as failure:
        raise UsageError(f"{path} is not as expected: {failure!r}.", fix=_FIX_CONSTANTS) from failure


def read_plans(paths: Sequence[Path], constants: Constants) -> list[RecordedPlan]:
    """The plans of all files together; raises UsageError, which names file and line."""
    plans = [_recorded_plan(record, place, constants) for path in paths for place, record in read_objects(path)]
    if not plans:
        raise UsageError(f"{' and '.join(map(str, paths))}: there is no recorded plan.", fix=_FIX)
    return plans


def _recorded_plan(record: Mapping[str, Any], place: str, constants: Constants) -> RecordedPlan:
    def price(tool: str, milliseconds: float, cpu_mb: float, gpu_mb: float) -> Decimal:
        held = Footprint(constants.cpu_mb[tool], cpu_mb, constants.gpu_mb[tool], gpu_mb)
        return constants.tariff.price(milliseconds, held)

    try:
        plan = _graph(record["plan"])
        columns = [[*map(_figure, record[key])] for key in ("tool_exec_ms", "tool_short_cpu_mb", "tool_short_gpu_mb")]
        rows = zip([node.tool for node in plan.nodes], *columns, strict=True)
        return RecordedPlan(
            task=int(record["task_id"]),
            sample=int(record["sample_id"]),
            plan=plan,
            score=_figure(record["score"]),
            price=_decimal(record["price"]),
            milliseconds=tuple(columns[0]),
            prices=tuple(price(tool, *figures) for tool, *figures in rows),
        )
    except KeyError as failure:
        raise UsageError(f"{place}: {failure} is missing, there or in the constants.", fix=_FIX) from failure
    except (TypeError, ValueError) as failure:
        raise UsageError(f"{place}: this is no recorded plan: {failure}.", fix=_FIX) from failure


def _graph(written: object) -> GraphPlan:
    """A plan from `["tool", ["dependency", …], …]`; raises ValueError."""
    parts = cast("list[object]", written) if isinstance(written, list) else []
    if len(parts) % 2 or not parts:
        raise ValueError("`plan` is not a list of tools, each with a list of dependencies")
    nodes: list[Node] = []
    for tool, after in zip(parts[::2], parts[1::2], strict=True):
        known = {TASK, *(node.label for node in nodes)}
        if not isinstance(tool, str) or not isinstance(after, list) or not after:
            raise ValueError("`plan` is not a list of tools, each with a list of dependencies")
        labels = tuple(TASK if one == _INPUT else str(one) for one in cast("list[object]", after))
        unknown = [label for label in labels if label not in known]
        if unknown or tool in known:
            raise ValueError(f"{tool} stands there twice" if tool in known else f"{tool} waits for {unknown[0]}")
        nodes.append(Node(tool, labels))
    return GraphPlan(tuple(nodes))


def _tiers(record: Mapping[str, Any]) -> Tiers:
    found = tiers_of({int(most): _decimal(rate) for most, rate in record.items()})
    if not found:
        raise ValueError("there is no price of memory")
    return found


def _decimal(value: object) -> Decimal:
    return Decimal(repr(_figure(value)))


def _figure(value: object) -> float:
    """A measured figure; raises ValueError for what is no number, not finite, or below 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is not a number of at least 0")
    return float(value)


# Prices, and the paper's tables


def price_error(one: RecordedPlan) -> float:
    """How far the price of a plan, recomputed from times and memory, lies from the recorded one, as a share of it."""
    recomputed = sum(one.prices, Decimal(0))
    if one.price == 0:
        return 0.0 if recomputed == 0 else float("inf")
    return float(abs(recomputed - one.price) / one.price)


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """One method on one kind of task in Tables 2 and 3: mean score, mean price and QoP, rounded to three decimals."""

    table: int
    tasks: str
    method: str
    score: float
    price: Decimal
    qop: float

    @property
    def error(self) -> float:
        """How far the printed QoP lies from that of the printed score and price."""
        return abs(quality(self.score, self.price) - self.qop)


def printed_rows() -> list[PrintedRow]:
    """All 44 rows."""
    text = files("ecoshell_bench").joinpath("catp_rows.jsonl").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    for row in rows:
        row["price"] = Decimal(repr(row["price"]))
    return [PrintedRow(**row) for row in rows]


# Valid plans of a random policy


@dataclass(frozen=True, slots=True)
class Validity:
    """Shares of valid plans, 0 to 1, for one kind of task."""

    task: str
    """What it gives and what it wants, such as `image→text+text`."""
    masked: float
    unmasked: float
    plans: int
    """Drawn with the mask, and as many without."""


def validity(constants: Constants, plans: int) -> list[Validity]:
    """The shares for every combination of task types; the same plans are drawn each time."""
    found: list[Validity] = []
    for task, problem in problems(constants.types).items():
        shares = dict[bool, float]()
        for masked in (True, False):
            rng = Random(0)
            written = (random_plan(problem, rng, masked=masked) for _ in range(plans))
            shares[masked] = sum(valid(one, problem) for one in written) / plans
        found.append(Validity(task, shares[True], shares[False], plans))
    return found


# The choice of a plan


@dataclass(frozen=True, slots=True)
class Choice:
    """Mean QoP over all samples for which there are several plans."""

    ours: float
    best: float
    cheapest: float
    average: float
    """Of a plan drawn at random."""
    samples: int


def choose(plans: Sequence[RecordedPlan], constants: Constants) -> Choice | None:
    """The choices on all samples; None when there is none with several plans."""
    samples = _samples(plans)
    if not samples:
        return None
    chosen: list[RecordedPlan] = []
    for task, own in groupby(samples, key=lambda same: same[0].task):
        model = QopModel.of([one for one in plans if one.task != task], constants)
        chosen += [max(same, key=model.estimate) for same in own]

    def worth(one: RecordedPlan) -> float:
        return quality(one.score, one.price, alpha=constants.alpha, most=constants.most_cost)

    return Choice(
        ours=statistics.fmean(map(worth, chosen)),
        best=statistics.fmean(max(map(worth, same)) for same in samples),
        cheapest=statistics.fmean(worth(min(same, key=lambda one: one.price)) for same in samples),
        average=statistics.fmean(statistics.fmean(map(worth, same)) for same in samples),
        samples=len(samples),
    )


@dataclass(frozen=True, slots=True)
class QopModel:
    """What the plans of some tasks say of one of another task, whose own costs and scores are never seen.

    Learned are each tool's cost by the size of its input, and how much a tool in the plan raised the score above that
    of other plans for the same sample.
    """

    constants: Constants
    costs: Mapping[str, CostVector]
    effects: Mapping[str, float]
    """By how much a tool in the plan raises its score."""

    @classmethod
    def of(cls, plans: Sequence[RecordedPlan], constants: Constants) -> "QopModel":
        """What can be learned from these plans."""
        runs: dict[str, list[tuple[float, Decimal]]] = {}
        for one in plans:
            for tool, size, price in zip(one.tools, _sizes(one, constants), one.prices, strict=True):
                runs.setdefault(tool, []).append((size, price))
        vectors = {tool: cost_vector(some, constants.image_levels) for tool, some in runs.items()}
        known = {tool: vector for tool, vector in vectors.items() if vector is not None}
        return cls(constants, known, _effects(_samples(plans), sorted(known)))

    def estimate(self, one: RecordedPlan) -> float:
        """The expected QoP, but for what all plans of the sample have in common; reads nothing but the plan."""
        sizes = zip(one.tools, _sizes(one, self.constants), strict=True)
        cost = sum((self._cost(tool, size) for tool, size in sizes), Decimal(0))
        gain = sum(self.effects.get(tool, 0.0) for tool in one.tools)
        return quality(gain, cost, alpha=self.constants.alpha, most=self.constants.most_cost)

    def _cost(self, tool: str, size: float) -> Decimal:
        """What the tool costs on this size; a tool that no other task used costs as much as the dearest known."""
        level = level_of(size, self.constants.image_levels)
        vector = self.costs.get(tool)
        return vector.at(level) if vector else max((one.at(level) for one in self.costs.values()), default=Decimal(0))


def _samples(plans: Sequence[RecordedPlan]) -> list[list[RecordedPlan]]:
    """The plans for each sample of a task that has several, task by task."""
    ordered = sorted(plans, key=lambda one: (one.task, one.sample))
    grouped = [[*same] for _, same in groupby(ordered, key=lambda one: (one.task, one.sample))]
    return [same for same in grouped if len(same) > 1]


def _sizes(one: RecordedPlan, constants: Constants) -> list[float]:
    """Pixels that reach each node by way of the plan; texts have none."""
    given = constants.image_levels[min(_GIVEN, len(constants.image_levels) - 1)]
    after: dict[str, float] = {TASK: given}
    taken: list[float] = []
    for node in one.plan.nodes:
        size = max(after[label] for label in node.after)
        taken.append(size)
        gives = constants.types.get(node.tool, ((), "image"))[1]
        after[node.label] = size * _ENLARGED.get(node.tool, 1.0) if gives == "image" else 0.0
    return taken


def _effects(samples: Sequence[Sequence[RecordedPlan]], tools: Sequence[str]) -> dict[str, float]:
    """Ridge regression of a plan's score on its tools, both as differences from the means of the same sample."""
    import numpy as np

    def centred(rows: Iterable[Sequence[float]]) -> "NDArray[np.float64]":
        values = np.array([*rows], np.float64)
        return values - values.mean(axis=0)

    if not samples:
        return {}
    present = np.vstack([centred([[float(tool in one.tools) for tool in tools] for one in same]) for same in samples])
    scores = np.concatenate([centred([[one.score] for one in same])[:, 0] for same in samples])
    found = np.linalg.solve(present.T @ present + _RIDGE * np.eye(len(tools)), present.T @ scores)
    return dict(zip(tools, map(float, found), strict=True))


# Branches at the same time


@dataclass(frozen=True, slots=True)
class Parallel:
    """Mean seconds of a plan with branches: one tool after the other, its longest path, and carried out."""

    sum_s: float
    critical_s: float
    clock_s: float
    plans: int


def carried_out(plans: Sequence[RecordedPlan]) -> Parallel | None:
    """Carry out all plans that have branches, with tools that sleep as long as was recorded; None without any."""
    branching = [one for one in plans if len({node.after for node in one.plan.nodes}) < len(one.plan.nodes)]
    if not branching:
        return None
    times = [
        {node.label: taken / _MS for node, taken in zip(one.plan.nodes, one.milliseconds, strict=True)}
        for one in branching
    ]
    return Parallel(
        sum_s=statistics.fmean(sum(one.milliseconds) for one in branching) / _MS,
        critical_s=statistics.fmean(_longest(one.plan, own) for one, own in zip(branching, times, strict=True)),
        clock_s=statistics.fmean(asyncio.run(_clocks([one.plan for one in branching], times))),
        plans=len(branching),
    )


def _longest(plan: GraphPlan, seconds: Mapping[str, float]) -> float:
    return longest_path({node.label: node.after for node in plan.nodes}, seconds)[0]


async def _clocks(plans: Sequence[GraphPlan], times: Sequence[Mapping[str, float]]) -> list[float]:
    """The seconds each plan took by the executor's clock."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def clock(plan: GraphPlan, seconds: Mapping[str, float]) -> float:
        async def sleep(node: Node, given: Mapping[str, None]) -> None:
            await asyncio.sleep(seconds[node.label])

        async with room:
            return (await run_graph(plan, sleep, parallel=len(plan.nodes))).seconds

    return await asyncio.gather(*map(clock, plans, times))


# The figures


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; None where the recorded plans have nothing to measure it on."""

    plans: int
    price_error_max: float
    """Of a recorded plan's price, as a share of it."""
    qop_rows: int
    qop_error_max: float
    validity: Sequence[Validity]
    choice: Choice | None
    parallel: Parallel | None


def as_json(figures: Figures) -> str:
    """One object; shares are 0 to 1, what could not be measured is null."""

    def rounded(found: object, *names: str) -> dict[str, float] | None:
        return {name: round(getattr(found, name), 6) for name in names} if found else None

    record: dict[str, Any] = {
        "price_error_max": figures.price_error_max,
        "qop_rows": figures.qop_rows,
        "qop_error_max": round(figures.qop_error_max, 6),
        "validity": [{"task": one.task, "masked": one.masked, "unmasked": one.unmasked} for one in figures.validity],
        "choice": rounded(figures.choice, "ours", "best", "cheapest"),
        "parallel": rounded(figures.parallel, "sum_s", "critical_s", "clock_s"),
    }
    return json.dumps(record)


def as_table(figures: Figures) -> str:
    """The same for people, part by part."""
    shown = [
        f"Price of {figures.plans:,} recorded plans, recomputed: off by {figures.price_error_max:.2g} of it at most.",
        f"QoP of {figures.qop_rows} rows of Tables 2 and 3, recomputed: off by {figures.qop_error_max:.4f} at most.",
    ]
    if figures.validity:
        width = max(len(one.task) for one in figures.validity)
        drawn = figures.validity[0].plans
        shown += ["", f"{f'valid of {drawn:,} random plans':<{width}}    masked  unmasked"]
        shown += [f"{one.task:<{width}}  {one.masked:>8.2%}  {one.unmasked:>8.2%}" for one in figures.validity]
    if choice := figures.choice:
        shown += [
            "",
            f"Mean QoP of a plan for {choice.samples:,} samples that have several",
            f"  best in hindsight      {choice.best:.4f}",
            f"  cheapest in hindsight  {choice.cheapest:.4f}",
            f"  ours, foreseen         {choice.ours:.4f}",
            f"  drawn at random        {choice.average:.4f}",
        ]
    if parallel := figures.parallel:
        shown += [
            "",
            f"Mean time of {parallel.plans:,} plans with branches",
            f"  tool after tool        {parallel.sum_s:.3f} s",
            f"  longest path           {parallel.critical_s:.3f} s",
            f"  by the clock           {parallel.clock_s:.3f} s",
        ]
    return "\n".join(shown)
