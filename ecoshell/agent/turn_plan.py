"""The plan of one turn: made before its first step, and renewed as costs, caps and results change (SPEC §2).

`PlanInputs` holds what stays constant during a turn, `PlanSnapshot` all inputs at one moment, and `TurnPlan` follows
the turn's events and renews the plan.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ecoshell.agent.judge import JUDGE
from ecoshell.agent.mode import CallForecast, StepForecast, of_conclusion, used
from ecoshell.agent.model_set import ModelSet
from ecoshell.agent.view import View
from ecoshell.budget import CapState, Hold, Unit, amount_text, answer_ms
from ecoshell.catalog.presentation import CORE
from ecoshell.errors import LimitReached, StoreError
from ecoshell.events import (
    BranchLeft,
    BudgetSettled,
    CallFinished,
    CallStarted,
    Emit,
    Event,
    PlanChanged,
    PlanRow,
    StepProposed,
    SubagentFinished,
    ToolRegistered,
)
from ecoshell.messages import Call, Usage
from ecoshell.planning.btp.costs import (
    Expected,
    PricedPlan,
    RemainingBudget,
    StepCost,
    ToolCosts,
    after_result,
    before_question,
    explain,
    refused,
)
from ecoshell.planning.btp.evidence import NO_EVIDENCE, Evidence
from ecoshell.planning.btp.experience import document_hash
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
        hashes = {schema.name: document_hash(schema) for schema in deps.catalog.schemas}
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
class Estimate:
    """Expected price and duration of one use of a tool; unknown is None."""

    price_nano: int | None = None
    seconds: float | None = None


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
        step_cost = _expected(calls, self.inputs.tokens_per_second)
        prices = [model.traits.price for model in self.models.models]
        costs_money = self.tools.priced or any(
            price is not None and price.worst(1, 1) for price in prices
        )
        default: Unit = "usd" if costs_money else "tokens"
        units: tuple[Unit, ...] = (*remaining,) or (default,)
        costs = {
            unit: self.tools.expected(unit, step_cost, hour_nano=self.hour_nano) for unit in units
        }
        beyond = {
            name
            for unit, budget in remaining.items()
            for name, cost in costs[unit].items()
            if cost.total > budget.budget + self._paid_of(cost)  # not even one use fits
        }
        plans = [self._plan(unit, remaining.get(unit), costs[unit], beyond) for unit in units]
        tightest = min(plans, key=lambda plan: plan.room)
        rows = tightest.plan.rows
        ordered = sorted(
            rows, key=lambda row: (row.used == 0, row.state != "planned", -row.value * row.chance)
        )
        return tightest, forecast, tuple(ordered[:ROW_LIMIT])

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
        for (
            name,
            cost,
        ) in costs.items():  # values and bounds date from before the turn, costs from now
            past, tool_value = self.inputs.evidence.get(name), priors.get(name, HELPFUL_PRIOR)
            is_judged, bound = past is not None and past.weight > 0, 1
            if past is not None and is_judged:
                tool_value = value(past, tool_value)
                bound = frequency_bound(past, tool_value, self.threshold)
            probability = self.inputs.chances.get(name, 0.0)
            candidates.append(
                Candidate(
                    name,
                    tool_value,
                    bound,
                    cost.total,
                    cost.spread,
                    is_judged=is_judged,
                    chance=probability,
                    is_cost_known=cost.is_known,
                )
            )
        if remaining is None:
            return PricedPlan(self.task.solve(None, candidates), unit, None, costs, priors=priors)
        paid = max(map(self._paid_of, costs.values()), default=0)
        while True:
            plan = self.task.solve(remaining.budget + paid, candidates, unaffordable=beyond)
            planned_paid = max(
                (self._paid_of(costs[row.tool]) for row in plan.rows if row.state == "planned"),
                default=0,
            )
            if planned_paid >= paid:
                return PricedPlan(plan, unit, remaining, costs, paid, priors)
            paid = planned_paid


def _expected(calls: Sequence[CallForecast], tokens_per_second: float | None) -> StepCost:
    """The expected cost of model calls, estimated without a tokenizer; unknown if any price is.

    Its time follows from the model's speed; 0 if that is unknown.
    """
    nano: int | None = 0
    tokens = 0
    for call in calls:
        request, price = call.request, call.model.traits.price
        texts = [message.text for message in request.messages] + [
            tool.entry for tool in request.tools
        ]
        prompt_tokens = sum(map(len, texts)) // _CHARACTERS_PER_TOKEN
        usage = Usage(input=prompt_tokens, output=min(request.max_tokens, STEP_OUTPUT))
        nano = None if nano is None or price is None else nano + price.cost(usage)
        tokens += usage.total
    return StepCost(nano, tokens, tokens / tokens_per_second if tokens_per_second else 0.0)


@dataclass(slots=True)
class ThinkingCost:
    """The cost of thinking since the last call, and the part that pays for the next one; sees every event of a turn.

    A use of a tool includes the thinking that leads to it. Thinking already done is paid, as long as it can lead to a
    use; a thought that led to none was wasted.
    """

    total: StepCost = field(default_factory=StepCost)
    """All thinking since the last call, which becomes part of the next call's cost."""
    ahead: StepCost = field(default_factory=StepCost)
    """The part that may still lead to a call, or that led to the running call."""
    spent: StepCost = field(default_factory=StepCost)
    """What the turn has spent, tools included."""
    _proposed: StepCost = field(default_factory=StepCost)
    """The cost of proposals that wait to be chosen."""

    def see(self, event: Event) -> None:
        """Count an event."""
        match event:
            case BudgetSettled():
                self.spent = self.spent.plus(event)
                if event.role != JUDGE:
                    self.total = self.total.plus(event)
                    self.ahead = self.ahead.plus(event)
            case StepProposed():
                self._proposed = self.ahead
            case CallStarted():
                self.total = StepCost()
            case CallFinished():
                self.spent = self.spent + StepCost(event.spent_nano, 0, event.seconds)
                self.drop()
            case SubagentFinished():
                self.spent = self.spent + StepCost(event.spent_nano, event.usage.total)
            case BranchLeft():
                self.drop()
            case ToolRegistered() if event.by == "agent":
                self.total = StepCost()
                self.drop()
            case _:
                pass

    def step(self) -> None:
        """A step begins: of earlier thoughts, only proposals can still lead to a call."""
        self.ahead = self._proposed

    def drop(self) -> None:
        """The thinking so far leads to no further call."""
        self.ahead = self._proposed = StepCost()


class TurnPlan:
    """One turn's plan. Call `renew` first; from `settle` on it is the turn's policy, and sees every event."""

    def __init__(
        self, inputs: PlanInputs, deps: "Dependencies", caps: Sequence[CapState] | None = None
    ) -> None:
        """`caps` replace the session's."""
        self.inputs = inputs
        self._deps = deps
        self._fixed_caps = caps
        self._caps: Sequence[CapState] = caps or ()
        self._reported_caps: Sequence[CapState] | None = caps
        """The caps as last reported; None before they were read."""
        self._view = inputs.view
        settings = deps.settings
        self.strict = settings.strict
        """Whether forbidden tools are not offered; otherwise a cap hides no name."""
        self._task = TaskPlan(
            [],
            threshold=settings.threshold,
            strict=settings.strict,
            earned=settings.earned,
            spared=() if settings.strict else CORE,
        )
        registered = (tool.name for tool in inputs.view.registered)
        self._tools = ToolCosts(
            deps.catalog, inputs.evidence, registered, resources=deps.profiles.resources
        )
        self.thinking = ThinkingCost()
        self._offered: set[str] = set()
        """The tools that the model can name."""
        self._reported_forbidden: dict[str, frozenset[str]] = {}
        """The tools reported to the model as forbidden after each call, by its ID and in order; "" is the question."""
        self.priced = PricedPlan()
        """The current plan."""
        self._forecast = StepForecast(())
        self._rows: tuple[PlanRow, ...] = ()
        self._snapshot: PlanSnapshot | None = None
        """The inputs of the current plan."""
        self._renewing = asyncio.Lock()
        self._number = 0
        self._mode = "off"
        """The mode as last reported."""
        self._pending = ""
        """What changed since the plan was made; empty if nothing did."""
        self._reason = ""
        """Why the last reported plan was made."""

    @property
    def deps(self) -> "Dependencies":
        return self._deps

    @property
    def caps(self) -> Sequence[CapState]:
        """The caps as last read, without the turn's running calls."""
        return self._caps

    @property
    def enforced(self) -> bool:
        """Whether the plan may refuse calls: under a cap, in a binding mode."""
        return "btp" in self._deps.settings.plan and self.priced.remaining is not None

    @property
    def forbidden(self) -> Mapping[str, str]:
        return self.priced.plan.forbidden if self.enforced else {}

    @property
    def _unplanned(self) -> Mapping[str, str]:
        """Tools that are not planned under a cap, each with the reason."""
        if self.enforced:
            return {row.tool: row.why for row in self.priced.plan.rows if row.state != "planned"}
        return {}

    @property
    def answer_only(self) -> bool:
        """Whether the remaining budget has room for an answer but for no tool."""
        remaining, reasons = self.priced.remaining, set(self.forbidden.values())
        all_forbidden = len(self.forbidden) == len(self.priced.plan.rows)
        return (
            remaining is not None
            and remaining.budget >= 0
            and all_forbidden
            and reasons == {"budget"}
        )

    def refusal(self, tool: str) -> str:
        reason = self.forbidden.get(tool)
        better = self.priced.plan.better(tool) if self.enforced and not self.strict else None
        if reason is None and better is None:
            return ""
        return refused(self.priced, tool, reason, better, self._offered)

    def shortage(self, tool: str) -> LimitReached | None:
        """The limit that a tool refused for its cost would exceed; None if it is refused for another reason."""
        priced, remaining, cost = self.priced, self.priced.remaining, self.priced.costs.get(tool)
        if remaining is None or cost is None or self.forbidden.get(tool, "budget") != "budget":
            return None
        hold = self._deps.models.current.mode.answer_hold
        caps = [
            cap
            for cap in self._deps.models.current.capped_by(self._caps)
            if cap.unit == remaining.unit
        ]
        tightest = min(caps, key=lambda cap: cap.limit - used(cap, hold), default=None)
        better = priced.plan.better(tool)
        need = (
            cost.total
            + remaining.reserved
            - priced.paid
            + (better.cost if better is not None else 0)
        )
        if tightest is None or need <= remaining.cap:
            return None

        text = partial(amount_text, unit=remaining.unit)
        alternative = (
            f", and {better.tool} ({text(better.cost)}) is worth more" if better is not None else ""
        )
        return LimitReached(
            f"{tool} is expected to cost {text(cost.total)}. The {tightest.scope}'s cap has {text(remaining.cap)} "
            f"left, of which {text(remaining.reserved)} is reserved for the answer, so {text(priced.budget or 0)} is "
            f"for tools{alternative}.",
            scope=tightest.scope,
            need=need,
            left=remaining.cap,
            unit=remaining.unit,
        )

    def allows(self, tool: str) -> int | None:
        row, budget = self.priced.plan.row(tool), self.priced.plan.budget
        if not self.enforced or row is None or budget is None:
            return 0 if self.enforced else None
        if self.strict or tool in self.forbidden:
            return row.left
        return budget // row.cost if row.cost else None

    def uses(self, unit: Unit) -> dict[str, Expected]:
        """The expected cost of one use of each tool, by experience or as estimated for the next step. May block."""
        calls = [call for call in self._forecast.steps if call.request.purpose != "answer"]
        return self._tools.expected(
            unit, _expected(calls, self.inputs.tokens_per_second), hour_nano=0
        )

    def expected(self, tool: str, size: int | None = None) -> Estimate:
        """The expected price and duration by experience, this turn's included, else by declared price and profile.

        `size` is the input's in bytes, None if unknown. By experience, the seconds include thinking about the call.
        May block.
        """
        price, seconds = self._tools.of_one_use(tool)
        return Estimate(
            price, self._deps.profiles.costs().seconds(tool, size) if seconds is None else seconds
        )

    async def renew(self, *, for_offer: bool = False) -> None:
        """Make the plan from the current inputs, without reporting it.

        With `for_offer`, nothing is planned without a cap, since an offer then depends on no plan. Nodes of a tool
        graph finish concurrently, so a renewal may find that another has made its plan.
        """
        async with self._renewing:
            if self._fixed_caps is None:
                # the plan uses the caps it knows; the gate reports the error
                with suppress(StoreError):
                    self._caps = await self._deps.budget.caps(at_rest=True)
                    if self._reported_caps is None:  # the first caps are no change
                        self._reported_caps = self._caps
            if for_offer and not self._caps and "prompt" not in self._deps.settings.plan:
                return
            await self._solve()

    async def _solve(self) -> None:
        """Make the plan under the caps as last read, unless its inputs are those of the current plan."""
        deps, models = self._deps, self._deps.models.current
        snapshot = PlanSnapshot(
            caps=models.capped_by(self._caps),
            models=models,
            answer_hold=models.mode.answer_hold,
            view=self._view,
            ahead=self.thinking.ahead,
            threshold=deps.settings.threshold,
            strict=self.strict,
            hour_nano=deps.settings.hour_nano or 0,
            uses=dict(self._task.uses),
            registered=frozenset(self._tools.registered),
            inputs=self.inputs,
            task=self._task.copy(),
            tools=self._tools.copy(),
        )
        if snapshot != self._snapshot:
            self.priced, self._forecast, self._rows = await asyncio.to_thread(snapshot.solve)
            self._snapshot = snapshot

    async def settle(self, view: View, offered: Sequence[str]) -> None:
        """Plan with the turn's real view and the offered names, under the caps that `renew` read for the offer."""
        self._view = view
        self._offered = {*offered, *self._tools.registered}
        self._reported_forbidden[""] = frozenset(self.forbidden) & self._offered
        async with self._renewing:
            await self._solve()

    def see(self, event: Event) -> None:
        """Record one of the turn's events; the next `refresh` plans with it."""
        self.thinking.see(event)
        match event:
            case ToolRegistered():
                self._tools.registered.add(event.name)
                self._offered.add(event.name)
                if event.by != "upfront":
                    self._pending = f"{event.name} was registered"
            case BranchLeft():  # the model no longer sees what was reported after abandoned calls
                reports = self._reported_forbidden.items()
                self._reported_forbidden = {
                    call: names for call, names in reports if not call or call in event.path
                }
                if event.unregistered:
                    self._tools.registered.difference_update(event.unregistered)
                    self._pending = "the search backtracked"
            case _:
                pass

    async def refresh(self, emit: Emit) -> None:
        """Renew the plan for the next step, and report it as `follow` does."""
        self.thinking.step()
        await self.follow(emit)

    async def follow(self, emit: Emit) -> None:
        """Renew the plan, and report it if something happened or if planned tools changed."""
        unplanned_before = self._unplanned
        await self.renew()
        if self._mode != self._deps.settings.plan:
            self._pending = f"plan {self._deps.settings.plan}"
        if self._pending or self._caps_changed:
            self.report(emit, self._pending)
        elif self._unplanned != unplanned_before:
            self.report(emit, "a step did not cost what was expected")

    async def count(
        self, call: Call, thought: StepCost, *, price: int, seconds: float, helpful: bool | None
    ) -> str:
        """Count one use and its thinking, renew the plan, and return the note that the model reads after the result."""
        self._task.count(call.name, helpful)
        self._tools.learn(call.name, thought, price=price, seconds=seconds)
        await self.renew()
        forbidden_before = next(reversed(self._reported_forbidden.values()), frozenset[str]())
        forbidden_now = frozenset(self.forbidden) & self._offered
        self._reported_forbidden[call.id] = forbidden_now
        added = [name for name in self.forbidden if name in forbidden_now - forbidden_before]
        removed = sorted(forbidden_before - forbidden_now)
        tells = "prompt" in self._deps.settings.plan
        return after_result(self.priced, self.forbidden, added, removed, tells=tells)

    def advice(self, offered: Sequence[str]) -> str:
        """The plan as the model reads it before the question."""
        registered, tells = self._tools.registered, "prompt" in self._deps.settings.plan
        return before_question(
            self.priced, self.forbidden, offered, registered=registered, tells=tells
        )

    def explain(self, tool: str) -> str:
        """Explain a tool's row in the plan, with the arithmetic."""
        threshold = (
            self._deps.settings.threshold if self._snapshot is None else self._snapshot.threshold
        )
        past = self.inputs.evidence.get(tool, NO_EVIDENCE)
        price_known = self.event().low is not None
        return explain(
            self.priced,
            tool,
            past,
            threshold=threshold,
            enforced=self.enforced,
            price_known=price_known,
        )

    def report(self, emit: Emit, reason: str) -> None:
        """Report the current plan if planning is on, and once after it is turned off."""
        self._pending = ""
        self._reason = " and ".join(filter(None, (self._caps_changed, reason)))
        self._reported_caps = None if self._reported_caps is None else self._caps
        if self._mode != "off" or self._deps.settings.plan != "off":
            self._mode = self._deps.settings.plan
            self._number += 1
            emit(self.event())

    def event(self) -> PlanChanged:
        """The current plan as an event."""
        priced, forecast = self.priced, self._forecast
        remaining, rows = priced.remaining, self._rows
        answer = _expected(forecast.ending or forecast.steps[-1:], self.inputs.tokens_per_second)
        low, high = priced.price_range(self.inputs.chances, answer, enforced=self.enforced)
        return PlanChanged(
            mode=self._deps.settings.plan,
            reason=self._caps_changed or self._reason,
            number=self._number,
            rows=rows,
            others=len(priced.plan.rows) - len(rows),
            unit=priced.unit,
            cap=remaining.cap if remaining else None,
            reserved=remaining.reserved if remaining else 0,
            paid=priced.paid,
            budget=priced.budget,
            planned_cost=priced.plan.cost,
            enforced=self.enforced,
            low=low,
            high=high,
            whole=remaining.cap + self.thinking.spent.amount(remaining.unit) if remaining else None,
        )

    @property
    def _caps_changed(self) -> str:
        """How the caps changed since they were last reported; empty if they did not."""
        if not self._reported_caps and not self._caps:
            return ""
        reported: dict[tuple[str, Unit], int] = {
            (cap.scope, cap.unit): cap.limit for cap in self._reported_caps or ()
        }
        current: dict[tuple[str, Unit], int] = {
            (cap.scope, cap.unit): cap.limit for cap in self._caps
        }
        changes = [
            f"the {scope}'s cap is {amount_text(limit, unit)} now"
            for (scope, unit), limit in current.items()
            if reported.get((scope, unit)) != limit
        ]
        scopes = {scope for scope, _ in current}
        changes += [
            f"the {scope}'s cap was removed" for scope, _ in reported if scope not in scopes
        ]
        return " and ".join(dict.fromkeys(changes))
