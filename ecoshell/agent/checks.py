"""Which tools a call may use: meta-tools, and checks that a tool is known, planned, registered and affordable."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import islice

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import CallContext, Guard, announce, may_repeat, refuse, unwrap
from ecoshell.agent.spending import SessionBudget
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.catalog import Catalog, Presentation
from ecoshell.catalog.search import Ranker
from ecoshell.errors import LimitReached
from ecoshell.events import Emit, ToolRegistered
from ecoshell.events.plan import why_words
from ecoshell.messages import TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, Call, Observation, ToolSchema
from ecoshell.strategies import same
from ecoshell.tools import LASTING, Warming, limits_of
from ecoshell.tools.running import clip

_MADE_BEFORE = "This call was made before with the same arguments, and nothing has changed since."
_CONTINUE = (
    "Do what is still to be done, with another call, or answer if nothing is. The request was:"
)
_REQUEST_CHARACTERS = 600
"""Characters of the request that are repeated after a repeated call."""
_ALTERNATIVES = 6
"""Tools that are suggested when a repeated call is refused."""
AskForMoney = Callable[[LimitReached, Emit], Awaitable[bool]]
"""Asks the user about a tool that is refused for its cost; returns whether to try again."""
SEARCH_RESULTS = 10


@dataclass(frozen=True, slots=True)
class Registrar:
    """Registers tools and reports each registration as an event."""

    catalog: Catalog
    presentation: Presentation
    measure: Callable[[ToolSchema, str], tuple[int, bool]]
    """Counts the tokens of a tool schema, or of a skill's text, and says whether the count is exact."""
    by_call: bool
    """Whether the first call of a tool that is known by name registers it."""

    def register(self, name: str, call: Call, context: CallContext) -> ToolSchema:
        """Register the tool for this call, which asks for that or is the tool's own first one."""
        schema, tool = self.catalog.schema(name), self.catalog.tool(name)
        self._report(schema, call, context)
        if isinstance(tool, Warming):
            tool.warm()
        return schema

    async def load_skill(self, name: str, call: Call, context: CallContext) -> str:
        """Register the skill for this call and return its text."""
        skill = self.catalog.skills[name]
        text = await asyncio.to_thread(skill.text)
        self._report(skill.schema, call, context, text)
        return text

    def _report(self, schema: ToolSchema, call: Call, context: CallContext, text: str = "") -> None:
        by = "agent" if call.name == TOOL_REGISTER else "first_call"
        tokens, exact = self.measure(schema, text)
        step, loaded = len(context.path.steps) + 1, len({*context.registered, schema.name})
        total = len(self.catalog) + len(self.catalog.skills)
        context.registered.add(schema.name)
        context.emit(
            ToolRegistered(
                schema.name, tokens, exact, step, by, call.id, call.group, loaded, total, text=text
            )
        )


def unknown_tool(name: str, catalog: Catalog) -> str:
    """What the model reads after naming an unknown tool."""
    closest = catalog.closest(name)
    hint = f" The closest names are {', '.join(closest)}." if closest else ""
    return f"There is no tool called {name!r}.{hint}"


@dataclass(frozen=True)
class Checked(Guard):
    """Refuses calls of unknown, forbidden, unregistered and unaffordable tools, and repeated calls, before approval."""

    registrar: Registrar
    plan: TurnPlan
    budget: SessionBudget
    ask: AskForMoney

    async def execute(self, call: Call, context: CallContext) -> Observation:
        catalog = self.registrar.catalog
        if call.name not in catalog:
            return refuse("unknown", unknown_tool(call.name, catalog))
        if call.fault:
            return refuse("invalid", call.fault)
        if (result := repetition(call, context, self.plan.deps)) is not None:
            return result
        is_call = self.registrar.by_call or call.name in context.registered
        if refusal := await self.refusal(call.name, context, is_call=is_call):
            return refuse("forbidden", refusal)
        if call.name not in context.registered:
            if not self.registrar.by_call:
                fix = f"Register it first: tool_register(tool_name={call.name})."
                reason = f"{call.name} is not registered, so it was not run. {fix}"
                return refuse("unregistered", reason)
            self.registrar.register(call.name, call, context)
        price = catalog.tool(call.name).price_nano
        while price:
            try:
                await self.budget.gate.require(self.budget.account(), price)
                break
            except LimitReached as limit:
                # the user may make room; nodes of a tool graph are refused at once
                if context.node or not await self.ask(limit, context.emit):
                    return refuse("unaffordable", f"{call.name} was not run: {limit.message}")
        return await self.inner.execute(call, context)

    async def refusal(self, tool: str, context: CallContext, *, is_call: bool) -> str:
        """Why a tool may not be called or, without `is_call`, registered now (BTP §2.3, SPEC §2); empty if it may.

        If the reason is its cost, the user can make room first.
        """
        plan = self.plan
        if is_call and plan.enforced and await asyncio.to_thread(plan.refusal, tool):
            await plan.follow(context.emit)  # the plan is older than the step that wrote the call
        while plan.enforced and (
            refusal := await asyncio.to_thread(plan.refusal, tool, is_call=is_call)
        ):
            shortage = None if context.node else plan.shortage(tool, is_call=is_call)
            if shortage is None or not await self.ask(shortage, context.emit):
                return refusal
            await plan.follow(context.emit)
        return ""


def repetition(call: Call, context: CallContext, deps: Dependencies) -> Observation | None:
    """The earlier result for the first repetition of a call, a refusal for further ones; None if it may run.

    A capable model may repeat any call: something else may have changed its result. After a call that writes or
    executes, repetitions may run, since any result may have changed; after a program that failed, too, because it
    may have done part of its work.
    """
    catalog, times, result = deps.catalog, 0, None
    if context.node or limits_of(catalog.tool(call.name)).is_live:
        return None
    if may_repeat(deps.models):
        return None
    for step in context.path.steps:
        observation, subject = step.observation, step.call.subject
        is_alike = step.call.id not in context.forgotten and same(unwrap(step.call), call)
        if is_alike and observation.refused in ("", "repeated"):
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
class Meta(Guard):
    """Handles `tool_register`, `tool_search` and `tool_call`, and passes on all other calls (SPEC §1)."""

    registrar: Registrar
    checked: Checked
    ranker: Ranker

    async def execute(self, call: Call, context: CallContext) -> Observation:
        catalog = self.registrar.catalog
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
                text = f"The skill {name} is loaded already; follow its instructions."
                observation = Observation(text)
            elif name not in catalog:
                observation = refuse("unknown", unknown_tool(name, catalog))
            elif name in context.registered:
                observation = Observation(f"{name} is registered already; call it.")
            elif refusal := await self.checked.refusal(name, context, is_call=False):
                observation = refuse("forbidden", refusal)
            else:
                schema = self.registrar.register(name, call, context)
                return Observation(self.registrar.presentation.registration_result(schema))
        else:
            return await self.inner.execute(call, context)
        announce(call, observation, context)
        return observation

    async def _search(self, query: str) -> Observation:
        """The names of the tools and skills that match a query, without forbidden ones."""
        forbidden = self.checked.plan.forbidden
        ranked = await asyncio.to_thread(self.ranker.search, query)
        names = [name for name in ranked if name not in forbidden][:SEARCH_RESULTS]
        if names:
            text = f"Tools that fit, best first: {', '.join(names)}"
        elif ranked:
            reasons = (f"{name} ({why_words(forbidden[name])})" for name in ranked[:SEARCH_RESULTS])
            text = f"What fits {query!r} may not be used now: {', '.join(reasons)}."
        else:
            text = f"No tool fits {query!r}."
        if skills := await asyncio.to_thread(self.registrar.catalog.skills.search, query):
            text += f"\nSkills that fit, best first: {', '.join(skills[:SEARCH_RESULTS])}"
        return Observation(text, ok=bool(names or skills))
