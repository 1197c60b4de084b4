"""`ecoshell bench btp`: what recorded tasks cost with and without a plan of what is spent (BTP §3).

Measured is every combination of strategies, plans, caps, thresholds and draws of the tools' costs.
"""

import argparse
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from statistics import fmean
from typing import Any, Literal, NamedTuple

from ecoshell.assembly.shell import STRATEGIES
from ecoshell.errors import UsageError, suggestion
from ecoshell.planning.btp import TaskPlan
from ecoshell.strategies import StrategySpec
from ecoshell_bench.btp_replay import (
    Gated,
    PlanInputs,
    Planned,
    RecordedTools,
    Spent,
    ideal,
    leave_one_out,
    read_tasks,
    replay,
)
from ecoshell_bench.printing import show, table

PlanName = Literal["off", "btp", "strict", "gate", "oracle"]
"""No plan; the shell's; the paper's; calls in their order while they fit; the most useful calls that fit."""
PLANNED: Sequence[PlanName] = ("btp", "strict")
"""Plans for which τ has a meaning; the first that is measured is drawn as bars."""
BAR = 40
"""Columns of the longest."""


def run(args: argparse.Namespace) -> int:
    """Measure, and print; raises UsageError."""
    recorded = {name: way for name, way in STRATEGIES.items() if not way.branches}  # recordings are of single steps
    names: Sequence[str] = args.strategy or tuple(recorded)
    for name in names:
        if name not in recorded:
            raise UsageError(f"There is no strategy {name!r}.", fix=suggestion(name.lower(), [*recorded]))
    sweep = Sweep(
        ways=[recorded[name] for name in names],
        plans=args.plan,
        caps=args.cap,
        thresholds=args.tau,
        seeds=range(args.seeds),
        costs=args.costs,
        split=args.split,
        steps=args.steps,
        blacklisting=not args.no_blacklist,
        earned=args.earned,
    )
    tasks = read_tasks(args.replay)
    inputs = leave_one_out(tasks, gold=args.steps == "gold", halves=args.split == "half")
    measured = list(measure(inputs, sweep)), sweep, len(tasks)
    show(json.dumps(as_record(*measured)) if args.json else as_text(*measured))
    return 0


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is measured: every combination of ways, plans, caps, thresholds and seeds."""

    ways: Sequence[StrategySpec]
    plans: Sequence[PlanName]
    caps: Sequence[int]
    thresholds: Sequence[float]
    seeds: Sequence[int]
    """Each is one draw of costs."""
    costs: tuple[int, int] = (1, 10)
    """The least and the most that one use of a tool may cost."""
    split: Literal["others", "half"] = "others"
    """What is known of a task's tools: what the runs of all other questions say, or those of the other half."""
    steps: Literal["recorded", "gold"] = "recorded"
    """Whether tasks are replayed as they were recorded, or as their gold trajectories."""
    blacklisting: bool = True
    earned: bool = False
    """Whether a use that helped earns the tool a further one, which is the shell's way and not the paper's."""


@dataclass(frozen=True, slots=True)
class Row:
    """Means of a task under one setting; what was planned is None without a plan."""

    strategy: str
    plan: PlanName
    cap: int
    tau: float
    seed: int
    average_cost: float
    uses: float
    over_budget: float
    """Share of the tasks that spent more than the cap, 0 to 1."""
    useful_allowed: float
    """Share of the useful calls of all tasks that were let through, 0 to 1; 1 where there are none."""
    tasks_whole: float
    """Share of the tasks of which every useful call was let through, 0 to 1."""
    planned_cost: float | None
    planned_uses: float | None


FIGURES = [one.name for one in fields(Row)][5:]
"""What is measured of a setting."""


def draw_costs(tools: Iterable[str], costs: tuple[int, int], seed: int) -> dict[str, int]:
    """A cost for each tool, drawn evenly; the same for the same tool and seed, whatever other tools there are."""
    return {tool: random.Random(f"{seed}/{tool}").randint(*costs) for tool in tools}


def measure(inputs: Sequence[PlanInputs], sweep: Sweep) -> Iterator[Row]:
    """A row for each combination, the seed changing first and the strategy last."""
    tools = {tool for one in inputs for tool in one.task.tools}
    costs = {seed: draw_costs(tools, sweep.costs, seed) for seed in sweep.seeds}
    useful = [len(one.task.useful) for one in inputs]
    for way, plan, cap, tau, seed in product(sweep.ways, sweep.plans, sweep.caps, sweep.thresholds, sweep.seeds):
        setting = _Setting(way, plan, cap, tau, costs[seed])
        spent = [_spent(one, setting, sweep) for one in inputs]
        yield Row(
            strategy=way.name,
            plan=plan,
            cap=cap,
            tau=tau,
            seed=seed,
            average_cost=fmean(one.cost for one in spent),
            uses=fmean(one.uses for one in spent),
            over_budget=fmean(one.cost > cap for one in spent),
            useful_allowed=sum(one.useful for one in spent) / sum(useful) if any(useful) else 1.0,
            tasks_whole=fmean(one.useful == all_of for one, all_of in zip(spent, useful, strict=True)),
            planned_cost=_mean(one.planned_cost for one in spent),
            planned_uses=_mean(one.planned_uses for one in spent),
        )


class _Setting(NamedTuple):
    way: StrategySpec
    plan: PlanName
    cap: int
    tau: float
    costs: Mapping[str, int]


def _spent(one: PlanInputs, setting: _Setting, sweep: Sweep) -> Spent:
    """What one task comes to under one plan."""
    way, plan, cap, tau, costs = setting
    match plan:
        case "oracle":
            return ideal(one.task, costs, cap)
        case "off":
            tools = RecordedTools(one.task, costs)
        case "gate":
            tools = Gated(one.task, costs, cap)
        case "btp" | "strict":
            strict = plan == "strict"
            candidates = one.candidates(tau, costs, strict=strict)
            limits = TaskPlan(
                candidates, threshold=tau, strict=strict, earned=sweep.earned, blacklisting=sweep.blacklisting
            )
            tools = Planned(one.task, limits, cap)
    return replay(one.task, way.strategy, tools)


def _mean(figures: Iterable[float | None]) -> float | None:
    """The mean of those that are known."""
    known = [one for one in figures if one is not None]
    return fmean(known) if known else None


# The figures


def as_record(rows: Sequence[Row], sweep: Sweep, tasks: int) -> dict[str, Any]:
    """Rows, and what was replayed; figures are means of a task."""
    return {
        "rows": [_rounded(asdict(row)) for row in rows],
        "runs": tasks,
        "costs": [*sweep.costs],
        "split": sweep.split,
        "steps": sweep.steps,
        "blacklist": sweep.blacklisting,
        "earned": sweep.earned,
    }


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(one, 4) if isinstance(one, float) else one for name, one in figures.items()}


def as_text(rows: Sequence[Row], sweep: Sweep, tasks: int) -> str:
    """The same as a table of means over the draws of costs; below it, bars for each cap and τ that was swept."""
    lines = _over_draws(rows)
    free = {(line.strategy, line.cap): line.average_cost for line in lines if line.plan == "off"}
    figures: list[dict[str, Any]] = []
    for line in lines:
        off = free.get((line.strategy, line.cap)) if line.plan != "off" else None
        record = {**_rounded(asdict(line)), "of_off": line.average_cost / off if off else None}
        del record["seed"]
        figures.append(record if line.plan in PLANNED else {**record, "tau": None})
    shown = [
        *table(figures),
        f"Means of a task over {len(sweep.seeds)} draws of costs; recorded runs: {tasks}; of_off: cost beside no plan.",
    ]
    planned_by = next((plan for plan in sweep.plans if plan in PLANNED), None)
    drawn = [line for line in lines if line.plan == planned_by]
    if len(sweep.caps) > 1:
        for tau in sweep.thresholds:
            shown += ["", *_bars([line for line in drawn if line.tau == tau], "cap", f"τ {tau:g}", free)]
    if len(sweep.thresholds) > 1:
        for cap in sweep.caps:
            shown += ["", *_bars([line for line in drawn if line.cap == cap], "τ", f"cap {cap:,}", free)]
    return "\n".join(shown)


def _over_draws(rows: Sequence[Row]) -> list[Row]:
    """The mean row of each setting over all draws of costs, and over τ where that has no meaning."""
    settings: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        tau = row.tau if row.plan in PLANNED else None
        settings.setdefault((row.strategy, row.plan, row.cap, tau), []).append(row)
    return [
        replace(some[0], **{figure: _mean(getattr(row, figure) for row in some) for figure in FIGURES})
        for some in settings.values()
    ]


def _bars(
    lines: Sequence[Row], swept: Literal["cap", "τ"], fixed: str, free: Mapping[tuple[str, int], float]
) -> list[str]:
    """A bar of the mean cost for each value that was swept, strategy by strategy, all on one scale."""
    if not lines:
        return []
    top = max(line.average_cost for line in lines) or 1.0
    shown = [f"Cost by {swept} with the plan ({fixed})"]
    for strategy in dict.fromkeys(line.strategy for line in lines):
        own = [line for line in lines if line.strategy == strategy]
        without = free.get((strategy, own[0].cap))
        shown.append(strategy if without is None else f"{strategy}, {without:,.2f} without")
        for line in own:
            value = f"{line.cap:,}" if swept == "cap" else f"{line.tau:g}"
            shown.append(f"{value:>10} │{bar(line.average_cost / top):<{BAR}} {line.average_cost:,.2f}")
    return shown


def bar(share: float) -> str:
    """A bar at a share of 1, drawn to an eighth of a column."""
    whole, part = divmod(round(min(max(share, 0.0), 1.0) * BAR * 8), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")
