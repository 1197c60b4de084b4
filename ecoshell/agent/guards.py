"""The guards of every call: announced, logged, paid, run within its limits, judged and recorded."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from ecoshell.agent.experience import Experience, now
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
from ecoshell.strategies import Path
from ecoshell.tools import LASTING, UNSTATED, Caller, Limits, caller, limits_of
from ecoshell.tools.running import contained, failed

if TYPE_CHECKING:
    from ecoshell.planning.judging import Verdict

_STOPPED = Observation("The turn was stopped while the tool ran.", ok=False)


@dataclass(slots=True)
class Bill:
    """What one call has cost so far, and how it ran."""

    spent_nano: int = 0
    """The price of its tool."""
    delegated_nano: int = 0
    """What a subagent spent that the call started, as far as it is known."""
    made: Call | None = None
    """The call as the tool received it, with the user's edits; None until it runs."""

    @property
    def total_nano(self) -> int:
        return self.spent_nano + self.delegated_nano


@dataclass(frozen=True, slots=True)
class CallContext:
    """The circumstances of a call: its path, the registered tools, and where events go."""

    path: Path
    registered: frozenset[str]
    emit: Emit
    rationale: str = ""
    """The agent's reason for the call."""
    bill: Bill = field(default_factory=Bill)
    through: str = ""
    """The meta-tool that carries the call."""
    role: str = ""
    """The role that made the call; empty if no model did."""
    node: bool = False
    """Whether it is a node of a tool graph, which decides about repetitions itself."""
    forgotten: frozenset[str] = frozenset()
    """IDs of calls whose results the model no longer reads in full, so that repeating them is allowed."""
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


@dataclass(frozen=True)
class Guard:
    """A wrapper around another executor."""

    inner: ToolExecutor


@dataclass(frozen=True)
class Announced(Guard):
    """Emits when a call starts and ends, even if the turn is stopped."""

    models: ActiveModels

    async def execute(self, call: Call, context: CallContext) -> Observation:
        context.emit(
            CallStarted(
                call.id, call.name, call.arguments, context.through, context.role, call.group
            )
        )
        start = time.monotonic()
        try:
            observation = self._visible(await self.inner.execute(call, context))
        except BaseException:
            has_run, seconds = context.bill.made is not None, time.monotonic() - start
            text = f"The turn ended before {call.name} {'did' if has_run else 'was run'}."
            observation = Observation(
                text, ok=False, seconds=seconds, refused="" if has_run else "stopped"
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
        return replace(
            observation, text=f"{observation.text}\n{traits.name} cannot see images.", images=()
        )


def finished(call: Call, observation: Observation, context: CallContext) -> CallFinished:
    """The event for a finished call, with its peak memory and its price by time and memory (CATP-LLM Table B.2).

    Both are None if the processor's memory is unknown.
    """
    footprint, memory, units = observation.footprint, None, None
    if footprint is not None and footprint.cpu_mb is not None:
        from ecoshell.planning.catp.costs import TABLE_B2

        parts = (
            footprint.cpu_mb,
            footprint.cpu_instant_mb,
            footprint.gpu_mb,
            footprint.gpu_instant_mb,
        )
        memory = round(sum(part or 0.0 for part in parts), 3)
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
        token = caller.set(self.caller_of(call, context))
        try:
            tool = self.catalog.tool(call.name)
            return mask_secrets(
                await contained(tool, call.arguments, limits_of(tool, self.unstated))
            )
        except (Exception, BaseExceptionGroup) as failure:  # noqa: BLE001 - boundary to third-party code
            return mask_secrets(
                replace(failed(call.name, failure, self.unstated), seconds=time.monotonic() - start)
            )
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
            if context.bill.made is not None:
                await self._remember(context.bill.made, _STOPPED, None, thought, context)
            raise
        if observation.refused:
            return observation
        call = context.bill.made or call
        verdict = await self.judge.judge(self.plan.inputs.question, call, observation, context.emit)
        note = await self.plan.count(
            call,
            thought,
            price=context.bill.total_nano,
            seconds=observation.seconds,
            helpful=verdict.helpful,
        )
        note = "\n".join(filter(None, (note, self.budget_line.text(self.plan.caps))))
        context.emit(
            CallJudged(call.id, call.name, verdict.helpful, verdict.by, verdict.reason, note)
        )
        await self._remember(call, observation, verdict, thought, context)
        self.plan.report(context.emit, f"{call.name} was used")
        return replace(observation, note=note)

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
                at=now(),
            )

        if deps.settings.recording:
            await self.experience.remember(use, context.emit)
