"""The plan of one turn: made before its first step, and renewed as costs, caps and results change (SPEC §2)."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ecoshell.agent.judge import JUDGE
from ecoshell.agent.mode import StepForecast, used
from ecoshell.agent.plan_snapshot import PlanInputs, PlanSnapshot, expected_cost_of
from ecoshell.agent.view import View
from ecoshell.budget import CapState, Unit, amount_text
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
from ecoshell.messages import Call
from ecoshell.planning.btp.costs import Expected, PricedPlan, StepCost, ToolCosts
from ecoshell.planning.btp.evidence import NO_EVIDENCE, Figure
from ecoshell.planning.btp.explanations import after_result, before_question, explain, refused
from ecoshell.planning.btp.plan import TaskPlan

if TYPE_CHECKING:
    from ecoshell.agent.dependencies import Dependencies


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected price and duration of one use of a tool; unknown is None."""

    price_nano: int | None = None
    seconds: float | None = None


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
    replies: StepCost = field(default_factory=StepCost)
    """What the turn has spent on model calls."""
    _proposed: StepCost = field(default_factory=StepCost)
    """The cost of proposals that wait to be chosen."""

    def see(self, event: Event) -> None:
        match event:
            case BudgetSettled():
                self.spent, self.replies = self.spent.plus(event), self.replies.plus(event)
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
        self.deps = deps
        self._fixed_caps = caps
        self.caps: Sequence[CapState] = caps or ()
        """The caps as last read, without the turn's running calls."""
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
    def enforced(self) -> bool:
        """Whether the plan may refuse calls: under a cap, in a binding mode."""
        return "btp" in self.deps.settings.plan and self.priced.remaining is not None

    @property
    def forbidden(self) -> Mapping[str, str]:
        return self.priced.plan.forbidden if self.enforced else {}

    @property
    def _tokens_per_second(self) -> float | None:
        """The speed of the model, observed before this turn or else in it; None before its first call."""
        if self.inputs.tokens_per_second is not None:
            return self.inputs.tokens_per_second
        replies = self.thinking.replies
        return replies.tokens / replies.seconds if replies.seconds else None

    @property
    def _unplanned(self) -> Mapping[str, str]:
        """Tools that are not planned under a cap, each with the reason."""
        if self.enforced:
            return {row.tool: row.why for row in self.priced.plan.rows if row.state != "planned"}
        return {}

    @property
    def allows_tools(self) -> bool:
        """Whether a tool may be used."""
        forbidden = self.forbidden
        return not forbidden or len(forbidden) < len(self.priced.plan.rows)

    @property
    def answer_only(self) -> bool:
        """Whether the remaining budget has room for an answer but for no tool."""
        remaining, forbidden = self.priced.remaining, self.forbidden
        if remaining is None or remaining.budget < 0 or set(forbidden.values()) != {"budget"}:
            return False
        return not self.allows_tools

    def refusal(self, tool: str, *, is_call: bool = False) -> str:
        """Why a tool may not be used; empty if it may.

        With `is_call`, a call of it is written: its step is paid, so that only what it still costs can be refused. A
        strict plan makes no difference.
        """
        reason, is_call = self.forbidden.get(tool), is_call and not self.strict
        if is_call and reason == "budget" and self.priced.call_fits(tool):
            reason = None
        if reason is None and (self.strict or not self.enforced):
            return ""
        request = self.priced.requested(tool, is_call=is_call)
        if reason is None and request.better is None:
            return ""
        return refused(self.priced, tool, reason, request, self._offered)

    def shortage(self, tool: str, *, is_call: bool = False) -> LimitReached | None:
        """The limit that a tool refused for its cost would exceed; None if it is refused for another reason."""
        priced, remaining = self.priced, self.priced.remaining
        if (
            remaining is None
            or tool not in priced.costs
            or self.forbidden.get(tool, "budget") != "budget"
        ):
            return None
        is_call = is_call and not self.strict
        models, request = self.deps.models.current, priced.requested(tool, is_call=is_call)
        text, alternative = partial(amount_text, unit=remaining.unit), ""
        need = request.cost + remaining.reserved - (0 if is_call else priced.paid)
        better = request.better
        if better is not None:
            need += better.cost
            alternative = f", and {better.tool} ({text(better.cost)}) is worth more"
        caps = [cap for cap in models.capped_by(self.caps) if cap.unit == remaining.unit]
        hold = models.mode.answer_hold
        tightest = min(caps, key=lambda cap: cap.limit - used(cap, hold), default=None)
        if tightest is None or need <= remaining.cap:
            return None
        return LimitReached(
            f"{tool} is expected to cost {text(request.cost)}. The {tightest.scope}'s cap has {text(remaining.cap)} "
            f"left, of which {text(remaining.reserved)} is reserved for the answer, so {text(request.budget or 0)} is "
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
            unit,
            expected_cost_of(calls, self.inputs.tokens_per_second),
            hour_nano=0,
            registers=self._view.presentation.registers,
        )

    def subagent_prices(self, tool: str) -> Mapping[str, Figure]:
        """The past prices of the tool's subagents by their model, this turn's included, in nano-dollars."""
        return self._tools.subagent_prices(tool)

    def expected(self, tool: str, size: int | None = None) -> Estimate:
        """The expected price and duration by experience, this turn's included, else by declared price and profile.

        `size` is the input's in bytes, None if unknown. By experience, the seconds include thinking about the call.
        May block.
        """
        price, seconds = self._tools.of_one_use(tool)
        if seconds is None:
            seconds = self.deps.profiles.costs().seconds(tool, size)
        return Estimate(price, seconds)

    async def renew(self, *, for_offer: bool = False) -> None:
        """Make the plan from the current inputs, without reporting it.

        With `for_offer`, nothing is planned without a cap, since an offer then depends on no plan. Nodes of a tool
        graph finish concurrently, so a renewal may find that another has made its plan.
        """
        async with self._renewing:
            if self._fixed_caps is None:
                # the plan uses the caps it knows; the gate reports the error
                with suppress(StoreError):
                    self.caps = await self.deps.budget.caps(at_rest=True)
                    if self._reported_caps is None:  # the first caps are no change
                        self._reported_caps = self.caps
            if for_offer and not self.caps and "prompt" not in self.deps.settings.plan:
                return
            await self._solve()

    async def _solve(self) -> None:
        """Make the plan under the caps as last read, unless its inputs are those of the current plan."""
        deps, models = self.deps, self.deps.models.current
        snapshot = PlanSnapshot(
            caps=models.capped_by(self.caps),
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
                for call in self._reported_forbidden.keys() - {"", *event.path}:
                    del self._reported_forbidden[call]
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
        if self._mode != self.deps.settings.plan:
            self._pending = f"plan {self.deps.settings.plan}"
        if self._pending or self._caps_changed:
            self.report(emit, self._pending)
        elif self._unplanned != unplanned_before:
            self.report(emit, "a step did not cost what was expected")

    async def count(
        self,
        call: Call,
        thought: StepCost,
        *,
        price: int,
        seconds: float,
        helpful: bool | None,
        subagent_model: str = "",
    ) -> None:
        """Count one use and its thinking, and renew the plan."""
        self._task.count(call.name, helpful)
        self._tools.learn(
            call.name, thought, price=price, seconds=seconds, subagent_model=subagent_model
        )
        await self.renew()

    def news(self, call: str) -> str:
        """The note that the model reads after the result of a call: what changed since the last note."""
        forbidden_before = next(reversed(self._reported_forbidden.values()), frozenset[str]())
        forbidden_now = frozenset(self.forbidden) & self._offered
        self._reported_forbidden[call] = forbidden_now
        added = [name for name in self.forbidden if name in forbidden_now - forbidden_before]
        removed = sorted(forbidden_before - forbidden_now)
        tells = "prompt" in self.deps.settings.plan
        if self.deps.models.current.reads_only_array(self._view.presentation):
            return after_result(self.priced, {}, (), (), tells=tells)
        return after_result(self.priced, self.forbidden, added, removed, tells=tells)

    def advice(self, offered: Sequence[str], *, lists_forbidden: bool) -> str:
        """The plan as the model reads it before the question; a grammar makes the list of forbidden tools needless."""
        registered, tells = self._tools.registered, "prompt" in self.deps.settings.plan
        forbidden = self.forbidden if lists_forbidden else dict[str, str]()
        return before_question(self.priced, forbidden, offered, registered=registered, tells=tells)

    def explain(self, tool: str) -> str:
        """Explain a tool's row in the plan, with the arithmetic."""
        return explain(
            self.priced,
            tool,
            self.inputs.evidence.get(tool, NO_EVIDENCE),
            threshold=(self._snapshot or self.deps.settings).threshold,
            enforced=self.enforced,
            price_known=self.event().low is not None,
        )

    def report(self, emit: Emit, reason: str) -> None:
        """Report the current plan if planning is on, and once after it is turned off."""
        self._pending = ""
        self._reason = " and ".join(filter(None, (self._caps_changed, reason)))
        self._reported_caps = None if self._reported_caps is None else self.caps
        if self._mode != "off" or self.deps.settings.plan != "off":
            self._mode = self.deps.settings.plan
            self._number += 1
            emit(self.event())

    def event(self) -> PlanChanged:
        priced, remaining, rows = self.priced, self.priced.remaining, self._rows
        ending = self._forecast.ending or self._forecast.steps[-1:]
        answer = expected_cost_of(ending, self._tokens_per_second)
        low, high = priced.price_range(self.inputs.chances, answer, enforced=self.enforced)
        return PlanChanged(
            mode=self.deps.settings.plan,
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
            whole=self._whole,
        )

    @property
    def _whole(self) -> int | None:
        """What the caps left before the turn; at most a cap, as a corrected cost may count less than it did."""
        remaining = self.priced.remaining
        if remaining is None:
            return None
        caps = self.deps.models.current.capped_by(self.caps)
        whole = remaining.cap + self.thinking.spent.amount(remaining.unit)
        return min([whole, *(cap.limit for cap in caps if cap.unit == remaining.unit)])

    @property
    def _caps_changed(self) -> str:
        """How the caps changed since they were last reported; empty if they did not."""
        reported = {(cap.scope, cap.unit): cap.limit for cap in self._reported_caps or ()}
        changes = [
            f"the {cap.scope}'s cap is {amount_text(cap.limit, cap.unit)} now"
            for cap in self.caps
            if reported.get((cap.scope, cap.unit)) != cap.limit
        ]
        scopes = {cap.scope for cap in self.caps}
        removed = [scope for scope, _ in reported if scope not in scopes]
        changes += [f"the {scope}'s cap was removed" for scope in removed]
        return " and ".join(dict.fromkeys(changes))
