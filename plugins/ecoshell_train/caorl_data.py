"""OpenCATP's recorded plans, and what a planner learns from them (CATP-LLM §3.2).

The pools hold the plans that were worth most for each sample, with what each tool took. A plan that is recorded for
some samples of a task and not for others is taken to have failed on those: its score there is 0.
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
"""The recorded plans in a folder of OpenCATP."""
USUAL_SIZE = 640 * 480
"""Pixels of the most frequent input."""
_USUAL_MB = {"image_denoising": 1637.0, "image_deblurring": 1637.0, "image_super_resolution": 2167.0}
"""What these tools took of the GPU's memory on it; it grows with the pixels, which the pools do not record."""
_ENLARGED = {"image_super_resolution": 4.0}
"""Pixels a tool gives for each it takes; the recorded GPU memory of tools behind it grows as much."""
_FIX = "Give OpenCATP's recorded plans, one JSON object a line."
_FIX_CONSTANTS = "Give OpenCATP's constants.json."
_GOALS = {"image_captioning": "caption", "object_detection": "object names", "image_classification": "class label"}


# What was recorded


def _exact(figure: object) -> object:
    """A measured figure as the decimal it is written with."""
    return Decimal(repr(figure)) if isinstance(figure, int | float) and not isinstance(figure, bool) else figure


Figure = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Price = Annotated[Decimal, BeforeValidator(_exact), Field(strict=True, ge=0, allow_inf_nan=False)]
Rates = Annotated[dict[int, Price], Field(min_length=1)]
"""Prices of memory by the most MB they hold for."""


class Constants(BaseModel):
    """What holds for all recorded plans (constants.json)."""

    model_config = ConfigDict(frozen=True)
    price_per_request: Price
    cpu_long_memory_pricing: Rates
    gpu_long_memory_pricing: Rates
    cpu_short_price_per_mb_ms: Price
    gpu_short_price_per_mb_ms: Price
    tools_cpu_long_term_mem_mb: dict[str, Figure]
    """Constant memory of each tool."""
    tools_gpu_long_term_mem_mb: dict[str, Figure]
    tool_io: dict[str, tuple[str, str]]
    """Types of each tool's inputs, joined by `-`, and of its output: image, text."""
    image_size_levels_px: Annotated[tuple[Figure, ...], Field(min_length=1), AfterValidator(sorted)]
    """Centres of the size levels of images, in pixels, in rising order."""
    max_cost: Annotated[Price, Field(gt=0)]
    """C_max."""
    alpha: Figure

    @cached_property
    def tariff(self) -> Tariff:
        """The rates of a run."""
        return Tariff(
            run=self.price_per_request,
            cpu=tiers_of(self.cpu_long_memory_pricing),
            gpu=tiers_of(self.gpu_long_memory_pricing),
            cpu_instant=self.cpu_short_price_per_mb_ms,
            gpu_instant=self.gpu_short_price_per_mb_ms,
        )

    @property
    def types(self) -> dict[str, tuple[Sequence[str], str]]:
        """The inputs and the output of each tool."""
        return {tool: (inputs.split("-"), output) for tool, (inputs, output) in self.tool_io.items()}


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
    sizes: tuple[float, ...]
    """Pixels that reach each node by way of the plan; texts have none."""
    size: float | None
    """Pixels of what the task gives, where a tool's memory tells."""

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
    return checked(TypeAdapter(Constants), record, str(path), _FIX_CONSTANTS)


class _Line(BaseModel):
    """A recorded plan as it stands in a file."""

    task_id: int
    sample_id: int
    plan: Any
    tool_exec_ms: tuple[Figure, ...]
    tool_short_cpu_mb: tuple[Figure, ...]
    tool_short_gpu_mb: tuple[Figure, ...]
    score: Figure
    price: Price


def read_plans(paths: Sequence[Path], constants: Constants) -> list[RecordedPlan]:
    """The plans of all files together; raises UsageError, which names file and line."""
    cpu, gpu = constants.tools_cpu_long_term_mem_mb, constants.tools_gpu_long_term_mem_mb
    plans: list[RecordedPlan] = []
    for place, line in (read for path in paths for read in read_records(path, _Line, _FIX)):
        try:
            plan = parse(json.dumps(line.plan))
            tools = [node.tool for node in plan.nodes]
            if unknown := [tool for tool in tools if tool not in constants.tool_io]:
                raise KeyError(unknown[0])
            runs = zip(tools, line.tool_exec_ms, line.tool_short_cpu_mb, line.tool_short_gpu_mb, strict=True)
            prices = tuple(
                constants.tariff.price(task_inputs, Footprint(cpu[tool], cpu_mb, gpu[tool], gpu_mb))
                for tool, task_inputs, cpu_mb, gpu_mb in runs
            )
        except KeyError as failure:
            raise UsageError(f"{place}: {failure} is missing in the constants.", fix=_FIX) from failure
        except (ValueError, PlanFault) as failure:
            raise UsageError(f"{place}: this is no recorded plan: {failure}.", fix=_FIX) from failure
        size = _size(plan, line.tool_short_gpu_mb)
        sizes = tuple(sizes_of(plan, constants, size or USUAL_SIZE))
        message = (line.score, line.price, line.tool_exec_ms, prices, sizes, size)
        plans.append(RecordedPlan(line.task_id, line.sample_id, plan, *message))
    if not plans:
        raise UsageError(f"{' and '.join(map(str, paths))}: there is no recorded plan.", fix=_FIX)
    return plans


def _size(plan: GraphPlan, megabytes: Sequence[float]) -> float | None:
    """Pixels of what the task gives, from the memory of tools that work on it at that size."""
    enlarged: set[str] = set()
    for node, inputs in zip(plan.nodes, megabytes, strict=True):
        if not enlarged.isdisjoint(node.after):
            enlarged.add(node.label)
        elif node.tool in _USUAL_MB and inputs > 0:
            return USUAL_SIZE * inputs / _USUAL_MB[node.tool]
        elif node.tool in _ENLARGED:
            enlarged.add(node.label)
    return None


def sizes_of(plan: GraphPlan, constants: Constants, kinds: float) -> Iterator[float]:
    """Pixels that reach each node of a plan for an input of so many."""
    after: dict[str, float] = {TASK: kinds}
    for node in plan.nodes:
        size = max(after[label] for label in node.after)
        yield size
        gives = constants.types.get(node.tool, ((), "image"))[1]
        after[node.label] = size * _ENLARGED.get(node.tool, 1.0) if gives == "image" else 0.0


# What is learned


@dataclass(frozen=True, slots=True)
class Example:
    """A plan for inputs of one size level of a task, as a decision transformer learns it."""

    task: int
    level: int
    actions: Actions
    allowed: tuple[tuple[int, ...], ...]
    """What the mask allowed in the place of each action."""
    score: float
    """Mean over the samples of the level; 0 for those it is not recorded for."""
    costs: tuple[float, ...]
    """Of each node, as a share of C_max."""
    spent: tuple[float, ...]
    """What the plan cost up to each action, as a share of C_max."""

    def returns(self, alpha: float, *, feedback: bool) -> tuple[float, ...]:
        """The return to go before each action (CATP-LLM eq. 4); without feedback only the last one brings a reward."""
        rewards = [-(1 - alpha) * cost for cost in self.spent] if feedback else [0.0] * len(self.spent)
        rewards[-1] = self.worth(alpha)
        return tuple(reversed([*accumulate(reversed(rewards))]))

    def worth(self, alpha: float) -> float:
        """QoP."""
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
        """Samples of each task and level."""
        self.by_task: dict[int, dict[Actions, dict[int, RecordedPlan]]] = defaultdict(lambda: defaultdict(dict))
        """Each task's plans, and by sample what they came to."""
        for plan in plans:
            self.samples[plan.task, self.level(plan)].add(plan.sample)
            self.by_task[plan.task][self.language.written(plan.plan)][plan.sample] = plan

    def level(self, plan: RecordedPlan) -> int:
        """The size level of what the task gives."""
        return level_of(self._sizes.get((plan.task, plan.sample), USUAL_SIZE), self.constants.image_size_levels_px)

    def situation(self, task: int, descriptions: Sequence[str]) -> Situation:
        """A task as a planner is told of it; one without a description is described by what its plans deliver."""
        own = [plan.plan for plan in self.plans if plan.task == task]
        outputs = tuple(sorted(self.constants.types[node.tool][1] for node in own[0].sinks))
        if 0 <= task < len(descriptions):
            return Situation(words_of(descriptions[task]), outputs)
        delivered: set[str] = set()  # in the words of the other tasks
        for node in own[0].sinks:
            if node.tool == "machine_translation":
                delivered.add(f"{_GOALS.get(node.after[0], 'text')} in German")
            else:
                delivered.add(f"{_GOALS[node.tool]} in English" if node.tool in _GOALS else "regular image")
        return Situation(words_of(f"Given image, how to return the {' and the '.join(sorted(delivered))}"), outputs)

    def examples(self, tasks: Collection[int], planner: Planner) -> list[Example]:
        """What can be learned of some tasks."""
        max_nodes, examples = self.constants.max_cost, list[Example]()
        for (task, _), samples in sorted(self.samples.items()):
            if task not in tasks:
                continue
            for actions, runs in self.by_task[task].items():
                seen_plans = [runs[sample] for sample in samples if sample in runs]
                if seen_plans:
                    score = sum(plan.score for plan in seen_plans) / len(samples)
                    prices = zip(*(plan.prices for plan in seen_plans), strict=True)
                    costs = tuple(float(sum(some, Decimal(0)) / len(seen_plans) / max_nodes) for some in prices)
                    level = self.level(seen_plans[0])
                    allowed = _allowed(planner, planner.tasks[task], actions)
                    draft = iter(costs)  # a node costs once its tool is chosen
                    added = [next(draft) if action < self.language.end else 0.0 for action in actions]
                    examples.append(Example(task, level, actions, allowed, score, costs, tuple(accumulate(added))))
        return examples

    def costs(self, tasks: Collection[int]) -> list[list[float]]:
        """What each tool costs at each size level in the plans of some tasks, as a share of C_max; one that they do not
        use costs as much as the dearest."""
        runs: dict[str, list[tuple[float, Decimal]]] = defaultdict(list)
        for plan in self.plans:
            if plan.task in tasks:
                for node, size, price in zip(plan.plan.nodes, plan.sizes, plan.prices, strict=True):
                    runs[node.tool].append((size, price))
        levels = self.constants.image_size_levels_px
        vectors = {tool: cost_vector(some, levels) for tool, some in runs.items()}
        measured = {tool: vector.costs for tool, vector in vectors.items() if vector is not None}
        dearest = tuple(map(max, zip(*measured.values(), strict=True)))
        return [
            [float(cost / self.constants.max_cost) for cost in measured.get(tool, dearest)]
            for tool in self.language.tools
        ]


_masks: dict[tuple[Any, Actions], tuple[tuple[int, ...], ...]] = {}


def _allowed(planner: Planner, situation: Situation, actions: Actions) -> tuple[tuple[int, ...], ...]:
    """What the mask allows in the place of each action."""
    key = (situation.wanted, actions)
    if key not in _masks:
        mask, allowed = planner.language.masked(situation), list[tuple[int, ...]]()
        for action in actions:
            allowed.append(mask.allowed())
            mask.add(action)
        _masks[key] = tuple(allowed)
    return _masks[key]


def folds_of(tasks: Collection[int], count: int) -> tuple[tuple[int, ...], ...]:
    """Tasks in as many parts; drawn by their number, so that tasks beside each other come apart."""
    drawn = sorted(tasks, key=lambda task: sha256(str(task).encode()).digest())
    return tuple(tuple(sorted(drawn[start::count])) for start in range(min(count, len(drawn))))
