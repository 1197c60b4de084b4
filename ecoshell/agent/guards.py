"""From a call to its observation, through a chain of guards that wrap each other.

Order: meta-tools → judged → announced → checked (known → not repeated → in the plan → registered → affordable) →
approved → confined → logged and paid → the tool itself.
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
from ecoshell.budget import ToolHold, time_is_up
from ecoshell.budget.working_time import TimeUp, WorkingTime, measuring
from ecoshell.catalog import Catalog, Presentation
from ecoshell.errors import LimitReached, StoreError
from ecoshell.events import CallFinished, CallJudged, CallStarted, Emit, Notice, ToolRegistered
from ecoshell.events.plan import why_words
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, Call, Observation, ToolSchema
from ecoshell.planning.btp.costs import StepCost
from ecoshell.planning.btp.experience import Use, document_hash
from ecoshell.secrecy import environ, mask_secrets
from ecoshell.strategies import Path, same
from ecoshell.tools import LASTING, UNSTATED, Caller, Limits, Warming, caller, limits_of
from ecoshell.tools.running import clip, contained, failed

_MADE_BEFORE = "This call was made before with the same arguments, and nothing has changed since."
_CONTINUE = (
    "Do what is still to be done, with another call, or answer if nothing is. The request was:"
)
_REQUEST_CHARACTERS = 600
"""Characters of the request that are repeated after a repeated call."""
_ALTERNATIVES = 6
"""Tools that are suggested when a repeated call is refused."""
_EDIT_CHARACTERS = 2_000
"""Characters of edited arguments that the model reads."""
if TYPE_CHECKING:
    from ecoshell.planning.judging import Verdict

AskForMoney = Callable[[LimitReached, Emit], Awaitable[bool]]
"""Asks the user about a tool that is refused for its cost; returns whether to try again."""
SEARCH_RESULTS = 10
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


def unknown_tool(name: str, catalog: Catalog) -> str:
    """What the model reads after naming an unknown tool."""
    closest = catalog.closest(name)
    hint = f" The closest names are {', '.join(closest)}." if closest else ""
    return f"There is no tool called {name!r}.{hint}"


@dataclass(frozen=True)
class Guard:
    """A wrapper around another executor."""

    inner: ToolExecutor
    deps: Dependencies


class Announced(Guard):
    """Emits when a call starts and ends, even if the turn is stopped."""

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
        traits = self.deps.models.current.model.traits
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


@dataclass(frozen=True, slots=True)
class Registrar:
    """Registers tools and reports each registration as an event."""

    catalog: Catalog
    presentation: Presentation
    measure: Callable[[ToolSchema, str], tuple[int, bool]]
    """Counts the tokens of a tool schema, or of a skill's text, and says whether the count is exact."""
    by_call: bool
    """Whether the first call of a tool that is known by name registers it."""

    def register(
        self,
        name: str,
        call: Call,
        context: CallContext,
        *,
        by: Literal["agent", "first_call"] = "agent",
    ) -> ToolSchema:
        """Register the tool for this call, which asks for that or is the tool's own first one."""
        schema, tool = self.catalog.schema(name), self.catalog.tool(name)
        self._report(schema, call, context, by)
        if isinstance(tool, Warming):
            tool.warm()
        return schema

    async def load_skill(self, name: str, call: Call, context: CallContext) -> str:
        """Register the skill for this call and return its text."""
        skill = self.catalog.skills[name]
        text = await asyncio.to_thread(skill.text)
        self._report(skill.schema, call, context, "agent", text)
        return text

    def _report(
        self,
        schema: ToolSchema,
        call: Call,
        context: CallContext,
        by: Literal["agent", "first_call"],
        text: str = "",
    ) -> None:
        tokens, exact = self.measure(schema, text)
        step, loaded = len(context.path.steps) + 1, len({*context.registered, schema.name})
        total = len(self.catalog) + len(self.catalog.skills)
        context.emit(
            ToolRegistered(
                schema.name, tokens, exact, step, by, call.id, call.group, loaded, total, text=text
            )
        )


@dataclass(frozen=True)
class Checked(Guard):
    """Refuses calls of unknown, forbidden, unregistered and unaffordable tools, and repeated calls, before approval."""

    plan: TurnPlan
    ask: AskForMoney
    registrar: Registrar

    async def execute(self, call: Call, context: CallContext) -> Observation:
        catalog = self.deps.catalog
        if call.name not in catalog:
            return refuse("unknown", unknown_tool(call.name, catalog))
        if call.fault:
            return refuse("invalid", call.fault)
        if (repetition := self._repetition(call, context)) is not None:
            return repetition
        if refusal := await self.refusal(call.name, context):
            return refuse("forbidden", refusal)
        if call.name not in context.registered and self.registrar.by_call:
            self.registrar.register(call.name, call, context, by="first_call")
        elif call.name not in context.registered:
            reason = f"{call.name} is not registered, so it was not run."
            return refuse(
                "unregistered", f"{reason} Register it first: tool_register(tool_name={call.name})."
            )
        price = catalog.tool(call.name).price_nano
        while price:
            try:
                await self.deps.budget.gate.require(self.deps.budget.account(), price)
                break
            except (
                LimitReached
            ) as limit:  # the user may make room; nodes of a tool graph are refused at once
                if context.node or not await self.ask(limit, context.emit):
                    return refuse("unaffordable", f"{call.name} was not run: {limit.message}")
        return await self.inner.execute(call, context)

    async def refusal(self, tool: str, context: CallContext) -> str:
        """Why a tool may not be used or registered now (BTP §2.3, SPEC §2); empty if it may.

        If the reason is its cost, the user can make room first.
        """
        while refusal := await asyncio.to_thread(self.plan.refusal, tool):
            shortage = None if context.node else self.plan.shortage(tool)
            if shortage is None or not await self.ask(shortage, context.emit):
                return refusal
            await self.plan.follow(context.emit)
        return ""

    def _repetition(self, call: Call, context: CallContext) -> Observation | None:
        """The earlier result for the first repetition of a call, a refusal for further ones; None if it may run.

        After a call that writes or executes, repetitions may run, since any result may have changed; after a program
        that failed, too, because it may have done part of its work.
        """
        if context.node or (
            call.name in self.deps.catalog and limits_of(self.deps.catalog.tool(call.name)).is_live
        ):
            return None
        catalog, times, result = self.deps.catalog, 0, None
        for step in context.path.steps:
            observation, subject = step.observation, step.call.subject
            is_visible = step.call.id not in context.forgotten
            if (
                is_visible
                and same(unwrap(step.call), call)
                and observation.refused in ("", "repeated")
            ):
                times, result = times + 1, result if observation.refused else observation
            elif not observation.refused and step.call.name != TOOL_REGISTER and subject in catalog:
                effects = catalog.tool(subject).effects
                if "execute" in effects or (observation.ok and effects & LASTING):
                    result = None
        if result is None:
            return None
        if times == 1:
            request = clip(context.path.question, _REQUEST_CHARACTERS)[0]
            text = f"{_MADE_BEFORE} Its result was:\n{result.text}\n\n{_CONTINUE}\n{request}"
            return replace(
                result, text=text, refused="repeated", seconds=0.0, changes="", footprint=None
            )
        names = (name for name in catalog.names if name in context.registered and name != call.name)
        alternatives = ", ".join(islice(names, _ALTERNATIVES))
        suggestion = f"use another tool ({alternatives}), or " if alternatives else ""
        advice = f"{_MADE_BEFORE} Change the arguments, {suggestion}answer from the results above."
        return refuse("repeated", f"{call.name} was not run again. {advice}")


@dataclass(frozen=True)
class Approved(Guard):
    """Asks for approval before anything but reading; reports arguments that the user edited to the model."""

    searching: bool
    """Whether the agent may backtrack and try another path."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        catalog, approvals, tool = (
            self.deps.catalog,
            self.deps.approvals,
            self.deps.catalog.tool(call.name),
        )
        lasting, caller, guess = (
            tool.effects & LASTING,
            self.deps.models.current.caller.traits,
            None,
        )
        if lasting and not approvals.trusts(caller):
            tools = map(catalog.tool, catalog.names)
            similar = tuple(tool.schema for tool in tools if tool.effects & LASTING == lasting)
            guess = Guess(context.path.question, context.path.steps, similar, caller.small)
        request = ApprovalRequest(
            call,
            tool,
            catalog.schema(call.name),
            context.rationale,
            self.searching,
            guess,
            self.deps.agent,
        )
        ruling = await approvals.rule(request, context.emit)
        original, edited = call.arguments, ruling.call.arguments
        if ruling.refusal:
            observation = refuse("unapproved", ruling.refusal)
        else:
            observation = await self.inner.execute(ruling.call, context)
        changed = {
            name: value
            for name, value in edited.items()
            if name not in original or original[name] != value
        }
        edits = [
            f"{name}={json.dumps(value, ensure_ascii=False, default=str)}"
            for name, value in changed.items()
        ]
        edits += [f"{name} left out" for name in original if name not in edited]
        if not edits:
            return observation
        note = f"The user changed the arguments to {clip(', '.join(edits), _EDIT_CHARACTERS)[0]}.\n"
        return replace(observation, text=f"{note}{observation.text}")


class Logged(Guard):
    """Writes all events to disk before a call that has a price or does more than read, then charges price and time."""

    async def execute(self, call: Call, context: CallContext) -> Observation:
        tool, budget = self.deps.catalog.tool(call.name), self.deps.budget
        if limits_of(tool).delegates:  # the subagent's own calls are logged and charged
            return await self.inner.execute(call, context)
        if tool.price_nano or tool.effects - {"read"}:
            try:
                await self.deps.log.flush()
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
        budget, entry = self.deps.budget, hold.entry
        clock = WorkingTime(hold.ms, lambda: budget.gate.extend(entry or 0))
        try:
            with measuring(clock):
                return await clock.spend(lambda: self.inner.execute(call, context))
        except TimeUp:
            text = f"{call.name} was stopped. {time_is_up(await budget.caps()).message}"
            if self.deps.catalog.tool(call.name).effects & LASTING:
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
    session: str
    turn: int
    budget_line: Callable[[], Awaitable[str]]

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
        verdict = await self.deps.judge.judge(
            self.plan.inputs.question, call, observation, context.emit
        )
        note = await self.plan.count(
            call,
            thought,
            price=context.bill.total_nano,
            seconds=observation.seconds,
            helpful=verdict.helpful,
        )
        note = "\n".join(filter(None, (note, await self.budget_line())))
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
        deps = self.deps

        def use() -> Use:
            from ecoshell.planning.btp import redaction

            question = self.plan.inputs.question
            size = len(json.dumps(dict(call.arguments), ensure_ascii=False, default=str))
            return Use(
                query=redaction.beginning(question, environ, redaction.QUERY),
                tool=call.name,
                document_hash=document_hash(deps.catalog.schema(call.name)),
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
            await deps.experience.remember(use, context.emit)


@dataclass(frozen=True)
class Meta(Guard):
    """Handles `tool_register`, `tool_search` and `tool_call`, and passes on all other calls (SPEC §1)."""

    registrar: Registrar
    checked: Checked

    async def execute(self, call: Call, context: CallContext) -> Observation:
        catalog = self.deps.catalog
        if call.fault:
            return await self.inner.execute(call, context)
        if call.name == TOOL_CALL:
            return await self.inner.execute(unwrap(call), replace(context, through=TOOL_CALL))
        if call.name in catalog.skills:
            reason = f"{call.name} is a skill, which is not called. tool_register(tool_name={call.name}) loads it."
            observation = refuse("unknown", reason)
        elif call.name == TOOL_SEARCH:
            observation = await self._search(str(call.arguments.get("query", "")))
        elif call.name == TOOL_REGISTER:
            name = str(call.arguments.get("tool_name", ""))
            if name in catalog.skills and name not in context.registered:
                return Observation(await self.registrar.load_skill(name, call, context))
            if name in catalog.skills:
                observation = Observation(
                    f"The skill {name} is loaded already; follow its instructions."
                )
            elif name not in catalog:
                observation = refuse("unknown", unknown_tool(name, catalog))
            elif name in context.registered:
                observation = Observation(f"{name} is registered already; call it.")
            elif refusal := await self.checked.refusal(name, context):
                observation = refuse("forbidden", refusal)
            else:
                schema = self.registrar.register(name, call, context)
                return Observation(self.registrar.presentation.registration_result(schema))
        else:
            return await self.inner.execute(call, context)
        context.emit(
            CallStarted(call.id, call.name, call.arguments, role=context.role, group=call.group)
        )
        context.emit(finished(call, observation, context))
        return observation

    async def _search(self, query: str) -> Observation:
        """The names of the tools and skills that match a query, without forbidden ones."""
        forbidden = self.checked.plan.forbidden
        ranked = await asyncio.to_thread(self.deps.ranker.search, query)
        names = [name for name in ranked if name not in forbidden][:SEARCH_RESULTS]
        if names:
            text = f"Tools that fit, best first: {', '.join(names)}"
        elif ranked:
            reasons = (f"{name} ({why_words(forbidden[name])})" for name in ranked[:SEARCH_RESULTS])
            text = f"What fits {query!r} may not be used now: {', '.join(reasons)}."
        else:
            text = f"No tool fits {query!r}."
        if skills := await asyncio.to_thread(self.deps.catalog.skills.search, query):
            text += f"\nSkills that fit, best first: {', '.join(skills[:SEARCH_RESULTS])}"
        return Observation(text, ok=bool(names or skills))
