"""Expected costs of tool uses, and plans under one cap (BTP §2.2, eq. 1)."""

import math
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

from ecoshell.budget import Unit
from ecoshell.catalog import Catalog
from ecoshell.events import BudgetSettled, PlanRow
from ecoshell.planning.btp.evidence import NO_EVIDENCE, Evidence, Figure
from ecoshell.planning.btp.plan import Plan

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
    """The step that registers the tool; 0 without one."""
    is_known: bool = True
    """Whether the cost is at least estimated; otherwise all parts are 0."""

    @property
    def total(self) -> int:
        return self.tool + self.step + self.time + self.registering

    def after_step(self, paid: int) -> int:
        """Return what a use still costs when its call is written, so that its model step is paid.

        `paid` is what the step took. It counts only in milliseconds, where a use's time includes its tool's.
        """
        return max(0, self.total - paid) if self.unit == "ms" else self.tool + self.time


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

    def learn(
        self,
        tool: str,
        thought: StepCost,
        *,
        price: int,
        seconds: float,
        subagent_model: str = "",
    ) -> None:
        """Record the cost of one use and of the step that called it (`thought`)."""
        past = self._evidence.get(tool, NO_EVIDENCE)
        if subagent_model:
            figure = past.subagent_prices.get(subagent_model, Figure())
            prices = {**past.subagent_prices, subagent_model: with_sample(figure, price)}
            past = replace(past, subagent_prices=prices)
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

    def expected(
        self, unit: Unit, guess: StepCost, *, hour_nano: int, registers: bool
    ) -> dict[str, Expected]:
        """Return the expected cost per use.

        `registers` says that an unregistered tool needs a registration step, which is included. `guess` is the
        estimated cost of a step until the turn has samples.
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
        registering = step.amount(unit) if registers else 0
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

    def subagent_prices(self, tool: str) -> Mapping[str, Figure]:
        """Return the past prices of the subagents that the tool started, in nano-dollars, by their model."""
        return self._evidence.get(tool, NO_EVIDENCE).subagent_prices

    def of_one_use(self, tool: str) -> tuple[int, float | None]:
        """Return the price of one use in nano-dollars, and its seconds including the model step; None if unknown."""
        past = self._evidence.get(tool, NO_EVIDENCE)
        price = self._catalog.tool(tool).price_nano
        if past.price.count:
            price = math.ceil(past.price.mean)
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
class Requested:
    """One use that a model requests, as the plan sees it."""

    cost: int
    budget: int | None
    """The rest for tools, or None without a cap."""
    better: PlanRow | None
    """The best planned use that this use would make unaffordable."""


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
    units: tuple[tuple[RemainingBudget, Mapping[str, Expected]], ...] = ()
    """What every unit with a cap leaves, with the costs in it; the plan's own unit is one of them."""
    ahead: StepCost = StepCost()
    """The thinking that leads to the next use."""

    def call_fits(self, tool: str) -> bool:
        """Return whether every cap leaves enough for a call that is already written, in addition to the answer."""
        return all(
            costs[tool].after_step(self.ahead.amount(remaining.unit)) <= remaining.budget
            for remaining, costs in self.units
        )

    def requested(self, tool: str, *, is_call: bool) -> "Requested":
        """Return what a use costs, and what it would make unaffordable; with `is_call`, its call is already written."""
        cost, budget = self.costs[tool].total, self.budget
        if is_call and self.remaining is not None:
            budget = max(0, self.remaining.budget)
            cost = self.costs[tool].after_step(self.ahead.amount(self.unit))
        return Requested(cost, budget, self.plan.better(tool, cost=cost, budget=budget))

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
