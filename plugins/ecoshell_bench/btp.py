"""`ecoshell bench btp`: the cost of recorded tasks with and without a budget plan (BTP §3).

Measures every combination of strategies, plans, caps, thresholds and random tool costs.
"""

import argparse
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from statistics import fmean
from typing import Any, Literal, NamedTuple

from ecoshell.assembly.strategies import STRATEGIES
from ecoshell.errors import UsageError, suggestion
from ecoshell.planning.btp.plan import TaskPlan
from ecoshell.strategies import StrategySpec
from ecoshell_bench.btp_replay import (
    Gated,
    PlanInputs,
    Planned,
    RecordedTools,
    Spending,
    ideal,
    leave_one_out,
    read_tasks,
    replay,
)
from ecoshell_bench.printing import show, table

PlanName = Literal["off", "btp", "strict", "gate", "oracle"]
"""No plan; the shell's; the paper's; recorded calls in order while they fit; the most useful calls that fit."""
THRESHOLD_PLANS: Sequence[PlanName] = ("btp", "strict")
"""Plans that use the threshold τ; bars show the first one measured."""
BAR_COLUMNS = 40


def run(args: argparse.Namespace) -> int:
    """Measure and print; raises UsageError."""
    # Recordings have one step at a time, which a strategy that plans tool graphs cannot replay.
    strategies = {name: spec for name, spec in STRATEGIES.items() if not spec.parallel}
    names: Sequence[str] = args.strategy or tuple(strategies)
    for name in names:
        if name not in strategies:
            raise UsageError(
                f"Unknown strategy {name!r}.", fix=suggestion(name.lower(), [*strategies])
            )
    sweep = Sweep(
        strategies=[strategies[name] for name in names],
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
    rows = list(measure(inputs, sweep))
    show(
        json.dumps(as_record(rows, sweep, len(tasks)))
        if args.json
        else as_text(rows, sweep, len(tasks))
    )
    return 0


@dataclass(frozen=True, slots=True)
class Sweep:
    """The settings to combine."""

    strategies: Sequence[StrategySpec]
    plans: Sequence[PlanName]
    caps: Sequence[int]
    thresholds: Sequence[float]
    seeds: Sequence[int]
    """Each seed draws the costs of all tools."""
    costs: tuple[int, int] = (1, 10)
    """The minimum and maximum cost of a use."""
    split: Literal["others", "half"] = "others"
    """The source of experience: runs of all other questions, or those of the other half."""
    steps: Literal["recorded", "gold"] = "recorded"
    """Whether to replay the recorded calls or the gold trajectories."""
    blacklisting: bool = True
    earned: bool = False
    """Whether a helpful use grants a further one, as in the shell but not in the paper."""


@dataclass(frozen=True, slots=True)
class Row:
    """Means per task under one setting; planned figures are None without a plan."""

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
    """Share of all useful calls that were allowed, 0 to 1; 1 without useful calls."""
    tasks_whole: float
    """Share of the tasks whose useful calls were all allowed, 0 to 1."""
    planned_cost: float | None
    planned_uses: float | None


FIGURES = [each.name for each in fields(Row)][5:]
"""The measured fields of a row."""


def draw_costs(tools: Iterable[str], costs: tuple[int, int], seed: int) -> dict[str, int]:
    """Draw a uniform cost for each tool; it depends on the tool and the seed only."""
    return {tool: random.Random(f"{seed}/{tool}").randint(*costs) for tool in tools}


def measure(inputs: Sequence[PlanInputs], sweep: Sweep) -> Iterator[Row]:
    """Yield a row for each combination; the seed changes first, the strategy last."""
    tools = {tool for task_inputs in inputs for tool in task_inputs.task.tools}
    costs = {seed: draw_costs(tools, sweep.costs, seed) for seed in sweep.seeds}
    useful = [len(task_inputs.task.useful) for task_inputs in inputs]
    combinations = product(sweep.strategies, sweep.plans, sweep.caps, sweep.thresholds, sweep.seeds)
    for strategy, plan, cap, tau, seed in combinations:
        setting = _Setting(strategy, plan, cap, tau, costs[seed])
        spent = [_replay_task(task_inputs, setting, sweep) for task_inputs in inputs]
        yield Row(
            strategy=strategy.name,
            plan=plan,
            cap=cap,
            tau=tau,
            seed=seed,
            average_cost=fmean(each.cost for each in spent),
            uses=fmean(each.uses for each in spent),
            over_budget=fmean(each.cost > cap for each in spent),
            useful_allowed=sum(each.useful for each in spent) / sum(useful) if any(useful) else 1.0,
            tasks_whole=fmean(
                each.useful == total for each, total in zip(spent, useful, strict=True)
            ),
            planned_cost=_mean(each.planned_cost for each in spent),
            planned_uses=_mean(each.planned_uses for each in spent),
        )


class _Setting(NamedTuple):
    strategy: StrategySpec
    plan: PlanName
    cap: int
    tau: float
    costs: Mapping[str, int]


def _replay_task(inputs: PlanInputs, setting: _Setting, sweep: Sweep) -> Spending:
    spec, plan, cap, tau, costs = setting
    match plan:
        case "oracle":
            return ideal(inputs.task, costs, cap)
        case "off":
            tools = RecordedTools(inputs.task, costs)
        case "gate":
            tools = Gated(inputs.task, costs, cap)
        case "btp" | "strict":
            strict = plan == "strict"
            candidates = inputs.candidates(tau, costs, strict=strict)
            task_plan = TaskPlan(
                candidates,
                threshold=tau,
                strict=strict,
                earned=sweep.earned,
                blacklisting=sweep.blacklisting,
            )
            tools = Planned(inputs.task, task_plan, cap)
    return replay(inputs.task, spec.strategy, tools)


def _mean(figures: Iterable[float | None]) -> float | None:
    """Return the mean of the figures that are not None."""
    values = [figure for figure in figures if figure is not None]
    return fmean(values) if values else None


# Output


def as_record(rows: Sequence[Row], sweep: Sweep, tasks: int) -> dict[str, Any]:
    """Return the rows and the settings of the sweep."""
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
    return {
        name: round(figure, 4) if isinstance(figure, float) else figure
        for name, figure in figures.items()
    }


def as_text(rows: Sequence[Row], sweep: Sweep, tasks: int) -> str:
    """Return a table of means over the draws of costs, and bars for each cap and τ if there are several."""
    means = _means_over_draws(rows)
    unplanned = {(row.strategy, row.cap): row.average_cost for row in means if row.plan == "off"}
    figures: list[dict[str, Any]] = []
    for row in means:
        off = unplanned.get((row.strategy, row.cap)) if row.plan != "off" else None
        record = {**_rounded(asdict(row)), "of_off": row.average_cost / off if off else None}
        del record["seed"]
        figures.append(record if row.plan in THRESHOLD_PLANS else {**record, "tau": None})
    lines = [
        *table(figures),
        f"Means per task over {len(sweep.seeds)} draws of costs; recorded runs: {tasks}; of_off: cost / cost of off.",
    ]
    charted_plan = next((plan for plan in sweep.plans if plan in THRESHOLD_PLANS), None)
    charted = [row for row in means if row.plan == charted_plan]
    if len(sweep.caps) > 1:
        for tau in sweep.thresholds:
            lines += [
                "",
                *_bars([row for row in charted if row.tau == tau], "cap", f"τ {tau:g}", unplanned),
            ]
    if len(sweep.thresholds) > 1:
        for cap in sweep.caps:
            lines += [
                "",
                *_bars([row for row in charted if row.cap == cap], "τ", f"cap {cap:,}", unplanned),
            ]
    return "\n".join(lines)


def _means_over_draws(rows: Sequence[Row]) -> list[Row]:
    """Return the mean row of each setting over all draws of costs, and over τ for plans that do not use it."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        tau = row.tau if row.plan in THRESHOLD_PLANS else None
        groups.setdefault((row.strategy, row.plan, row.cap, tau), []).append(row)
    return [
        replace(
            group[0], **{figure: _mean(getattr(row, figure) for row in group) for figure in FIGURES}
        )
        for group in groups.values()
    ]


def _bars(
    rows: Sequence[Row],
    swept: Literal["cap", "τ"],
    fixed: str,
    unplanned: Mapping[tuple[str, int], float],
) -> list[str]:
    """Draw the mean cost for each swept value, strategy by strategy, on a common scale."""
    if not rows:
        return []
    top = max(row.average_cost for row in rows) or 1.0
    lines = [f"Cost by {swept} with the plan ({fixed})"]
    for strategy in dict.fromkeys(row.strategy for row in rows):
        strategy_rows = [row for row in rows if row.strategy == strategy]
        off = unplanned.get((strategy, strategy_rows[0].cap))
        lines.append(strategy if off is None else f"{strategy}, {off:,.2f} without")
        for row in strategy_rows:
            value = f"{row.cap:,}" if swept == "cap" else f"{row.tau:g}"
            lines.append(
                f"{value:>10} │{bar(row.average_cost / top):<{BAR_COLUMNS}} {row.average_cost:,.2f}"
            )
    return lines


def bar(share: float) -> str:
    """Draw a share of 1 as a bar, rounded to an eighth of a column."""
    columns, eighths = divmod(round(min(max(share, 0.0), 1.0) * BAR_COLUMNS * 8), 8)
    return "█" * columns + (" ▏▎▍▌▋▊▉"[eighths] if eighths else "")
