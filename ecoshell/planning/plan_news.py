"""What is worth telling of a plan in a line, whoever tells it: what it comes to, and what it has come to forbid."""

from collections.abc import Callable

from ecoshell.budget.money import Unit
from ecoshell.events import PlanChanged, PlanRow
from ecoshell.untrusted import visible_line

Written = Callable[[int, Unit], str]
"""How an interface writes an amount."""
_NAMED = 3
"""Tools that a line names before it counts them."""


def outlook(plan: PlanChanged, written: Written) -> str:
    """A turn's first plan: how many tools it allows, what the turn may cost, and whether it is more than advice."""
    binding = "" if plan.enforced else "; no cap: advice only" if plan.cap is None else "; nothing is blocked"
    return f"{planned_share(plan)} {_tools(plan)}, {price_range(plan, written)}{binding}"


def _tools(plan: PlanChanged) -> str:
    return "tool" if len(plan.rows) + plan.others == 1 else "tools"


def planned_share(plan: PlanChanged) -> str:
    """How many tools are planned, of how many: `3 of 13`; `60+ of 527` where more are planned than are told."""
    planned = sum(row.state == "planned" for row in plan.rows)
    more = "+" if plan.others and plan.rows and plan.rows[-1].state == "planned" else ""
    return f"{planned:,}{more} of {len(plan.rows) + plan.others:,}"


def price_range(plan: PlanChanged, written: Written) -> str:
    """What the turn may cost from here: `about $0.002 to $0.011`, `$0`, `price unknown`."""
    if plan.low is None or plan.high is None:
        return "price unknown"
    low, high = written(plan.low, plan.unit), written(plan.high, plan.unit)
    if not plan.high:
        return high
    return f"about {low}" if low == high else f"about {low} to {high}"


def newly_barred(before: PlanChanged | None, plan: PlanChanged) -> str:
    """What may not be used any more since the plan before it in the same turn, and why; empty where nothing is so."""
    if before is None or plan.number <= 1 or not plan.enforced:
        return ""
    barred = {row.tool for row in before.rows if row.state == "forbidden"} if before.enforced else set[str]()
    fresh = [row for row in plan.rows if row.state == "forbidden" and row.tool not in barred]
    if fresh and not plan.others and all(row.state != "planned" for row in plan.rows):
        return f"no tool may be used any more ({', '.join(dict.fromkeys(row.why for row in fresh))})"
    return f"{_named(fresh)} may not be used any more" if fresh else ""


def _named(rows: list[PlanRow]) -> str:
    if len(rows) == 1:
        return f"{visible_line(rows[0].tool)} ({rows[0].why})"
    names = [f"{visible_line(row.tool)} ({row.why})" for row in rows[:_NAMED]]
    more = len(rows) - len(names)
    return f"{', '.join(names)} and {more:,} more" if more else f"{', '.join(names[:-1])} and {names[-1]}"
