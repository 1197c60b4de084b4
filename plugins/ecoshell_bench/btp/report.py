"""The figures of `bench btp` for people and for programs: a table, bars for what was swept, and one JSON object."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from ecoshell_bench.btp.measure import PlanName, Row, Sweep

_HEAD = (
    f"{'strategy':<9} {'plan':<6} {'cap':>8} {'τ':>6} {'cost':>11} {'uses':>7} {'over':>7} {'useful':>7} {'whole':>7}"
    f" {'planned cost':>13} {'uses':>7} {'of off':>7}"
)
PLANNED: Sequence[PlanName] = ("btp", "strict")
"""Plans for which τ has a meaning; the first that is measured is drawn as bars."""
_BAR = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"
Swept = Literal["cap", "tau"]
_CALLED = {"cap": "cap", "tau": "τ"}


@dataclass(frozen=True, slots=True)
class Line:
    """The mean of one setting over all draws of costs; τ is None where it has no meaning."""

    strategy: str
    plan: PlanName
    cap: int
    tau: float | None
    cost: float
    uses: float
    over_budget: float
    useful_allowed: float
    tasks_whole: float
    planned_cost: float | None
    planned_uses: float | None


def as_json(rows: Sequence[Row], sweep: Sweep, tasks: int) -> str:
    """One object: rows, and what was replayed; figures are means of a task."""
    record: dict[str, Any] = {
        "rows": [{key: _rounded(one) for key, one in asdict(row).items()} for row in rows],
        "runs": tasks,
        "costs": [*sweep.costs],
        "split": sweep.split,
        "steps": sweep.steps,
        "blacklist": sweep.blacklisting,
        "earned": sweep.earned,
    }
    return json.dumps(record)


def as_table(rows: Sequence[Row], sweep: Sweep, tasks: int) -> str:
    """The same as a table of means over the draws of costs; below it, bars for each cap and τ that was swept."""
    lines = _lines(rows)
    free = {(line.strategy, line.cap): line.cost for line in lines if line.plan == "off"}
    shown = [_HEAD, *(_shown(line, free.get((line.strategy, line.cap))) for line in lines), *_about(sweep, tasks)]
    planned = [line for line in lines if line.plan == next((plan for plan in sweep.plans if plan in PLANNED), None)]
    if len(sweep.caps) > 1:
        for tau in sweep.thresholds:
            shown += ["", *_bars([line for line in planned if line.tau == tau], "cap", f"τ {tau:g}", free)]
    if len(sweep.thresholds) > 1:
        for cap in sweep.caps:
            shown += ["", *_bars([line for line in planned if line.cap == cap], "tau", f"cap {cap:,}", free)]
    return "\n".join(shown)


def bar(share: float, width: int = _BAR) -> str:
    """A bar of so many columns at a share of 1, drawn to an eighth of a column."""
    whole, part = divmod(round(min(max(share, 0.0), 1.0) * width * 8), 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def _lines(rows: Sequence[Row]) -> list[Line]:
    """A line for each setting, in the order of the rows."""
    settings: dict[tuple[str, PlanName, int, float | None], list[Row]] = {}
    for row in rows:
        tau = row.tau if row.plan in PLANNED else None
        settings.setdefault((row.strategy, row.plan, row.cap, tau), []).append(row)
    return [
        Line(
            *setting,
            cost=fmean(row.average_cost for row in same),
            uses=fmean(row.uses for row in same),
            over_budget=fmean(row.over_budget for row in same),
            useful_allowed=fmean(row.useful_allowed for row in same),
            tasks_whole=fmean(row.tasks_whole for row in same),
            planned_cost=_mean(row.planned_cost for row in same),
            planned_uses=_mean(row.planned_uses for row in same),
        )
        for setting, same in settings.items()
    ]


def _shown(line: Line, free: float | None) -> str:
    tau = "–" if line.tau is None else f"{line.tau:g}"
    shares = f"{line.over_budget:>7.1%} {line.useful_allowed:>7.1%} {line.tasks_whole:>7.1%}"
    ratio = f"{line.cost / free:.0%}" if free and line.plan != "off" else "–"
    return (
        f"{line.strategy:<9} {line.plan:<6} {line.cap:>8,} {tau:>6} {line.cost:>11,.2f} {line.uses:>7.2f} "
        f"{shares} {_number(line.planned_cost):>13} {_number(line.planned_uses):>7} {ratio:>7}"
    )


def _about(sweep: Sweep, tasks: int) -> list[str]:
    least, most = sweep.costs
    steps = "their gold tools once each" if sweep.steps == "gold" else "their recorded steps"
    ways = [
        *(["each half known by the other"] if sweep.split == "half" else []),
        *(["no blacklist"] if not sweep.blacklisting else []),
        *(["helpful uses earn another"] if sweep.earned else []),
    ]
    return [
        f"Means of a task; recorded runs: {tasks} ({steps}); draws of a cost of {least:,}..{most:,} for each tool: "
        f"{len(sweep.seeds)}{''.join(f'; {way}' for way in ways)}.",
        "over: tasks that spent more than the cap; useful: calls whose result helped that were let through; whole: "
        "tasks with all of these; planned: before the first step; of off: cost beside no plan.",
    ]


def _bars(lines: Sequence[Line], swept: Swept, fixed: str, free: dict[tuple[str, int], float]) -> list[str]:
    """A bar of the mean cost for each value that was swept, strategy by strategy, all on one scale."""
    if not lines:
        return []
    top = max(line.cost for line in lines) or 1.0
    shown = [f"Cost by {_CALLED[swept]} with the plan ({fixed})"]
    for strategy in dict.fromkeys(line.strategy for line in lines):
        own = [line for line in lines if line.strategy == strategy]
        without = free.get((strategy, own[0].cap))
        shown.append(strategy if without is None else f"{strategy}, {without:,.2f} without")
        for line in own:
            value = f"{line.cap:,}" if swept == "cap" else f"{line.tau:g}"
            shown.append(f"{value:>10} │{bar(line.cost / top):<{_BAR}} {line.cost:,.2f}")
    return shown


def _mean(figures: Iterable[float | None]) -> float | None:
    known = [one for one in figures if one is not None]
    return fmean(known) if known else None


def _number(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:,.2f}"


def _rounded(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else value
