"""The plan of one turn: made before its first step, and anew as costs, caps and results come in (SPEC §2).

`PlanInputs` is what a question is planned from and stays, `PlanSnapshot` what the plan is made of at one moment, and
`TurnPlan` follows the turn by its events and makes the plan anew.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from ecoshell.agent.cost_bounds import of_conclusion, used
from ecoshell.agent.dependencies import JUDGE, Dependencies
from ecoshell.agent.mode import CallForecast, StepForecast, View
from ecoshell.agent.model_set import ModelSet
from ecoshell.budget import CapState, Hold, Unit, amount_text
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
from ecoshell.planning.btp.evidence import NO_EVIDENCE, NOTHING_KNOWN, Evidence, ModeEvidence
from ecoshell.planning.btp.experience import document_hash
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.planning.btp.value import HELPFUL_PRIOR, chance, frequency_bound, priors, value

MOST_ROWS = 60
"""Rows an event carries; thousands of tools would fill the session's log."""
STEP_OUTPUT = 200
"""Tokens a step is expected to write: thought and call, a round mean of recorded runs (catalog/registration)."""
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What one question is planned from: what experience says of each tool, and how likely each is to be used."""

    question: str
    view: View
    evidence: Mapping[str, Evidence]
    chances: Mapping[str, float]
    priors: Mapping[str, float] = field(default_factory=dict[str, float])
    """What each tool is worth before its own history, by its fit and by tools like it."""
    record: ModeEvidence = NOTHING_KNOWN
    """How the models that think now have done with questions like this one."""
    fault: str = ""
    """Why experience could not be read; then the plan is made without it."""

    @classmethod
    def of(cls, question: str, deps: Dependencies, view: View) -> "PlanInputs":
        """Everything known before the first step; reads the experience, so may block."""
        hashes = {document.name: document_hash(document) for document in deps.catalog.documents}
        evidence: Mapping[str, Evidence] = {}
        record, fault = NOTHING_KNOWN, ""
        try:
            evidence = deps.experience.past.evidence(question, hashes, deps.models.name)
            mode = deps.models.current.mode.name
            record = deps.experience.past.modes(question, {mode: deps.models.playing(mode)})[mode]
        except StoreError as failure:
            fault = f"This turn is planned without experience. {failure}"
        fits = deps.ranker.chances(question)
        usual = sum(fits.values()) / max(1, len(fits))
        chances = {name: chance(evidence.get(name, NO_EVIDENCE), fits.get(name, 0.0), usual) for name in hashes}
        kinds = {document.name: document.server for document in deps.catalog.documents}
        return cls(question, view, evidence, chances, priors(evidence, fits, kinds), record, fault)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one use of a tool is expected to take; unknown is None."""

    price_nano: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PlanSnapshot:
    """All that a plan is made of and that changes in a turn; of equal snapshots the plans are the same."""

    caps: tuple[CapState, ...]
    models: ModelSet
    aside: Hold | None
    view: View
    ahead: StepCost
    """What was thought towards the next use: a part of its cost that is paid already."""
    threshold: float
    strict: bool
    hour_nano: int
    uses: Mapping[str, int]
    registered: frozenset[str]
    inputs: PlanInputs = field(compare=False)
    task: TaskPlan = field(compare=False)
    """A copy of the turn's, as `tools` is: what both have learned comes of the uses."""
    tools: ToolCosts = field(compare=False)

    def solve(self) -> tuple[PricedPlan, StepForecast, tuple[PlanRow, ...]]:
        """The plan by the tightest of the caps, what it goes by, and the rows an event carries: used ones first.

        Computes, so it belongs into a thread.
        """
        forecast = self.models.mode.forecast(self.view)
        remaining: dict[Unit, RemainingBudget] = {}
        for cap in self.caps:  # what is set aside for the answer counts as reserved, not as used
            left = cap.limit - used(cap, self.aside)
            if cap.unit in remaining and left >= remaining[cap.unit].cap:
                continue
            if self.aside is None:
                reserved = of_conclusion(forecast, counted=True).in_unit_of(cap) or 0
            else:
                reserved = (self.aside.nano or 0) if cap.unit == "usd" else self.aside.tokens
            remaining[cap.unit] = RemainingBudget(cap.unit, max(0, left), reserved)
        guess = _expected([call for call in forecast.steps if call.request.purpose != "answer"])
        prices = [model.traits.price for model in self.models.models]
        costs_money = self.tools.priced or any(price is not None and price.worst(1, 1) for price in prices)
        usual: Unit = "usd" if costs_money else "tokens"  # to speak in without a cap
        units: tuple[Unit, ...] = (*remaining,) or (usual,)
        costs = {unit: self.tools.expected(unit, guess, hour_nano=self.hour_nano) for unit in units}
        beyond = {
            name
            for unit, found in remaining.items()
            for name, cost in costs[unit].items()
            if cost.total > found.budget + self._paid_of(cost)  # not even one use fits
        }
        plans = [self._plan(unit, remaining.get(unit), costs[unit], beyond) for unit in units]
        tightest = min(plans, key=lambda plan: plan.room)
        rows = tightest.plan.rows
        shown = sorted(rows, key=lambda row: (row.used == 0, row.state != "planned", -row.value * row.chance))
        return tightest, forecast, tuple(shown[:MOST_ROWS])

    def _paid_of(self, cost: Expected) -> int:
        """What of a use is paid already, if it comes next: no more of what was thought than the step takes that comes
        first, which registers the tool or calls it."""
        return min(self.ahead.amount(cost.unit), cost.registering or cost.step)

    def _plan(
        self, unit: Unit, found: RemainingBudget | None, costs: Mapping[str, Expected], beyond: Collection[str]
    ) -> PricedPlan:
        """The plan in one unit.

        What is paid already depends on the use that comes next, which must be a planned one: while no planned tool
        would have that much of its cost paid, the plan is made again with what the dearest of them would have.
        """
        before: Mapping[str, float] = {} if self.strict else self.inputs.priors
        candidates: list[Candidate] = []
        for name, cost in costs.items():  # values and bounds come from before the turn, costs from now
            past = self.inputs.evidence.get(name, NO_EVIDENCE)
            worth = value(past, before.get(name, HELPFUL_PRIOR))
            bound = frequency_bound(past, worth, self.threshold)
            known, likely = past.weight > 0, self.inputs.chances.get(name, 0.0)
            candidates.append(Candidate(name, worth, bound, cost.total, cost.spread, known=known, chance=likely))
        if found is None:
            return PricedPlan(self.task.solve(None, candidates), unit, None, costs, priors=before)
        paid = max(map(self._paid_of, costs.values()), default=0)
        while True:
            plan = self.task.solve(found.budget + paid, candidates, unaffordable=beyond)
            most = max((self._paid_of(costs[row.tool]) for row in plan.rows if row.left), default=0)
            if most >= paid:
                return PricedPlan(plan, unit, found, costs, paid, before)
            paid = most


def _expected(calls: Sequence[CallForecast]) -> StepCost:
    """What these calls are expected to take, without a tokenizer; each at its model's price, unknown where one is."""
    nano: int | None = 0
    tokens = 0
    for call in calls:
        request, price = call.request, call.model.traits.price
        texts = [message.text for message in request.messages] + [tool.entry for tool in request.tools]
        read = sum(map(len, texts)) // _CHARACTERS_PER_TOKEN
        usage = Usage(input=read, output=min(request.max_tokens, STEP_OUTPUT))
        nano = None if nano is None or price is None else nano + price.cost(usage)
        tokens += usage.total
    return StepCost(nano, tokens)


@dataclass(slots=True)
class ThinkingCost:
    """What was thought towards the next use of a tool, and what of that is paid ahead; hears every event of a turn.

    A use costs the thinking that calls for it. What of that is thought already has left the caps and is not to be paid
    again, as long as a use can come of it: a thought that turned out to call for none was paid for nothing.
    """

    taken: StepCost = field(default_factory=StepCost)
    """All that was thought since the last call: what the next one comes to have cost."""
    ahead: StepCost = field(default_factory=StepCost)
    """What of it may still lead to a call, and of a call under way what led to it."""
    spent: StepCost = field(default_factory=StepCost)
    """What the turn has spent, tools included."""
    _proposed: StepCost = field(default_factory=StepCost)
    """What proposals took that wait to be chosen."""

    def see(self, event: Event) -> None:
        """Take an event into account."""
        match event:
            case BudgetSettled():
                self.spent = self.spent.plus(event)
                if event.role != JUDGE:
                    self.taken, self.ahead = self.taken.plus(event), self.ahead.plus(event)
            case StepProposed():
                self._proposed = self.ahead
            case CallStarted():
                self.taken = StepCost()
            case CallFinished():
                self.spent = self.spent + StepCost(event.spent_nano)
                self.drop()
            case BranchLeft():
                self.drop()
            case ToolRegistered() if event.by == "agent":
                self.taken = StepCost()
                self.drop()
            case _:
                pass

    def step(self) -> None:
        """A step begins: of the thoughts before it, only those that were proposed can still lead to a call."""
        self.ahead = self._proposed

    def drop(self) -> None:
        """No call comes any more of what was thought."""
        self.ahead = self._proposed = StepCost()


class TurnPlan:
    """One turn's plan. Call `renew` first; after `settle` it is the turn's policy, and hears every event."""

    def __init__(self, inputs: PlanInputs, deps: Dependencies, caps: Sequence[CapState] | None = None) -> None:
        """`caps` are to be planned under in the place of the session_budget's."""
        self.inputs = inputs
        self._deps = deps
        self._given = caps
        self._caps: Sequence[CapState] = caps or ()
        self._told_caps: Sequence[CapState] | None = caps
        """The caps as they were told of last; None before they were read."""
        self._view = inputs.view
        settings = deps.settings
        self.strict = settings.strict
        """Whether tools that are forbidden are not even offered; else a cap hides no name."""
        self._task = TaskPlan([], threshold=settings.threshold, strict=settings.strict, earned=settings.earned)
        registered = (tool.name for tool in inputs.view.registered)
        self._tools = ToolCosts(deps.catalog, inputs.evidence, registered, resources=deps.profiles.resources)
        self.thinking = ThinkingCost()
        self._known: set[str] = set()
        """The tools that the model can name."""
        self._told_forbidden: dict[str, frozenset[str]] = {}
        """What the model was told is forbidden, after each call, by its id and in order; "" is the question."""
        self.priced = PricedPlan()
        """The plan as it stands."""
        self._forecast = StepForecast(())
        self._shown: tuple[PlanRow, ...] = ()
        self._made_of: PlanSnapshot | None = None
        """What the plan was made of; while that is the same, so is the plan."""
        self._renewing = asyncio.Lock()
        self._number = 0
        self._mode = "off"
        """The mode that was last told of."""
        self._pending = ""
        """What has changed since the plan was made; empty when nothing has."""
        self._reason = ""
        """Why the plan was made that was last told of."""

    @property
    def enforced(self) -> bool:
        """Whether calls may be refused by the plan: where a cap stands and the mode binds."""
        return "btp" in self._deps.settings.plan and self.priced.remaining is not None

    @property
    def forbidden(self) -> Mapping[str, str]:
        return self.priced.plan.forbidden if self.enforced else {}

    @property
    def _unplanned(self) -> Mapping[str, str]:
        """Tools that are not planned though a cap stands, each with the reason."""
        return {row.tool: row.why for row in self.priced.plan.rows if not row.left} if self.enforced else {}

    @property
    def answer_only(self) -> bool:
        """Whether an answer fits what is left, and no tool beside it."""
        found, reasons = self.priced.remaining, set(self.forbidden.values())
        all_forbidden = len(self.forbidden) == len(self.priced.plan.rows)
        return found is not None and found.budget >= 0 and all_forbidden and reasons == {"budget"}

    def refusal(self, tool: str) -> str:
        why = self.forbidden.get(tool)
        better = self.priced.plan.better(tool) if self.enforced and not self.strict else None
        return "" if why is None and better is None else refused(self.priced, tool, why, better, self._known)

    def shortage(self, tool: str) -> LimitReached | None:
        """What a tool refused for money lacks, in the figures of the plan; None where another reason bars it."""
        priced, found, cost = self.priced, self.priced.remaining, self.priced.costs.get(tool)
        if found is None or cost is None or self.forbidden.get(tool, "budget") != "budget":
            return None
        aside = self._deps.models.current.mode.answer_hold
        caps = [cap for cap in self._deps.models.current.capped_by(self._caps) if cap.unit == found.unit]
        tightest = min(caps, key=lambda cap: cap.limit - used(cap, aside), default=None)
        better = priced.plan.better(tool)
        need = cost.total + found.reserved - priced.paid + (better.cost if better is not None else 0)
        if tightest is None or need <= found.cap:
            return None

        shown = partial(amount_text, unit=found.unit)
        beside = f", and {better.tool} ({shown(better.cost)}) is worth more" if better is not None else ""
        return LimitReached(
            f"{tool} is expected to cost {shown(cost.total)}. The {tightest.scope}'s cap has {shown(found.cap)} left, "
            f"of which {shown(found.reserved)} is reserved for the answer, so {shown(priced.budget or 0)} is for tools"
            f"{beside}.",
            scope=tightest.scope,
            need=need,
            left=found.cap,
            unit=found.unit,
        )

    def allows(self, tool: str) -> int | None:
        row, budget = self.priced.plan.row(tool), self.priced.plan.budget
        if not self.enforced or row is None or budget is None:
            return 0 if self.enforced else None
        if self.strict or tool in self.forbidden:
            return row.left
        return budget // row.cost if row.cost else None

    def expected(self, tool: str, size: int | None = None) -> Estimate:
        """By experience, this turn's included; before there is any by the declared price and the tool's profile.

        `size` is the input's in bytes, None is unknown. By experience, the seconds include thinking of the call. May
        block.
        """
        price, seconds = self._tools.of_one_use(tool)
        return Estimate(price, self._deps.profiles.costs().seconds(tool, size) if seconds is None else seconds)

    async def renew(self, *, for_offer: bool = False) -> None:
        """Plan with what is known now; tells nobody.

        An offer goes by what a plan forbids and by what is told of it: without a cap that is nothing to wait for.
        Branches of a plan finish at the same time: one renewal waits for another, and often finds its plan made.
        """
        async with self._renewing:
            if self._given is None:
                with suppress(StoreError):  # the gate says so, where it matters; the plan goes by the caps it knew
                    self._caps = await self._deps.budget.caps(at_rest=True)
                    if self._told_caps is None:  # those that stand first are no change
                        self._told_caps = self._caps
            if for_offer and not self._caps and "prompt" not in self._deps.settings.plan:
                return
            deps, models = self._deps, self._deps.models.current
            snapshot = PlanSnapshot(
                caps=models.capped_by(self._caps),
                models=models,
                aside=models.mode.answer_hold,
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
            if snapshot != self._made_of:
                self.priced, self._forecast, self._shown = await asyncio.to_thread(snapshot.solve)
                self._made_of = snapshot

    async def settle(self, view: View, offered: Sequence[str]) -> None:
        """Plan with what the model is really shown, of which these names are offered."""
        self._view = view
        self._known = {*offered, *self._tools.registered}
        self._told_forbidden[""] = frozenset(self.forbidden) & self._known
        await self.renew()

    def see(self, event: Event) -> None:
        """Take one of the turn's events into account; what it changes is planned for at the next `refresh`."""
        self.thinking.see(event)
        match event:
            case ToolRegistered():
                self._tools.registered.add(event.name)
                self._known.add(event.name)
                if event.by != "upfront":
                    self._pending = f"{event.name} was registered"
            case BranchLeft():  # the search goes on behind the calls of the path, and so does what the model was told
                told = self._told_forbidden.items()
                self._told_forbidden = {call: names for call, names in told if not call or call in event.path}
                if event.unregistered:
                    self._tools.registered.difference_update(event.unregistered)
                    self._pending = "a branch was left"
            case _:
                pass

    async def refresh(self, emit: Emit) -> None:
        """Plan anew for the step that comes now; tell of it as `follow` does."""
        self.thinking.step()
        await self.follow(emit)

    async def follow(self, emit: Emit) -> None:
        """Plan anew; tell of it where something has happened, or where it changes what is planned."""
        before = self._unplanned
        await self.renew()
        if self._mode != self._deps.settings.plan:
            self._pending = f"plan {self._deps.settings.plan}"
        if self._pending or self._caps_changed:
            self.tell(emit, self._pending)
        elif self._unplanned != before:
            self.tell(emit, "a step did not cost what was expected")

    async def count(self, call: Call, thought: StepCost, *, price: int, seconds: float, helpful: bool | None) -> str:
        """Count one use, called for by `thought`, and plan what remains; gives what the model reads after it."""
        self._task.count(call.name, helpful)
        self._tools.learn(call.name, thought, price=price, seconds=seconds)
        await self.renew()
        before = next(reversed(self._told_forbidden.values()), frozenset[str]())
        after = frozenset(self.forbidden) & self._known
        self._told_forbidden[call.id] = after
        fresh = [name for name in self.forbidden if name in after - before]
        tells = "prompt" in self._deps.settings.plan
        return after_result(self.priced, self.forbidden, fresh, sorted(before - after), tells=tells)

    def advice(self, offered: Sequence[str]) -> str:
        """What the model reads before the question, beside the names that are offered."""
        registered, tells = self._tools.registered, "prompt" in self._deps.settings.plan
        return before_question(self.priced, self.forbidden, offered, registered=registered, tells=tells)

    def explain(self, tool: str) -> str:
        """Why the plan has a tool as it has it, with the arithmetic."""
        threshold = self._deps.settings.threshold if self._made_of is None else self._made_of.threshold
        past, price_known = self.inputs.evidence.get(tool, NO_EVIDENCE), self.event().low is not None
        return explain(self.priced, tool, past, threshold=threshold, enforced=self.enforced, price_known=price_known)

    def tell(self, emit: Emit, reason: str) -> None:
        """Tell of the plan as it stands, where turns are planned, and once more when they no longer are."""
        self._pending = ""
        self._reason = " and ".join(filter(None, (self._caps_changed, reason)))
        self._told_caps = None if self._told_caps is None else self._caps
        if self._mode != "off" or self._deps.settings.plan != "off":
            self._mode = self._deps.settings.plan
            self._number += 1
            emit(self.event())

    def event(self) -> PlanChanged:
        """The plan as the event that tells of it."""
        priced, forecast = self.priced, self._forecast
        found, rows = priced.remaining, self._shown
        answer = _expected(forecast.ending or forecast.steps[-1:])
        low, high = priced.price_range(self.inputs.chances, answer, enforced=self.enforced)
        return PlanChanged(
            mode=self._deps.settings.plan,
            reason=self._caps_changed or self._reason,
            number=self._number,
            rows=rows,
            others=len(priced.plan.rows) - len(rows),
            unit=priced.unit,
            cap=found.cap if found else None,
            reserved=found.reserved if found else 0,
            paid=priced.paid,
            budget=priced.budget,
            planned_cost=priced.plan.cost,
            enforced=self.enforced,
            low=low,
            high=high,
            whole=found.cap + self.thinking.spent.amount(found.unit) if found else None,
        )

    @property
    def _caps_changed(self) -> str:
        """Which caps have changed since they were last told of, in words; empty when none has."""
        if not self._told_caps and not self._caps:
            return ""
        before: dict[tuple[str, Unit], int] = {(cap.scope, cap.unit): cap.limit for cap in self._told_caps or ()}
        now: dict[tuple[str, Unit], int] = {(cap.scope, cap.unit): cap.limit for cap in self._caps}
        said = [
            f"the {scope}'s cap is {amount_text(limit, unit)} now"
            for (scope, unit), limit in now.items()
            if before.get((scope, unit)) != limit
        ]
        scopes = {scope for scope, _ in now}
        said += [f"the {scope}'s cap was removed" for scope, _ in before if scope not in scopes]
        return " and ".join(dict.fromkeys(said))
