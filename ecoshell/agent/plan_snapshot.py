"""All inputs of a turn's plan at one moment, and the plan made from them (SPEC §2).

`PlanInputs` holds what stays constant during a turn, `PlanSnapshot` everything else.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ecoshell.agent.mode import CallForecast, StepForecast, of_conclusion, used
from ecoshell.agent.model_set import ModelSet
from ecoshell.agent.view import View
from ecoshell.budget import CapState, Hold, Unit, answer_ms
from ecoshell.errors import StoreError
from ecoshell.events import PlanRow
from ecoshell.messages import Usage
from ecoshell.planning.btp.costs import Expected, PricedPlan, RemainingBudget, StepCost, ToolCosts
from ecoshell.planning.btp.evidence import Evidence
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.planning.btp.value import HELPFUL_PRIOR, chance, frequency_bound, priors, value

if TYPE_CHECKING:
    from ecoshell.agent.dependencies import Dependencies

ROW_LIMIT = 60
"""Rows in an event; thousands of tools would fill the session's log."""
STEP_OUTPUT = 200
"""Expected output tokens of a step, thought and call: a rounded mean of recorded runs (catalog/registration)."""
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The experience with each tool, and the probability that the question uses it."""

    question: str
    view: View
    evidence: Mapping[str, Evidence]
    chances: Mapping[str, float]
    priors: Mapping[str, float] = field(default_factory=dict[str, float])
    """The value of each tool before its own history, by its fit and similar tools."""
    tokens_per_second: float | None = None
    """The observed speed of the model; None before its first call."""
    fault: str = ""
    """Why experience could not be read, so that the plan is made without it."""

    @classmethod
    def of(cls, question: str, deps: "Dependencies", view: View) -> "PlanInputs":
        """Collect the inputs; reads the experience, so it may block."""
        hashes = {schema.name: schema.digest for schema in deps.catalog.schemas}
        evidence: Mapping[str, Evidence] = {}
        fault, speed = "", None
        try:
            pace = deps.budget.gate.ledger.pace(deps.models.name)
            speed = None if pace is None else pace.tokens_per_second
            evidence = deps.experience.past.evidence(question, hashes, deps.models.name)
        except StoreError as failure:
            fault = f"This turn is planned without experience. {failure}"
        fits = deps.ranker.chances(question)
        usual = sum(fits.values()) / max(1, len(fits))
        chances = {name: fits.get(name, 0.0) for name in hashes}
        chances |= {
            name: chance(past, chances[name], usual)
            for name, past in evidence.items()
            if past.chance_weight
        }
        kinds = {schema.name: schema.server for schema in deps.catalog.schemas}
        return cls(question, view, evidence, chances, priors(evidence, fits, kinds), speed, fault)


@dataclass(frozen=True, slots=True)
class PlanSnapshot:
    """All inputs of a plan at one moment; equal snapshots have equal plans."""

    caps: tuple[CapState, ...]
    models: ModelSet
    answer_hold: Hold | None
    view: View
    ahead: StepCost
    """The part of the next use's cost that is already paid, by thinking."""
    threshold: float
    strict: bool
    hour_nano: int
    uses: Mapping[str, int]
    registered: frozenset[str]
    inputs: PlanInputs = field(compare=False)
    task: TaskPlan = field(compare=False)
    """A copy of the turn's; it and `tools` follow from `uses`."""
    tools: ToolCosts = field(compare=False)

    def solve(self) -> tuple[PricedPlan, StepForecast, tuple[PlanRow, ...]]:
        """The plan under the tightest cap, its forecast, and the rows of its event, used tools first.

        Takes time, so it belongs in a thread.
        """
        forecast = self.models.mode.forecast(self.view)
        remaining = self._remaining(forecast)
        calls = [call for call in forecast.steps if call.request.purpose != "answer"]
        step_cost = expected_cost_of(calls, self.inputs.tokens_per_second)
        prices = [model.traits.price for model in self.models.models]
        costs_money = self.tools.priced or any(
            price is not None and price.worst(1, 1) for price in prices
        )
        default: Unit = "usd" if costs_money else "tokens"
        units: tuple[Unit, ...] = (*remaining,) or (default,)
        expected = partial(
            self.tools.expected,
            hour_nano=self.hour_nano,
            registers=self.view.presentation.registers,
        )
        costs = {unit: expected(unit, step_cost) for unit in units}
        beyond = {
            name
            for unit, budget in remaining.items()
            for name, cost in costs[unit].items()
            if cost.total > budget.budget + self._paid_of(cost)  # not even one use fits
        }
        plans = [self._plan(unit, remaining.get(unit), costs[unit], beyond) for unit in units]
        tightest = min(plans, key=lambda plan: plan.room)

        def rank(row: PlanRow) -> tuple[bool, bool, float]:
            return row.used == 0, row.state != "planned", -row.value * row.chance

        capped = tuple((budget, costs[unit]) for unit, budget in remaining.items())
        tightest = replace(tightest, units=capped, ahead=self.ahead)
        rows = sorted(tightest.plan.rows, key=rank)
        return tightest, forecast, tuple(rows[:ROW_LIMIT])

    def _remaining(self, forecast: StepForecast) -> dict[Unit, RemainingBudget]:
        """What the tightest cap of each unit leaves; the reservation for the answer counts as reserved, not as used."""
        remaining: dict[Unit, RemainingBudget] = {}
        for cap in self.caps:
            amount = cap.limit - used(cap, self.answer_hold)
            if cap.unit in remaining and amount >= remaining[cap.unit].cap:
                continue
            if self.answer_hold is None:
                bound = of_conclusion(forecast, counted=True)
                reserved = (answer_ms((cap,)) if cap.unit == "ms" else bound.in_unit_of(cap)) or 0
            else:
                reserved = self.answer_hold.amount(cap.unit)
            remaining[cap.unit] = RemainingBudget(cap.unit, max(0, amount), reserved)
        return remaining

    def _paid_of(self, cost: Expected) -> int:
        """The part of a use that is already paid if it comes next: at most its first step, which registers or calls."""
        return min(self.ahead.amount(cost.unit), cost.registering or cost.step)

    def _plan(
        self,
        unit: Unit,
        remaining: RemainingBudget | None,
        costs: Mapping[str, Expected],
        beyond: Collection[str],
    ) -> PricedPlan:
        """The plan in one unit.

        How much is paid already depends on the next use, which must be a planned one. If no planned tool has that much
        of its cost paid, the plan is made again with the largest paid part among the planned tools.
        """
        priors: Mapping[str, float] = {} if self.strict else self.inputs.priors
        candidates: list[Candidate] = []
        # Values and bounds date from before the turn, costs from now.
        for name, cost in costs.items():
            past, tool_value = self.inputs.evidence.get(name), priors.get(name, HELPFUL_PRIOR)
            is_judged, bound = past is not None and past.weight > 0, 1
            if past is not None and is_judged:
                tool_value = value(past, tool_value)
                bound = frequency_bound(past, tool_value, self.threshold)
            candidate = Candidate(
                name,
                tool_value,
                bound,
                cost.total,
                cost.spread,
                is_judged=is_judged,
                chance=self.inputs.chances.get(name, 0.0),
                is_cost_known=cost.is_known,
            )
            candidates.append(candidate)
        if remaining is None:
            return PricedPlan(self.task.solve(None, candidates), unit, None, costs, priors=priors)
        paid = max(map(self._paid_of, costs.values()), default=0)
        while True:
            plan = self.task.solve(remaining.budget + paid, candidates, unaffordable=beyond)
            planned = [costs[row.tool] for row in plan.rows if row.state == "planned"]
            planned_paid = max(map(self._paid_of, planned), default=0)
            if planned_paid >= paid:
                return PricedPlan(plan, unit, remaining, costs, paid, priors)
            paid = planned_paid


def expected_cost_of(calls: Sequence[CallForecast], tokens_per_second: float | None) -> StepCost:
    """The expected cost of model calls, estimated without a tokenizer; unknown if any price is.

    Its time follows from the model's speed; 0 if that is unknown.
    """
    nano: int | None = 0
    tokens = 0
    for call in calls:
        request, price = call.request, call.model.traits.price
        characters = sum(len(message.text) for message in request.messages)
        characters += sum(len(tool.entry) for tool in request.tools)
        prompt_tokens = characters // _CHARACTERS_PER_TOKEN
        usage = Usage(input=prompt_tokens, output=min(request.max_tokens, STEP_OUTPUT))
        nano = None if nano is None or price is None else nano + price.cost(usage)
        tokens += usage.total
    return StepCost(nano, tokens, tokens / tokens_per_second if tokens_per_second else 0.0)
