"""One session: its history, and the turns that run in it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ecoshell.agent.advisor import Advised, Advisor, offer_advisor
from ecoshell.agent.approval import SpendApproval
from ecoshell.agent.budget_line import BudgetLine
from ecoshell.agent.cap_watch import CapWatch
from ecoshell.agent.confined import Confined
from ecoshell.agent.context import ContextKeeper
from ecoshell.agent.cost_bounds import count_prompts
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import (
    Announced,
    Approved,
    CallContext,
    Checked,
    Judged,
    Logged,
    Meta,
    Registrar,
    Runner,
    ToolExecutor,
)
from ecoshell.agent.limits import result_characters, step_limit
from ecoshell.agent.memory import (
    LARGE_CONTEXT,
    Memory,
    PastTurn,
    Shown,
    asked_text,
    next_view,
    opening_text,
    path_of,
)
from ecoshell.agent.mode import View
from ecoshell.agent.offer import ToolOffer, TurnContext, make_offer
from ecoshell.agent.turn import Turn, TurnEnd
from ecoshell.agent.turn_plan import PlanInputs, TurnPlan
from ecoshell.agent.turn_usage import TurnUsage
from ecoshell.budget import CapState
from ecoshell.budget.gate import finished
from ecoshell.catalog import GROW, LoadingDecision
from ecoshell.errors import EcoshellError, StoreError, UsageError
from ecoshell.events import (
    BudgetChanged,
    BudgetSettled,
    CallFinished,
    CommandRan,
    Compacted,
    Emit,
    ErrorHappened,
    Event,
    GraphPlanned,
    Notice,
    PlanChanged,
    Quote,
    ToolRegistered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.messages import Attachment, Call, ToolSchema
from ecoshell.options import ROLES
from ecoshell.secrecy import mask_secrets
from ecoshell.strategies import Strategy
from ecoshell.tools import Delegation
from ecoshell.tools.builtin.advisor import ASK_ADVISOR
from ecoshell.tools.builtin.task import TASK

if TYPE_CHECKING:
    from ecoshell.agent.context_report import ContextReport
    from ecoshell.agent.scoring import Scorer
    from ecoshell.agent.subagents import Subagents
    from ecoshell.tools import Caller
    from ecoshell.tools.restore import Changed

T = TypeVar("T")
Happened = TypeVar("Happened", bound=Event)
_ANSWER_ONLY = (
    "Not enough budget left for a tool call; answering without tools. /budget raises the cap."
)
_NOT_READ_ONLY = "Resume the session without --read-only."
_BUSY_FIX = "Wait for it, or stop it with Esc (Ctrl-C in the line shell)."


class Stopped(Exception):
    """The user stopped work that excludes turns."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with everything that is sent with it."""

    question: str
    attachments: tuple[Attachment, ...] = ()
    notices: tuple[str, ...] = ()
    """Information for the user, such as a file that could not be attached."""
    commands: tuple[CommandRan, ...] = ()
    """Shell commands that the user ran before it."""
    session_model: str = ""
    """The session's model, if another one answers this question only."""
    source: tuple[str, str] | None = None
    """The file of the project that the question comes from, which needs the user's trust, with its text."""
    quoted: Quote | None = None
    """The quote of the plan that it carries out."""
    task: Delegation | None = None
    """What a subagent does instead of the session's agent."""


class Conversation:
    """An open session. One turn runs at a time; every event is on disk before an interface receives it."""

    def __init__(self, deps: Dependencies, session: str, past: Sequence[Event] = ()) -> None:
        self.session = session
        self.memory = Memory(deps.catalog, past)
        settled = [event for event in past if isinstance(event, BudgetSettled)]
        deps.budget.counted = {event.prompt: event.usage for event in settled if event.prompt}
        self._scorer: Scorer | None = None
        """Made with the session's first turn that may use a tool graph."""
        self.decision: LoadingDecision | None = None
        self.plan: TurnPlan | None = None
        """The plan of the running or last turn."""
        self._fault = ""
        """Why experience cannot be read, as last reported."""
        self._deps = deps
        self._spending = SpendApproval(deps)
        self._advisor = Advisor(deps, session)
        self._watch = CapWatch(past)
        self._subagents: Subagents | None = None
        self._sampling: dict[str, bool] = {}
        """Servers for which the user allowed or denied sampling."""
        self._turn_now: Turn | None = None
        self._emit: Emit | None = None
        """Emits an event of the running turn."""
        self.turn = self.memory.number
        """The number of the last turn; 0 before the first."""
        self.accepted: Quote | None = None
        """The quote of the plan that the next question carries out."""
        self._copies = ""
        self._unrestored: dict[str, str] = {}
        """Files that /undo did not restore because they had changed, with the name of their copies."""
        self._running: asyncio.Task[Any] | None = None
        self._occupied = False
        """Whether short work that cannot be stopped is running."""
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        """Events of the running turn that its reader has not received; None ends the stream."""
        if any(isinstance(event, GraphPlanned) for event in past):
            self._keep_scores(past)
        deps.budget.enter(session, self.turn)

    @property
    def busy(self) -> bool:
        return self._running is not None or self._occupied

    async def ask(self, asked: Asked) -> AsyncGenerator[Event]:
        """Run a turn and yield its events, the last of which is TurnFinished; raises UsageError while a turn runs."""
        self.require_free()
        asked = mask_secrets(replace(asked, commands=self.memory.commands, quoted=self.accepted))
        self.accepted = None
        queue = self._queue = asyncio.Queue[Event | None]()
        self.turn += 1
        self._deps.budget.enter(self.session, self.turn)
        self._copies = self._deps.workspace.enter(self.session, self.turn)
        self._running = asyncio.create_task(self._perform(asked, queue))
        self._running.add_done_callback(lambda task: self._close(task, queue))
        is_written = True
        try:
            while True:
                batch = [await queue.get()]
                while not queue.empty():
                    batch.append(queue.get_nowait())
                await self._deps.log.flush()
                for event in batch:
                    if event is None:
                        return
                    yield event
        except StoreError as failure:
            is_written = False  # another attempt would wait for the same lock again
            message = (
                f"The turn was stopped, because its events could not be written: {failure.message}"
            )
            raise StoreError(message, kept=failure.kept, fix=failure.fix) from failure
        finally:  # the reader may be gone, too
            try:
                await self.stop()
            finally:
                self._running = None
            if is_written:
                await self._deps.log.flush()

    @property
    def ahead(self) -> View:
        """What the next model call would see: of the running turn, or of a question asked now."""
        if self._turn_now is not None:
            return self._turn_now.view
        return next_view(
            self.memory, self._deps.catalog, defers=self._deps.models.current.defers_tools
        )

    async def context_report(self) -> "ContextReport":
        """What fills the context of the next model call, in the running turn or with an empty question."""
        from ecoshell.agent.context_report import report_of

        deps, memory, turn = self._deps, self.memory, self._turn_now
        defers = deps.models.current.defers_tools
        view = next_view(memory, deps.catalog, "", defers=defers) if turn is None else turn.view
        call = deps.models.current.mode.forecast(view).steps[0]
        context, share = call.model.traits.context, deps.settings.compact_at
        is_compacted = share != "off" and context is not None and context >= LARGE_CONTEXT
        compact_at = (
            int(context * share)
            if is_compacted and context is not None and share != "off"
            else None
        )
        turns = [*(memory.turns if view.history else ()), *filter(None, (memory.open_turn,))]
        summary = memory.summary if view.history else ""
        return await asyncio.to_thread(
            report_of, call, summary, turns, memory.shown.context, compact_at
        )

    def require_free(self) -> None:
        """Raise UsageError while a turn, or work that excludes turns, is running."""
        if self.busy:
            raise UsageError("A turn is running.", fix=_BUSY_FIX)

    async def stop(self) -> None:
        """Stop the running turn, whose stream still ends with TurnFinished, or work started by `alone`."""
        if self._running is not None:
            self._running.cancel()
            await finished(asyncio.wait([self._running]))

    async def leave(self) -> None:
        """Stop the running turn and write its remaining events; the reader's stream ends."""
        await self.stop()
        if self._deps.hooks is not None and not self._deps.agent:
            await self._deps.hooks.end_session(
                self.session, partial(self._deps.log.queue, self.session)
            )
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)
        with suppress(StoreError):  # the next write includes them
            await self._deps.log.flush()

    async def alone(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work that excludes turns; raises UsageError while a turn runs, and Stopped if `stop` is called."""
        try:
            self.require_free()
        except UsageError:
            work.close()
            raise
        self._running = task = asyncio.create_task(work)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise Stopped from None
        finally:
            self._running = None

    async def undo(self) -> "tuple[PastTurn, TurnUndone, tuple[Changed, ...]]":
        """Undo the last turn: restore files and hide the turn from models; raises UsageError.

        Files changed since then are returned and not restored, except by `undo_over`.
        """
        from ecoshell.tools.restore import restore

        with self.occupying():
            turn = self.memory.last_turn
            log = self._deps.workspace.undo
            wrote = bool(await asyncio.to_thread(log.writes, self.session, turn.copies))
            if wrote and self._deps.approvals.rules.read_only:
                raise UsageError(
                    "This turn changed files, and the shell is read-only.", fix=_NOT_READ_ONLY
                )
            restored = await asyncio.to_thread(restore, log, self.session, turn.copies)
            event = TurnUndone(turn.number, restored.restored, restored.kept)
            await self.note(event)
            if restored.kept:
                self._unrestored |= dict.fromkeys(restored.kept, turn.copies)
            else:
                await asyncio.to_thread(log.forget, self.session, turn.copies)
            return turn, event, restored.changed

    async def undo_over(self, path: str) -> bool:
        """Restore a file that `undo` did not restore, over its newer content; says whether it was restored.

        Raises UsageError for any other file.
        """
        from ecoshell.tools.restore import restore

        with self.occupying():
            if path not in self._unrestored:
                raise UsageError(
                    f"/undo has not skipped a file {path!r}.",
                    fix="/undo without a file undoes a turn.",
                )
            if self._deps.approvals.rules.read_only:
                raise UsageError("The shell is read-only.", fix=_NOT_READ_ONLY)
            log, copies = self._deps.workspace.undo, self._unrestored[path]
            restored = await asyncio.to_thread(restore, log, self.session, copies, over=path)
            if path not in restored.kept:
                del self._unrestored[path]
            return path in restored.restored

    async def compact(self) -> tuple[Compacted, int | None]:
        """Replace earlier turns by a summary in the model's context; returns it with its price, None if unknown.

        Raises UsageError while a turn runs and if nothing would be saved, BudgetError and ModelError; then nothing
        changes. `stop` stops it.
        """
        from ecoshell.agent.compaction import compact

        work = compact(
            self._deps, self.memory, lambda event: self._deps.log.queue(self.session, event)
        )
        try:
            compacted, spent = await self.alone(work)
        finally:
            await self._deps.log.flush()
        await self.note(compacted)
        await self.note(BudgetChanged(await self._deps.budget.caps()))
        return compacted, spent

    async def register(self, name: str) -> Event:
        """Register a tool or a skill for the user; raises UsageError for unknown and for registered ones."""
        schema, catalog = self.known(name), self._deps.catalog
        if name in self.memory.library:
            raise UsageError(
                f"{name} is registered already.", fix="/tools lists the registered tools."
            )
        text = await asyncio.to_thread(catalog.skills[name].text) if name in catalog.skills else ""
        tokens, exact = await asyncio.to_thread(self._measure, schema, text)
        counts = len(self.memory.library.names) + 1, len(catalog) + len(catalog.skills)
        return await self.note(
            ToolRegistered(name, tokens, exact, 0, "user", "", "", *counts, text=text)
        )

    async def unregister(self, name: str) -> Event:
        """Unregister a tool; the model may register it again."""
        if name not in self.memory.library:
            self.known(name)
            raise UsageError(f"{name} is not registered.", fix="/tools lists the registered tools.")
        return await self.note(ToolUnregistered(name))

    def known(self, name: str) -> ToolSchema:
        """The schema of a known tool, or of a skill; raises UsageError with the closest names."""
        if name in self._deps.catalog:
            return self._deps.catalog.schema(name)
        if name in self._deps.catalog.skills:
            return self._deps.catalog.skills[name].schema
        closest = self._deps.catalog.closest(name)
        fix = f"Did you mean {' or '.join(closest)}?" if closest else "/tools lists all names."
        raise UsageError(f"There is no tool called {name!r}.", fix=fix)

    async def score(self, turn: int) -> Sequence[Event]:
        """The new score of a turn's tool graph, if a mark changed it; raises StoreError."""
        score = await self._scorer.rescore(turn) if self._scorer is not None else None
        return () if score is None else (await self.note(score),)

    def _keep_scores(self, past: Sequence[Event] = ()) -> None:
        from ecoshell.agent.scoring import Scorer  # few sessions have tool graphs
        from ecoshell.sessions.tool_graphs import PlannedTurns

        self._scorer = Scorer(self._deps, self.session, PlannedTurns(past))

    def emit(self, event: Event) -> bool:
        """Add an event to the running turn; False without one."""
        if self._emit is None:
            return False
        self._emit(event)
        return True

    async def note(self, event: Happened) -> Happened:
        """Record an event from outside the turn's stream; returns it as recorded, with secrets masked."""
        event = mask_secrets(event)
        self.memory.see(event)
        if self._scorer is not None:
            self._scorer.turns.add(event)
        if self.plan is not None:
            self.plan.see(event)
        await self._deps.log.record(self.session, event)
        if isinstance(event, BudgetChanged) and self.plan is not None and self._emit is not None:
            # the turn may end while the plan is made
            await self.plan.follow(lambda event: None if self._emit is None else self._emit(event))
        return event

    async def planned(self) -> PlanChanged | None:
        """The last turn's plan under the current caps; None while a turn runs, which reports its own."""
        if self.plan is None or self.busy:
            return None
        await self.plan.renew()
        return self.plan.event()

    @contextmanager
    def occupying(self) -> Generator[None]:
        """Refuse questions during short work that excludes turns; raises UsageError while a turn runs."""
        self.require_free()
        self._occupied = True
        try:
            yield
        finally:
            self._occupied = False

    async def _perform(self, asked: Asked, queue: "asyncio.Queue[Event | None]") -> None:
        """Run one turn and put its events into the queue."""
        usage = TurnUsage()
        if self._scorer is None and self._deps.strategy.parallel:
            self._keep_scores()
        listeners: list[Emit] = [usage.see, self.memory.see]
        if self._scorer is not None:
            listeners.append(self._scorer.turns.add)
        hooks = self._deps.hooks

        def emit(event: Event) -> None:
            lost = self._deps.workspace.undo.take_lost() if isinstance(event, CallFinished) else ()
            for masked in mask_secrets((event, *map(Notice, lost))):
                for listener in listeners:
                    listener(masked)
                self._deps.log.queue(self.session, masked)
                queue.put_nowait(masked)  # the reader yields it once it is on disk
                if hooks is not None:
                    hooks.see(self.session, masked, emit)

        question, deps = asked.question, self._deps
        ended = TurnEnd("error")
        try:
            started = TurnStarted(
                self.turn,
                question,
                deps.models.name,
                deps.models.mode,
                deps.settings.strategy,
                asked.attachments,
                self._copies,
                asked.session_model or deps.models.session_model,
                tuple(deps.models.roles.of(role) for role in ROLES),
                deps.settings.advisor or "",
            )
            emit(started)
            for text in asked.notices:
                emit(Notice(text))
            is_planning = deps.settings.approval_mode == "plan"
            ended = await self._turn(asked, usage, emit, listeners)
            if is_planning and ended.status == "answered" and self.plan is not None:
                from ecoshell.agent import plan_mode

                plan = plan_mode.written(ended.answer)
                emit(plan)
                emit(await asyncio.to_thread(plan_mode.quoted_plan, plan, self.turn, self.plan))
        except asyncio.CancelledError:
            ended = TurnEnd("interrupted")
        except Exception as failure:  # noqa: BLE001 - boundary of the worker: a defect ends the turn, not the shell
            emit(ErrorHappened.of(failure))
        finally:
            try:
                caps = await deps.budget.caps()
                emit(BudgetChanged(caps))
                self._watch.look(caps, emit)
                if self._scorer is not None:
                    await self._scorer.end(self.turn, ended.status, ended.answer, emit)
                if hooks is not None and not deps.agent:
                    await hooks.end_turn(self.session, self.turn, ended.status, ended.answer, emit)
            except (asyncio.CancelledError, EcoshellError):
                pass  # stopped again, or the ledger is locked: the turn ends anyway
            finally:
                if asked.quoted is not None and ended.status not in ("error", "interrupted"):
                    from ecoshell.agent.quoting import bill_of

                    emit(bill_of(asked.quoted, usage.spent_nano, time.monotonic() - usage.started))
                emit(_finished(self.turn, ended, usage))

    def _close(self, task: "asyncio.Task[None]", queue: "asyncio.Queue[Event | None]") -> None:
        """End the stream of a finished turn, even if it was stopped before it started."""
        if task.cancelled():
            finished = _finished(self.turn, TurnEnd("interrupted"), TurnUsage())
            self._deps.log.queue(self.session, finished)
            queue.put_nowait(finished)
        queue.put_nowait(None)

    async def _turn(
        self, asked: Asked, usage: TurnUsage, emit: Emit, listeners: list[Emit]
    ) -> TurnEnd:
        """Prepare and run a turn; adds its plan to the listeners."""
        deps = self._deps
        if asked.source is not None and not await deps.environment.trust.allows(
            *asked.source, deps.user, emit
        ):
            raise UsageError(f"{asked.source[0]} is not trusted.", kept="Nothing was sent.")
        self._spending.ending = None
        if deps.hooks is not None and not deps.agent:
            await deps.hooks.begin_turn(self.session, self.turn, asked.question, deps.user, emit)
        offer_advisor(deps)
        if ASK_ADVISOR in self.memory.library and ASK_ADVISOR not in deps.catalog:
            emit(ToolUnregistered(ASK_ADVISOR))
        deps.workspace.result.characters = result_characters(deps.models.current.context)
        await deps.providers.follow(self.memory.library, emit)
        if deps.skills is not None:
            await deps.skills.follow(deps.user, emit)
        environment = await deps.environment.read(
            deps.models.current.model, deps.user, emit, previous=self._shown.context
        )
        context = "" if environment is None else environment.text
        plan = self.plan = await self._planned_for(asked.question, context=context)
        await plan.renew(for_offer=True)
        listeners.append(plan.see)
        if plan.inputs.fault and plan.inputs.fault != self._fault:
            emit(Notice(plan.inputs.fault))
        self._fault = plan.inputs.fault
        budget_line = BudgetLine(deps, usage)
        offer, turn_context = await self._beginning(
            asked, plan, context, budget=await budget_line.text()
        )
        self._report_offer(offer, emit)
        models, view = deps.models.current, turn_context.view(turn_context.beginning.path)
        await count_prompts(models.mode.forecast(view), models.capped_by(plan.caps))
        await plan.settle(view, offer.names)
        plan.report(emit, "the question")
        if plan.answer_only:
            emit(Notice(_ANSWER_ONLY))
        turn = self._turn_now = Turn(
            turn_context=turn_context,
            mode=deps.models.current.mode,
            strategy=self._strategy(asked),
            executor=self._executor(offer, plan, budget_line),
            spending=self._spending,
            context=ContextKeeper(
                deps,
                self.memory,
                turn_context,
                emit,
                partial(self._begin_again, asked, plan, turn_context, emit),
            ),
            watch=self._watch,
            advisor=self._advisor,
            emit=emit,
        )
        self._emit = emit
        try:
            return await turn.run(asked.question, await self._step_limit())
        finally:
            self._turn_now = self._emit = None
            plan.thinking.drop()  # the last thought led to no call

    def _strategy(self, asked: Asked) -> Strategy:
        if asked.task is None:
            return self._deps.strategy.strategy
        from ecoshell.agent.task_command import delegating

        return delegating(asked.task, registered=TASK in self.memory.library)

    def _report_offer(self, offer: ToolOffer, emit: Emit) -> None:
        self.decision = offer.decision
        emit(offer.event())
        catalog = self._deps.catalog
        earlier, total = len(offer.loaded) - len(offer.upfront), len(catalog) + len(catalog.skills)
        for loaded, tool in enumerate(offer.upfront, start=earlier + 1):
            event = ToolRegistered(
                tool.name, tool.tokens, offer.exact, 0, "upfront", loaded=loaded, total=total
            )
            emit(event)

    async def _step_limit(self) -> int:
        models, is_capped = self._deps.models.current, False
        with suppress(StoreError):  # the ledger is locked
            is_capped = bool(models.capped_by(await self._deps.budget.caps()))
        return step_limit(models.model.traits, self._deps.settings.max_steps, capped=is_capped)

    @property
    def _shown(self) -> Shown:
        """What the model has seen before this question; nothing for a model that reads no earlier turns."""
        memory_shown = self.memory.shown
        return Shown(presentation=memory_shown.presentation) if self._forgetful else memory_shown

    @property
    def _forgetful(self) -> bool:
        return self._deps.models.current.model.traits.forgetful

    async def _beginning(
        self, asked: Asked, plan: TurnPlan, context: str, *, budget: str = ""
    ) -> tuple[ToolOffer, TurnContext]:
        """The tool offer and the first view of a turn under its plan; `context` describes the workspace."""
        deps = self._deps
        text = asked_text(asked.question, asked.attachments, asked.commands)
        asking = path_of(asked.question, asked.attachments)
        library = self.memory.library
        offer = await asyncio.to_thread(make_offer, plan, deps, library=library, shown=self._shown)
        offer = replace(offer, budget=budget)
        if deps.settings.approval_mode == "plan":
            from ecoshell.agent.plan_mode import INSTRUCTION

            offer = replace(offer, advice="\n\n".join(filter(None, (offer.advice, INSTRUCTION))))
        costs = ""
        if deps.strategy.parallel:
            from ecoshell.agent.graph_costs import costs_text  # only tool graphs use it

            size = await asyncio.to_thread(
                deps.workspace.size_of_input, asked.question, asked.attachments
            )
            costs = await asyncio.to_thread(
                lambda: costs_text(plan, deps.profiles.costs(), offer.callable_names, size)
            )
        beginning = View(
            path=asking,
            opening=opening_text(
                offer.listing, text, advice=offer.advice, context=context, budget=budget
            ),
            along=asked_text("", asked.attachments, asked.commands),
            attachments=asked.attachments if deps.by_program else (),
            contexts=self.memory.contexts,
            history=() if self._forgetful else self.memory.messages,
            known=offer.listed,
            skills=offer.loads_skills,
            registered=(),
            presentation=offer.presentation,
            deferrable=offer.deferrable,
            large=offer.large,
            searching=deps.strategy.searches,
        )
        base = library.including(offer.upfront)
        return offer, TurnContext(beginning, deps.catalog, base=base, plan=plan, costs=costs)

    async def _begin_again(
        self, asked: Asked, plan: TurnPlan, turn_context: TurnContext, emit: Emit
    ) -> None:
        """Repeat with the running turn's question the schemas and workspace facts that a summary has replaced."""
        deps = self._deps
        environment = await deps.environment.read(deps.models.current.model, deps.user, emit)
        offer, beginning = await self._beginning(
            asked, plan, "" if environment is None else environment.text
        )
        self._report_offer(offer, emit)
        turn_context.beginning = beginning.beginning
        turn_context.base = turn_context.base.including(offer.upfront)

    async def read_ahead(self) -> None:
        """Let local models read the prompt before the next question while the user types it."""
        models = self._deps.models.current
        if not any(model.traits.local for model in models.models):
            return
        plan = await self._planned_for("")
        await plan.renew(for_offer=True)
        _, turn_context = await self._beginning(Asked(""), plan, "")
        view = turn_context.view(turn_context.beginning.path)
        for call in models.mode.forecast(view).steps:
            if call.model.traits.local:
                await call.model.warm(replace(call.request, role=call.role))

    async def forecast(self, question: str, caps: Sequence[CapState] | None = None) -> TurnPlan:
        """The plan for a question asked now, under these caps or the current ones; spends nothing."""
        plan = await self._planned_for(question, caps)
        await plan.renew()
        return plan

    async def _planned_for(
        self, question: str, caps: Sequence[CapState] | None = None, *, context: str = ""
    ) -> TurnPlan:
        """A plan that has not been made yet."""
        defers = self._deps.models.current.defers_tools
        view = next_view(
            self.memory, self._deps.catalog, question, names=(), context=context, defers=defers
        )
        return TurnPlan(
            await asyncio.to_thread(PlanInputs.of, question, self._deps, view), self._deps, caps
        )

    def _executor(self, offer: ToolOffer, plan: TurnPlan, budget_line: BudgetLine) -> ToolExecutor:
        """The guards around the tools, from the innermost to the outermost."""
        deps = self._deps
        runner = Runner(
            deps.catalog, caller_of=lambda call, context: self._caller_of(call, context, chain)
        )
        approved = Approved(Confined(Logged(runner, deps), deps), deps, deps.strategy.searches)
        presentation = offer.presentation
        by_call = presentation.deferred or presentation.by_call
        by_call = by_call or (presentation is GROW and deps.settings.registration == "auto")
        registrar = Registrar(deps.catalog, presentation, self._measure, by_call)
        guarded = (
            approved
            if deps.hooks is None
            else deps.hooks.around(approved, deps, self.session, self.turn)
        )
        checked = Checked(
            guarded,
            deps,
            plan,
            lambda shortage, emit: self._spending.for_tool(shortage, self.ahead, emit),
            registrar,
        )
        advised = (
            checked if deps.settings.advisor is None else Advised(checked, deps, self._advisor)
        )
        judged = Judged(
            Announced(advised, deps), deps, plan, self.session, self.turn, budget_line.text
        )
        chain = Meta(judged, deps, registrar, checked)
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

            self._subagents = Subagents(self._deps, self.session)
        return self._subagents

    def _measure(self, schema: ToolSchema, text: str = "") -> tuple[int, bool]:
        """Tokens of a schema, or of a skill's text, for the current model, which may change at a limit."""
        models = self._deps.models.current
        return (
            (models.sizes([text])[0], models.exact)
            if text
            else models.measure(schema, self.memory.presentation)
        )


def _finished(number: int, ended: TurnEnd, usage: TurnUsage) -> TurnFinished:
    return TurnFinished(
        turn=number,
        status=ended.status,
        answer=ended.answer,
        spent_nano=usage.spent_nano,
        usage=usage.usage,
        steps=usage.steps,
        registered=tuple(dict.fromkeys(usage.registered)),
        seconds=time.monotonic() - usage.started,
        saved_tokens=usage.saved_tokens,
        estimate=usage.consumption.usage if usage.consumption.estimated else None,
        estimate_nano=usage.consumption.nano if usage.consumption.estimated_nano else None,
    )
