"""What a model is told of the plan: before the question, and after a result that has changed it."""

from collections.abc import Iterable, Mapping

from ecoshell.agent.plan.draft import Draft
from ecoshell.agent.printing import amount


def before_question(draft: Draft, forbidden: Mapping[str, str], registered: frozenset[str], *, tells: bool) -> str:
    """Costs and budget where they are to be told (the paper's +Prompt), and what was registered and is barred now."""
    parts: list[str] = []
    if tells:
        costs = ", ".join(f"{tool} {amount(cost.total, draft.unit)}" for tool, cost in draft.costs.items())
        parts += [f"Expected cost of one use: {costs}.", _left(draft)]
    barred = [name for name in forbidden if name in registered]
    if barred:
        parts.append(f"Not to be used for this: {_named(barred, forbidden)}.")
    return " ".join(part for part in parts if part)


def after_result(draft: Draft, barred: Mapping[str, str], told: frozenset[str], *, tells: bool) -> str:
    """What is left where that is to be told, and what is barred now and was not when the model was last told."""
    fresh = [name for name in barred if name not in told]
    back = sorted(told.difference(barred))
    parts = [_left(draft)] if tells else []
    if len(barred) == len(draft.plan.rows):
        parts.append("No tool may be used any more: answer from what there is.")
    elif fresh:
        parts.append(f"Not to be used any more: {_named(fresh, barred)}.")
    if back:
        parts.append(f"May be used now: {', '.join(back)}.")
    return " ".join(part for part in parts if part)


def _left(draft: Draft) -> str:
    found = draft.means
    return f"Budget left for tools: {amount(max(0, found.budget), draft.unit)}." if found else ""


def _named(names: Iterable[str], forbidden: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({forbidden[name]})" for name in names)
