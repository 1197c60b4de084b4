"""The plan of one turn while it runs: made before the first step, and anew as costs, caps and results come in."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ecoshell.agent.judging import ROLE as JUDGE
from ecoshell.agent.kit import Kit
from ecoshell.agent.mode import Foreseen, View
from ecoshell.agent.plan.draft import Draft
from ecoshell.agent.plan.means import Means, expected_answer, expected_step, means
from ecoshell.agent.plan.notes import after_result, before_question
from ecoshell.agent.plan.tool_costs import Thought, ToolCosts
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
    ToolRegistered,
)
from ecoshell.planning.btp.base import NO_EVIDENCE, Evidence, document_hash
from ecoshell.planning.btp.costs import Expected
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.planning.btp.value import chance, frequency_bound, value

MOST_ROWS = 60
"""Rows an event carries; thousands of tools would fill the session's log."""


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
        self._task = TaskPlan([], earned=kit.planning.earned)
        self._tools = ToolCosts(kit.catalog, outset.evidence, (one.name for one in outset.view.registered))
        self._foreseen = Foreseen(())
        self._number = 0
        self._pending = ""
        """What has changed since the plan was made; empty when nothing has."""
        self._told: frozenset[str] = frozenset()
        """What the model knows to be forbidden."""

    @property
    def enforced(self) -> bool:
        """Whether tools outside the plan are forbidden: where a cap stands and the mode binds."""
        return self._kit.planning.binds and self.draft.means is not None

    @property
    def forbidden(self) -> Mapping[str, str]:
        return self.draft.plan.forbidden if self.enforced else {}

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

    async def begin(self) -> None:
        """Make the first plan."""
        await self._replan()
        self._told = frozenset(self.forbidden)

    def see(self, event: Event) -> None:
        """Take one of the turn's events into account; what it changes is planned for at the next `refresh`."""
        match event:
            case CallStarted():
                self.thought = Thought()
            case BudgetSettled() if event.role != JUDGE:
                self.thought = self.thought.plus(event)
            case ToolRegistered() if event.by == "agent":
                if not self._kit.registers_freely:
                    self.thought = Thought()
                self._tools.register(event.name)
                self._pending = f"{event.name} was registered"
            case BudgetChanged():
                self._pending = "the caps have changed"
            case BranchLeft() if event.unregistered:
                self._tools.unregister(event.unregistered)
                self._pending = "a branch was left"
            case _:
                pass

    async def refresh(self, emit: Emit) -> None:
        """Plan anew; tell of it where something has happened, or where it changes what may be used."""
        before = self.forbidden
        await self._replan()
        if self._pending or self.forbidden != before:
            self.tell(emit, self._pending or "a step did not cost what was expected")

    async def count(self, tool: str, thought: Thought, *, price: int, seconds: float, helpful: bool | None) -> str:
        """Count one use, called for by `thought`, and plan what remains; gives what the model reads after it."""
        self._task.count(tool, helpful)
        self._tools.learn(tool, thought, price=price, seconds=seconds)
        await self._replan()
        told, self._told = self._told, frozenset(self.forbidden)
        tells = self._kit.planning.tells
        return after_result(self.draft, self.forbidden, told, tells=tells)

    def advice(self) -> str:
        """What the model reads before the question."""
        return before_question(self.draft, self.forbidden, self._tools.registered, tells=self._kit.planning.tells)

    def tell(self, emit: Emit, reason: str) -> None:
        """Tell of the plan as it stands, where turns are planned."""
        self._pending = ""
        if self._kit.planning.mode != "off":
            self._number += 1
            emit(self.event(reason))

    def event(self, reason: str = "") -> PlanChanged:
        """The plan as the event that tells of it."""
        found, rows = self.draft.means, self.draft.plan.rows
        shown = sorted(rows, key=lambda row: (row.used == 0, row.state != "planned", -row.value * row.chance))
        answer = expected_answer(self._foreseen, self._kit.cast.model.traits)
        low, high = self.draft.price_range(self.outset.chances, answer, enforced=self.enforced)
        return PlanChanged(
            mode=self._kit.planning.mode,
            reason=reason,
            number=self._number,
            rows=tuple(shown[:MOST_ROWS]),
            others=max(0, len(rows) - MOST_ROWS),
            unit=self.draft.unit,
            cap=found.cap if found else None,
            reserved=found.reserved if found else 0,
            budget=max(0, found.budget) if found else None,
            planned_cost=max(0, self.draft.plan.cost - self._sunk(self.draft.unit)),
            enforced=self.enforced,
            low=low,
            high=high,
        )

    async def _replan(self) -> None:
        if self._given is None:
            with suppress(StoreError):  # the gate says so, where it matters; the plan goes by the caps it knew
                self._caps = await self._kit.purse.caps()
        await asyncio.to_thread(self._solve, self._caps)

    def _solve(self, caps: Sequence[CapState]) -> None:
        """Plan with the caps as they are now, by the tightest; computes, so it belongs into a thread."""
        traits, mode = self._kit.cast.model.traits, self._kit.cast.mode
        self._foreseen = mode.foresee(self.outset.view)
        found = means(caps, mode, self._foreseen, traits)
        drafts = [self._drafted(unit, one) for unit, one in found.items()] or [self._drafted(self._usual_unit(), None)]
        self.draft = min(drafts, key=lambda draft: draft.room)

    def _drafted(self, unit: Unit, found: Means | None) -> Draft:
        guess = expected_step(self._foreseen, self._kit.cast.model.traits)
        freely = self._kit.registers_freely
        costs = self._tools.expected(unit, guess, hour_nano=self._kit.planning.hour_nano, freely=freely)
        self._task.consider(self._candidates(costs))
        if found is None:
            return Draft(self._task.solve(None), unit, None, costs)
        return Draft(self._task.solve(found.budget + self._sunk(unit)), unit, found, costs)

    def _sunk(self, unit: Unit) -> int:
        """What was thought since the last call: a part of the next use's cost that is paid already."""
        return self.thought.tokens if unit == "tokens" else self.thought.nano or 0

    def _usual_unit(self) -> Unit:
        """The unit to speak in without a cap: dollars, unless everything is free."""
        price = self._kit.cast.model.traits.price
        priced = any(self._kit.catalog.tool(name).price_nano for name in self._kit.catalog.names)
        return "usd" if priced or (price is not None and price.worst(1, 1)) else "tokens"

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
