"""What a model is told of the plan: before the question, after a result that has changed it, and when it is refused.

Only tools that the model can know of are named, and never more than a few: a note stays in the context.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from ecoshell.agent.plan.draft import Draft
from ecoshell.agent.printing import amount
from ecoshell.events import PlanRow

_MOST_NAMED = 12
_MOST_PRICED = 40
_MOST_INSTEAD = 5
"""Tools named in a note, tools whose costs are told before the question, and tools named beside a refusal."""
_WHY = {
    "budget": "its expected cost does not fit what is left of the budget, or not beside better tools",
    "quota": "it was used as often as the plan allows",
    "blacklist": "it has not helped in this task",
    "below τ": "it has seldom helped with questions like this one",
}


def before_question(
    draft: Draft, forbidden: Mapping[str, str], offered: Sequence[str], *, registered: Collection[str], tells: bool
) -> str:
    """Costs and budget where they are to be told (the paper's +Prompt), and what it can name and is barred now."""
    parts: list[str] = []
    if tells:
        costs = ", ".join(f"{tool} {amount(draft.costs[tool].total, draft.unit)}" for tool in offered[:_MOST_PRICED])
        parts += [f"Expected cost of one use: {costs}." if costs else "", _left(draft)]
    known = {*registered, *offered}
    barred = [name for name in forbidden if name in known]
    if barred:
        parts.append(f"Not to be used for this: {_named(barred, forbidden)}.")
    return " ".join(part for part in parts if part)


def refused(draft: Draft, tool: str, why: str | None, better: PlanRow | None, known: Collection[str]) -> str:
    """What the model reads when it asks for a tool that may not be used now, and which it knows of are affordable.

    `why` is in a word what forbids it whoever asks; `better` the planned use that could not be paid after it.
    """
    reason = _WHY.get(why or "", "")
    if better is not None and why is None:
        cost, left = amount(draft.costs[tool].total, draft.unit), amount(draft.budget or 0, draft.unit)
        dearer = f"it is expected to cost {cost} of the {left} left, which would leave {better.tool} unpaid"
        reason, why = f"{dearer} ({amount(better.cost, draft.unit)}, and likelier to help)", "budget"
    rows = sorted((row for row in draft.plan.rows if row.left and row.tool in known), key=lambda row: -row.worth)
    instead = _few([f"{row.tool} ({amount(row.cost, draft.unit)})" for row in rows], _MOST_INSTEAD)
    do = f"Affordable instead: {instead}; or answer" if instead else "Answer"
    return f"{tool} was not run: {reason} ({why}). {do} from what there is."


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


def _few(names: Sequence[str], most: int = _MOST_NAMED) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
