"""A plan as people read it: the table, and the arithmetic behind one row."""

from collections.abc import Sequence

from ecoshell.agent.plan.live import LivePlan
from ecoshell.agent.printing import amount, table
from ecoshell.events import PlanChanged, PlanRow
from ecoshell.planning.btp.base import Evidence
from ecoshell.planning.btp.value import HELPFUL_PRIOR, WEIGHT_PRIOR, value

_SIGNS = {"planned": "✔", "forbidden": "✘", "unplanned": "·"}
HEAD = ("  tool", "value", "chance", "cost", "bound", "planned", "used", "left", "state", "why")


def plan_table(rows: Sequence[PlanRow], unit: str) -> str:
    """A row for each tool."""
    return table(HEAD, (_cells(row, unit) for row in rows))


def standing_text(plan: PlanChanged) -> str:
    """What the plan may spend, and what the turn may come to, in two sentences."""
    sentences = [f"Mode {plan.mode}."]
    if plan.budget is None:
        sentences.append("No cap is set, so the plan is advice and forbids nothing; /budget sets one.")
    else:
        of = f"of {amount(plan.cap or 0, plan.unit)}, {amount(plan.reserved, plan.unit)} set aside for the answer"
        sentences.append(f"Left for tools: {amount(plan.budget, plan.unit)} ({of}).")
        if plan.reserved > (plan.cap or 0):
            sentences.append("That is less than an answer may cost: asked now, the turn would stop before it spends.")
        sentences.append(f"Planned uses are expected to cost {amount(plan.planned_cost, plan.unit)}.")
        if not plan.enforced:
            sentences.append("Nothing is forbidden in this mode.")
    return " ".join([*sentences, range_text(plan)])


def range_text(plan: PlanChanged) -> str:
    """The price range of the turn from here."""
    if plan.low is None or plan.high is None:
        return "The model's price is unknown, so these are the costs of tools and waiting alone."
    low, high = amount(plan.low, plan.unit), amount(plan.high, plan.unit)
    return f"The turn is estimated at {low if low == high else f'{low} to {high}'}."


def why_text(plan: LivePlan, tool: str) -> str:
    """The arithmetic of a tool's row: value, frequency bound, cost, budget, and what came of them."""
    row, cost = plan.draft.plan.row(tool), plan.draft.costs.get(tool)
    if row is None or cost is None:
        return f"{tool} is not in the plan."
    event, past = plan.event(), plan.outset.evidence.get(tool)
    lines = [
        f"{tool}: {row.state} ({row.why})",
        _value_line(past),
        f"chance {row.chance:.2f}: how likely a question like this one uses it; the plan goes by value × chance = "
        f"{row.value * row.chance:.3f}",
        _bound_line(row, past, plan.threshold),
        f"cost   {amount(cost.total, cost.unit)} = tool {amount(cost.tool, cost.unit)} + model step "
        f"{amount(cost.step, cost.unit)} + registering {amount(cost.registering, cost.unit)} + time "
        f"{amount(cost.time, cost.unit)}; ± {amount(cost.spread, cost.unit)}, "
        + (f"from {_uses(cost.seen)}" if cost.seen else "declared and estimated: it was not used before"),
    ]
    if event.budget is not None:
        lines.append(
            f"budget R = {amount(event.budget, event.unit)} = {amount(event.cap or 0, event.unit)} left − "
            f"{amount(event.reserved, event.unit)} set aside for the answer"
        )
    lines.append(f"plan   {_uses(row.planned)} in this turn, {row.used} made, {row.left} left")
    lines.append(_outcome(row))
    return "\n".join(lines)


def _cells(row: PlanRow, unit: str) -> tuple[str, ...]:
    spread = f" ± {amount(row.spread, unit)}" if row.spread else ""
    counts = (str(row.bound), str(row.planned), str(row.used), str(row.left))
    return (
        f"{_SIGNS[row.state]} {row.tool}",
        f"{row.value:.2f}",
        f"{row.chance:.2f}",
        f"{amount(row.cost, unit)}{spread}",
        *counts,
        row.state,
        row.why,
    )


def _value_line(past: Evidence | None) -> str:
    if past is None or not past.weight:
        return f"value  {HELPFUL_PRIOR / WEIGHT_PRIOR:.2f} = {HELPFUL_PRIOR} / {WEIGHT_PRIOR}: no history"
    return (
        f"value  {value(past):.2f} = (Σ w·helpful {past.helpful_weight:.2f} + {HELPFUL_PRIOR}) / "
        f"(Σ w {past.weight:.2f} + {WEIGHT_PRIOR}), from {_uses(past.uses)}; w = exp(cos − 1)"
    )


def _bound_line(row: PlanRow, past: Evidence | None, threshold: float) -> str:
    if past is None or not past.weight:
        return f"bound  {row.bound}: a tool without history may be used once, and once more after each use that helped"
    if not row.bound:
        return f"bound  0: the value is below τ = {threshold:g}"
    mean = past.frequency_weight / past.query_weight if past.query_weight else 0.0
    return f"bound  {row.bound}: past questions that used it did so {mean:.2f} times on average, by weight"


def _uses(count: int) -> str:
    return f"{count:,} use{'' if count == 1 else 's'}"


def _outcome(row: PlanRow) -> str:
    told = {
        "value": "It is worth its price within what is left.",
        "new": "It is planned to be tried: there is no history yet.",
        "budget": "One more use does not fit what is left of the budget beside tools that are worth more.",
        "quota": "It was used as often as the plan allows.",
        "blacklist": "Its results did not help in this task, so it may not be used again in it.",
        "below τ": "It has seldom helped with questions like this one.",
    }
    return told[row.why]
