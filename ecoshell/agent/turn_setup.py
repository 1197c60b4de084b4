"""Everything that a turn needs before its first step: the plan, the tool offer, the first view and the guards."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ecoshell.agent.advisor import Advised, Advisor, offer_advisor
from ecoshell.agent.approval import Approved, Confined
from ecoshell.agent.automatic_compaction import ContextKeeper
from ecoshell.agent.checks import AskForMoney, Checked, Meta, Registrar
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import Announced, CallContext, Judged, Logged, Runner, ToolExecutor
from ecoshell.agent.memory import Memory, next_view
from ecoshell.agent.mode import count_prompts
from ecoshell.agent.offer import ToolOffer, first_load, make_offer
from ecoshell.agent.past_turn import Shown
from ecoshell.agent.plan_snapshot import PlanInputs
from ecoshell.agent.session_settings import result_characters, step_limit
from ecoshell.agent.spending import SpendApproval
from ecoshell.agent.tool_calls import ToolCalls
from ecoshell.agent.turn import Turn
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.agent.turn_usage import BudgetLine, CapWatch, TurnUsage
from ecoshell.agent.view import View, opening_text, path_of, question_text
from ecoshell.budget import Amount, CapState
from ecoshell.catalog import GROW, LoadingDecision
from ecoshell.errors import LimitReached, UsageError
from ecoshell.events import CommandRan, Emit, Event, Notice, Quote, ToolRegistered, ToolUnregistered
from ecoshell.messages import Attachment, Call, ToolSchema
from ecoshell.options import Effort
from ecoshell.strategies import Strategy
from ecoshell.tools import Delegation
from ecoshell.tools.background import COMMAND_OUTPUT
from ecoshell.tools.builtin.advisor import ASK_ADVISOR
from ecoshell.tools.builtin.task import TASK

if TYPE_CHECKING:
    from ecoshell.agent.subagents import Subagents
    from ecoshell.agent.task_command import TaskTurn
    from ecoshell.tools import Caller

_ANSWER_ONLY = (
    "Not enough budget left for a tool call; answering without tools. /budget raises the cap."
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question with everything that is sent with it."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    notices: tuple[str, ...] = ()
    """Information for the user, such as a file that could not be attached."""
    commands: tuple[CommandRan, ...] = ()
    """Shell commands that the user ran before it."""
    session_model: str = ""
    """The session's model, if another one answers this question only."""
    effort: Effort | None = None
    """The session's effort, if another one holds for this question only."""
    source: tuple[str, str] | None = None
    """The file of the project that the question comes from, which needs the user's trust, with its text."""
    quoted: Quote | None = None
    """The quote of the plan that it carries out."""
    caps: tuple[Amount, ...] = ()
    """Caps for its turn only, in addition to those of the session."""
    task: Delegation | None = None
    """What a subagent does instead of the session's agent."""
    line: str = ""
    """The typed line whose custom command has given the text; empty for text as typed."""


class TurnSetup:
    """Sets up the turns of one session."""

    def __init__(
        self, deps: Dependencies, session: str, memory: Memory, past: Sequence[Event]
    ) -> None:
        self.decision: LoadingDecision | None = None
        """Why the last turn loaded its tools."""
        self.watch = CapWatch(past)
        self._deps = deps
        self._session = session
        self._memory = memory
        self._spending = SpendApproval(deps.settings, deps.models, deps.budget, deps.user)
        self._advisor = Advisor(deps, session)
        self._subagents: Subagents | None = None
        self._task_turn: TaskTurn | None = None
        """The running turn of `/task`; None in other turns."""
        self._sampling: dict[str, bool] = {}
        """Servers for which the user allowed or denied sampling."""
        self._fault = ""
        """Why experience cannot be read, as last reported."""

    async def planned(self, question: Question, number: int, emit: Emit) -> tuple[TurnPlan, str]:
        """The plan of a turn, which has not been made, and the workspace context that the model has not read yet."""
        deps, source = self._deps, question.source
        trust = deps.environment.trust
        if source is not None and not await trust.allows(*source, deps.user, emit):
            raise UsageError(f"{source[0]} is not trusted.", kept="Nothing was sent.")
        self._spending.ending = None
        hooks = deps.hooks()
        if hooks is not None and not deps.agent:
            await hooks.begin_turn(self._session, number, question.text, deps.user, emit)
        offer_advisor(deps)
        if ASK_ADVISOR in self._memory.library and ASK_ADVISOR not in deps.catalog:
            emit(ToolUnregistered(ASK_ADVISOR, by_user=False))
        models = deps.models.current
        deps.workspace.result.characters = result_characters(models.context)
        await deps.providers.follow(self._memory.library, emit)
        skills = await asyncio.to_thread(deps.skills)
        if skills is not None and not deps.agent:  # subagents have those of the session
            await skills.follow(deps.user, emit)
        known = self._shown.context
        environment = await deps.environment.read(models.model, deps.user, emit, previous=known)
        context = "" if environment is None else environment.text
        return await self._plan_for(question.text, context=context), context

    async def turn(
        self,
        question: Question,
        number: int,
        plan: TurnPlan,
        context: str,
        usage: TurnUsage,
        emit: Emit,
    ) -> Turn:
        """Make the plan and offer the tools; the turn is ready to run."""
        await plan.renew(for_offer=True)
        offers_tools = plan.allows_tools
        if plan.inputs.fault and plan.inputs.fault != self._fault:
            emit(Notice(plan.inputs.fault))
        self._fault = plan.inputs.fault
        deps, models = self._deps, self._deps.models.current
        budget_line = BudgetLine(deps.settings, deps.models, usage)
        budget = budget_line.text(plan.caps)
        offer, start = await self._beginning(question, plan, context, budget=budget)
        self._report_offer(offer, emit)
        view = start.at(start.path, catalog=deps.catalog, forbidden=plan.forbidden)
        caps = models.capped_by(plan.caps)
        await count_prompts(models.mode.forecast(view), caps)
        await plan.settle(view, offer.event.names)
        plan.report(emit, "the question")
        if plan.answer_only:
            emit(Notice(_ANSWER_ONLY))

        def ask(shortage: LimitReached, emit: Emit) -> Awaitable[bool]:
            return self._spending.for_tool(shortage, turn.view, emit)

        async def offer_again(start: View) -> View:
            line = budget_line.text(plan.caps)
            offer, again = await self._beginning(question, plan, context, budget=line)
            again = replace(again, condensed=start.condensed, history=start.history)
            view = again.at(turn.view.path, catalog=deps.catalog, forbidden=plan.forbidden)
            if not await self._spending.has_room(view):
                return start
            turn.calls.executor = self._executor(offer, plan, number, budget_line, ask)
            return self._offered(offer, start, again, emit)

        executor = self._executor(offer, plan, number, budget_line, ask)
        begin_again = partial(self._begin_again, question, plan, emit)
        turn = Turn(
            deps=deps,
            start=start,
            plan=plan,
            mode=models.mode,
            strategy=self._strategy(question),
            step_limit=step_limit(models.model.traits, deps.settings.max_steps, capped=bool(caps)),
            calls=ToolCalls(plan, executor, emit, usage.user_time),
            spending=self._spending,
            context=ContextKeeper(deps, self._memory, plan, emit, begin_again),
            watch=self.watch,
            advisor=self._advisor,
            emit=emit,
            offer_again=offer_again,
            offers_tools=offers_tools,
        )
        return turn

    def _strategy(self, question: Question) -> Strategy:
        """The session's strategy, or one that delegates the question of `/task`."""
        self._task_turn = None
        if question.task is None:
            return self._deps.strategy.strategy
        from ecoshell.agent.task_command import TaskTurn, delegating

        self._task_turn = TaskTurn(question.task, question.attachments)
        return delegating(self._task_turn, registered=TASK in self._memory.library)

    def _report_offer(self, offer: ToolOffer, emit: Emit) -> None:
        self.decision = offer.decision
        emit(offer.event)
        catalog, exact = self._deps.catalog, offer.event.exact
        earlier = len(offer.event.loaded) - len(offer.upfront)
        total = len(catalog) + len(catalog.skills)
        for loaded, tool in enumerate(offer.upfront, start=earlier + 1):
            event = ToolRegistered(
                tool.name, tool.tokens, exact, 0, "upfront", loaded=loaded, total=total
            )
            emit(event)

    @property
    def _shown(self) -> Shown:
        """What the model has seen before this question; nothing for a model that reads no earlier turns."""
        shown = self._memory.shown
        return Shown(presentation=shown.presentation) if self._forgetful else shown

    @property
    def _forgetful(self) -> bool:
        return self._deps.models.current.model.traits.forgetful

    async def _beginning(
        self, question: Question, plan: TurnPlan, context: str = "", *, budget: str = ""
    ) -> tuple[ToolOffer, View]:
        """The tool offer and the first view of a turn under its plan; `context` describes the workspace."""
        deps, memory = self._deps, self._memory
        library, shown = memory.library, self._shown
        offer = await asyncio.to_thread(make_offer, plan, deps, library=library, shown=shown)
        advice = offer.event.advice
        if deps.settings.approval_mode == "plan":
            from ecoshell.agent.plan_mode import INSTRUCTION

            advice = "\n\n".join(filter(None, (advice, INSTRUCTION)))
        may_read = deps.models.current.model.traits.capable or COMMAND_OUTPUT in library
        ends: Mapping[str, str] = memory.ends if may_read else {}
        offer = replace(offer, event=replace(offer.event, advice=advice, budget=budget, ends=ends))
        costs = ""
        if deps.strategy.parallel:
            from ecoshell.agent.tool_graph import costs_text  # only tool graphs use it

            def measure() -> str:
                size = deps.workspace.size_of_input(question.text, question.attachments)
                return costs_text(plan, deps.profiles.costs(), offer.callable_names, size)

            costs = await asyncio.to_thread(measure)
        text = question_text(question.text, question.attachments, question.commands)
        opening = opening_text(
            offer.event.listing, text, advice=advice, context=context, budget=budget, ends=ends
        )
        start = View(
            path=path_of(question.text, question.attachments),
            opening=opening,
            attachments=question.attachments if deps.by_program else (),
            contexts=memory.contexts,
            history=() if self._forgetful else memory.messages,
            known=offer.listed,
            skills=offer.loads_skills,
            registered=(),
            presentation=offer.decision.presentation,
            deferrable=offer.deferrable,
            large=offer.large,
            searching=deps.strategy.searches,
            library=memory.library.including(offer.upfront).names,
            costs=costs,
        )
        return offer, start

    async def _begin_again(
        self, question: Question, plan: TurnPlan, emit: Emit, start: View
    ) -> View:
        """The view at the turn's beginning with the schemas and workspace facts that a summary has replaced."""
        deps = self._deps
        environment = await deps.environment.read(deps.models.current.model, deps.user, emit)
        context = "" if environment is None else environment.text
        offer, again = await self._beginning(question, plan, context)
        return self._offered(offer, start, again, emit)

    def _offered(self, offer: ToolOffer, start: View, again: View, emit: Emit) -> View:
        """Report the offer that replaces the one of a turn's `start`, and return the view `again` with its tools."""
        self._report_offer(offer, emit)
        library = dict.fromkeys((*start.library, *(tool.name for tool in offer.upfront)))
        return replace(again, library=tuple(library))

    async def _plan_for(
        self, question: str, caps: Sequence[CapState] | None = None, *, context: str = ""
    ) -> TurnPlan:
        """A plan that has not been made yet."""
        deps, memory = self._deps, self._memory

        def inputs() -> PlanInputs:
            defers = deps.models.current.defers_tools
            view = next_view(
                memory, deps.catalog, question, names=(), context=context, defers=defers
            )
            if memory.shown.presentation is None:
                presentation, _ = first_load(deps, memory.library, caps or ())
                if presentation.declared:  # any other array depends on this plan
                    schemas = deps.catalog.schemas
                    view = replace(view, presentation=presentation, deferrable=schemas)
            return PlanInputs.of(question, deps, view)

        return TurnPlan(await asyncio.to_thread(inputs), deps, caps)

    async def read_ahead(self) -> None:
        """Let local models read the prompt before the next question while the user types it."""
        models = self._deps.models.current
        if not any(model.traits.local for model in models.models):
            return
        for call in models.mode.forecast(await self.view_ahead()).steps:
            if call.model.traits.local:
                await call.model.warm(replace(call.request, role=call.role))

    async def view_ahead(self) -> View:
        """What the first step of the next question sees, with an empty question and no workspace context."""
        plan = await self._plan_for("")
        await plan.renew(for_offer=True)
        _, start = await self._beginning(Question(""), plan)
        return start.at(start.path, catalog=self._deps.catalog, forbidden=plan.forbidden)

    async def forecast(self, question: str, caps: Sequence[CapState] | None = None) -> TurnPlan:
        """The plan for a question asked now, under these caps or the current ones; spends nothing."""
        plan = await self._plan_for(question, caps)
        await plan.renew()
        return plan

    def _executor(
        self, offer: ToolOffer, plan: TurnPlan, number: int, budget: BudgetLine, ask: AskForMoney
    ) -> ToolExecutor:
        """The guards around the tools, from the innermost to the outermost.

        A call passes them in reverse order: meta-tools → judged → announced → advised → checked (known → not repeated
        → in the plan → registered → affordable) → hooks → approved → confined → logged and paid → the tool itself.
        """
        deps, catalog = self._deps, self._deps.catalog
        presentation = offer.decision.presentation
        by_call = presentation.deferred or presentation.by_call
        by_call = by_call or (presentation is GROW and deps.settings.registration == "auto")
        registrar = Registrar(catalog, presentation, self.measure, by_call)

        def caller_of(call: Call, context: CallContext) -> "Caller":
            return self._caller_of(call, context, chain)

        chain: ToolExecutor = Runner(catalog, caller_of=caller_of)
        chain = Logged(chain, catalog, deps.budget, deps.log)
        chain = Confined(chain, catalog, deps.approvals, deps.agent)
        searches = deps.strategy.searches
        chain = Approved(chain, catalog, deps.approvals, deps.models, searches, deps.agent)
        hooks = deps.hooks()
        if hooks is not None:
            chain = hooks.around(chain, self._session, number)
        chain = checked = Checked(chain, registrar, plan, deps.budget, ask)
        if deps.settings.advisor is not None:
            chain = Advised(chain, self._advisor)
        chain = Announced(chain, deps.models)
        chain = Judged(chain, plan, deps.judge, deps.experience, self._session, number, budget)
        chain = Meta(chain, registrar, checked, deps.ranker)
        return chain

    def _caller_of(self, call: Call, context: CallContext, executor: ToolExecutor) -> "Caller":
        """The services that the tool of this call may use."""
        from ecoshell.agent.callbacks import RunningCall  # loaded with the first tool call

        def ask_advisor(question: str) -> Awaitable[str]:
            return self._advisor.ask(question, context.path, context.emit)

        services = (self._subagents_of, ask_advisor, context, executor)
        return RunningCall(self._deps, self._sampling, call, context.emit, context.bill, *services)

    def _subagents_of(self) -> "Subagents":
        if self._subagents is None:
            from ecoshell.agent.subagents import Subagents  # few sessions delegate

            self._subagents = Subagents(self._deps, self._session)
        self._subagents.task_turn = self._task_turn
        return self._subagents

    def measure(self, schema: ToolSchema, text: str = "") -> tuple[int, bool]:
        """Tokens of a schema, or of a skill's text, for the current model, which may change at a limit."""
        models = self._deps.models.current
        texts = [text] if text else self._memory.presentation.prompt_texts([schema])
        return models.sizes(texts)[0], models.model.exact
