"""The plan of one turn while it runs: made before the first step, and anew as costs, caps and results come in."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from ecoshell.agent.context import Estimate
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.mode import View, used
from ecoshell.agent.plan.draft import Draft
from ecoshell.agent.plan.forethought import Forethought
from ecoshell.agent.plan.limits import Limits
from ecoshell.agent.plan.means import expected_answer
from ecoshell.agent.plan.moment import Moment, Solved
from ecoshell.agent.plan.notes import after_result, before_question, refused
from ecoshell.agent.plan.outset import Outset
from ecoshell.agent.plan.told import Told
from ecoshell.agent.plan.tool_costs import Thought, ToolCosts
from ecoshell.agent.printing import amount
from ecoshell.budget.caps import CapState
from ecoshell.errors import LimitReached, StoreError
from ecoshell.events import (
    BranchLeft,
    Emit,
    Event,
    PlanChanged,
    ToolRegistered,
)
from ecoshell.messages import Call
from ecoshell.planning.btp.plan import TaskPlan


class LivePlan:
    """One turn's plan. Call `renew` first; after `settle` it is the turn's steering, and hears every event."""

    def __init__(self, outset: Outset, deps: Dependencies, caps: Sequence[CapState] | None = None) -> None:
        """`caps` are to be planned under in the place of the purse's."""
        self.outset = outset
        self._deps = deps
        self._given = caps
        self._caps: Sequence[CapState] = caps or ()
        self._view = outset.view
        planning = deps.planning
        self._strict = planning.strict
        self._task = TaskPlan([], threshold=planning.threshold, strict=planning.strict, earned=planning.earned)
        self._tools = ToolCosts(
            deps.catalog,
            outset.evidence,
            (one.name for one in outset.view.registered),
            resources=deps.planning.resources,
        )
        self._forethought = Forethought(registers_freely=deps.models.current.registers_freely)
        self._limits = Limits()
        self._told = Told()
        self._solved = Solved()
        self._made_of: Moment | None = None
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
    def draft(self) -> Draft:
        """The plan as it stands."""
        return self._solved.draft

    @property
    def thought(self) -> Thought:
        """What has been thought since the last call: by one step, or by those that a search compared."""
        return self._forethought.taken

    @property
    def enforced(self) -> bool:
        """Whether calls may be refused by the plan: where a cap stands and the mode binds."""
        return self._deps.planning.binds and self.draft.means is not None

    @property
    def forbidden(self) -> Mapping[str, str]:
        return self.draft.plan.forbidden if self.enforced else {}

    @property
    def _unplanned(self) -> Mapping[str, str]:
        """Tools that are not planned though a cap stands, each with the reason."""
        return {row.tool: row.why for row in self.draft.plan.rows if not row.left} if self.enforced else {}

    @property
    def hidden(self) -> Collection[str]:
        """Tools that are not even offered: strictly those that are forbidden; else a cap hides no name."""
        return self.forbidden if self._strict else ()

    def refusal(self, tool: str) -> str:
        plan, why = self.draft.plan, self.forbidden.get(tool)
        better = plan.better(tool) if self.enforced and not self._strict else None
        if why is None and better is None:
            return ""
        return refused(self.draft, tool, why, better, self._told.known)

    def shortage(self, tool: str) -> LimitReached | None:
        """What a tool refused for money lacks, in the figures of the plan; None where another reason bars it."""
        draft, found, cost = self.draft, self.draft.means, self.draft.costs.get(tool)
        if found is None or cost is None or self.forbidden.get(tool, "budget") != "budget":
            return None
        aside = self._deps.models.current.mode.aside
        caps = [cap for cap in self._caps if cap.unit == found.unit]
        tightest = min(caps, key=lambda cap: cap.limit - used(cap, aside), default=None)
        better = draft.plan.better(tool)
        need = cost.total + found.reserved - draft.paid + (better.cost if better is not None else 0)
        if tightest is None or need <= found.cap:
            return None
        price, left, reserved = (amount(value, found.unit) for value in (cost.total, found.cap, found.reserved))
        beside = f", and {better.tool} ({amount(better.cost, found.unit)}) is worth more" if better is not None else ""
        return LimitReached(
            f"{tool} is expected to cost {price}. The {tightest.scope}'s cap has {left} left, of which {reserved} is "
            f"reserved for the answer, so {amount(draft.budget or 0, found.unit)} is for tools{beside}.",
            scope=tightest.scope,
            need=need,
            left=found.cap,
            unit=found.unit,
        )

    def allows(self, tool: str) -> int | None:
        row, budget = self.draft.plan.row(tool), self.draft.plan.budget
        if not self.enforced or row is None or budget is None:
            return 0 if self.enforced else None
        if self._strict or tool in self.forbidden:
            return row.left
        return budget // row.cost if row.cost else None

    def expected(self, tool: str, size: int | None = None) -> Estimate:
        """By experience, this turn's included; before there is any by the declared price and the tool's profile.

        `size` is the input's in bytes, None is unknown. By experience, the seconds include thinking of the call. May
        block.
        """
        price, seconds = self._tools.of_one_use(tool)
        return Estimate(price, self._deps.planning.profiled().seconds(tool, size) if seconds is None else seconds)

    @property
    def penniless(self) -> bool:
        """Whether an answer fits what is left, and no tool beside it."""
        found, reasons = self.draft.means, set(self.forbidden.values())
        barred = len(self.forbidden) == len(self.draft.plan.rows)
        return found is not None and found.budget >= 0 and barred and reasons == {"budget"}

    @property
    def threshold(self) -> float:
        """τ, as the plan was made with it."""
        return self._deps.planning.threshold if self._made_of is None else self._made_of.threshold

    async def renew(self) -> None:
        """Plan with what is known now; tells nobody.

        Branches of a plan finish at the same time: one renewal waits for another, and often finds its plan made.
        """
        async with self._renewing:
            if self._given is None:
                with suppress(StoreError):  # the gate says so, where it matters; the plan goes by the caps it knew
                    self._caps = await self._deps.budget.caps_at_rest()
                    self._limits.follow(self._caps)
            moment = self._moment()
            if moment != self._made_of:
                self._solved = await asyncio.to_thread(moment.solve)
                self._made_of = moment

    async def settle(self, view: View, offered: Sequence[str]) -> None:
        """Plan with what the model is really shown, of which these names are offered."""
        self._view = view
        self._told.begin((*offered, *self._tools.registered), self.forbidden)
        await self.renew()

    def see(self, event: Event) -> None:
        """Take one of the turn's events into account; what it changes is planned for at the next `refresh`."""
        self._forethought.see(event)
        self._limits.see(event)
        match event:
            case ToolRegistered():
                self._see_registered(event)
            case BranchLeft():
                self._told.go_back(event.path)
                if event.unregistered:
                    self._tools.unregister(event.unregistered)
                    self._pending = "a branch was left"
            case _:
                pass

    def _see_registered(self, event: ToolRegistered) -> None:
        self._tools.register(event.name)
        self._told.learn(event.name)
        if event.by != "upfront":
            self._pending = f"{event.name} was registered"

    async def refresh(self, emit: Emit) -> None:
        """Plan anew for the step that comes now; tell of it as `follow` does."""
        self._forethought.step()
        await self.follow(emit)

    async def follow(self, emit: Emit) -> None:
        """Plan anew; tell of it where something has happened, or where it changes what is planned."""
        before = self._unplanned
        await self.renew()
        if self._mode != self._deps.planning.mode:
            self._pending = f"plan {self._deps.planning.mode}"
        if self._pending or self._limits.change:
            self.tell(emit, self._pending)
        elif self._unplanned != before:
            self.tell(emit, "a step did not cost what was expected")

    def end(self) -> None:
        """The turn is over: what was thought last called for no use."""
        self._forethought.drop()

    async def count(self, call: Call, thought: Thought, *, price: int, seconds: float, helpful: bool | None) -> str:
        """Count one use, called for by `thought`, and plan what remains; gives what the model reads after it."""
        self._task.count(call.name, helpful)
        self._tools.learn(call.name, thought, price=price, seconds=seconds)
        await self.renew()
        fresh, back = self._told.news(call.id, self.forbidden)
        return after_result(self.draft, self.forbidden, fresh, back, tells=self._deps.planning.tells)

    def advice(self, offered: Sequence[str]) -> str:
        """What the model reads before the question, beside the names that are offered."""
        registered, tells = self._tools.registered, self._deps.planning.tells
        return before_question(self.draft, self.forbidden, offered, registered=registered, tells=tells)

    def tell(self, emit: Emit, reason: str) -> None:
        """Tell of the plan as it stands, where turns are planned, and once more when they no longer are."""
        self._pending = ""
        self._reason = " and ".join(filter(None, (self._limits.change, reason)))
        self._limits.tell()
        if self._mode != "off" or self._deps.planning.mode != "off":
            self._mode = self._deps.planning.mode
            self._number += 1
            emit(self.event())

    def event(self) -> PlanChanged:
        """The plan as the event that tells of it."""
        found = self.draft.means
        answer = expected_answer(self._solved.foreseen)
        low, high = self.draft.price_range(self.outset.chances, answer, enforced=self.enforced)
        return PlanChanged(
            mode=self._deps.planning.mode,
            reason=self._limits.change or self._reason,
            number=self._number,
            rows=self._solved.shown,
            others=len(self.draft.plan.rows) - len(self._solved.shown),
            unit=self.draft.unit,
            cap=found.cap if found else None,
            reserved=found.reserved if found else 0,
            paid=self.draft.paid,
            budget=self.draft.budget,
            planned_cost=self.draft.plan.cost,
            enforced=self.enforced,
            low=low,
            high=high,
            whole=found.cap + self._limits.spent(found.unit) if found else None,
        )

    def _moment(self) -> Moment:
        deps = self._deps
        return Moment(
            caps=tuple(self._caps),
            cast=deps.models.current,
            aside=deps.models.current.mode.aside,
            view=self._view,
            ahead=self._forethought.ahead,
            threshold=deps.planning.threshold,
            strict=self._strict,
            hour_nano=deps.planning.hour_nano,
            uses=dict(self._task.uses),
            registered=self._tools.registered,
            outset=self.outset,
            task=self._task.copy(),
            tools=self._tools.copy(),
        )
