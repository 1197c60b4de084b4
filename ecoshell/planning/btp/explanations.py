"""The texts that explain a plan under one cap, to users and to models (BTP §2.2).

Explanations for users contain figures that can be checked against each other. Notes for models name only tools that
the model knows, and only a few, because notes stay in the context.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import ROUND_DOWN, Decimal

from ecoshell.budget import Unit, amount_text
from ecoshell.events import PlanRow
from ecoshell.events.plan import why_words
from ecoshell.planning.btp.costs import Expected, PricedPlan, Requested
from ecoshell.planning.btp.evidence import Evidence
from ecoshell.planning.btp.plan import Bound
from ecoshell.planning.btp.value import HELPFUL_PRIOR, WEIGHT_PRIOR, mean_frequency, value

_NOTE_TOOL_LIMIT = 12
_PRICE_LIST_LIMIT = 40
_ALTERNATIVES_LIMIT = 5
_WHY = {
    "budget": "its expected cost does not fit what is left of the budget, or not beside better tools",
    "quota": "it was used as often as the plan allows",
    "blacklist": "it has not helped in this task",
    "below τ": "it has seldom helped with questions like this one",
}


def explain(
    priced: PricedPlan,
    tool: str,
    past: Evidence,
    *,
    threshold: float,
    enforced: bool,
    price_known: bool = True,
) -> str:
    """Return the arithmetic of a tool's row: value, chance, frequency bound, cost, budget and outcome.

    `past` is the evidence from before the turn, `price_known` whether the price of a step is known.
    """
    row, cost = priced.plan.row(tool), priced.costs.get(tool)
    if row is None or cost is None:
        return f"{tool} is not in the plan."
    bound = priced.plan.bounds.get(tool) or Bound(row.bound)
    lines = [
        f"{tool}: {state_word(row, enforced=enforced)} ({why_words(row.why)})",
        _value_line(past, priced.priors.get(tool, HELPFUL_PRIOR)),
        f"chance  {row.chance:.4f}: how likely a similar question uses it; the plan goes by value × chance = "
        f"{row.value:.4f} × {row.chance:.4f} = {row.value * row.chance:.4f}",
        _bound_line(bound, past, threshold, earned=priced.plan.earned),
        _cost_line(row, cost, past, price_known=price_known),
        _budget_line(priced),
        f"plan    {_uses(row.planned)} in this turn, {row.used} made, {row.left} left",
        _outcome(priced, row, bound),
    ]
    if row.state != "planned" and not enforced:
        lines.append("The plan is advice here: nothing is blocked.")
    elif row.state != "planned" and tool not in priced.plan.forbidden:
        lines.append(_call_outcome(priced, row))
    return "\n".join(filter(None, lines))


def _value_line(past: Evidence, prior: float) -> str:
    start = str(prior) if prior == HELPFUL_PRIOR else f"{prior:.4f}"
    origin = ""
    if prior != HELPFUL_PRIOR:
        origin = f"; {start} is estimated from similar tools and its fit to the question"
    if past.weight:
        quotient = f"(Σ w·helpful {past.helpful_weight:.4f} + {start}) / (Σ w {past.weight:.4f} + {WEIGHT_PRIOR})"
        weights = "w = exp(cos − 1), half of that for another version of the tool"
        basis = f"{quotient}, over the judgments of {_uses(past.uses)} before this turn; {weights}"
    else:
        uses = "not used before this turn"
        if past.uses:
            uses = f"no judgment in {_uses(past.uses)} before this turn"
        basis = f"{start} / {WEIGHT_PRIOR}: {uses}"
    return f"value   {value(past, prior):.4f} = {basis}{origin}"


def _bound_line(bound: Bound, past: Evidence, threshold: float, *, earned: bool) -> str:
    if bound.blacklisted:
        return f"bound   {bound.total}: it is on the turn's blacklist, so no use follows the {_uses(bound.used)} made"
    if not past.weight:
        reasons = ["a tool without a judged use before the turn may be used once"]
    elif not bound.frequency:
        reasons = [f"the value is below τ = {threshold:g}"]
    else:  # rounded down, because 1.4999 shown as 1.50 would seem to round to 2
        mean = Decimal(repr(round(mean_frequency(past), 9))).quantize(Decimal("0.01"), ROUND_DOWN)
        reasons = [
            f"past questions that used it did so {mean} times on average, by weight, rounded and at least 1"
        ]
    if bound.earned:
        reasons.append(f"one more than the {_uses(bound.helped)} that helped in this turn")
    if bound.refunded:
        reasons.append(
            f"{_uses(bound.refunded)} refunded, which said nothing about the tool, such as a mistaken call"
        )
    elif earned and bound.frequency and not bound.used:
        reasons.append(
            "a helpful use earns another, and one that says nothing about the tool is refunded"
        )
    summands = [bound.frequency, *(part for part in (bound.earned, bound.refunded) if part)]
    sum_text = f" = {' + '.join(map(str, summands))}" if len(summands) > 1 else ""
    return f"bound   {bound.total}{sum_text}: {'; '.join(reasons)}"


def _cost_line(row: PlanRow, cost: Expected, past: Evidence, *, price_known: bool) -> str:
    unit = cost.unit
    if unit == "ms":
        return _time_line(cost)
    step = _exact(cost.step, unit) if price_known or cost.step else "of unknown price"
    parts = f"tool {_exact(cost.tool, unit)} + model step {step}"
    parts += f" + registering {_exact(cost.registering, unit)} + time {_exact(cost.time, unit)}"
    source = "declared and estimated: it was not used before"
    if cost.sample_count:
        share = ""
        if row.used and row.used < cost.sample_count:
            share = f", {row.used} of them in this turn"
        source = f"from {_uses(cost.sample_count)}{share or (' in this turn' if row.used else '')}"
        steps = past.step_tokens if unit == "tokens" else past.step_nano
        if not row.used and not steps.count:
            source += "; the step is estimated, because no use was with this model"
    return f"cost    {_exact(cost.total, unit)} = {parts}; ± {_exact(cost.spread, unit)}, {source}"


def _time_line(cost: Expected) -> str:
    if not cost.is_known:
        reason = "neither the tool nor the model was used before, so it counts as 0 s"
        return f"cost    unknown: {reason}"
    source = "estimated from the model's speed: it was not used before"
    if cost.sample_count:
        source = f"from {_uses(cost.sample_count)}"
    total, use, registering, spread = (
        _exact(part, "ms") for part in (cost.total, cost.step, cost.registering, cost.spread)
    )
    parts = f"model step and tool {use} + registering {registering}"
    return f"cost    {total} = {parts}; ± {spread}, {source}"


def _budget_line(priced: PricedPlan) -> str:
    """Return the sum of the plan's budget; empty without a cap."""
    if (remaining := priced.remaining) is None:
        return ""
    unit = priced.unit
    available, reserve = _exact(remaining.cap, unit), _exact(remaining.reserved, unit)
    paid = ""
    if priced.paid:
        paid = f"{_exact(priced.paid, unit)} paid already by thinking of the next use"
    head = f"budget  R = {_exact(priced.budget or 0, unit)}"
    if remaining.budget + priced.paid < 0:
        return f"{head}: {available} left{paid and f', {paid}'}, and {reserve} should be reserved for the answer"
    return f"{head} = {available} left − {reserve} reserved for the answer{paid and f' + {paid}'}"


def _call_outcome(priced: PricedPlan, row: PlanRow) -> str:
    """Say whether a call of an unplanned tool would run."""
    call = priced.requested(row.tool, is_call=True)
    step = row.cost - call.cost  # paid before the call
    budget = None if priced.budget is None else priced.budget - step
    better = priced.plan.better(row.tool, cost=call.cost, budget=budget)
    if better is None:
        return "If called, it runs: the answer and all uses known to be better remain affordable."
    worth = f"{better.value:.4f} × {better.chance:.4f} = {better.worth:.4f}, against {row.value:.4f} × 1"
    reason = f"{better.tool} is worth more ({worth}) for less ({_exact(better.cost, priced.unit)})"
    return f"If called, it is refused: {reason}, and would become unaffordable."


def _outcome(priced: PricedPlan, row: PlanRow, bound: Bound) -> str:
    """Explain the planned number of uses."""
    plan, unit = priced.plan, priced.unit
    if row.state == "planned" and plan.budget is None:
        return "Without a cap it is planned as often as its bound allows."
    if row.why == "budget":  # its bound would allow it
        if plan.budget is not None and plan.budget < 0:
            return "The remaining budget does not even pay for the answer, so no tool is planned."
        if plan.budget is not None and row.cost > plan.budget:
            return f"One use costs {_exact(row.cost, unit)}, and only {_exact(plan.budget, unit)} is left for tools."
        if row.tool in plan.unaffordable:
            return "One use costs more than one of the caps allows."
        if plan.budget is not None and plan.cost + row.cost > plan.budget:
            reason = f"not in addition to the planned uses for {_exact(plan.cost, unit)}, which are worth more together"
            return f"One use fits the budget, but {reason}."
        return "It would fit, but adds so little that it does not change the plan's value."
    again = "used again" if row.used else "tried"
    times = "once" if row.used == 1 else f"{row.used:,} times"
    often = "as often as" if row.used == bound.total else "more often than"
    messages = {
        "value": "It is part of the most valuable affordable plan.",
        "new": f"It is planned to be {again}: it fits, though no use of it was judged before this turn.",
        "quota": f"It was used {times}, {often} its bound allows.",
        "blacklist": "No result of it helped in this turn, and at least one was judged unhelpful.",
        "below τ": "It has helped too seldom with similar questions to be worth a use.",
    }
    return messages[row.why]


def _uses(count: int) -> str:
    return f"{count:,} use{'' if count == 1 else 's'}"


def state_word(row: PlanRow, *, enforced: bool) -> str:
    """Return the state of a row in one word; a plan that is not enforced only advises."""
    if row.state == "forbidden":
        return "blocked" if enforced else "advised against"
    return row.state


def _exact(value: int, unit: Unit) -> str:
    """Format an amount to its last digit, so that users can check the sums."""
    if unit == "ms":
        return f"{value / 1_000:,.3f}".rstrip("0").rstrip(".") + " s"
    return amount_text(value, unit, digits=len(str(value)))


def before_question(
    priced: PricedPlan,
    forbidden: Mapping[str, str],
    offered: Sequence[str],
    *,
    registered: Collection[str],
    tells: bool,
) -> str:
    """Return the note before a question: costs and budget if `tells` (the paper's +Prompt), and forbidden tools."""
    parts: list[str] = []
    if tells:
        costs = ", ".join(
            f"{tool} {amount_text(priced.costs[tool].total, priced.unit)}"
            for tool in offered[:_PRICE_LIST_LIMIT]
        )
        parts += [f"Expected cost of one use: {costs}." if costs else "", _budget_note(priced)]
    names = {*registered, *offered}
    blocked = [name for name in forbidden if name in names]
    if blocked:
        parts.append(f"Not to be used for this: {_named(blocked, forbidden)}.")
    return " ".join(part for part in parts if part)


def refused(
    priced: PricedPlan,
    tool: str,
    why: str | None,
    request: Requested,
    names: Collection[str],
) -> str:
    """Return the refusal of a forbidden tool for the model, with affordable alternatives among known tools.

    `why` is the plan's reason; None if it is the better use that this one would make unaffordable.
    """
    reason, better = _WHY.get(why or "", ""), request.better
    if better is not None and why is None:
        cost, budget = (
            amount_text(amount or 0, priced.unit) for amount in (request.cost, request.budget)
        )
        dearer = f"it is expected to cost {cost} of the {budget} left, which would leave {better.tool} unpaid"
        reason = f"{dearer} ({amount_text(better.cost, priced.unit)}, and likelier to help)"
        why = "budget"
    rows = sorted(
        (row for row in priced.plan.rows if row.left and row.tool in names),
        key=lambda row: -row.worth,
    )
    alternatives = _few(
        [f"{row.tool} ({amount_text(row.cost, priced.unit)})" for row in rows], _ALTERNATIVES_LIMIT
    )
    advice = f"Affordable instead: {alternatives}; or answer" if alternatives else "Answer"
    return f"{tool} was not run: {reason} ({why_words(why or '')}). {advice} from what there is."


def after_result(
    priced: PricedPlan,
    forbidden: Mapping[str, str],
    newly_forbidden: Sequence[str],
    newly_allowed: Sequence[str],
    *,
    tells: bool,
) -> str:
    """Return the note after a result: the budget if `tells`, newly forbidden and newly allowed tools."""
    parts = [_budget_note(priced)] if tells else []
    if len(forbidden) == len(priced.plan.rows):
        parts.append("No tool may be used any more: answer from what there is.")
    elif newly_forbidden:
        parts.append(f"Not to be used any more: {_named(newly_forbidden, forbidden)}.")
    if newly_allowed and not forbidden:
        parts.append("All tools may be used again.")
    elif newly_allowed:
        parts.append(f"May be used now: {_few(newly_allowed)}.")
    return " ".join(part for part in parts if part)


def _budget_note(priced: PricedPlan) -> str:
    if priced.budget is None:
        return ""
    return f"Budget left for tools: {amount_text(priced.budget, priced.unit)}."


def _named(names: Iterable[str], forbidden: Mapping[str, str]) -> str:
    return _few([f"{name} ({why_words(forbidden[name])})" for name in names])


def _few(names: Sequence[str], limit: int = _NOTE_TOOL_LIMIT) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{more}"
