"""The guards of every call: announced, logged, paid, run within its limits, judged and recorded."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol, cast

from ecoshell.agent.experience import Experience
from ecoshell.agent.judge import Judge
from ecoshell.agent.model_set import ActiveModels
from ecoshell.agent.spending import SessionBudget
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.agent.turn_usage import BudgetLine
from ecoshell.budget import ToolHold, time_is_up
from ecoshell.budget.working_time import TimeUp, WorkingTime, measuring
from ecoshell.catalog import Catalog
from ecoshell.errors import LimitReached, StoreError
from ecoshell.events import CallFinished, CallJudged, CallStarted, Emit, Notice
from ecoshell.messages import TOOL_CALL, Call, Observation
from ecoshell.planning.btp.costs import StepCost
from ecoshell.planning.btp.experience import Use
from ecoshell.secrecy import environ, mask_secrets
from ecoshell.sessions import EventLog
from ecoshell.strategies import Path, Step, same
from ecoshell.tools import LASTING, UNSTATED, Caller, Limits, caller, limits_of
from ecoshell.tools.running import contained, failed

if TYPE_CHECKING:
    from ecoshell.planning.judging import Verdict

_SAME_RESULTS_NOTED = 3
"""How often a call must have had the same result before a note says so."""
_STOPPED = Observation("The turn was stopped while the tool ran.", ok=False)


@dataclass(slots=True)
class Bill:
    """What one call has cost so far, and how it ran."""

    spent_nano: int = 0
    """The price of its tool."""
    delegated_nano: int = 0
    """What a subagent spent that the call started, as far as it is known."""
    subagent_model: str = ""
    """The model of that subagent; empty if none worked."""
    worked_seconds: float | None = None
    """How long the subagent worked that the call started, without its waiting; None if none worked."""
    made: Call | None = None
    """The call as the tool received it, with the user's edits; None until it runs."""
    partial: Observation | None = None
    """What the tool returned when it was stopped."""

    @property
    def total_nano(self) -> int:
        return self.spent_nano + self.delegated_nano

    def with_partial(self, text: str) -> str:
        """The text, followed by the output of a stopped tool."""
        if self.partial is None or not self.partial.text:
            return text
        return f"{text} Its output so far:\n{self.partial.text}"


@dataclass(slots=True)
class ReplyCalls:
    """The calls of one reply."""

    pending: set[str] = field(default_factory=set[str])
    """IDs of those that have not ended."""
    steps: list[Step] = field(default_factory=list[Step])
    """Those that have ended."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """The circumstances of a call: its path, the registered tools, and where events go."""

    path: Path
    registered: set[str]
    """Calls that run together share the set, so that only the first of one tool registers it."""
    emit: Emit
    rationale: str = ""
    bill: Bill = field(default_factory=Bill)
    through: str = ""
    """The meta-tool that carries the call."""
    role: str = ""
    """The role that made the call; empty if no model did."""
    node: bool = False
    """Whether it is a node of a tool graph, which decides about repetitions itself."""
    forgotten: frozenset[str] = frozenset()
    """IDs of calls whose results the model no longer reads in full, so that repeating them is allowed."""
    unjudged: set[str] = field(default_factory=set[str])
    """IDs of this call and of those that run together with it, until they are judged; the last one gets the note."""
    delegating: set[str] = field(default_factory=set[str])
    """IDs of the calls made together that will start a subagent and have no share of the budget yet."""
    reply: ReplyCalls = field(default_factory=ReplyCalls)
    """The reply that made the call; without calls if no model made it."""
    thought: StepCost | None = None
    """The cost of thinking about the call; None means all thinking since the previous call."""


class ToolExecutor(Protocol):
    """Turns a call into an observation."""

    async def execute(self, call: Call, context: CallContext) -> Observation: ...


def refuse(guard: str, text: str) -> Observation:
    """The observation of a call that `guard` refused."""
    return Observation(text, ok=False, refused=guard)


def unwrap(call: Call) -> Call:
    """The call itself, or the one inside a `tool_call`."""
    if call.name != TOOL_CALL:
        return call
    inside: object = call.arguments.get("arguments")
    arguments: Mapping[str, Any] = (
        cast("Mapping[str, Any]", inside) if isinstance(inside, Mapping) else {}
    )
    return replace(call, name=str(call.arguments.get("name", "")), arguments=arguments)


def may_repeat(models: ActiveModels) -> bool:
    """Whether the model may repeat a call although nothing has changed; a small or trained one would not stop."""
    traits = models.current.model.traits
    return traits.capable and not traits.trained


@dataclass(frozen=True)
class Guard:
    """A wrapper around another executor."""

    inner: ToolExecutor


@dataclass(frozen=True)
class Announced(Guard):
    """Emits when a call starts and ends, even if the turn is stopped."""

    models: ActiveModels

    async def execute(self, call: Call, context: CallContext) -> Observation:
        context.emit(_started(call, context))
        start = time.monotonic()
        try:
            observation = self._visible(await self.inner.execute(call, context))
        except BaseException:
            has_run, seconds = context.bill.made is not None, time.monotonic() - start
            text = f"The turn ended before {call.name} {'did' if has_run else 'was run'}."
            observation = Observation(
                context.bill.with_partial(text),
                ok=False,
                seconds=seconds,
                refused="" if has_run else "stopped",
            )
            context.emit(finished(call, observation, context))
            raise
        context.emit(finished(call, observation, context))
        return observation

    def _visible(self, observation: Observation) -> Observation:
        """The result; for a model without vision, a note replaces its images."""
        traits = self.models.current.model.traits
        if not observation.images or traits.vision is not False:
            return observation
        text = f"{observation.text}\n{traits.name} cannot see images."
        return replace(observation, text=text, images=())


def announce(call: Call, observation: Observation, context: CallContext) -> None:
    """Emit the start and the end of a call that no tool ran."""
    context.emit(_started(call, context))
    context.emit(finished(call, observation, context))


def _started(call: Call, context: CallContext) -> CallStarted:
    return CallStarted(
        call.id, call.name, call.arguments, context.through, context.role, call.group
    )


def finished(call: Call, observation: Observation, context: CallContext) -> CallFinished:
    """The event for a finished call, with its peak memory and its price by time and memory (CATP-LLM Table B.2).

    Both are None if the processor's memory is unknown.
    """
    footprint, memory, units = observation.footprint, None, None
    if footprint is not None and footprint.cpu_mb is not None:
        from ecoshell.planning.catp.costs import TABLE_B2

        cpu = footprint.cpu_mb + (footprint.cpu_instant_mb or 0.0)
        gpu = (footprint.gpu_mb or 0.0) + (footprint.gpu_instant_mb or 0.0)
        memory = round(cpu + gpu, 3)
        units = float(TABLE_B2.price(observation.seconds * 1000, footprint))
    return CallFinished(
        call.id,
        call.name,
        observation.ok,
        observation.text,
        observation.truncated,
        observation.seconds,
        observation.refused,
        spent_nano=context.bill.spent_nano,
        changes=observation.changes,
        memory_mb=memory,
        units=units,
        group=call.group,
        images=observation.images,
    )


@dataclass(frozen=True)
class Logged(Guard):
    """Writes all events to disk before a call that has a price or does more than read, then charges price and time."""

    catalog: Catalog
    budget: SessionBudget
    log: EventLog

    async def execute(self, call: Call, context: CallContext) -> Observation:
        tool, budget = self.catalog.tool(call.name), self.budget
        if limits_of(tool).delegates:  # the subagent's own calls are logged and charged
            return await self.inner.execute(call, context)
        if tool.price_nano or tool.effects - {"read"}:
            try:
                await self.log.flush()
            except StoreError as failure:
                message = f"{call.name} was not run, because its start could not be recorded: {failure.message}"
                raise StoreError(message, kept=failure.kept, fix=failure.fix) from failure
        price = tool.price_nano

        def add_price() -> None:
            context.bill.spent_nano += price

        try:
            hold = await budget.gate.start_tool(budget.account(), call.name, price, add_price)
        except LimitReached as limit:
            return refuse("unaffordable", f"{call.name} was not run: {limit.message}")
        return await self._timed(call, context, hold)

    async def _timed(self, call: Call, context: CallContext, hold: ToolHold) -> Observation:
        """Run the tool, stop it when a cap in time leaves nothing, and record its time."""
        budget, entry = self.budget, hold.entry
        clock = WorkingTime(hold.ms, lambda: budget.gate.extend(entry or 0))
        try:
            with measuring(clock):
                return await clock.spend(lambda: self.inner.execute(call, context))
        except TimeUp:
            text = f"{call.name} was stopped. {time_is_up(await budget.caps()).message}"
            if self.catalog.tool(call.name).effects & LASTING:
                text += " Its changes up to that point remain."
            text = context.bill.with_partial(text)
            return Observation(text, ok=False, seconds=clock.ms / 1_000)
        finally:
            try:
                await budget.gate.end_tool(hold, clock.ms)
            except StoreError as failure:  # the result is kept
                context.emit(Notice(f"The time of {call.name} could not be recorded. {failure}"))


@dataclass(frozen=True)
class Runner:
    """The innermost executor: runs the tool within its limits, and masks secrets in its result."""

    catalog: Catalog
    unstated: Limits = UNSTATED
    """Limits of tools that state none."""
    caller_of: Callable[[Call, CallContext], Caller | None] = lambda call, context: None
    """Makes the services that the tool of a call may use."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        context.bill.made = call
        start = time.monotonic()

        def keep(partial: Observation) -> None:
            context.bill.partial = mask_secrets(partial)

        token = caller.set(self.caller_of(call, context))
        try:
            tool = self.catalog.tool(call.name)
            limits = limits_of(tool, self.unstated)
            return mask_secrets(await contained(tool, call.arguments, limits, keep))
        except (Exception, BaseExceptionGroup) as failure:  # noqa: BLE001 - boundary to third-party code
            observation = failed(call.name, failure, self.unstated)
            return mask_secrets(replace(observation, seconds=time.monotonic() - start))
        finally:
            caller.reset(token)


@dataclass(frozen=True)
class Judged(Guard):
    """Judges the result of every call that ran, counts the use in the plan, and records it as experience."""

    plan: TurnPlan
    judge: Judge
    experience: Experience
    session: str
    turn: int
    budget_line: BudgetLine

    async def execute(self, call: Call, context: CallContext) -> Observation:
        thought = context.thought or self.plan.thinking.total
        try:
            observation = await self.inner.execute(call, context)
        except asyncio.CancelledError:
            bill = context.bill
            if bill.made is not None and not self._failed_to_start(call, bill):
                await self._remember(bill.made, _STOPPED, None, thought, context)
            raise
        if observation.refused or self._failed_to_start(call, context.bill):
            context.unjudged.discard(call.id)
            return observation
        call = context.bill.made or call
        seconds = context.bill.worked_seconds
        seconds = observation.seconds if seconds is None else seconds
        verdict = await self.judge.judge(self.plan.inputs.question, call, observation, context.emit)
        await self.plan.count(
            call,
            thought,
            price=context.bill.total_nano,
            seconds=seconds,
            helpful=verdict.helpful,
            subagent_model=context.bill.subagent_model,
        )
        note = self._note(call, observation, context)
        judged = (verdict.helpful, verdict.by, verdict.reason)
        context.emit(CallJudged(call.id, call.name, *judged, note))
        use = replace(observation, seconds=seconds)
        await self._remember(call, use, verdict, thought, context)
        self.plan.report(context.emit, f"{call.name} was used")
        return replace(observation, note=note)

    def _note(self, call: Call, observation: Observation, context: CallContext) -> str:
        """What the model reads below the result.

        Only the last of several concurrent calls has the note on changes, since the model reads them in another order.
        """
        notes = [self._sameness(call, observation, context)]
        context.unjudged.discard(call.id)
        if not context.unjudged:
            notes += [self.plan.news(call.id), self.budget_line.text(self.plan.caps)]
        return "\n".join(filter(None, notes))

    def _sameness(self, call: Call, observation: Observation, context: CallContext) -> str:
        """A note from the third time on that a call had the same result; empty otherwise."""
        deps = self.plan.deps
        is_live = limits_of(deps.catalog.tool(call.name)).is_live
        if context.node or is_live or not may_repeat(deps.models):
            return ""
        earlier = [
            step.observation
            for step in context.path.steps
            if same(unwrap(step.call), call) and step.call.id not in context.forgotten
        ]
        alike = takewhile(lambda result: result.text == observation.text, reversed(earlier))
        times = 1 + len(list(alike))
        if times < _SAME_RESULTS_NOTED:
            return ""
        return f"[{call.name} had this result {times} times in a row with these arguments.]"

    def _failed_to_start(self, call: Call, bill: Bill) -> bool:
        """Whether the call delegates, but no subagent worked for it, so that nothing can be learned from it."""
        delegates = limits_of(self.plan.deps.catalog.tool(call.name)).delegates
        return delegates and bill.worked_seconds is None

    async def _remember(
        self,
        call: Call,
        observation: Observation,
        verdict: "Verdict | None",
        thought: StepCost,
        context: CallContext,
    ) -> None:
        """Record the use as experience, judged or not."""
        deps = self.plan.deps

        def use() -> Use:
            from ecoshell.planning.btp import redaction

            question = self.plan.inputs.question
            size = len(json.dumps(dict(call.arguments), ensure_ascii=False, default=str))
            return Use(
                query=redaction.beginning(question, environ, redaction.QUERY),
                tool=call.name,
                document_hash=deps.catalog.schema(call.name).digest,
                arguments=redaction.redacted_json(call.arguments, environ, redaction.ARGUMENTS),
                result=redaction.beginning(observation.text, environ, redaction.RESULT),
                result_hash=redaction.digest(observation.text, environ),
                ok=observation.ok,
                helpful=verdict.helpful if verdict else None,
                judged_by=verdict.by if verdict else "",
                model=deps.models.name,
                price_nano=context.bill.total_nano,
                step_nano=thought.nano,
                step_tokens=thought.tokens,
                seconds=observation.seconds + thought.seconds,
                size_level=redaction.size_level(size),
                session=self.session,
                turn=self.turn,
                call=call.id,
                at=datetime.now(UTC).isoformat(timespec="seconds"),
                subagent_model=context.bill.subagent_model,
            )

        if deps.settings.recording:
            await self.experience.remember(use, context.emit)
