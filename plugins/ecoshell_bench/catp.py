"""`ecoshell bench catp`: what recorded branching plans cost, take and are worth (CATP-LLM, OpenCATP's pools).

- Prices of recorded plans, recomputed from time and memory, and QoP of the rows of the paper's Tables 2 and 3.
- How many plans of a random policy are valid, with the mask and without (Table 4).
- Which recorded plan the cost model would pick, beside the best one and the cheapest, which only hindsight knows.
- What the plans of a trained planner were worth (CAORL).
- How long plans take when their branches run at the same time: by reckoning, and by the executor's clock.
"""

import argparse
import asyncio
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from itertools import groupby
from random import Random
from typing import TYPE_CHECKING, Any

from ecoshell.planning.catp.costs import CostVector, cost_vector, level_of, quality
from ecoshell.planning.catp.executor import run_graph
from ecoshell.planning.catp.plan import GraphPlan, Node, longest_path
from ecoshell_bench.catp_random import problems, random_plan, valid
from ecoshell_bench.printing import show_record
from ecoshell_train.caorl_data import Constants, RecordedPlan, read_constants, read_plans, sizes_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_GIVEN = 1
"""The size level of what a task gives: the second, that of ordinary photographs, as the pools do not record sizes."""
_RIDGE = 10.0
"""How strongly the effects of tools on the score are drawn to nothing."""
_AT_ONCE = 64
"""Plans that are carried out at the same time; their tools only sleep."""
_MS = 1_000


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    constants = read_constants(args.constants)
    plans = read_plans([*dict.fromkeys(args.pool)], constants)
    planned: dict[str, Any] = {}
    if args.planner is not None:  # first, as it may be no planner, and the rest takes its time
        from ecoshell_bench.catp_planner import judged
        from ecoshell_train.caorl_planner import read_planner

        planned["planner"] = judged(read_planner(args.planner), plans, constants)
    rows, choice, parallel = printed_rows(), choose(plans, constants), carried_out(plans)
    record: dict[str, Any] = {
        "price_error_max": max(map(price_error, plans)),
        "qop_rows": len(rows),
        "qop_error_max": round(max(row.error for row in rows), 6),
        "validity": validity(constants, args.plans),
        "choice": choice and {name: round(getattr(choice, name), 6) for name in ("ours", "best", "cheapest")},
        "parallel": parallel,
        **planned,
    }
    drawn = f"Shares of {args.plans:,} random plans that are valid, with the mask and without."
    chosen = f"Mean QoP over {choice.samples:,} samples; drawn at random: {choice.average:.4f}." if choice else ""
    show_record(record, as_json=args.json, notes=f"\n{len(plans):,} recorded plans. {drawn} {chosen}")
    return 0


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


def validity(constants: Constants, plans: int) -> list[dict[str, Any]]:
    """The shares of valid plans for every combination of task types; the same plans are drawn each time."""
    found: list[dict[str, Any]] = []
    for task, problem in problems(constants.types).items():
        row: dict[str, Any] = {"task": task}
        for name in ("masked", "unmasked"):
            rng = Random(0)
            written = (random_plan(problem, rng, masked=name == "masked") for _ in range(plans))
            row[name] = sum(valid(one, problem) for one in written) / plans
        found.append(row)
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
        return quality(one.score, one.price, alpha=constants.alpha, most=constants.max_cost)

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
        vectors = {tool: cost_vector(some, constants.image_size_levels_px) for tool, some in runs.items()}
        known = {tool: vector for tool, vector in vectors.items() if vector is not None}
        return cls(constants, known, _effects(_samples(plans), sorted(known)))

    def estimate(self, one: RecordedPlan) -> float:
        """The expected QoP, but for what all plans of the sample have in common; reads nothing but the plan."""
        sizes = zip(one.tools, _sizes(one, self.constants), strict=True)
        cost = sum((self._cost(tool, size) for tool, size in sizes), Decimal(0))
        gain = sum(self.effects.get(tool, 0.0) for tool in one.tools)
        return quality(gain, cost, alpha=self.constants.alpha, most=self.constants.max_cost)

    def _cost(self, tool: str, size: float) -> Decimal:
        """What the tool costs on this size; a tool that no other task used costs as much as the dearest known."""
        level = level_of(size, self.constants.image_size_levels_px)
        vector = self.costs.get(tool)
        return vector.at(level) if vector else max((one.at(level) for one in self.costs.values()), default=Decimal(0))


def _samples(plans: Sequence[RecordedPlan]) -> list[list[RecordedPlan]]:
    """The plans for each sample of a task that has several, task by task."""
    ordered = sorted(plans, key=lambda one: (one.task, one.sample))
    grouped = [[*same] for _, same in groupby(ordered, key=lambda one: (one.task, one.sample))]
    return [same for same in grouped if len(same) > 1]


def _sizes(one: RecordedPlan, constants: Constants) -> list[float]:
    """Pixels that reach each node by way of the plan; texts have none."""
    given = constants.image_size_levels_px[min(_GIVEN, len(constants.image_size_levels_px) - 1)]
    return [*sizes_of(one.plan, constants, given)]


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


def carried_out(plans: Sequence[RecordedPlan]) -> dict[str, float] | None:
    """Carry out all plans that have branches, with tools that sleep as long as was recorded; None without any.

    Mean seconds of a plan: one tool after the other (sum), its longest path (critical), and by the clock.
    """
    branching = [one for one in plans if len({node.after for node in one.plan.nodes}) < len(one.plan.nodes)]
    if not branching:
        return None
    times = [
        {node.label: taken / _MS for node, taken in zip(one.plan.nodes, one.milliseconds, strict=True)}
        for one in branching
    ]
    seconds = {
        "sum_s": (sum(one.milliseconds) / _MS for one in branching),
        "critical_s": (
            longest_path({node.label: node.after for node in one.plan.nodes}, own)[0]
            for one, own in zip(branching, times, strict=True)
        ),
        "clock_s": asyncio.run(_clocks([one.plan for one in branching], times)),
    }
    return {name: round(statistics.fmean(each), 6) for name, each in seconds.items()}


async def _clocks(plans: Sequence[GraphPlan], times: Sequence[Mapping[str, float]]) -> list[float]:
    """The seconds each plan took by the executor's clock."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def clock(plan: GraphPlan, seconds: Mapping[str, float]) -> float:
        async def sleep(node: Node, given: Mapping[str, None]) -> None:
            await asyncio.sleep(seconds[node.label])

        async with room:
            return (await run_graph(plan, sleep, parallel=len(plan.nodes))).seconds

    return await asyncio.gather(*map(clock, plans, times))
