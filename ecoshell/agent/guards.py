"""From a call to its observation: the guards stand in a row, each a wrapper round the next.

Order: meta-tools → judged → announced → known → not made before → in the plan → registered → affordable → approved →
logged → paid → the tool itself.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, cast

from ecoshell.agent.approval import ApprovalRequest, Guess
from ecoshell.agent.dependencies import Dependencies, now
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.presentation import Presentation
from ecoshell.errors import LimitReached, StoreError
from ecoshell.events import CallFinished, CallJudged, CallStarted, Emit, ToolRegistered
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, Call, Observation, ToolDocument
from ecoshell.planning.btp.costs import StepCost
from ecoshell.planning.btp.experience import Use, document_hash
from ecoshell.secrecy import environ, masked
from ecoshell.strategies.base import Path, Step, same
from ecoshell.tools.base import LASTING, UNSTATED, Caller, Limits, Warming, caller, limits_of
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
    """Whether it is a node of a parallel plan, which decides itself what is made again."""
    thought: StepCost | None = None
    """What thinking of the call took; None is all that was thought since the call before it."""


class ToolExecutor(Protocol):
    """Whatever turns a call into an observation."""

    async def execute(self, call: Call, context: CallContext) -> Observation: ...


def refuse(why: str, text: str) -> Observation:
    """A call that was not executed; `why` names the guard."""
    return Observation(text, ok=False, refused=why)


class Guard:
    """One check or duty before a tool runs; the executor that it stands before is `inner`."""

    def __init__(self, inner: ToolExecutor, deps: Dependencies) -> None:
        self._inner = inner
        self._deps = deps
        self._catalog = deps.catalog


class Announced(Guard):
    """Says when a call starts and how it ended, also when the turn ends first."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        context.emit(CallStarted(call.id, call.name, call.arguments, context.through, context.role))
        start = time.monotonic()
        try:
            seen = await self._inner.execute(call, context)
        except BaseException:
            ran, seconds = context.bill.made is not None, time.monotonic() - start
            stopped = f"The turn ended before {call.name} {'did' if ran else 'was run'}."
            seen = Observation(stopped, ok=False, seconds=seconds, refused="" if ran else "stopped")
            context.emit(finished(call, seen, context))
            raise
        context.emit(finished(call, seen, context))
        return seen


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
    return CallFinished(
        call.id,
        call.name,
        seen.ok,
        seen.text,
        seen.truncated,
        seen.seconds,
        seen.refused,
        context.bill.spent_nano,
        seen.changes,
        memory_mb=memory,
        units=units,
    )


class Known(Guard):
    """Refuses names the catalog does not have, with the closest ones it has."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        if call.name not in self._catalog:
            return refuse("unknown", unknown_tool(call.name, self._catalog))
        return await self._inner.execute(call, context)


class Repeated(Guard):
    """Answers a call from memory that was made before while nothing has changed since, and then refuses it.

    A call that writes or executes may change what any other call would see, so after one a call is made anew: after a
    program also where that failed, as it may have done a part of its work.
    """

    async def execute(self, call: Call, context: CallContext) -> Observation:
        before = context.path.steps
        alike = [] if context.node else [at for at, step in enumerate(before) if _is(step, call)]
        made = [at for at in alike if not before[at].observation.refused]
        if not made or any(map(self._changes, before[made[-1] + 1 :])):
            return await self._inner.execute(call, context)
        if len(alike) == 1:
            seen = before[made[-1]].observation
            request = clip(context.path.question, _ASKED)[0]
            told = f"{_MADE_BEFORE} Its result was:\n{seen.text}\n\n{_NEXT}\n{request}"
            return replace(seen, text=told, refused="repeated", seconds=0.0, changes="", footprint=None)
        known = (name for name in self._catalog.names if name in context.registered and name != call.name)
        others = ", ".join(islice(known, _OTHERS_NAMED))
        ways = f"use another tool ({others}), or " if others else ""
        why = f"{_MADE_BEFORE} Change the arguments, {ways}answer from the results above."
        return refuse("repeated", f"{call.name} was not run again. {why}")

    def _changes(self, step: Step) -> bool:
        """Whether a step may have changed what others see."""
        subject, seen = step.call.subject, step.observation
        if seen.refused or step.call.name == TOOL_REGISTER or subject not in self._catalog:
            return False
        effects = self._catalog.tool(subject).effects
        return "execute" in effects or (seen.ok and bool(effects & LASTING))


def _is(step: Step, call: Call) -> bool:
    """Whether a step made this very call, or was told that it had been made."""
    made = unwrap(step.call) if step.call.name == TOOL_CALL else step.call
    return same(made, call) and step.observation.refused in ("", "repeated")


class Registered(Guard):
    """Refuses tools this path has not registered (SPEC §1)."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        if call.name not in context.registered:
            why = f"{call.name} is not registered, so it was not run."
            return refuse("unregistered", f"{why} Register it first: tool_register(tool_name={call.name}).")
        return await self._inner.execute(call, context)


class Affordable(Guard):
    """Refuses a tool that has a price of its own when no cap has room for it, before anybody is asked to approve it.

    The person may make room; nodes of a parallel plan are refused unasked.
    """

    def __init__(self, inner: ToolExecutor, deps: Dependencies, ask: AskForMoney) -> None:
        super().__init__(inner, deps)
        self._ask = ask

    async def execute(self, call: Call, context: CallContext) -> Observation:
        price = self._catalog.tool(call.name).price_nano
        while price:
            try:
                await self._deps.budget.require(price)
                break
            except LimitReached as limit:
                if context.node or not await self._ask(limit, context.emit):
                    return _unaffordable(call, limit)
        return await self._inner.execute(call, context)


class Approved(Guard):
    """Asks before anything but reading happens; the person may change the arguments, and the model is told."""

    def __init__(self, inner: ToolExecutor, deps: Dependencies) -> None:
        super().__init__(inner, deps)
        self._searching = deps.strategy.searches

    async def execute(self, call: Call, context: CallContext) -> Observation:
        catalog, approvals, tool = self._catalog, self._deps.approvals, self._catalog.tool(call.name)
        lasting, caller, guess = tool.effects & LASTING, self._deps.models.current.caller.traits, None
        if lasting and not approvals.trusts(caller):
            tools = map(catalog.tool, catalog.names)
            alike = tuple(one.document for one in tools if one.effects & LASTING == lasting)
            guess = Guess(context.path.question, context.path.steps, alike, caller.small)
        request = ApprovalRequest(call, tool, catalog.document(call.name), context.rationale, self._searching, guess)
        ruling = await approvals.rule(request, context.emit)
        edited = _edited(call.arguments, ruling.call.arguments)
        if ruling.refusal:
            seen = refuse("unapproved", ruling.refusal)
        else:
            seen = await self._inner.execute(ruling.call, context)
        return replace(seen, text=f"{edited}{seen.text}") if edited else seen


class Logged(Guard):
    """Lets a call that does more than read, or costs, begin only when all that was told of it is on disk."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        tool = self._catalog.tool(call.name)
        if tool.price_nano or tool.effects - {"read"}:
            try:
                await self._deps.log.flush()
            except StoreError as failure:
                message = f"{call.name} was not run, because its start could not be written down: {failure.message}"
                raise StoreError(message, kept=failure.kept, fix=failure.fix) from failure
        return await self._inner.execute(call, context)


class Paid(Guard):
    """Pays for a tool that has a price of its own, at the last moment before it runs."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        price = self._catalog.tool(call.name).price_nano
        if price:
            try:
                await self._deps.budget.charge_tool(call.name, price)
            except LimitReached as limit:
                return _unaffordable(call, limit)
            context.bill.spent_nano += price
        return await self._inner.execute(call, context)


class Runner:
    """The end of the row: the tool runs, within its limits whatever it is; keys in what comes of it are masked."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        unstated: Limits = UNSTATED,
        caller_of: Callable[[Call, Emit], Caller | None] = lambda call, emit: None,
    ) -> None:
        """`unstated` holds for tools that state no limits of their own; `caller_of` a call is whom its tool may ask."""
        self._catalog = catalog
        self._unstated = unstated
        self._caller_of = caller_of

    async def execute(self, call: Call, context: CallContext) -> Observation:
        context.bill.made = call
        start = time.monotonic()
        token = caller.set(self._caller_of(call, context.emit))
        try:
            tool = self._catalog.tool(call.name)
            return masked(await contained(tool, call.arguments, limits_of(tool, self._unstated)))
        except (Exception, BaseExceptionGroup) as failure:  # noqa: BLE001 - a tool may be anybody's code; the model reads how it failed
            return masked(replace(failed(call.name, failure, self._unstated), seconds=time.monotonic() - start))
        finally:
            caller.reset(token)


def _unaffordable(call: Call, limit: LimitReached) -> Observation:
    return refuse("unaffordable", f"{call.name} was not run: {limit.message}")


def _edited(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What the model reads above the observation when a person has changed its arguments; empty when nobody has."""
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    removed = [name for name in before if name not in after]
    if not changed and not removed:
        return ""
    parts = [f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in changed.items()]
    parts += [f"{name} left out" for name in removed]
    return f"The person changed the arguments to {clip(', '.join(parts), _EDIT_SHOWN)[0]}.\n"


def unwrap(call: Call) -> Call:
    """The call inside a `tool_call`."""
    inside: object = call.arguments.get("arguments")
    arguments: Mapping[str, Any] = cast("Mapping[str, Any]", inside) if isinstance(inside, Mapping) else {}
    return Call(str(call.arguments.get("name", "")), arguments, call.id)


def unknown_tool(name: str, catalog: Catalog) -> str:
    """What the model reads when it names a tool that is not there."""
    closest = catalog.closest(name)
    hint = f" The closest names are {', '.join(closest)}." if closest else ""
    return f"There is no tool called {name!r}.{hint}"


class Planned(Guard):
    """Refuses tools the plan does not allow now (BTP §2.3, SPEC §2); where that is for money, the person is asked."""

    def __init__(self, inner: ToolExecutor, deps: Dependencies, *, plan: TurnPlan, ask: AskForMoney) -> None:
        super().__init__(inner, deps)
        self.plan = plan
        self._ask = ask

    async def execute(self, call: Call, context: CallContext) -> Observation:
        if refusal := await self.refusal(call.name, context):
            return refuse("forbidden", refusal)
        return await self._inner.execute(call, context)

    async def refusal(self, tool: str, context: CallContext) -> str:
        """Why a tool may not be used, or registered, now; empty where it may, also because the person has made room."""
        while refusal := await asyncio.to_thread(self.plan.refusal, tool):
            short = None if context.node else self.plan.shortage(tool)
            if short is None or not await self._ask(short, context.emit):
                return refusal
            await self.plan.follow(context.emit)
        return ""


class Judged(Guard):
    """Has the result of every call that ran judged, counted, remembered and planned for."""

    def __init__(self, inner: ToolExecutor, deps: Dependencies, *, plan: TurnPlan, session: str, turn: int) -> None:
        super().__init__(inner, deps)
        self._plan = plan
        self._session = session
        self._turn = turn

    async def execute(self, call: Call, context: CallContext) -> Observation:
        thought = context.thought or self._plan.thinking.taken
        try:
            seen = await self._inner.execute(call, context)
        except asyncio.CancelledError:
            if context.bill.made is not None:
                await self._remember(context.bill.made, _STOPPED, None, thought, context)
            raise
        if seen.refused:
            return seen
        call = context.bill.made or call
        verdict = await self._deps.judge.judge(self._plan.inputs.question, call, seen, context.emit)
        note = await self._plan.count(
            call, thought, price=context.bill.spent_nano, seconds=seen.seconds, helpful=verdict.helpful
        )
        context.emit(CallJudged(call.id, call.name, verdict.helpful, verdict.by, verdict.reason, note))
        await self._remember(call, seen, verdict, thought, context)
        self._plan.tell(context.emit, f"{call.name} was used")
        return seen.noted(note)

    async def _remember(
        self, call: Call, seen: Observation, verdict: "Verdict | None", thought: StepCost, context: CallContext
    ) -> None:
        """Keep the use, also one that nobody could judge; that it cannot be kept ends nothing."""
        deps = self._deps

        def made() -> Use:
            from ecoshell.planning.btp import redaction

            question = self._plan.inputs.question
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
                session=self._session,
                turn=self._turn,
                call=call.id,
                at=now(),
            )

        if deps.settings.recording:
            await deps.experience.remember(made, context.emit)


class Meta(Guard):
    """Answers the meta-tools itself and passes every other call on: registering, searching, `tool_call` (SPEC §1)."""

    def __init__(
        self,
        inner: ToolExecutor,
        deps: Dependencies,
        *,
        presentation: Presentation,
        measure: Callable[[ToolDocument], tuple[int, bool]],
        planned: Planned,
    ) -> None:
        """`measure` counts the tokens of a document and says whether the count is exact."""
        super().__init__(inner, deps)
        self._planned = planned
        self._presentation = presentation
        self._measure = measure

    async def execute(self, call: Call, context: CallContext) -> Observation:
        if call.name == TOOL_REGISTER:
            return await self._register(call, context)
        if call.name == TOOL_SEARCH:
            found = await asyncio.to_thread(self._search, str(call.arguments.get("query", "")))
            return self._told(call, context, found)
        if call.name == TOOL_CALL:
            return await self._inner.execute(unwrap(call), replace(context, through=TOOL_CALL))
        return await self._inner.execute(call, context)

    async def _register(self, call: Call, context: CallContext) -> Observation:
        name = str(call.arguments.get("tool_name", ""))
        if name not in self._catalog:
            return self._told(call, context, refuse("unknown", unknown_tool(name, self._catalog)))
        if name in context.registered:
            return self._told(call, context, Observation(f"{name} is registered already; call it."))
        if refusal := await self._planned.refusal(name, context):
            return self._told(call, context, refuse("forbidden", refusal))
        document = self._catalog.document(name)
        tokens, exact = self._measure(document)
        context.emit(ToolRegistered(name, tokens, exact, len(context.path.steps) + 1, "agent", call.id))
        if isinstance(tool := self._catalog.tool(name), Warming):
            tool.warm()
        return Observation(self._presentation.registration_result(document))

    def _search(self, query: str) -> Observation:
        forbidden = self._planned.plan.forbidden
        ranked = (name for name in self._deps.ranker.search(query) if name not in forbidden)
        found = list(islice(ranked, SEARCH_RESULTS))
        if not found:
            return Observation(f"No tool fits {query!r}.", ok=False)
        return Observation("Tools that fit, best first: " + ", ".join(found))

    def _told(self, call: Call, context: CallContext, seen: Observation) -> Observation:
        context.emit(CallStarted(call.id, call.name, call.arguments, role=context.role))
        context.emit(CallFinished(call.id, call.name, seen.ok, seen.text, seen.truncated, seen.seconds, seen.refused))
        return seen
