"""From a call to its observation: the guards stand in a row, each a wrapper round the next.

Order: meta-tools → judged → announced → checked (known → not made before → in the plan → registered → affordable) →
approved → logged and paid → the tool itself.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from ecoshell.agent.approval import ApprovalRequest, Guess
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.experience import now
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.catalog import Catalog, Presentation
from ecoshell.errors import LimitReached, StoreError
from ecoshell.events import CallFinished, CallJudged, CallStarted, Emit, ToolRegistered
from ecoshell.events.describe import why_words
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, Call, Observation, ToolDocument
from ecoshell.planning.btp.costs import StepCost
from ecoshell.planning.btp.experience import Use, document_hash
from ecoshell.secrecy import environ, mask_secrets
from ecoshell.strategies import Path, same
from ecoshell.tools import LASTING, UNSTATED, Caller, Limits, Warming, caller, limits_of
from ecoshell.tools.running import clip, contained, failed

_MADE_BEFORE = "This call was made before with the same arguments, and nothing has changed since."
_NEXT = "Do what is still to be done, with another call, or answer if nothing is. The request was:"
_ASKED = 600
"""Characters of a request that are told once more."""
_OTHERS_NAMED = 6
"""Other tools that a model is reminded of when a call is refused."""
_EDIT_SHOWN = 2_000
"""Characters of changed arguments that the model is told."""
if TYPE_CHECKING:
    from ecoshell.planning.judging import Verdict

AskForMoney = Callable[[LimitReached, Emit], Awaitable[bool]]
"""Asks the person about a tool that is refused for money; whether what they chose makes it worth another try."""
SEARCH_RESULTS = 10
_STOPPED = Observation("The turn was stopped while the tool ran.", ok=False)


@dataclass(slots=True)
class Bill:
    """What one call has come to so far."""

    spent_nano: int = 0
    """What its tool has cost."""
    made: Call | None = None
    """The call as the tool got it, which a person may have changed; None until it runs."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """Where a call is made: the path it stands on, what that path may call, and who is told."""

    path: Path
    registered: frozenset[str]
    emit: Emit
    rationale: str = ""
    """Why the call is made, in the agent's words."""
    bill: Bill = field(default_factory=Bill)
    through: str = ""
    """The meta-tool that carries the call."""
    role: str = ""
    """Who made the call; empty where no model did."""
    node: bool = False
    """Whether it is a node of a tool graph, which decides itself what is made again."""
    forgotten: frozenset[str] = frozenset()
    """IDs of calls whose results the model no longer reads in full, so that making them again is no repetition."""
    thought: StepCost | None = None
    """What thinking of the call took; None is all that was thought since the call before it."""


class ToolExecutor(Protocol):
    """Whatever turns a call into an observation."""

    async def execute(self, call: Call, context: CallContext) -> Observation: ...


def refuse(why: str, text: str) -> Observation:
    """A call that was not executed; `why` names the guard."""
    return Observation(text, ok=False, refused=why)


def unwrap(call: Call) -> Call:
    """The call itself, or the one inside a `tool_call`."""
    if call.name != TOOL_CALL:
        return call
    inside: object = call.arguments.get("arguments")
    arguments: Mapping[str, Any] = cast("Mapping[str, Any]", inside) if isinstance(inside, Mapping) else {}
    return replace(call, name=str(call.arguments.get("name", "")), arguments=arguments)


def unknown_tool(name: str, catalog: Catalog) -> str:
    """What the model reads when it names a tool that is not there."""
    closest = catalog.closest(name)
    hint = f" The closest names are {', '.join(closest)}." if closest else ""
    return f"There is no tool called {name!r}.{hint}"


@dataclass(frozen=True)
class Guard:
    """One check or duty before a tool runs; the executor that it stands before is `inner`."""

    inner: ToolExecutor
    deps: Dependencies


class Announced(Guard):
    """Says when a call starts and how it ended, also when the turn ends first."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        context.emit(CallStarted(call.id, call.name, call.arguments, context.through, context.role, call.group))
        start = time.monotonic()
        try:
            seen = self._visible(await self.inner.execute(call, context))
        except BaseException:
            ran, seconds = context.bill.made is not None, time.monotonic() - start
            stopped = f"The turn ended before {call.name} {'did' if ran else 'was run'}."
            seen = Observation(stopped, ok=False, seconds=seconds, refused="" if ran else "stopped")
            context.emit(finished(call, seen, context))
            raise
        context.emit(finished(call, seen, context))
        return seen

    def _visible(self, seen: Observation) -> Observation:
        """The result without images where the model has no vision, which it is told."""
        traits = self.deps.models.current.model.traits
        if not seen.images or traits.vision is not False:
            return seen
        return replace(seen, text=f"{seen.text}\n{traits.name} cannot see images.", images=())


def finished(call: Call, seen: Observation, context: CallContext) -> CallFinished:
    """What a call came to, as the event that tells of it.

    With the most memory its run held, as far as it is known, and its price by time and memory (CATP-LLM Table B.2);
    both are None when not even the processor's memory is known.
    """
    held, memory, units = seen.footprint, None, None
    if held is not None and held.cpu_mb is not None:
        from ecoshell.planning.catp.costs import TABLE_B2

        parts = (held.cpu_mb, held.cpu_instant_mb, held.gpu_mb, held.gpu_instant_mb)
        memory = round(sum(part or 0.0 for part in parts), 3)
        units = float(TABLE_B2.price(seen.seconds * 1000, held))
    spent, changes = context.bill.spent_nano, seen.changes
    told = (seen.ok, seen.text, seen.truncated, seen.seconds, seen.refused, spent, changes)
    return CallFinished(call.id, call.name, *told, memory_mb=memory, units=units, group=call.group, images=seen.images)


@dataclass(frozen=True, slots=True)
class Registrar:
    """Registers tools and reports each registration as an event."""

    catalog: Catalog
    presentation: Presentation
    measure: Callable[[ToolDocument], tuple[int, bool]]
    """Counts the tokens of a tool schema and says whether the count is exact."""
    by_call: bool
    """Whether the first call of a tool that is known by name registers it."""

    def register(
        self, name: str, call: Call, context: CallContext, *, by: Literal["agent", "first_call"] = "agent"
    ) -> ToolDocument:
        """Register the tool for this call, which asks for that or is the tool's own first one."""
        document, tool = self.catalog.document(name), self.catalog.tool(name)
        tokens, exact = self.measure(document)
        step = len(context.path.steps) + 1
        context.emit(ToolRegistered(name, tokens, exact, step, by, call.id, call.group))
        if isinstance(tool, Warming):
            tool.warm()
        return document


@dataclass(frozen=True)
class Checked(Guard):
    """Refuses, before anybody is asked to approve it, a call of a tool that is not there, a call that was made before,
    and one of a tool that the plan does not allow now, that is not registered, or for which no cap has room.
    """

    plan: TurnPlan
    ask: AskForMoney
    registrar: Registrar

    async def execute(self, call: Call, context: CallContext) -> Observation:
        catalog = self.deps.catalog
        if call.name not in catalog:
            return refuse("unknown", unknown_tool(call.name, catalog))
        if call.fault:
            return refuse("invalid", call.fault)
        if (repeated := self._repeated(call, context)) is not None:
            return repeated
        if refusal := await self.refusal(call.name, context):
            return refuse("forbidden", refusal)
        if call.name not in context.registered and self.registrar.by_call:
            self.registrar.register(call.name, call, context, by="first_call")
        elif call.name not in context.registered:
            why = f"{call.name} is not registered, so it was not run."
            return refuse("unregistered", f"{why} Register it first: tool_register(tool_name={call.name}).")
        price = catalog.tool(call.name).price_nano
        while price:
            try:
                await self.deps.budget.gate.require(self.deps.budget.account(), price)
                break
            except LimitReached as limit:  # the person may make room; nodes of a tool graph are refused unasked
                if context.node or not await self.ask(limit, context.emit):
                    return refuse("unaffordable", f"{call.name} was not run: {limit.message}")
        return await self.inner.execute(call, context)

    async def refusal(self, tool: str, context: CallContext) -> str:
        """Why a tool may not be used, or registered, now (BTP §2.3, SPEC §2); empty where it may.

        Where that is for money the person is asked, and may have made room.
        """
        while refusal := await asyncio.to_thread(self.plan.refusal, tool):
            short = None if context.node else self.plan.shortage(tool)
            if short is None or not await self.ask(short, context.emit):
                return refusal
            await self.plan.follow(context.emit)
        return ""

    def _repeated(self, call: Call, context: CallContext) -> Observation | None:
        """The answer from memory to a call that was made before while nothing has changed since; then its refusal.

        A call that writes or executes may change what any other call would see, so after one a call is made anew: after
        a program also where that failed, as it may have done a part of its work.
        """
        if context.node:
            return None
        catalog, times, last = self.deps.catalog, 0, None
        for step in context.path.steps:
            seen, subject = step.observation, step.call.subject
            is_known = step.call.id not in context.forgotten
            if is_known and same(unwrap(step.call), call) and seen.refused in ("", "repeated"):
                times, last = times + 1, last if seen.refused else seen
            elif not seen.refused and step.call.name != TOOL_REGISTER and subject in catalog:
                effects = catalog.tool(subject).effects
                if "execute" in effects or (seen.ok and effects & LASTING):
                    last = None
        if last is None:
            return None
        if times == 1:
            request = clip(context.path.question, _ASKED)[0]
            told = f"{_MADE_BEFORE} Its result was:\n{last.text}\n\n{_NEXT}\n{request}"
            return replace(last, text=told, refused="repeated", seconds=0.0, changes="", footprint=None)
        known = (name for name in catalog.names if name in context.registered and name != call.name)
        others = ", ".join(islice(known, _OTHERS_NAMED))
        ways = f"use another tool ({others}), or " if others else ""
        why = f"{_MADE_BEFORE} Change the arguments, {ways}answer from the results above."
        return refuse("repeated", f"{call.name} was not run again. {why}")


@dataclass(frozen=True)
class Approved(Guard):
    """Asks before anything but reading happens; the person may change the arguments, and the model is told."""

    searching: bool
    """Whether the agent may go back from here and try another way."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        catalog, approvals, tool = self.deps.catalog, self.deps.approvals, self.deps.catalog.tool(call.name)
        lasting, caller, guess = tool.effects & LASTING, self.deps.models.current.caller.traits, None
        if lasting and not approvals.trusts(caller):
            tools = map(catalog.tool, catalog.names)
            alike = tuple(one.document for one in tools if one.effects & LASTING == lasting)
            guess = Guess(context.path.question, context.path.steps, alike, caller.small)
        request = ApprovalRequest(call, tool, catalog.document(call.name), context.rationale, self.searching, guess)
        ruling = await approvals.rule(request, context.emit)
        before, after = call.arguments, ruling.call.arguments
        if ruling.refusal:
            seen = refuse("unapproved", ruling.refusal)
        else:
            seen = await self.inner.execute(ruling.call, context)
        changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
        edits = [f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in changed.items()]
        edits += [f"{name} left out" for name in before if name not in after]
        if not edits:
            return seen
        told = f"The person changed the arguments to {clip(', '.join(edits), _EDIT_SHOWN)[0]}.\n"
        return replace(seen, text=f"{told}{seen.text}")


class Logged(Guard):
    """Lets a call that does more than read, or costs, begin only when all that was told of it is on disk; a tool that
    has a price of its own is paid for then, at the last moment before it runs.
    """

    async def execute(self, call: Call, context: CallContext) -> Observation:
        tool, budget = self.deps.catalog.tool(call.name), self.deps.budget
        if tool.price_nano or tool.effects - {"read"}:
            try:
                await self.deps.log.flush()
            except StoreError as failure:
                message = f"{call.name} was not run, because its start could not be written down: {failure.message}"
                raise StoreError(message, kept=failure.kept, fix=failure.fix) from failure
        if tool.price_nano:
            price = tool.price_nano

            def paid() -> None:
                context.bill.spent_nano += price

            try:
                await budget.gate.charge_tool(budget.account(), call.name, price, paid)
            except LimitReached as limit:
                return refuse("unaffordable", f"{call.name} was not run: {limit.message}")
        return await self.inner.execute(call, context)


@dataclass(frozen=True)
class Runner:
    """The end of the row: the tool runs, within its limits whatever it is; secrets in its result are masked."""

    catalog: Catalog
    unstated: Limits = UNSTATED
    """For tools that state no limits of their own."""
    caller_of: Callable[[Call, Emit], Caller | None] = lambda call, emit: None
    """Whom the tool of a call may ask."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        context.bill.made = call
        start = time.monotonic()
        token = caller.set(self.caller_of(call, context.emit))
        try:
            tool = self.catalog.tool(call.name)
            return mask_secrets(await contained(tool, call.arguments, limits_of(tool, self.unstated)))
        except (Exception, BaseExceptionGroup) as failure:  # noqa: BLE001 - a tool may be anybody's code; the model reads how it failed
            return mask_secrets(replace(failed(call.name, failure, self.unstated), seconds=time.monotonic() - start))
        finally:
            caller.reset(token)


@dataclass(frozen=True)
class Judged(Guard):
    """Has the result of every call that ran judged, counted, remembered and planned for."""

    plan: TurnPlan
    session: str
    turn: int
    budget_line: Callable[[], Awaitable[str]]

    async def execute(self, call: Call, context: CallContext) -> Observation:
        thought = context.thought or self.plan.thinking.total
        try:
            seen = await self.inner.execute(call, context)
        except asyncio.CancelledError:
            if context.bill.made is not None:
                await self._remember(context.bill.made, _STOPPED, None, thought, context)
            raise
        if seen.refused:
            return seen
        call = context.bill.made or call
        verdict = await self.deps.judge.judge(self.plan.inputs.question, call, seen, context.emit)
        note = await self.plan.count(
            call, thought, price=context.bill.spent_nano, seconds=seen.seconds, helpful=verdict.helpful
        )
        note = "\n".join(filter(None, (note, await self.budget_line())))
        context.emit(CallJudged(call.id, call.name, verdict.helpful, verdict.by, verdict.reason, note))
        await self._remember(call, seen, verdict, thought, context)
        self.plan.report(context.emit, f"{call.name} was used")
        return replace(seen, note=note)

    async def _remember(
        self, call: Call, seen: Observation, verdict: "Verdict | None", thought: StepCost, context: CallContext
    ) -> None:
        """Keep the use, also one that nobody could judge; that it cannot be kept ends nothing."""
        deps = self.deps

        def made() -> Use:
            from ecoshell.planning.btp import redaction

            question = self.plan.inputs.question
            size = len(json.dumps(dict(call.arguments), ensure_ascii=False, default=str))
            return Use(
                query=redaction.beginning(question, environ, redaction.QUERY),
                tool=call.name,
                document_hash=document_hash(deps.catalog.document(call.name)),
                arguments=redaction.redacted_json(call.arguments, environ, redaction.ARGUMENTS),
                result=redaction.beginning(seen.text, environ, redaction.RESULT),
                result_hash=redaction.digest(seen.text, environ),
                ok=seen.ok,
                helpful=verdict.helpful if verdict else None,
                judged_by=verdict.by if verdict else "",
                model=deps.models.name,
                price_nano=context.bill.spent_nano,
                step_nano=thought.nano,
                step_tokens=thought.tokens,
                seconds=seen.seconds + thought.seconds,
                size_level=redaction.size_level(size),
                session=self.session,
                turn=self.turn,
                call=call.id,
                at=now(),
            )

        if deps.settings.recording:
            await deps.experience.remember(made, context.emit)


@dataclass(frozen=True)
class Meta(Guard):
    """Answers the meta-tools itself and passes every other call on: registering, searching, `tool_call` (SPEC §1)."""

    registrar: Registrar
    checked: Checked

    async def execute(self, call: Call, context: CallContext) -> Observation:
        catalog = self.deps.catalog
        if call.fault:
            return await self.inner.execute(call, context)
        if call.name == TOOL_CALL:
            return await self.inner.execute(unwrap(call), replace(context, through=TOOL_CALL))
        if call.name == TOOL_SEARCH:
            query, forbidden = str(call.arguments.get("query", "")), self.checked.plan.forbidden
            ranked = await asyncio.to_thread(self.deps.ranker.search, query)
            found = [name for name in ranked if name not in forbidden][:SEARCH_RESULTS]
            if found:
                told = f"Tools that fit, best first: {', '.join(found)}"
            elif ranked:
                barred = (f"{name} ({why_words(forbidden[name])})" for name in ranked[:SEARCH_RESULTS])
                told = f"What fits {query!r} may not be used now: {', '.join(barred)}."
            else:
                told = f"No tool fits {query!r}."
            seen = Observation(told, ok=bool(found))
        elif call.name == TOOL_REGISTER:
            name = str(call.arguments.get("tool_name", ""))
            if name not in catalog:
                seen = refuse("unknown", unknown_tool(name, catalog))
            elif name in context.registered:
                seen = Observation(f"{name} is registered already; call it.")
            elif refusal := await self.checked.refusal(name, context):
                seen = refuse("forbidden", refusal)
            else:
                document = self.registrar.register(name, call, context)
                return Observation(self.registrar.presentation.registration_result(document))
        else:
            return await self.inner.execute(call, context)
        context.emit(CallStarted(call.id, call.name, call.arguments, role=context.role, group=call.group))
        context.emit(finished(call, seen, context))
        return seen
