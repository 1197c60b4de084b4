"""A plan as people read it: the table, and what it comes to."""

from collections.abc import Sequence

from ecoshell.agent.printing import amount, table
from ecoshell.events import PlanChanged, PlanRow

_SIGNS = {"planned": "√", "blocked": "×", "advised against": "!", "unplanned": "·"}
_FOLDED = 3
"""Tools of which nothing is known from which on they share a line."""
HEAD = ("  tool", "value", "chance", "cost", "bound", "planned", "used", "left", "state", "why")


def plan_table(rows: Sequence[PlanRow], unit: str, *, enforced: bool) -> str:
    """A row for each tool; those of which nothing is known but that they are new share a line."""
    new = [row.tool for row in rows if row.why == "new" and not row.used and row.state == "planned"]
    told = rows if len(new) < _FOLDED else [row for row in rows if row.tool not in new]
    more = [] if told is rows else [f"{_SIGNS['planned']} {len(new)} tools not used yet  {', '.join(new)}"]
    lines = [table(HEAD, (_cells(row, unit, enforced=enforced) for row in told))] if told else []
    return "\n".join([*lines, *more])


def standing_text(plan: PlanChanged) -> str:
    """What the plan may spend, and what the turn may come to, in two sentences."""
    sentences = [f"Mode {plan.mode}."]
    if plan.budget is None:
        sentences.append("No cap is set, so the plan is advice and blocks nothing; /budget sets one.")
    else:
        of = f"of {amount(plan.cap or 0, plan.unit)}, {amount(plan.reserved, plan.unit)} reserved for the answer"
        of += f", {amount(plan.paid, plan.unit)} paid already by thinking of the next use" if plan.paid else ""
        sentences.append(f"Left for tools: {amount(plan.budget, plan.unit)} ({of}).")
        if plan.reserved > (plan.cap or 0):
            sentences.append("That is less than an answer may cost: asked now, the turn would stop before it spends.")
        sentences.append(f"Planned uses are expected to cost {amount(plan.planned_cost, plan.unit)}.")
        if not plan.enforced:
            sentences.append("Nothing is blocked in this mode.")
    return " ".join([*sentences, range_text(plan)])


def range_text(plan: PlanChanged) -> str:
    """The price range of the turn from here."""
    if plan.low is None or plan.high is None:
        return "The model's price is unknown, so these are the costs of tools and waiting alone."
    low, high = amount(plan.low, plan.unit), amount(plan.high, plan.unit)
    return f"The turn is estimated at {low if low == high else f'{low} to {high}'}."


def state_word(row: PlanRow, *, enforced: bool) -> str:
    """A row's state in a word; where nothing is blocked, a tool is advised against."""
    if row.state == "forbidden":
        return "blocked" if enforced else "advised against"
    return row.state


def _cells(row: PlanRow, unit: str, *, enforced: bool) -> tuple[str, ...]:
    spread = f" ± {amount(row.spread, unit)}" if row.spread else ""
    counts = (str(row.bound), str(row.planned), str(row.used), str(row.left))
    return (
        f"{_SIGNS[state_word(row, enforced=enforced)]} {row.tool}",
        f"{row.value:.2f}",
        f"{row.chance:.2f}",
        f"{amount(row.cost, unit)}{spread}",
        *counts,
        state_word(row, enforced=enforced),
        row.why,
    )
