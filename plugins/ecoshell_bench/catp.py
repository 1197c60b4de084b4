"""`ecoshell bench catp`: price, time and quality of recorded tool graphs (CATP-LLM, OpenCATP's pools).

- Prices of recorded plans, recomputed from time and memory, and QoP of the rows of the paper's Tables 2 and 3.
- The share of valid plans of a random policy, with and without the mask (Table 4).
- The recorded plan that the cost model picks, compared with the best and the cheapest in hindsight.
- The quality of the plans of a trained planner (CAORL).
- The duration of plans whose branches run in parallel, calculated and measured with the executor.
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

_INPUT_SIZE_LEVEL = 1
"""The assumed size level of task inputs, that of ordinary photographs; the pools do not record sizes."""
_RIDGE = 10.0
"""The ridge penalty of the regression of scores on tools."""
_PARALLEL_PLANS = 64
_MS = 1_000


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    constants = read_constants(args.constants)
    plans = read_plans([*dict.fromkeys(args.pool)], constants)
    planner: dict[str, Any] = {}
    if args.planner is not None:  # before the slower measurements, because the file may be invalid
        from ecoshell_bench.catp_planner import measure_planner
        from ecoshell_train.caorl_planner import read_planner

        planner["planner"] = measure_planner(read_planner(args.planner), plans, constants)
    rows, choice, parallel = printed_rows(), choose(plans, constants), measure_parallel(plans)
    record: dict[str, Any] = {
        "price_error_max": max(map(price_error, plans)),
        "qop_rows": len(rows),
        "qop_error_max": round(max(row.error for row in rows), 6),
        "validity": validity(constants, args.plans),
        "choice": choice
        and {name: round(getattr(choice, name), 6) for name in ("ours", "best", "cheapest")},
        "parallel": parallel,
        **planner,
    }
    validity_note = (
        f"Shares of {args.plans:,} random plans that are valid, with and without the mask."
    )
    choice_note = (
        f"Mean QoP over {choice.samples:,} samples; random choice: {choice.average:.4f}."
        if choice
        else ""
    )
    show_record(
        record,
        as_json=args.json,
        notes=f"\n{len(plans):,} recorded plans. {validity_note} {choice_note}",
    )
    return 0


# Prices and the paper's tables


def price_error(plan: RecordedPlan) -> float:
    """Return the relative error of the price recomputed from times and memory."""
    recomputed = sum(plan.prices, Decimal(0))
    if plan.price == 0:
        return 0.0 if recomputed == 0 else float("inf")
    return float(abs(recomputed - plan.price) / plan.price)


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """A row of Table 2 or 3: mean score, mean price and QoP of a method on a task type, rounded to three decimals."""

    table: int
    tasks: str
    method: str
    score: float
    price: Decimal
    qop: float

    @property
    def error(self) -> float:
        """The difference of the printed QoP from the QoP of the printed score and price."""
        return abs(quality(self.score, self.price) - self.qop)


def printed_rows() -> list[PrintedRow]:
    """Return all 44 rows."""
    text = files("ecoshell_bench").joinpath("catp_rows.jsonl").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    for row in rows:
        row["price"] = Decimal(repr(row["price"]))
    return [PrintedRow(**row) for row in rows]


# Valid plans of a random policy


def validity(constants: Constants, plans: int) -> list[dict[str, Any]]:
    """Return the shares of valid random plans for every task type, drawn with a fixed seed."""
    rows: list[dict[str, Any]] = []
    for task, problem in problems(constants.types).items():
        row: dict[str, Any] = {"task": task}
        for name in ("masked", "unmasked"):
            rng = Random(0)
            texts = (random_plan(problem, rng, masked=name == "masked") for _ in range(plans))
            row[name] = sum(valid(text, problem) for text in texts) / plans
        rows.append(row)
    return rows


# The choice of a plan


@dataclass(frozen=True, slots=True)
class Choice:
    """Mean QoP over all samples with several plans, by how the plan is chosen."""

    ours: float
    best: float
    cheapest: float
    average: float
    """The mean of all plans, which is the expectation of a random choice."""
    samples: int


def choose(plans: Sequence[RecordedPlan], constants: Constants) -> Choice | None:
    """Measure the choices on all samples; None if no sample has several plans."""
    samples = _plans_by_sample(plans)
    if not samples:
        return None
    chosen: list[RecordedPlan] = []
    for task, task_samples in groupby(samples, key=lambda sample: sample[0].task):
        model = QopModel.of([plan for plan in plans if plan.task != task], constants)
        chosen += [max(sample, key=model.estimate) for sample in task_samples]

    def qop(plan: RecordedPlan) -> float:
        return quality(plan.score, plan.price, alpha=constants.alpha, max_cost=constants.max_cost)

    return Choice(
        ours=statistics.fmean(map(qop, chosen)),
        best=statistics.fmean(max(map(qop, sample)) for sample in samples),
        cheapest=statistics.fmean(
            qop(min(sample, key=lambda plan: plan.price)) for sample in samples
        ),
        average=statistics.fmean(statistics.fmean(map(qop, sample)) for sample in samples),
        samples=len(samples),
    )


@dataclass(frozen=True, slots=True)
class QopModel:
    """Estimates the QoP of a plan from plans of other tasks: tool costs by input size, and the effect of each tool."""

    constants: Constants
    costs: Mapping[str, CostVector]
    effects: Mapping[str, float]
    """How much a tool raises the score above that of other plans for the same sample."""

    @classmethod
    def of(cls, plans: Sequence[RecordedPlan], constants: Constants) -> "QopModel":
        """Fit the model to recorded plans."""
        runs: dict[str, list[tuple[float, Decimal]]] = {}
        for plan in plans:
            for tool, size, price in zip(
                plan.tools, _input_sizes(plan, constants), plan.prices, strict=True
            ):
                runs.setdefault(tool, []).append((size, price))
        vectors = {
            tool: cost_vector(tool_runs, constants.image_size_levels_px)
            for tool, tool_runs in runs.items()
        }
        costs = {tool: vector for tool, vector in vectors.items() if vector is not None}
        return cls(constants, costs, _effects(_plans_by_sample(plans), sorted(costs)))

    def estimate(self, plan: RecordedPlan) -> float:
        """Return the expected QoP up to a constant of the sample, without reading recorded results."""
        sizes = zip(plan.tools, _input_sizes(plan, self.constants), strict=True)
        cost = sum((self._cost(tool, size) for tool, size in sizes), Decimal(0))
        gain = sum(self.effects.get(tool, 0.0) for tool in plan.tools)
        return quality(gain, cost, alpha=self.constants.alpha, max_cost=self.constants.max_cost)

    def _cost(self, tool: str, size: float) -> Decimal:
        """Return the cost of a tool for an input size; an unknown tool costs as much as the most expensive one."""
        level = level_of(size, self.constants.image_size_levels_px)
        if vector := self.costs.get(tool):
            return vector.at(level)
        return max((vector.at(level) for vector in self.costs.values()), default=Decimal(0))


def _plans_by_sample(plans: Sequence[RecordedPlan]) -> list[list[RecordedPlan]]:
    """Group the plans by sample, ordered by task; samples with a single plan are dropped."""
    ordered = sorted(plans, key=lambda plan: (plan.task, plan.sample))
    groups = [[*group] for _, group in groupby(ordered, key=lambda plan: (plan.task, plan.sample))]
    return [group for group in groups if len(group) > 1]


def _input_sizes(plan: RecordedPlan, constants: Constants) -> list[float]:
    """Return the pixels that reach each node of the plan; 0 for texts."""
    levels = constants.image_size_levels_px
    return [*sizes_of(plan.plan, constants, levels[min(_INPUT_SIZE_LEVEL, len(levels) - 1)])]


def _effects(samples: Sequence[Sequence[RecordedPlan]], tools: Sequence[str]) -> dict[str, float]:
    """Fit a ridge regression of a plan's score on its tools, both centred on the mean of the sample."""
    import numpy as np

    def centred(rows: Iterable[Sequence[float]]) -> "NDArray[np.float64]":
        values = np.array([*rows], np.float64)
        return values - values.mean(axis=0)

    if not samples:
        return {}
    uses = [
        centred([[float(tool in plan.tools) for tool in tools] for plan in sample])
        for sample in samples
    ]
    scores = np.concatenate(
        [centred([[plan.score] for plan in sample])[:, 0] for sample in samples]
    )
    matrix = np.vstack(uses)
    effects = np.linalg.solve(matrix.T @ matrix + _RIDGE * np.eye(len(tools)), matrix.T @ scores)
    return dict(zip(tools, map(float, effects), strict=True))


# Parallel branches


def measure_parallel(plans: Sequence[RecordedPlan]) -> dict[str, float] | None:
    """Run all plans with branches, using tools that sleep for the recorded time; None without such plans.

    Returns mean seconds of a plan: sequential (sum), longest path (critical), and measured (clock).
    """
    branching = [
        plan
        for plan in plans
        if len({node.after for node in plan.plan.nodes}) < len(plan.plan.nodes)
    ]
    if not branching:
        return None
    times = [
        {
            node.label: milliseconds / _MS
            for node, milliseconds in zip(plan.plan.nodes, plan.milliseconds, strict=True)
        }
        for plan in branching
    ]
    seconds = {
        "sum_s": (sum(plan.milliseconds) / _MS for plan in branching),
        "critical_s": (
            longest_path({node.label: node.after for node in plan.plan.nodes}, node_seconds)[0]
            for plan, node_seconds in zip(branching, times, strict=True)
        ),
        "clock_s": asyncio.run(_clock_seconds([plan.plan for plan in branching], times)),
    }
    return {name: round(statistics.fmean(values), 6) for name, values in seconds.items()}


async def _clock_seconds(
    plans: Sequence[GraphPlan], times: Sequence[Mapping[str, float]]
) -> list[float]:
    """Run the plans and return the seconds each took according to the executor."""
    semaphore = asyncio.Semaphore(_PARALLEL_PLANS)

    async def clock(plan: GraphPlan, seconds: Mapping[str, float]) -> float:
        async def sleep(node: Node, inputs: Mapping[str, None]) -> None:
            await asyncio.sleep(seconds[node.label])

        async with semaphore:
            return (await run_graph(plan, sleep, parallel=len(plan.nodes))).seconds

    return await asyncio.gather(*map(clock, plans, times))
