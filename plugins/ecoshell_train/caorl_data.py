"""OpenCATP's recorded plans as training examples of a planner (CATP-LLM §3.2).

The pools contain the best plans for each sample, with the costs of each tool. A plan that is only recorded for some
samples of a task counts as failed on the others, with a score of 0.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from ecoshell.errors import UsageError
from ecoshell.messages import Footprint
from ecoshell.planning.catp.costs import Tariff, cost_vector, level_of, tiers_of
from ecoshell.planning.catp.plan import TASK, GraphPlan, PlanFault
from ecoshell.planning.catp.tpl import parse
from ecoshell_train.caorl_planner import Actions, Language, Planner, Situation, words_of
from ecoshell_train.records import checked, read_records

POOLS = ("seq_plan_pool.jsonl", "nonseq_plan_pool.jsonl")
"""Files of recorded plans in OpenCATP's folder."""
USUAL_SIZE = 640 * 480
"""Pixels of the most frequent input size."""
_USUAL_MB = {
    "image_denoising": 1637.0,
    "image_deblurring": 1637.0,
    "image_super_resolution": 2167.0,
}
"""GPU memory of tools at that size; it grows with the number of pixels, which the pools do not record."""
_ENLARGED = {"image_super_resolution": 4.0}
"""Output pixels per input pixel; the recorded GPU memory of later tools grows by the same factor."""
_FIX = "Use OpenCATP's recorded plans, one JSON object per line."
_FIX_CONSTANTS = "Use OpenCATP's constants.json."
_GOALS = {
    "image_captioning": "caption",
    "object_detection": "object names",
    "image_classification": "class label",
}


# Recorded plans


def _exact(figure: object) -> object:
    """Return a number as the decimal it is written as."""
    return (
        Decimal(repr(figure))
        if isinstance(figure, int | float) and not isinstance(figure, bool)
        else figure
    )


Figure = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Price = Annotated[Decimal, BeforeValidator(_exact), Field(strict=True, ge=0, allow_inf_nan=False)]
Rates = Annotated[dict[int, Price], Field(min_length=1)]
"""Prices of memory by their maximum size in MB."""


class Constants(BaseModel):
    """The constants of all recorded plans (constants.json)."""

    model_config = ConfigDict(frozen=True)
    price_per_request: Price
    cpu_long_memory_pricing: Rates
    gpu_long_memory_pricing: Rates
    cpu_short_price_per_mb_ms: Price
    gpu_short_price_per_mb_ms: Price
    tools_cpu_long_term_mem_mb: dict[str, Figure]
    tools_gpu_long_term_mem_mb: dict[str, Figure]
    tool_io: dict[str, tuple[str, str]]
    """Types (image, text) of each tool's inputs, joined by `-`, and of its output."""
    image_size_levels_px: Annotated[tuple[Figure, ...], Field(min_length=1), AfterValidator(sorted)]
    """Centres of the image size levels, in pixels, ascending."""
    max_cost: Annotated[Price, Field(gt=0)]
    """C_max."""
    alpha: Figure

    @cached_property
    def tariff(self) -> Tariff:
        """The prices of a run."""
        return Tariff(
            run=self.price_per_request,
            cpu=tiers_of(self.cpu_long_memory_pricing),
            gpu=tiers_of(self.gpu_long_memory_pricing),
            cpu_instant=self.cpu_short_price_per_mb_ms,
            gpu_instant=self.gpu_short_price_per_mb_ms,
        )

    @property
    def types(self) -> dict[str, tuple[Sequence[str], str]]:
        """The types of each tool's inputs and output."""
        return {
            tool: (inputs.split("-"), output) for tool, (inputs, output) in self.tool_io.items()
        }


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """One execution of a plan on a sample of a task.

    - `score`: 0 to 1.
    - `price`: the recorded total price.
    - `milliseconds`, `prices`: of each node; prices are computed from time and memory.
    - `sizes`: input pixels of each node, 0 for texts.
    - `size`: input pixels of the task, if they follow from the memory of a tool.
    """

    task: int
    sample: int
    plan: GraphPlan
    score: float
    price: Decimal
    milliseconds: tuple[float, ...]
    prices: tuple[Decimal, ...]
    sizes: tuple[float, ...]
    size: float | None

    @property
    def tools(self) -> list[str]:
        """The tool of each node."""
        return [node.tool for node in self.plan.nodes]


def read_constants(path: Path) -> Constants:
    """Return the constants in a file; raises UsageError."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as failure:
        raise UsageError(f"{path} cannot be read: {failure}.", fix=_FIX_CONSTANTS) from failure
    return checked(TypeAdapter(Constants), record, str(path), _FIX_CONSTANTS)


class _Line(BaseModel):
    """A line of a file of recorded plans."""

    task_id: int
    sample_id: int
    plan: Any
    tool_exec_ms: tuple[Figure, ...]
    tool_short_cpu_mb: tuple[Figure, ...]
    tool_short_gpu_mb: tuple[Figure, ...]
    score: Figure
    price: Price


def read_plans(paths: Sequence[Path], constants: Constants) -> list[RecordedPlan]:
    """Return the plans of all files; raises UsageError."""
    cpu, gpu = constants.tools_cpu_long_term_mem_mb, constants.tools_gpu_long_term_mem_mb
    plans: list[RecordedPlan] = []
    for place, line in (read for path in paths for read in read_records(path, _Line, _FIX)):
        try:
            plan = parse(json.dumps(line.plan))
            tools = [node.tool for node in plan.nodes]
            if unknown := [tool for tool in tools if tool not in constants.tool_io]:
                raise KeyError(unknown[0])
            runs = zip(
                tools,
                line.tool_exec_ms,
                line.tool_short_cpu_mb,
                line.tool_short_gpu_mb,
                strict=True,
            )
            prices = tuple(
                constants.tariff.price(task_inputs, Footprint(cpu[tool], cpu_mb, gpu[tool], gpu_mb))
                for tool, task_inputs, cpu_mb, gpu_mb in runs
            )
        except KeyError as failure:
            raise UsageError(
                f"{place}: {failure} is missing in the constants.", fix=_FIX
            ) from failure
        except (ValueError, PlanFault) as failure:
            raise UsageError(f"{place}: invalid plan: {failure}.", fix=_FIX) from failure
        size = _size(plan, line.tool_short_gpu_mb)
        sizes = tuple(sizes_of(plan, constants, size or USUAL_SIZE))
        values = (line.score, line.price, line.tool_exec_ms, prices, sizes, size)
        plans.append(RecordedPlan(line.task_id, line.sample_id, plan, *values))
    if not plans:
        raise UsageError(f"{' and '.join(map(str, paths))}: no recorded plans.", fix=_FIX)
    return plans


def _size(plan: GraphPlan, megabytes: Sequence[float]) -> float | None:
    """Return the input pixels of the task, derived from the memory of tools that process it at that size."""
    enlarged: set[str] = set()
    for node, inputs in zip(plan.nodes, megabytes, strict=True):
        if not enlarged.isdisjoint(node.after):
            enlarged.add(node.label)
        elif node.tool in _USUAL_MB and inputs > 0:
            return USUAL_SIZE * inputs / _USUAL_MB[node.tool]
        elif node.tool in _ENLARGED:
            enlarged.add(node.label)
    return None


def sizes_of(plan: GraphPlan, constants: Constants, pixels: float) -> Iterator[float]:
    """Yield the input pixels of each node for a task input of `pixels`."""
    outputs: dict[str, float] = {TASK: pixels}
    for node in plan.nodes:
        size = max(outputs[label] for label in node.after)
        yield size
        output_type = constants.types.get(node.tool, ((), "image"))[1]
        outputs[node.label] = (
            size * _ENLARGED.get(node.tool, 1.0) if output_type == "image" else 0.0
        )


# Training examples


@dataclass(frozen=True, slots=True)
class Example:
    """A plan for inputs of one size level of a task.

    - `allowed`: the actions that the mask allows at each step.
    - `score`: mean over the samples of the level, 0 for samples without a recording.
    - `costs`: of each node, as a share of C_max.
    - `spent`: the plan's cost up to each action, as a share of C_max.
    """

    task: int
    level: int
    actions: Actions
    allowed: tuple[tuple[int, ...], ...]
    score: float
    costs: tuple[float, ...]
    spent: tuple[float, ...]

    def returns(self, alpha: float, *, feedback: bool) -> tuple[float, ...]:
        """Return the returns-to-go (CATP-LLM eq. 4); without feedback only the last action has a reward."""
        rewards = (
            [-(1 - alpha) * cost for cost in self.spent] if feedback else [0.0] * len(self.spent)
        )
        rewards[-1] = self.worth(alpha)
        return tuple(reversed([*accumulate(reversed(rewards))]))

    def worth(self, alpha: float) -> float:
        """Return the QoP."""
        return alpha * self.score - (1 - alpha) * self.spent[-1]


class Recordings:
    """The plans of a pool, by task, size level and actions."""

    def __init__(self, plans: Sequence[RecordedPlan], constants: Constants) -> None:
        self.constants = constants
        self.plans = plans
        self.language = Language(constants.types)
        self._sizes: dict[tuple[int, int], float] = {}
        for plan in plans:
            if plan.size is not None:
                self._sizes.setdefault((plan.task, plan.sample), plan.size)
        self.samples: dict[tuple[int, int], set[int]] = defaultdict(set)
        self.by_task: dict[int, dict[Actions, dict[int, RecordedPlan]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        """Executions of each plan, by task, actions and sample."""
        for plan in plans:
            self.samples[plan.task, self.level(plan)].add(plan.sample)
            self.by_task[plan.task][self.language.written(plan.plan)][plan.sample] = plan

    def level(self, plan: RecordedPlan) -> int:
        """Return the size level of the task's input."""
        return level_of(
            self._sizes.get((plan.task, plan.sample), USUAL_SIZE),
            self.constants.image_size_levels_px,
        )

    def situation(self, task: int, descriptions: Sequence[str]) -> Situation:
        """Return a task as a planner sees it; without a description, one is derived from its plans' outputs."""
        own = [plan.plan for plan in self.plans if plan.task == task]
        outputs = tuple(sorted(self.constants.types[node.tool][1] for node in own[0].sinks))
        if 0 <= task < len(descriptions):
            return Situation(words_of(descriptions[task]), outputs)
        delivered: set[str] = set()  # In the words of the descriptions.
        for node in own[0].sinks:
            if node.tool == "machine_translation":
                delivered.add(f"{_GOALS.get(node.after[0], 'text')} in German")
            else:
                delivered.add(
                    f"{_GOALS[node.tool]} in English" if node.tool in _GOALS else "regular image"
                )
        return Situation(
            words_of(f"Given image, how to return the {' and the '.join(sorted(delivered))}"),
            outputs,
        )

    def examples(self, tasks: Collection[int], planner: Planner) -> list[Example]:
        """Return the examples of some tasks."""
        max_cost, examples = self.constants.max_cost, list[Example]()
        for (task, _), samples in sorted(self.samples.items()):
            if task not in tasks:
                continue
            for actions, runs in self.by_task[task].items():
                executions = [runs[sample] for sample in samples if sample in runs]
                if executions:
                    score = sum(plan.score for plan in executions) / len(samples)
                    prices = zip(*(plan.prices for plan in executions), strict=True)
                    costs = tuple(
                        float(sum(some, Decimal(0)) / len(executions) / max_cost) for some in prices
                    )
                    level = self.level(executions[0])
                    allowed = _allowed(planner, planner.tasks[task], actions)
                    remaining = iter(costs)  # A node costs as soon as its tool is chosen.
                    added = [
                        next(remaining) if action < self.language.end else 0.0 for action in actions
                    ]
                    examples.append(
                        Example(
                            task, level, actions, allowed, score, costs, tuple(accumulate(added))
                        )
                    )
        return examples

    def costs(self, tasks: Collection[int]) -> list[list[float]]:
        """Return the cost of each tool at each size level in the plans of some tasks, as a share of C_max.

        Unused tools cost as much as the most expensive one.
        """
        runs: dict[str, list[tuple[float, Decimal]]] = defaultdict(list)
        for plan in self.plans:
            if plan.task in tasks:
                for node, size, price in zip(plan.plan.nodes, plan.sizes, plan.prices, strict=True):
                    runs[node.tool].append((size, price))
        levels = self.constants.image_size_levels_px
        vectors = {tool: cost_vector(some, levels) for tool, some in runs.items()}
        measured = {tool: vector.costs for tool, vector in vectors.items() if vector is not None}
        highest = tuple(map(max, zip(*measured.values(), strict=True)))
        return [
            [float(cost / self.constants.max_cost) for cost in measured.get(tool, highest)]
            for tool in self.language.tools
        ]


_masks: dict[tuple[Any, Actions], tuple[tuple[int, ...], ...]] = {}


def _allowed(
    planner: Planner, situation: Situation, actions: Actions
) -> tuple[tuple[int, ...], ...]:
    """Return the actions that the mask allows at each step."""
    key = (situation.outputs, actions)
    if key not in _masks:
        mask, allowed = planner.language.masked(situation), list[tuple[int, ...]]()
        for action in actions:
            allowed.append(mask.allowed())
            mask.add(action)
        _masks[key] = tuple(allowed)
    return _masks[key]


def folds_of(tasks: Collection[int], count: int) -> tuple[tuple[int, ...], ...]:
    """Split tasks into folds by a hash of their number, so that neighbours are separated."""
    drawn = sorted(tasks, key=lambda task: sha256(str(task).encode()).digest())
    return tuple(tuple(sorted(drawn[start::count])) for start in range(min(count, len(drawn))))
