"""What one use of a tool is expected to cost, and a plan by these costs under one cap (BTP §2.2, eq. 1)."""

import math
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

from ecoshell.budget import Unit
from ecoshell.catalog import Catalog
from ecoshell.events import BudgetSettled
from ecoshell.planning.btp import Plan
from ecoshell.planning.btp.evidence import NO_EVIDENCE, Evidence, Figure

SECONDS_PER_HOUR = 3600
_SIGMAS = 2
"""Standard deviations by which an estimated price range reaches above and below its mean."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a model step takes, or took; unknown money is None."""

    nano: int | None = 0
    tokens: int = 0
    seconds: float = 0.0

    def plus(self, settled: BudgetSettled) -> "StepCost":
        """The same with one more call."""
        return self + StepCost(settled.spent_nano, settled.usage.total, settled.seconds)

    def __add__(self, other: "StepCost") -> "StepCost":
        nano = None if self.nano is None or other.nano is None else self.nano + other.nano
        return StepCost(nano, self.tokens + other.tokens, self.seconds + other.seconds)

    def amount(self, unit: Unit) -> int:
        """What of it counts against a budget in this unit."""
        return self.tokens if unit == "tokens" else self.nano or 0

    def part(self, of: int) -> "StepCost":
        """One of so many equal parts; amounts are rounded up, as costs are."""
        nano = None if self.nano is None else -(-self.nano // of)
        return StepCost(nano, -(-self.tokens // of), self.seconds / of)


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected cost of one use, part by part, in the plan's unit; `spread` is one standard deviation of the sum."""

    unit: Unit
    tool: int
    step: int
    time: int
    spread: int
    seen: int
    """Uses that the means come from; 0 is the declared price and an estimate."""
    registering: int = 0
    """The step that registers the tool, where this is still to come."""

    @property
    def total(self) -> int:
        return self.tool + self.step + self.time + self.registering


def expected_cost(evidence: Evidence, declared_nano: int, step: StepCost, unit: Unit, hour_nano: int = 0) -> Expected:
    """c = c_tool + c_LLM + T: running means from experience, the declared price and an estimate before there are any.

    `hour_nano` is what an hour of waiting is worth. In tokens, tools and time cost nothing.
    """
    if unit == "tokens":
        taken = evidence.step_tokens
        mean = taken.mean if taken.count else step.tokens
        return Expected(unit, 0, _up(mean), 0, _up(taken.spread), evidence.uses)
    rate = hour_nano / SECONDS_PER_HOUR
    tool = evidence.price.mean if evidence.price.count else declared_nano
    thought = evidence.step_nano.mean if evidence.step_nano.count else (step.nano or 0)
    spread = math.hypot(evidence.price.spread, evidence.step_nano.spread, rate * evidence.seconds.spread)
    return Expected(unit, _up(tool), _up(thought), _up(rate * evidence.seconds.mean), _up(spread), evidence.uses)


def with_sample(figure: Figure, sample: float) -> Figure:
    """The figure with one more sample, by Welford's update."""
    count = figure.count + 1
    mean = figure.mean + (sample - figure.mean) / count
    squares = figure.spread**2 * figure.count + (sample - figure.mean) * (sample - mean)
    return Figure(count, mean, math.sqrt(max(0.0, squares / count)))


def pooled(figures: Iterable[Figure]) -> Figure:
    """One figure of all samples that went into several; its spread is left at 0."""
    known = [figure for figure in figures if figure.count]
    count = sum(figure.count for figure in known)
    return Figure(count, sum(figure.count * figure.mean for figure in known) / count) if count else Figure()


def _up(amount: float) -> int:
    """Whole units, rounded up as costs are (BTP Appendix A.1)."""
    return max(0, math.ceil(round(amount, 6)))


class ToolCosts:
    """The expected cost of one use of each tool of a catalog; learns from the uses and steps of the turn."""

    def __init__(
        self,
        catalog: Catalog,
        evidence: Mapping[str, Evidence],
        registered: Iterable[str],
        *,
        resources: Mapping[str, int],
    ) -> None:
        """`resources` is what the time and memory of one use of a tool are worth, in nano-dollars."""
        self._resources = resources
        self._catalog = catalog
        self._evidence = dict(evidence)
        self.registered = set(registered)
        """Tools that can be called without registering them first."""
        self._tokens = Figure()
        self._nano = Figure()
        self._usual_tokens = pooled(known.step_tokens for known in evidence.values())
        self._usual_nano = pooled(known.step_nano for known in evidence.values())

    @property
    def priced(self) -> bool:
        """Whether any of the tools has a price of its own."""
        return any(self._catalog.prices.values())

    def copy(self) -> "ToolCosts":
        """The same costs, which learn by themselves from here on."""
        twin = copy(self)
        twin._evidence, twin.registered = dict(self._evidence), set(self.registered)
        return twin

    def learn(self, tool: str, thought: StepCost, *, price: int, seconds: float) -> None:
        """One use has cost this, and the step that called for it took `thought`; its judgment is for the next task."""
        known = self._evidence.get(tool, NO_EVIDENCE)
        self._evidence[tool] = replace(
            known,
            uses=known.uses + 1,
            price=with_sample(known.price, price),
            seconds=with_sample(known.seconds, seconds + thought.seconds),
            step_nano=known.step_nano if thought.nano is None else with_sample(known.step_nano, thought.nano),
            step_tokens=with_sample(known.step_tokens, thought.tokens),
        )
        self._tokens = with_sample(self._tokens, thought.tokens)
        if thought.nano is not None:
            self._nano = with_sample(self._nano, thought.nano)

    def expected(self, unit: Unit, guess: StepCost, *, hour_nano: int, freely: bool) -> dict[str, Expected]:
        """What one use costs, with the step that registers the tool where this is still to come.

        `guess` is what a step is estimated to take, until the turn has seen some; `freely` says that registering takes
        no step.
        """
        # the mean of this turn's steps, else of all uses with this model, else the guess
        tokens = self._tokens if self._tokens.count else self._usual_tokens
        nano = self._nano if self._nano.count else self._usual_nano
        step = StepCost(
            math.ceil(nano.mean) if nano.count else guess.nano,
            math.ceil(tokens.mean) if tokens.count else guess.tokens,
        )
        registering = 0 if freely else step.tokens if unit == "tokens" else step.nano or 0
        free = expected_cost(NO_EVIDENCE, 0, step, unit, hour_nano=hour_nano)  # as most new tools are
        costs: dict[str, Expected] = {}
        for name, declared in self._catalog.prices.items():
            known, cost = self._evidence.get(name, NO_EVIDENCE), free
            if declared or known is not NO_EVIDENCE:
                cost = expected_cost(known, declared, step, unit, hour_nano=hour_nano)
            if unit == "usd":
                cost = replace(cost, tool=cost.tool + self._resources.get(name, 0))
            costs[name] = cost if name in self.registered else replace(cost, registering=registering)
        return costs

    def of_one_use(self, tool: str) -> tuple[int, float | None]:
        """The price of one use in nano-dollars, and its seconds, thinking of the call included; None is unknown."""
        known = self._evidence.get(tool, NO_EVIDENCE)
        price = math.ceil(known.price.mean) if known.price.count else self._catalog.tool(tool).price_nano
        return price, known.seconds.mean if known.seconds.count else None


@dataclass(frozen=True, slots=True)
class RemainingBudget:
    """What the tightest cap of one unit leaves, and what of it is reserved for the prompts and the answer."""

    unit: Unit
    cap: int
    reserved: int

    @property
    def budget(self) -> int:
        """R, in the unit; below 0 when even the answer may not fit (SPEC §2)."""
        return self.cap - self.reserved


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan under one cap; `remaining` is None without one."""

    plan: Plan = field(default_factory=Plan)
    unit: Unit = "tokens"
    remaining: RemainingBudget | None = None
    costs: Mapping[str, Expected] = field(default_factory=dict[str, Expected])
    paid: int = 0
    """What of the planned uses is paid already: thinking that is to lead to the next of them."""
    priors: Mapping[str, float] = field(default_factory=dict[str, float])
    """What tools are worth before their own history, where that is not the paper's."""

    @property
    def budget(self) -> int | None:
        """What the planned uses may cost, with what is paid of them; None without a cap."""
        return None if self.remaining is None else max(0, self.remaining.budget + self.paid)

    @property
    def room(self) -> float:
        """What the cap leaves, in what all bounds would cost: of several caps, the tightest has the least."""
        wanted = sum(max(1, row.bound) * row.cost for row in self.plan.rows)
        return math.inf if self.remaining is None or not wanted else self.remaining.budget / wanted

    def price_range(
        self, chances: Mapping[str, float], answer: StepCost, *, enforced: bool
    ) -> tuple[int | None, int | None]:
        """What the turn takes from here, at least and at most, as far as can be told; None when a price is unknown.

        Mean and deviation of the planned uses, each drawn by its tool's chance of use, and the price of an answer.
        """
        least = answer.tokens if self.unit == "tokens" else answer.nano
        if least is None:
            return None, None
        allowed = [row for row in self.plan.rows if row.state == "planned" or not enforced]
        drawn = [(min(chances.get(row.tool, 0.0), 1.0) * max(1, row.left), row) for row in allowed]
        mean = sum(uses * row.cost for uses, row in drawn)
        variance = sum(min(uses, 1) * (row.cost**2 + row.spread**2) for uses, row in drawn)
        reach = _SIGMAS * math.sqrt(variance)
        high = least + math.ceil(mean + reach)
        if self.remaining is not None:
            high = min(high, self.remaining.cap)
        return min(high, least + max(0, math.floor(mean - reach))), high
