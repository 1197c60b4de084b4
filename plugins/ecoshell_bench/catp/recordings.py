"""OpenCATP's recorded plans and the constants they were measured under, read from its files."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import UsageError
from ecoshell.messages import Footprint
from ecoshell.planning.catp.costs import Tariff, Tiers, tiers_of
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node
from ecoshell_bench.trajectories import read_objects

_INPUT = "input_of_query"
"""How the pools write the dependency on what the task gives."""
_FIX = "Give OpenCATP's recorded plans, one JSON object a line."
_FIX_CONSTANTS = "Give OpenCATP's constants.json."


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


def read_constants(path: Path) -> Constants:
    """The constants of a file; raises UsageError."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as failure:
        raise UsageError(f"{path} cannot be read: {failure}.", fix=_FIX_CONSTANTS) from failure
    try:
        return _constants(record)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as failure:
        raise UsageError(f"{path} is not as expected: {failure!r}.", fix=_FIX_CONSTANTS) from failure


def _constants(record: Mapping[str, Any]) -> Constants:
    tariff = Tariff(
        run=_decimal(record["price_per_request"]),
        cpu=_tiers(record["cpu_long_memory_pricing"]),
        gpu=_tiers(record["gpu_long_memory_pricing"]),
        cpu_instant=_decimal(record["cpu_short_price_per_mb_ms"]),
        gpu_instant=_decimal(record["gpu_short_price_per_mb_ms"]),
    )
    types = {tool: (tuple(taken.split("-")), given) for tool, (taken, given) in record["tool_io"].items()}
    most = _decimal(record["max_cost"])
    if most == 0:
        raise ValueError("max_cost is 0")
    return Constants(
        tariff=tariff,
        cpu_mb=_megabytes(record["tools_cpu_long_term_mem_mb"]),
        gpu_mb=_megabytes(record["tools_gpu_long_term_mem_mb"]),
        types=types,
        image_levels=tuple(sorted(map(_figure, record["image_size_levels_px"]))),
        most_cost=most,
        alpha=_figure(record["alpha"]),
    )


def read_plans(paths: Sequence[Path], constants: Constants) -> list[RecordedPlan]:
    """The plans of all files together; raises UsageError, which names file and line."""
    plans = [_plan(record, place, constants) for path in paths for place, record in read_objects(path)]
    if not plans:
        raise UsageError(f"{' and '.join(map(str, paths))}: there is no recorded plan.", fix=_FIX)
    return plans


def _plan(record: Mapping[str, Any], place: str, constants: Constants) -> RecordedPlan:
    try:
        plan = _graph(record["plan"])
        tools = [node.tool for node in plan.nodes]
        columns = [[*map(_figure, record[key])] for key in ("tool_exec_ms", "tool_short_cpu_mb", "tool_short_gpu_mb")]
        rows = zip(tools, *columns, strict=True)
        return RecordedPlan(
            task=int(record["task_id"]),
            sample=int(record["sample_id"]),
            plan=plan,
            score=_figure(record["score"]),
            price=_decimal(record["price"]),
            milliseconds=tuple(columns[0]),
            prices=tuple(_price(constants, tool, *figures) for tool, *figures in rows),
        )
    except KeyError as failure:
        raise UsageError(f"{place}: {failure} is missing, there or in the constants.", fix=_FIX) from failure
    except (TypeError, ValueError) as failure:
        raise UsageError(f"{place}: this is no recorded plan: {failure}.", fix=_FIX) from failure


def _price(constants: Constants, tool: str, milliseconds: float, cpu_mb: float, gpu_mb: float) -> Decimal:
    held = Footprint(constants.cpu_mb[tool], cpu_mb, constants.gpu_mb[tool], gpu_mb)
    return constants.tariff.price(milliseconds, held)


def _graph(written: object) -> GraphPlan:
    """A plan from `["tool", ["dependency", …], …]`; raises ValueError."""
    if not isinstance(written, list) or len(cast("list[object]", written)) % 2 or not written:
        raise ValueError("`plan` is not a list of tools, each with a list of dependencies")
    parts = cast("list[object]", written)
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


def _megabytes(record: Mapping[str, Any]) -> dict[str, float]:
    return {tool: _figure(figure) for tool, figure in record.items()}


def _decimal(value: object) -> Decimal:
    return Decimal(repr(_figure(value)))


def _figure(value: object) -> float:
    """A measured figure; raises ValueError for what is no number, not finite, or below 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is not a number of at least 0")
    return float(value)
