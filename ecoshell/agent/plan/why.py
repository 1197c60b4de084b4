"""The arithmetic behind one row of a plan, in sentences whose figures can be checked against each other."""

from decimal import ROUND_DOWN, Decimal

from ecoshell.agent.plan.draft import Draft
from ecoshell.agent.plan.live import LivePlan
from ecoshell.agent.plan.text import state_word
from ecoshell.budget.money import amount_text
from ecoshell.events import PlanRow
from ecoshell.planning.btp.base import NO_EVIDENCE, Evidence
from ecoshell.planning.btp.costs import Expected
from ecoshell.planning.btp.plan import Bound
from ecoshell.planning.btp.value import HELPFUL_PRIOR, WEIGHT_PRIOR, mean_frequency, value


def _exact(value: int, unit: str) -> str:
    """An amount to its last digit, because people check the sums."""
    return amount_text(value, "usd" if unit == "usd" else "tokens", digits=len(str(value)))


def why_text(plan: LivePlan, tool: str) -> str:
    """The arithmetic of a tool's row: value, frequency bound, cost, budget, and what came of them."""
    past = plan.outset.evidence.get(tool, NO_EVIDENCE)
    priced = plan.event().low is not None
    return explained(plan.draft, tool, past, threshold=plan.threshold, enforced=plan.enforced, priced=priced)


def explained(draft: Draft, tool: str, past: Evidence, *, threshold: float, enforced: bool, priced: bool = True) -> str:
    """The same of a plan as it stands; `past` is what was known before the turn, `priced` whether a step's price is."""
    row, cost = draft.plan.row(tool), draft.costs.get(tool)
    if row is None or cost is None:
        return f"{tool} is not in the plan."
    bound = draft.plan.bound(row)
    lines = [
        f"{tool}: {state_word(row, enforced=enforced)} ({row.why})",
        _value_line(past, draft.priors.get(tool, HELPFUL_PRIOR)),
        f"chance {row.chance:.4f}: how likely a question like this one uses it; the plan goes by value × chance = "
        f"{row.value:.4f} × {row.chance:.4f} = {row.value * row.chance:.4f}",
        _bound_line(bound, past, threshold, earned=draft.plan.earned),
        _cost_line(cost, row, past, priced=priced),
        *_budget_lines(draft),
        f"plan   {_uses(row.planned)} in this turn, {row.used} made, {row.left} left",
        _outcome(draft, row, bound),
    ]
    if row.state != "planned" and not enforced:
        lines.append("The plan is advice here: nothing is blocked.")
    elif enforced and tool not in draft.plan.forbidden and row.state != "planned":
        lines.append(_if_asked(draft, row))
    return "\n".join(lines)


def _value_line(past: Evidence, prior: float) -> str:
    usual = prior == HELPFUL_PRIOR
    start = str(prior) if usual else f"{prior:.4f}"
    comes_from = "" if usual else f"; {start} comes from tools like it and its fit to the question"
    if not past.weight:
        none = f"no judgment in {_uses(past.uses)} before this turn" if past.uses else "not used before this turn"
        return f"value  {value(past, prior):.4f} = {start} / {WEIGHT_PRIOR}: {none}{comes_from}"
    return (
        f"value  {value(past, prior):.4f} = (Σ w·helpful {past.helpful_weight:.4f} + {start}) / "
        f"(Σ w {past.weight:.4f} + {WEIGHT_PRIOR}), over what was judged of {_uses(past.uses)} before this turn; "
        f"w = exp(cos − 1), half of that for another version of the tool{comes_from}"
    )


def _if_asked(draft: Draft, row: PlanRow) -> str:
    """What would come of a call of a tool that is not planned."""
    better = draft.plan.better(row.tool)
    if better is None:
        return "Asked for, it is called all the same: the answer and every use known to be better could still be paid."
    return (
        f"Asked for, it is refused: {better.tool} is worth more ({better.value:.4f} × {better.chance:.4f} = "
        f"{better.worth:.4f}, against {row.value:.4f} × 1) for less ({_exact(better.cost, draft.unit)}), and could not "
        "be paid after it."
    )


def _bound_line(bound: Bound, past: Evidence, threshold: float, *, earned: bool) -> str:
    if bound.blacklisted:
        return f"bound  {bound.total}: it is on the turn's blacklist, so it stays at the {_uses(bound.used)} made"
    reasons = [_frequency(bound, past, threshold)]
    if bound.earned:
        reasons.append(f"one more than the {_uses(bound.helped)} that helped in this turn")
    if bound.given_back:
        given_back = _uses(bound.given_back)
        reasons.append(f"{given_back} given back that said nothing about the tool, as a mistake in the call")
    elif earned and bound.frequency and not bound.used:
        reasons.append("a use that helps earns another, and one that says nothing about the tool is given back")
    summands = [bound.frequency, *(part for part in (bound.earned, bound.given_back) if part)]
    made_of = f" = {' + '.join(map(str, summands))}" if len(summands) > 1 else ""
    return f"bound  {bound.total}{made_of}: {'; '.join(reasons)}"


def _frequency(bound: Bound, past: Evidence, threshold: float) -> str:
    """Where F comes from."""
    if not past.weight:
        return "a tool of which no use was judged before the turn may be used once"
    if not bound.frequency:
        return f"the value is below τ = {threshold:g}"
    # cut, not rounded: 1.4999 shown as 1.50 would seem to round to 2
    mean = Decimal(repr(round(mean_frequency(past), 9))).quantize(Decimal("0.01"), ROUND_DOWN)
    return f"past questions that used it did so {mean} times on average, by weight, rounded and at least 1"


def _cost_line(cost: Expected, row: PlanRow, past: Evidence, *, priced: bool) -> str:
    step = _exact(cost.step, cost.unit) if priced or cost.step else "of unknown price"
    parts = f"tool {_exact(cost.tool, cost.unit)} + model step {step}"
    more = f"registering {_exact(cost.registering, cost.unit)} + time {_exact(cost.time, cost.unit)}"
    spread, source = _exact(cost.spread, cost.unit), _source(cost, row, past)
    return f"cost   {_exact(cost.total, cost.unit)} = {parts} + {more}; ± {spread}, {source}"


def _source(cost: Expected, row: PlanRow, past: Evidence) -> str:
    """What the means of a cost are taken over."""
    if not cost.seen:
        return "declared and estimated: it was not used before"
    here = f", {row.used} of them in this turn" if row.used and row.used < cost.seen else ""
    source = f"from {_uses(cost.seen)}{here or (' in this turn' if row.used else '')}"
    steps = past.step_tokens if cost.unit == "tokens" else past.step_nano
    known = bool(row.used or steps.count)
    return source if known else f"{source}; the step is estimated, as none of them tells what one with this model takes"


def _budget_lines(draft: Draft) -> list[str]:
    """R; nothing without a cap."""
    found, budget = draft.means, draft.budget
    if found is None or budget is None:
        return []
    left, aside = _exact(found.cap, found.unit), _exact(found.reserved, found.unit)
    paid = _exact(draft.paid, found.unit)
    head = f"budget R = {_exact(budget, found.unit)}"
    if found.budget + draft.paid < 0:
        more = f", {paid} paid already by thinking of the next use" if draft.paid else ""
        return [f"{head}: {left} left{more}, and {aside} should be reserved for the answer"]
    more = f" + {paid} paid already by thinking of the next use" if draft.paid else ""
    return [f"{head} = {left} left − {aside} reserved for the answer{more}"]


def _outcome(draft: Draft, row: PlanRow, bound: Bound) -> str:
    if row.state == "planned" and draft.plan.budget is None:
        return "Without a cap it is planned as often as its bound allows."
    if row.why == "budget":
        return _too_dear(draft, row)
    again = "used again" if row.used else "tried"
    often = "as often as" if row.used == bound.total else "more often than"
    told = {
        "value": "The most valuable plan within what is left has it.",
        "new": f"It is planned to be {again}: it fits, though no use of it was judged before this turn.",
        "quota": f"It was used {_times(row.used)}, {often} its bound allows.",
        "blacklist": "None of its results helped in this turn, and at least one was judged not to.",
        "below τ": "It has helped too seldom with questions like this one to be worth a use.",
    }
    return told[row.why]


def _too_dear(draft: Draft, row: PlanRow) -> str:
    """Why a tool that its bound would allow is not in the plan."""
    plan, unit = draft.plan, draft.unit
    if plan.budget is not None and plan.budget < 0:
        return "What is left does not even pay for the answer, so no tool is planned."
    if plan.budget is not None and row.cost > plan.budget:
        return f"One use costs {_exact(row.cost, unit)}, and only {_exact(plan.budget, unit)} is left for tools."
    if row.tool in plan.beyond:
        return "One use costs more than one of the caps leaves for it."
    if plan.budget is not None and plan.cost + row.cost > plan.budget:
        return (
            f"One use fits what is left, but not beside what is planned for {_exact(plan.cost, unit)}, which is worth "
            "more together."
        )
    return "It would still fit, but adds so little that the plan does not tell it from nothing."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _uses(count: int) -> str:
    return f"{count:,} use{'' if count == 1 else 's'}"
