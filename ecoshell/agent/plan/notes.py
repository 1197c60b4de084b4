"""What a model is told of the plan: before the question, and after a result that has changed it.

Only tools that the model can know of are named, and never more than a few: a note stays in the context.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from ecoshell.agent.plan.draft import Draft
from ecoshell.agent.printing import amount

_MOST_NAMED = 12
_MOST_PRICED = 40
"""Tools named in a note, and tools whose costs are told before the question."""


def before_question(
    draft: Draft, forbidden: Mapping[str, str], offered: Sequence[str], *, registered: Collection[str], tells: bool
) -> str:
    """Costs and budget where they are to be told (the paper's +Prompt), and what was registered and is barred now."""
    parts: list[str] = []
    if tells:
        costs = ", ".join(f"{tool} {amount(draft.costs[tool].total, draft.unit)}" for tool in offered[:_MOST_PRICED])
        parts += [f"Expected cost of one use: {costs}." if costs else "", _left(draft)]
    barred = [name for name in forbidden if name in registered]
    if barred:
        parts.append(f"Not to be used for this: {_named(barred, forbidden)}.")
    return " ".join(part for part in parts if part)


def after_result(
    draft: Draft, barred: Mapping[str, str], fresh: Sequence[str], back: Sequence[str], *, tells: bool
) -> str:
    """What is left where that is to be told; what is barred since the model was last told, and what no longer is."""
    parts = [_left(draft)] if tells else []
    if len(barred) == len(draft.plan.rows):
        parts.append("No tool may be used any more: answer from what there is.")
    elif fresh:
        parts.append(f"Not to be used any more: {_named(fresh, barred)}.")
    if back:
        parts.append(f"May be used now: {_few(back)}.")
    return " ".join(part for part in parts if part)


def _left(draft: Draft) -> str:
    return "" if draft.budget is None else f"Budget left for tools: {amount(draft.budget, draft.unit)}."


def _named(names: Iterable[str], forbidden: Mapping[str, str]) -> str:
    return _few([f"{name} ({forbidden[name]})" for name in names])


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"
