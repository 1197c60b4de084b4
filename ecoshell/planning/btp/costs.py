"""Expected costs of tool uses, plans under one cap, and the text that explains a plan (BTP §2.2, eq. 1).

Explanations for users contain figures that can be checked against each other. Notes for models name only tools that
the model knows, and only a few, because notes stay in the context.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from decimal import ROUND_DOWN, Decimal

from ecoshell.budget import Unit, amount_text
from ecoshell.catalog import Catalog
from ecoshell.events import BudgetSettled, PlanRow
from ecoshell.events.plan import why_words
from ecoshell.planning.btp.evidence import NO_EVIDENCE, Evidence, Figure
from ecoshell.planning.btp.plan import Bound, Plan
from ecoshell.planning.btp.value import HELPFUL_PRIOR, WEIGHT_PRIOR, mean_frequency, value

SECONDS_PER_HOUR = 3600
_SIGMAS = 2
"""Half-width of an estimated price range, in standard deviations."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of a model step; `nano` is None for an unknown price."""

    nano: int | None = 0
    tokens: int = 0
    seconds: float = 0.0

    def plus(self, settled: BudgetSettled) -> "StepCost":
        """Return the cost including one more call."""
        return self + StepCost(settled.spent_nano, settled.usage.total, settled.seconds)

    def __add__(self, other: "StepCost") -> "StepCost":
        nano = None if self.nano is None or other.nano is None else self.nano + other.nano
        return StepCost(nano, self.tokens + other.tokens, self.seconds + other.seconds)

    def amount(self, unit: Unit) -> int:
        """Return the amount that counts against a budget in this unit."""
        return {"usd": self.nano or 0, "tokens": self.tokens, "ms": round(1_000 * self.seconds)}[
            unit
        ]

    def part(self, of: int) -> "StepCost":
        """Return one of `of` equal parts, rounded up."""
        nano = None if self.nano is None else -(-self.nano // of)
        return StepCost(nano, -(-self.tokens // of), self.seconds / of)


@dataclass(frozen=True, slots=True)
class Expected:
    """The parts of the expected cost of one use, in the plan's unit; `spread` is the standard deviation of the sum."""

    unit: Unit
    tool: int
    step: int
    time: int
    spread: int
    sample_count: int
    """Uses behind the means; 0 for the declared price and an estimate."""
    registering: int = 0
    """The step that registers the tool; 0 once it is registered."""
    is_known: bool = True
    """Whether the cost is at least estimated; otherwise all parts are 0."""

    @property
    def total(self) -> int:
        return self.tool + self.step + self.time + self.registering


def expected_cost(
    evidence: Evidence, declared_nano: int, step: StepCost, unit: Unit, hour_nano: int = 0
) -> Expected:
    """Return c = c_tool + c_LLM + T from running means, or from the declared price and an estimate without samples.

    `hour_nano` is the price of an hour of waiting. In tokens, tools and time cost nothing; in milliseconds, a use
    takes the time of its step and its tool.
    """
    if unit == "ms":
        seconds = evidence.seconds
        mean = seconds.mean if seconds.count else step.seconds
        is_known, spread = bool(seconds.count or mean), _up(1_000 * seconds.spread)
        return Expected(unit, 0, _up(1_000 * mean), 0, spread, seconds.count, is_known=is_known)
    if unit == "tokens":
        tokens = evidence.step_tokens
        mean = tokens.mean if tokens.count else step.tokens
        return Expected(unit, 0, _up(mean), 0, _up(tokens.spread), evidence.uses)
    rate = hour_nano / SECONDS_PER_HOUR
    tool = evidence.price.mean if evidence.price.count else declared_nano
    thought = evidence.step_nano.mean if evidence.step_nano.count else (step.nano or 0)
    spread = math.hypot(
        evidence.price.spread, evidence.step_nano.spread, rate * evidence.seconds.spread
    )
    return Expected(
        unit, _up(tool), _up(thought), _up(rate * evidence.seconds.mean), _up(spread), evidence.uses
    )


def with_sample(figure: Figure, sample: float) -> Figure:
    """Return the figure with one more sample (Welford's update)."""
    count = figure.count + 1
    mean = figure.mean + (sample - figure.mean) / count
    squares = figure.spread**2 * figure.count + (sample - figure.mean) * (sample - mean)
    return Figure(count, mean, math.sqrt(max(0.0, squares / count)))


def pooled(figures: Iterable[Figure]) -> Figure:
    """Merge the samples of several figures; the spread of the result is 0."""
    samples = [figure for figure in figures if figure.count]
    count = sum(figure.count for figure in samples)
    if count:
        return Figure(count, sum(figure.count * figure.mean for figure in samples) / count)
    return Figure()


def _up(amount: float) -> int:
    """Round up to whole units (BTP Appendix A.1)."""
    return max(0, math.ceil(round(amount, 6)))


class ToolCosts:
    """Expected costs per use of the tools of a catalog, updated with each use of the turn."""

    def __init__(
        self,
        catalog: Catalog,
        evidence: Mapping[str, Evidence],
        registered: Iterable[str],
        *,
        resources: Mapping[str, int],
    ) -> None:
        """`resources` is the price of time and memory per use, in nano-dollars."""
        self._resources = resources
        self._catalog = catalog
        self._evidence = dict(evidence)
        self.registered = set(registered)
        """Tools that need no registration step."""
        self._tokens = Figure()
        self._nano = Figure()
        self._seconds = Figure()
        self._usual_seconds = pooled(past.seconds for past in evidence.values())
        self._usual_tokens = pooled(past.step_tokens for past in evidence.values())
        self._usual_nano = pooled(past.step_nano for past in evidence.values())

    @property
    def priced(self) -> bool:
        """Whether any tool declares a price."""
        return any(self._catalog.prices.values())

    def copy(self) -> "ToolCosts":
        """Return an independent copy."""
        twin = copy(self)
        twin._evidence, twin.registered = dict(self._evidence), set(self.registered)
        return twin

    def learn(self, tool: str, thought: StepCost, *, price: int, seconds: float) -> None:
        """Record the cost of one use and of the step that called it (`thought`)."""
        past = self._evidence.get(tool, NO_EVIDENCE)
        self._evidence[tool] = replace(
            past,
            uses=past.uses + 1,
            price=with_sample(past.price, price),
            seconds=with_sample(past.seconds, seconds + thought.seconds),
            step_nano=past.step_nano
            if thought.nano is None
            else with_sample(past.step_nano, thought.nano),
            step_tokens=with_sample(past.step_tokens, thought.tokens),
        )
        self._tokens = with_sample(self._tokens, thought.tokens)
        self._seconds = with_sample(self._seconds, thought.seconds)
        if thought.nano is not None:
            self._nano = with_sample(self._nano, thought.nano)

    def expected(self, unit: Unit, guess: StepCost, *, hour_nano: int) -> dict[str, Expected]:
        """Return the expected cost per use, including the registration step of unregistered tools.

        `guess` is the estimated cost of a step until the turn has samples.
        """
        # The mean of this turn's steps, else of all uses with this model, else the estimate.
        tokens = self._tokens if self._tokens.count else self._usual_tokens
        nano = self._nano if self._nano.count else self._usual_nano
        # A use's time includes its tool, so for a step the model's speed is the better guess.
        seconds = (
            self._seconds.mean if self._seconds.count else guess.seconds or self._usual_seconds.mean
        )
        step = StepCost(
            math.ceil(nano.mean) if nano.count else guess.nano,
            math.ceil(tokens.mean) if tokens.count else guess.tokens,
            seconds,
        )
        registering = step.amount(unit)
        # shared by all tools without price and history
        free = expected_cost(NO_EVIDENCE, 0, step, unit, hour_nano=hour_nano)
        costs: dict[str, Expected] = {}
        for name, declared in self._catalog.prices.items():
            past, cost = self._evidence.get(name, NO_EVIDENCE), free
            if declared or past is not NO_EVIDENCE:
                cost = expected_cost(past, declared, step, unit, hour_nano=hour_nano)
            if unit == "usd":
                cost = replace(cost, tool=cost.tool + self._resources.get(name, 0))
            costs[name] = (
                cost if name in self.registered else replace(cost, registering=registering)
            )
        return costs

    def of_one_use(self, tool: str) -> tuple[int, float | None]:
        """Return the price of one use in nano-dollars, and its seconds including the model step; None if unknown."""
        past = self._evidence.get(tool, NO_EVIDENCE)
        price = (
            math.ceil(past.price.mean) if past.price.count else self._catalog.tool(tool).price_nano
        )
        return price, past.seconds.mean if past.seconds.count else None


@dataclass(frozen=True, slots=True)
class RemainingBudget:
    """The remainder of the tightest cap of one unit, and its share reserved for prompts and the answer."""

    unit: Unit
    cap: int
    reserved: int

    @property
    def budget(self) -> int:
        """R, in the unit; negative if even the answer may not fit (SPEC §2)."""
        return self.cap - self.reserved


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan under one cap; `remaining` is None without a cap."""

    plan: Plan = field(default_factory=Plan)
    unit: Unit = "tokens"
    remaining: RemainingBudget | None = None
    costs: Mapping[str, Expected] = field(default_factory=dict[str, Expected])
    paid: int = 0
    """The part of the planned uses already paid: thinking that leads to the next use."""
    priors: Mapping[str, float] = field(default_factory=dict[str, float])
    """Prior values of tools, where they differ from the paper's."""

    @property
    def budget(self) -> int | None:
        """The budget of the planned uses, including the paid part; None without a cap."""
        return None if self.remaining is None else max(0, self.remaining.budget + self.paid)

    @property
    def room(self) -> float:
        """The budget relative to the cost of all bounds; the tightest of several caps has the least."""
        total = sum(max(1, row.bound) * row.cost for row in self.plan.rows)
        return math.inf if self.remaining is None or not total else self.remaining.budget / total

    def price_range(
        self, chances: Mapping[str, float], answer: StepCost, *, enforced: bool
    ) -> tuple[int | None, int | None]:
        """Estimate the lower and upper cost of the rest of the turn; None if a price is unknown.

        Uses the mean and deviation of the planned uses, each with its tool's chance of use, and the cost of an answer.
        """
        answer_cost = answer.nano if self.unit == "usd" else answer.amount(self.unit)
        if self.unit == "ms" and not answer_cost:
            return None, None
        if answer_cost is None:
            return None, None
        allowed = [row for row in self.plan.rows if row.state == "planned" or not enforced]
        expected_uses: list[tuple[float, PlanRow]] = []
        for row in allowed:
            uses = row.planned - row.used if row.state == "planned" else 1
            expected_uses.append((min(chances.get(row.tool, 0.0), 1.0) * uses, row))
        mean = sum(uses * row.cost for uses, row in expected_uses)
        variance = sum(min(uses, 1) * (row.cost**2 + row.spread**2) for uses, row in expected_uses)
        half_width = _SIGMAS * math.sqrt(variance)
        high = answer_cost + math.ceil(mean + half_width)
        if self.remaining is not None:
            high = min(high, self.remaining.cap)
        return min(high, answer_cost + max(0, math.floor(mean - half_width))), high


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
        return (
            "cost    unknown: neither the tool nor the model was used before, so it counts as 0 s"
        )
    source = "estimated from the model's speed: it was not used before"
    if cost.sample_count:
        source = f"from {_uses(cost.sample_count)}"
    use, registering = _exact(cost.step, "ms"), _exact(cost.registering, "ms")
    sum_text = f"model step and tool {use} + registering {registering}"
    return (
        f"cost    {_exact(cost.total, 'ms')} = {sum_text}; ± {_exact(cost.spread, 'ms')}, {source}"
    )


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
    better = priced.plan.better(row.tool)
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
    priced: PricedPlan, tool: str, why: str | None, better: PlanRow | None, names: Collection[str]
) -> str:
    """Return the refusal of a forbidden tool for the model, with affordable alternatives among known tools.

    `why` is the plan's reason; `better` is the planned use that this use would make unaffordable.
    """
    reason = _WHY.get(why or "", "")
    if better is not None and why is None:
        cost = amount_text(priced.costs[tool].total, priced.unit)
        budget = amount_text(priced.budget or 0, priced.unit)
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
