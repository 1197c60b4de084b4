"""The plan of one turn while it runs: made before the first step, and anew as costs, caps and results come in."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ecoshell.agent.judging import ROLE as JUDGE
from ecoshell.agent.kit import Kit
from ecoshell.agent.mode import Foreseen, View
from ecoshell.agent.plan.draft import Draft
from ecoshell.agent.plan.means import expected_answer, expected_step, means
from ecoshell.agent.plan.notes import after_result, before_question
from ecoshell.agent.plan.told import Told
from ecoshell.agent.plan.tool_costs import Thought, ToolCosts
from ecoshell.agent.steering import Estimate
from ecoshell.budget.caps import CapState
from ecoshell.budget.money import Unit
from ecoshell.errors import ModelMissing, StoreError
from ecoshell.events import (
    BranchLeft,
    BudgetChanged,
    BudgetSettled,
    CallStarted,
    Emit,
    Event,
    PlanChanged,
    PlanRow,
    ToolRegistered,
)
from ecoshell.messages import Call, Usage
from ecoshell.planning.btp.base import NO_EVIDENCE, Evidence, document_hash
from ecoshell.planning.btp.costs import Expected
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.planning.btp.value import chance, frequency_bound, value

MOST_ROWS = 60
"""Rows an event carries; thousands of tools would fill the session's log."""
_NAMES_PART = 4
"""Names take at most this part (a quarter) of the budget over a turn, before only a shortlist of them is offered."""
_LEAST_NAMES = 64
"""Tokens of names that are always offered."""
_TOKENS = 1_000
"""By which a rate is taken from a price."""


@dataclass(frozen=True, slots=True)
class Outset:
    """What one question is planned from: what experience says of each tool, and how likely each is to be used."""

    question: str
    view: View
    evidence: Mapping[str, Evidence]
    chances: Mapping[str, float]
    fault: str = ""
    """Why experience could not be read; then the plan is made without it."""

    @classmethod
    def of(cls, question: str, kit: Kit, view: View) -> "Outset":
        """Everything known before the first step; reads the experience, so may block."""
        hashes = {document.name: document_hash(document) for document in kit.catalog.documents}
        evidence: Mapping[str, Evidence] = {}
        fault = ""
        try:
            evidence = kit.planning.past.evidence(question, hashes, kit.model)
        except (StoreError, ModelMissing) as failure:
            fault = f"This turn is planned without experience. {failure}"
        priors = kit.ranker.chances(question)
        chances = {name: chance(evidence.get(name, NO_EVIDENCE), priors.get(name, 0.0)) for name in hashes}
        return cls(question, view, evidence, chances, fault)


def _most_telling(rows: Sequence[PlanRow]) -> tuple[PlanRow, ...]:
    """The rows an event carries: what was used, then what is planned, by what it is worth."""
    ranked = sorted(rows, key=lambda row: (row.used == 0, row.state != "planned", -row.value * row.chance))
    return tuple(ranked[:MOST_ROWS])


class LivePlan:
    """One turn's plan. Call `begin` first; then it is the turn's steering, and hears every event."""

    def __init__(self, outset: Outset, kit: Kit, caps: Sequence[CapState] | None = None) -> None:
        """`caps` are to be planned under in the place of the purse's."""
        self.outset = outset
        self.thought = Thought()
        """What has been thought since the last call: by one step, or by those that a search compared."""
        self.draft = Draft()
        self._kit = kit
        self._given = caps
        self._caps: Sequence[CapState] = caps or ()
        self._view = outset.view
        self._task = TaskPlan([], earned=kit.planning.earned)
        self._tools = ToolCosts(
            kit.catalog,
            outset.evidence,
            (one.name for one in outset.view.registered),
            resources=kit.planning.resources,
        )
        self._told = Told()
        self._foreseen = Foreseen(())
        self._shown: tuple[PlanRow, ...] = ()
        self._solved: object = None
        """What the plan was made of; while that is the same, so is the plan."""
        self._number = 0
        self._mode = "off"
        """The mode that was last told of."""
        self._pending = ""
        """What has changed since the plan was made; empty when nothing has."""

    @property
    def enforced(self) -> bool:
        """Whether tools outside the plan are forbidden: where a cap stands and the mode binds."""
        return self._kit.planning.binds and self.draft.means is not None

    @property
    def forbidden(self) -> Mapping[str, str]:
        return self.draft.plan.forbidden if self.enforced else {}

    def allows(self, tool: str) -> int | None:
        if not self.enforced:
            return None
        return next((row.left for row in self.draft.plan.rows if row.tool == tool), 0)

    def expected(self, tool: str) -> Estimate:
        """By experience, this turn's included; before there is any by the declared price and the tool's profile.

        By experience, the seconds include thinking of the call. May block.
        """
        price, seconds = self._tools.of_one_use(tool)
        return Estimate(price, self._kit.planning.profiled().seconds.get(tool) if seconds is None else seconds)

    @property
    def penniless(self) -> bool:
        """Whether an answer fits what is left, and no tool beside it."""
        found, reasons = self.draft.means, set(self.forbidden.values())
        barred = len(self.forbidden) == len(self.draft.plan.rows)
        return found is not None and found.budget >= 0 and barred and reasons == {"budget"}

    @property
    def threshold(self) -> float:
        """τ."""
        return self._kit.planning.threshold

    async def renew(self) -> None:
        """Plan with what is known now; tells nobody."""
        if self._given is None:
            with suppress(StoreError):  # the gate says so, where it matters; the plan goes by the caps it knew
                self._caps = await self._kit.purse.caps()
        state = self._state()
        if state != self._solved:
            self._foreseen, self.draft = await asyncio.to_thread(self._solve, self._caps)
            self._shown = await asyncio.to_thread(_most_telling, self.draft.plan.rows)
            self._solved = state

    async def settle(self, view: View, offered: Sequence[str]) -> None:
        """Plan with what the model is really shown, of which these names are offered."""
        self._view = view
        self._told.begin((*offered, *self._tools.registered), self.forbidden)
        await self.renew()

    def names_room(self, calls: int) -> int | None:
        """Tokens that names may take in each of so many prompts: a part of the budget; None is no limit."""
        found, price = self.draft.means, self._kit.cast.price
        if found is None or not self.enforced or self._kit.registers_freely:
            return None
        share = max(0, found.budget) // (_NAMES_PART * calls)
        if found.unit == "usd":
            rate = 0 if price is None else price.cost(Usage(input=_TOKENS))
            return None if not rate else max(_LEAST_NAMES, share * _TOKENS // rate)
        return max(_LEAST_NAMES, share)

    def see(self, event: Event) -> None:
        """Take one of the turn's events into account; what it changes is planned for at the next `refresh`."""
        match event:
            case CallStarted():
                self.thought = Thought()
            case BudgetSettled() if event.role != JUDGE:
                self.thought = self.thought.plus(event)
            case ToolRegistered():
                self._see_registered(event)
            case BudgetChanged():
                self._pending = "the caps have changed"
            case BranchLeft():
                self._told.go_back(event.path)
                if event.unregistered:
                    self._tools.unregister(event.unregistered)
                    self._pending = "a branch was left"
            case _:
                pass

    def _see_registered(self, event: ToolRegistered) -> None:
        if event.by == "agent" and not self._kit.registers_freely:
            self.thought = Thought()
        self._tools.register(event.name)
        self._told.learn(event.name)
        if event.by != "upfront":
            self._pending = f"{event.name} was registered"

    async def refresh(self, emit: Emit) -> None:
        """Plan anew; tell of it where something has happened, or where it changes what may be used."""
        before = self.forbidden
        await self.renew()
        if self._mode != self._kit.planning.mode:
            self._pending = f"plan {self._kit.planning.mode}"
        if self._pending or self.forbidden != before:
            self.tell(emit, self._pending or "a step did not cost what was expected")

    async def count(self, call: Call, thought: Thought, *, price: int, seconds: float, helpful: bool | None) -> str:
        """Count one use, called for by `thought`, and plan what remains; gives what the model reads after it."""
        self._task.count(call.name, helpful)
        self._tools.learn(call.name, thought, price=price, seconds=seconds)
        await self.renew()
        fresh, back = self._told.news(call.id, self.forbidden)
        return after_result(self.draft, self.forbidden, fresh, back, tells=self._kit.planning.tells)

    def advice(self, offered: Sequence[str]) -> str:
        """What the model reads before the question, beside the names that are offered."""
        registered, tells = self._tools.registered, self._kit.planning.tells
        return before_question(self.draft, self.forbidden, offered, registered=registered, tells=tells)

    def tell(self, emit: Emit, reason: str) -> None:
        """Tell of the plan as it stands, where turns are planned, and once more when they no longer are."""
        self._pending = ""
        if self._mode != "off" or self._kit.planning.mode != "off":
            self._mode = self._kit.planning.mode
            self._number += 1
            emit(self.event(reason))

    def event(self, reason: str = "") -> PlanChanged:
        """The plan as the event that tells of it."""
        found = self.draft.means
        answer = expected_answer(self._foreseen)
        low, high = self.draft.price_range(self.outset.chances, answer, enforced=self.enforced)
        return PlanChanged(
            mode=self._kit.planning.mode,
            reason=reason,
            number=self._number,
            rows=self._shown,
            others=len(self.draft.plan.rows) - len(self._shown),
            unit=self.draft.unit,
            cap=found.cap if found else None,
            reserved=found.reserved if found else 0,
            budget=max(0, found.budget) if found else None,
            planned_cost=max(0, self.draft.plan.cost - self._sunk(self.draft.unit)),
            enforced=self.enforced,
            low=low,
            high=high,
        )

    def _state(self) -> object:
        """All that a plan is made of and that changes in a turn."""
        kit = self._kit
        uses = dict(self._task.uses)
        choices = (kit.planning.threshold, kit.planning.hour_nano)
        thinking = (self.thought, id(kit.cast.mode), kit.cast.mode.aside)
        return tuple(self._caps), uses, self._tools.registered, thinking, choices, id(self._view)

    def _solve(self, caps: Sequence[CapState]) -> tuple[Foreseen, Draft]:
        """The plan by the tightest of the caps; computes, so it belongs into a thread."""
        mode = self._kit.cast.mode
        foreseen = mode.foresee(self._view)
        found = means(caps, mode, foreseen)
        guess, hour = expected_step(foreseen), self._kit.planning.hour_nano
        units: tuple[Unit, ...] = (*found,) or (self._usual_unit(),)
        freely = self._kit.registers_freely
        costs = {unit: self._tools.expected(unit, guess, hour_nano=hour, freely=freely) for unit in units}
        budgets = {unit: one.budget + self._sunk(unit) for unit, one in found.items()}
        beyond = {name for unit in budgets for name, cost in costs[unit].items() if cost.total > budgets[unit]}
        drafts = [
            Draft(
                self._task.solve(budgets.get(unit), self._candidates(costs[unit]), beyond=beyond),
                unit,
                found.get(unit),
                costs[unit],
            )
            for unit in units
        ]
        return foreseen, min(drafts, key=lambda draft: draft.room)

    def _sunk(self, unit: Unit) -> int:
        """What was thought since the last call: a part of the next use's cost that is paid already."""
        return self.thought.tokens if unit == "tokens" else self.thought.nano or 0

    def _usual_unit(self) -> Unit:
        """The unit to speak in without a cap: dollars, unless everything is free."""
        prices = [model.traits.price for model in self._kit.cast.models]
        priced = any(self._kit.catalog.tool(name).price_nano for name in self._kit.catalog.names)
        return "usd" if priced or any(price is not None and price.worst(1, 1) for price in prices) else "tokens"

    def _candidates(self, costs: Mapping[str, Expected]) -> list[Candidate]:
        """Values and bounds come from before the turn, costs from now."""
        candidates: list[Candidate] = []
        for name, cost in costs.items():
            past = self.outset.evidence.get(name, NO_EVIDENCE)
            worth = value(past)
            bound = frequency_bound(past, worth, self.threshold)
            known, likely = past.weight > 0, self.outset.chances.get(name, 0.0)
            candidates.append(Candidate(name, worth, bound, cost.total, cost.spread, known=known, chance=likely))
        return candidates
