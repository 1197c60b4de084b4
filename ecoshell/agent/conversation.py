"""One session: what came of it so far, and the turns that are asked in it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ecoshell.agent.approval import SpendApproval
from ecoshell.agent.attempts import Attempts
from ecoshell.agent.budget_line import BudgetLine
from ecoshell.agent.context import ContextKeeper
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import Announced, Approved, Checked, Judged, Logged, Meta, Registrar, Runner, ToolExecutor
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
from ecoshell.catalog import GROW, Decision
from ecoshell.errors import EcoshellError, StoreError, UsageError
from ecoshell.events import (
    BudgetChanged,
    CallFinished,
    CommandRan,
    Compacted,
    Emit,
    ErrorHappened,
    Event,
    GraphPlanned,
    Notice,
    PlanChanged,
    ToolRegistered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.messages import Attachment, Call, Message, ToolDocument
from ecoshell.options import ROLES
from ecoshell.secrecy import mask_secrets

if TYPE_CHECKING:
    from ecoshell.agent.context_report import ContextReport
    from ecoshell.agent.scoring import Scorer
    from ecoshell.tools import Caller
    from ecoshell.tools.restore import Changed

T = TypeVar("T")
Happened = TypeVar("Happened", bound=Event)
_ANSWER_ONLY = "What is left of the cap has no room for any tool, so the answer comes without. /budget raises the cap."
_NOT_READ_ONLY = "Resume the session without --read-only."
_UNDER_WAY = "Wait for it, or stop it with Esc (Ctrl-C in the line shell)."


class Stopped(Exception):
    """Something that runs beside no turn was stopped by the person."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question on its way into a turn."""

    question: str
    attachments: tuple[Attachment, ...] = ()
    notices: tuple[str, ...] = ()
    """What the person should know of it, such as a file that could not be attached."""
    commands: tuple[CommandRan, ...] = ()
    """What the person ran before it."""


class Conversation:
    """A session being talked in. One turn at a time; every event is on disk before anybody sees it."""

    def __init__(self, deps: Dependencies, session: str, past: Sequence[Event] = ()) -> None:
        self.session = session
        self.memory = Memory(deps.catalog, past)
        self._scorer: Scorer | None = None
        """Made with the session's first turn that may plan in parallel."""
        self.decision: Decision | None = None
        self.plan: TurnPlan | None = None
        """Of the turn that runs, or ran last."""
        self._fault = ""
        """Why experience cannot be read, as far as the person has been told."""
        self._deps = deps
        self._spending = SpendApproval(deps)
        self._sampling: dict[str, bool] = {}
        """Servers of which the person has said whether they may have the model write."""
        self._turn_now: Turn | None = None
        self._emit: Emit | None = None
        """Tells an event of the turn that is under way."""
        self.turn = self.memory.number
        """The number of the last turn; 0 before the first."""
        self._copies = ""
        self._left: dict[str, str] = {}
        """Files /undo left alone because somebody had changed them, and the copies they could be restored from."""
        self._running: asyncio.Task[Any] | None = None
        self._occupied = False
        """Whether something goes on that is short and cannot be stopped."""
        self._arrived: asyncio.Queue[Event | None] = asyncio.Queue()
        """What the turn that runs has said and its reader has not taken; None ends the stream."""
        if any(isinstance(event, GraphPlanned) for event in past):
            self._keep_scores(past)
        deps.budget.enter(session, self.turn)

    @property
    def busy(self) -> bool:
        return self._running is not None or self._occupied

    async def ask(
        self, question: str, attachments: Sequence[Attachment] = (), notices: Sequence[str] = ()
    ) -> AsyncGenerator[Event]:
        """One turn's events, ending in TurnFinished; raises UsageError while a turn runs.

        `notices` are told at its beginning.
        """
        self.require_free()
        asked = mask_secrets(Asked(question, tuple(attachments), tuple(notices), self.memory.commands))
        arrived = self._arrived = asyncio.Queue[Event | None]()
        self.turn += 1
        self._deps.budget.enter(self.session, self.turn)
        self._copies = self._deps.workspace.undo.enter(self.session, self.turn)
        self._running = asyncio.create_task(self._perform(asked, arrived))
        self._running.add_done_callback(lambda task: self._close(task, arrived))
        written = True
        try:
            while True:
                batch = [await arrived.get()]
                while not arrived.empty():
                    batch.append(arrived.get_nowait())
                await self._deps.log.flush()
                for event in batch:
                    if event is None:
                        return
                    yield event
        except StoreError as failure:
            written = False  # a further try would only wait for the same lock once more
            message = f"The turn was stopped, because what happens could not be written down: {failure.message}"
            raise StoreError(message, kept=failure.kept, fix=failure.fix) from failure
        finally:  # also where the reader has gone
            try:
                await self.stop()
            finally:
                self._running = None
            if written:
                await self._deps.log.flush()

    @property
    def ahead(self) -> View:
        """What a model is shown next: of the turn that runs, or of a question that would come now."""
        turn = self._turn_now
        deps = self._deps
        return (
            next_view(self.memory, deps.catalog, defers=deps.models.current.defers_tools) if turn is None else turn.view
        )

    async def context_report(self) -> "ContextReport":
        """What fills the context of the model that takes the next step, with a question of no length or the turn's."""
        from ecoshell.agent.context_report import report_of

        deps, memory, turn = self._deps, self.memory, self._turn_now
        defers = deps.models.current.defers_tools
        view = next_view(memory, deps.catalog, "", defers=defers) if turn is None else turn.view
        call = deps.models.current.mode.forecast(view).steps[0]
        context, share = call.model.traits.context, deps.settings.compact_at
        is_compacted = share != "off" and context is not None and context >= LARGE_CONTEXT
        compact_at = int(context * share) if is_compacted and context is not None and share != "off" else None
        turns = [*(memory.turns if view.history else ()), *filter(None, (memory.open_turn,))]
        summary = memory.summary if view.history else ""
        return await asyncio.to_thread(report_of, call, summary, turns, memory.shown.context, compact_at)

    def require_free(self) -> None:
        """Raise UsageError while a turn, or something that no turn may run beside, is under way."""
        if self.busy:
            raise UsageError("A turn is under way.", fix=_UNDER_WAY)

    async def stop(self) -> None:
        """Stop the turn that runs, if one does; its stream still ends in TurnFinished. So with what runs `alone`."""
        if self._running is not None:
            self._running.cancel()
            await finished(asyncio.wait([self._running]))

    async def leave(self) -> None:
        """Stop what runs and write what its reader has not taken; the reader's stream ends there."""
        await self.stop()
        while not self._arrived.empty():
            self._arrived.get_nowait()
        self._arrived.put_nowait(None)
        with suppress(StoreError):  # they are in memory, and the next write takes them along
            await self._deps.log.flush()

    async def alone(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something that no turn may run beside; raises UsageError when one runs, and Stopped at `stop`."""
        try:
            self.require_free()
        except UsageError:
            work.close()
            raise
        self._running = task = asyncio.create_task(work)
        try:
            return await task
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is not None and waiting.cancelling():  # it is the caller who is called off
                raise
            raise Stopped from None
        finally:
            self._running = None

    async def undo(self) -> "tuple[PastTurn, TurnUndone, tuple[Changed, ...]]":
        """Take the last turn back: what its tools wrote, and what models are told of it; raises UsageError.

        Files that somebody has changed since are left alone, and given: `undo_over` restores them all the same.
        """
        from ecoshell.tools.restore import restore

        with self.occupying():
            turn = self.memory.last_turn
            log = self._deps.workspace.undo
            wrote = bool(await asyncio.to_thread(log.writes, self.session, turn.copies))
            if wrote and self._deps.approvals.rules.read_only:
                raise UsageError("This turn changed files, and the shell is read-only.", fix=_NOT_READ_ONLY)
            restored = await asyncio.to_thread(restore, log, self.session, turn.copies)
            event = TurnUndone(turn.number, restored.restored, restored.kept)
            await self.note(event)
            if restored.kept:  # the copies of what could not be written now, too
                self._left |= dict.fromkeys(restored.kept, turn.copies)
            else:
                await asyncio.to_thread(log.forget, self.session, turn.copies)
            return turn, event, restored.changed

    async def undo_over(self, path: str) -> bool:
        """Restore a file that `undo` left alone, over what somebody has made of it; says whether there was anything to.

        Raises UsageError for any other file.
        """
        from ecoshell.tools.restore import restore

        with self.occupying():
            if path not in self._left:
                raise UsageError(f"/undo has left no file {path!r} alone.", fix="/undo, by itself, takes a turn back.")
            if self._deps.approvals.rules.read_only:
                raise UsageError("The shell is read-only.", fix=_NOT_READ_ONLY)
            log, copies = self._deps.workspace.undo, self._left[path]
            restored = await asyncio.to_thread(restore, log, self.session, copies, over=path)
            if path not in restored.kept:
                del self._left[path]
            return path in restored.restored

    async def compact(self) -> tuple[Compacted, int | None]:
        """Have models told a summary from now on; gives it with its price, None when that is unknown.

        Raises UsageError while a turn runs and when there is nothing to gain, BudgetError and ModelError; then nothing
        has changed. `stop` stops it.
        """

        from ecoshell.agent.compaction import compact

        work = compact(self._deps, self.memory, lambda event: self._deps.log.keep(self.session, event))
        try:
            compacted, spent = await self.alone(work)
        finally:
            await self._deps.log.flush()
        await self.note(compacted)
        await self.note(BudgetChanged(await self._deps.budget.caps()))
        return compacted, spent

    async def register(self, name: str) -> Event:
        """Register a tool by the user's hand; raises UsageError for an unknown name, and for what is registered."""
        document = self.known(name)
        if name in self.memory.library:
            raise UsageError(f"{name} is registered already.", fix="/tools shows what is.")
        tokens, exact = await asyncio.to_thread(self._measure, document)
        return await self.note(ToolRegistered(name, tokens, exact, 0, "user"))

    async def unregister(self, name: str) -> Event:
        """Take a tool out of the library; the model may register it again."""
        self.known(name)
        if name not in self.memory.library:
            raise UsageError(f"{name} is not registered.", fix="/tools shows what is.")
        return await self.note(ToolUnregistered(name))

    def known(self, name: str) -> ToolDocument:
        """The document of a known tool; raises UsageError with the closest names."""
        if name in self._deps.catalog:
            return self._deps.catalog.document(name)
        closest = self._deps.catalog.closest(name)
        fix = f"Did you mean {' or '.join(closest)}?" if closest else "/tools lists all names."
        raise UsageError(f"There is no tool called {name!r}.", fix=fix)

    async def score(self, turn: int) -> Sequence[Event]:
        """The new score of a turn's tool graph, where a mark has changed it; raises StoreError."""
        scored = await self._scorer.again(turn) if self._scorer is not None else None
        return () if scored is None else (await self.note(scored),)

    def _keep_scores(self, past: Sequence[Event] = ()) -> None:
        from ecoshell.agent.scoring import Scorer  # few sessions have tool graphs
        from ecoshell.sessions.plans import PlannedTurns

        self._scorer = Scorer(self._deps, self.session, PlannedTurns(past))

    async def note(self, event: Happened) -> Happened:
        """Keep something that happened between turns, or beside one; gives it as it is kept."""
        event = mask_secrets(event)
        self.memory.see(event)
        if self._scorer is not None:
            self._scorer.turns.see(event)
        if self.plan is not None:
            self.plan.see(event)
        await self._deps.log.record(self.session, event)
        if isinstance(event, BudgetChanged) and self.plan is not None and self._emit is not None:
            # while it is planned, the turn may end, and then there is nobody to tell
            await self.plan.follow(lambda told: None if self._emit is None else self._emit(told))
        return event

    async def planned(self) -> PlanChanged | None:
        """The plan of the turn that ran last, by the caps as they are now; None while one runs, which tells its own."""
        if self.plan is None or self.busy:
            return None
        await self.plan.renew()
        return self.plan.event()

    @contextmanager
    def occupying(self) -> Generator[None]:
        """Refuse questions while something short goes on that no turn may run beside; raises UsageError beside one."""
        self.require_free()
        self._occupied = True
        try:
            yield
        finally:
            self._occupied = False

    async def _perform(self, asked: Asked, arrived: "asyncio.Queue[Event | None]") -> None:
        """Run one turn and put its events, in order, where the reader takes them."""
        usage = TurnUsage()
        if self._scorer is None and self._deps.strategy.parallel:
            self._keep_scores()
        hearers: list[Emit] = [usage.see, self.memory.see]
        if self._scorer is not None:
            hearers.append(self._scorer.turns.see)

        def emit(event: Event) -> None:
            lost = self._deps.workspace.undo.take_lost() if isinstance(event, CallFinished) else ()
            for happened in mask_secrets((event, *map(Notice, lost))):
                for hear in hearers:
                    hear(happened)
                self._deps.log.keep(self.session, happened)
                arrived.put_nowait(happened)  # where the reader takes it, which is once it is on disk

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
                deps.models.session_model,
                tuple(deps.models.roles.of(role) for role in ROLES),
            )
            emit(started)
            for text in asked.notices:
                emit(Notice(text))
            attempts = Attempts(deps, started, self.session, usage, emit)
            ended = await self._turn(asked, attempts, emit, hearers)
        except asyncio.CancelledError:
            ended = TurnEnd("interrupted")
        except Exception as failure:  # noqa: BLE001 - the edge of the worker: a defect ends the turn, not the shell
            emit(ErrorHappened.of(failure))
        finally:
            try:
                emit(BudgetChanged(await deps.budget.caps()))
                if self._scorer is not None:
                    await self._scorer.end(self.turn, ended.status, ended.answer, emit)
            except (asyncio.CancelledError, EcoshellError):
                pass  # stopped once more, or the ledger is locked: the turn ends all the same
            finally:
                emit(_finished(self.turn, ended, usage))

    def _close(self, task: "asyncio.Task[None]", arrived: "asyncio.Queue[Event | None]") -> None:
        """End the stream of a turn that is over, also of one that was stopped before it could begin."""
        if task.cancelled():
            finished = _finished(self.turn, TurnEnd("interrupted"), TurnUsage())
            self._deps.log.keep(self.session, finished)
            arrived.put_nowait(finished)
        arrived.put_nowait(None)

    async def _turn(self, asked: Asked, attempts: Attempts, emit: Emit, hearers: list[Emit]) -> TurnEnd:
        """Everything between TurnStarted and what it came to; what is to hear of it is put to the hearers."""
        deps = self._deps
        self._spending.ending = None
        await attempts.begin()
        deps.workspace.result.characters = result_characters(deps.models.current.context)
        await deps.providers.follow(self.memory.library, emit)
        told_now = await deps.environment.read(deps.models.current.model, deps.user, emit, before=self._shown.context)
        context = "" if told_now is None else told_now.text
        plan = self.plan = await self._planned_for(
            asked.question, context=context
        )  # which hears of what comes meanwhile
        await plan.renew(for_offer=True)
        hearers.append(plan.see)
        if plan.inputs.fault and plan.inputs.fault != self._fault:
            emit(Notice(plan.inputs.fault))
        self._fault = plan.inputs.fault
        budget_line = BudgetLine(deps, attempts.usage)
        offer, turn_context = await self._beginning(asked, plan, context, budget=await budget_line.text())
        self.decision = offer.decision
        emit(offer.event())
        for skill in offer.upfront:
            emit(ToolRegistered(skill.name, skill.tokens, offer.exact, 0, "upfront"))
        await plan.settle(turn_context.view(turn_context.beginning.path), offer.names)
        plan.tell(emit, "the question")
        if plan.answer_only:
            emit(Notice(_ANSWER_ONLY))
        turn = self._turn_now = Turn(
            turn_context=turn_context,
            mode=deps.models.current.mode,
            strategy=deps.strategy.strategy,
            executor=self._executor(offer, plan, budget_line),
            spending=self._spending,
            context=ContextKeeper(
                deps, self.memory, turn_context, emit, partial(self._begin_again, asked, plan, turn_context, emit)
            ),
            emit=emit,
        )
        self._emit = emit
        try:
            ended = await turn.run(asked.question, await self._step_limit(), attempts.take_over)
        finally:
            self._turn_now = self._emit = None
            plan.thinking.drop()  # what was thought last called for no use
        await attempts.end(ended.status)
        return ended

    async def _step_limit(self) -> int:
        models, capped = self._deps.models.current, False
        with suppress(StoreError):  # the ledger is locked
            capped = bool(models.capped_by(await self._deps.budget.caps()))
        return step_limit(models.model.traits, self._deps.settings.max_steps, capped=capped)

    @property
    def _shown(self) -> Shown:
        """What the model has been shown before this question, which is the first to one that is told of no others."""
        shown = self.memory.shown
        return Shown(presentation=shown.presentation) if self._forgetful else shown

    @property
    def _forgetful(self) -> bool:
        return self._deps.models.current.model.traits.forgetful

    async def _beginning(
        self, asked: Asked, plan: TurnPlan, context: str, *, budget: str = ""
    ) -> tuple[ToolOffer, TurnContext]:
        """What a turn offers and begins with, under its plan; `context` describes where it works."""
        deps, history = self._deps, () if self._forgetful else self.memory.messages
        text = asked_text(asked.question, asked.attachments, asked.commands)
        asking = path_of(asked.question, asked.attachments)
        told = (*history, Message("user", opening_text("", text, context=context), images=asking.images))
        library = self.memory.library
        offer = await asyncio.to_thread(make_offer, plan, deps, library=library, shown=self._shown, told=told)
        offer = replace(offer, budget=budget)
        costs = ""
        if deps.strategy.parallel:
            from ecoshell.agent.tool_graph import costs_text  # only tool graphs are told costs

            size = await asyncio.to_thread(deps.workspace.size_of_input, asked.question, asked.attachments)
            costs = await asyncio.to_thread(lambda: costs_text(plan, deps.profiles.costs(), offer.names, size))
        beginning = View(
            path=asking,
            opening=opening_text(offer.listing, text, advice=offer.advice, context=context, budget=budget),
            along=asked_text("", asked.attachments, asked.commands),
            attachments=asked.attachments if deps.by_program else (),
            contexts=self.memory.contexts,
            history=history,
            known=offer.listed,
            registered=(),
            presentation=offer.presentation,
            deferrable=offer.deferrable,
            large=offer.large,
            searching=deps.strategy.searches,
        )
        base = library.including(offer.upfront)
        return offer, TurnContext(beginning, deps.catalog, base=base, plan=plan, costs=costs)

    async def _begin_again(self, asked: Asked, plan: TurnPlan, turn_context: TurnContext, emit: Emit) -> None:
        """Repeat with the running turn's question the schemas and workspace facts that a summary has replaced."""
        deps = self._deps
        told = await deps.environment.read(deps.models.current.model, deps.user, emit)
        offer, begun = await self._beginning(asked, plan, "" if told is None else told.text)
        self.decision = offer.decision
        emit(offer.event())
        for skill in offer.upfront:
            emit(ToolRegistered(skill.name, skill.tokens, offer.exact, 0, "upfront"))
        turn_context.beginning = begun.beginning
        turn_context.base = turn_context.base.including(offer.upfront)

    async def read_ahead(self) -> None:
        """Have models of this machine read what the next question is asked after, while it is typed."""
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
        """The plan of a question that would come now, under these caps or those that stand; spends nothing."""
        plan = await self._planned_for(question, caps)
        await plan.renew()
        return plan

    async def _planned_for(
        self, question: str, caps: Sequence[CapState] | None = None, *, context: str = ""
    ) -> TurnPlan:
        """A plan that is still to be made."""
        defers = self._deps.models.current.defers_tools
        view = next_view(self.memory, self._deps.catalog, question, names=(), context=context, defers=defers)
        return TurnPlan(await asyncio.to_thread(PlanInputs.of, question, self._deps, view), self._deps, caps)

    def _executor(self, offer: ToolOffer, plan: TurnPlan, budget_line: BudgetLine) -> ToolExecutor:
        """The row of guards, built from the innermost."""
        deps = self._deps
        runner = Runner(deps.catalog, caller_of=self._caller_of)
        row = Approved(Logged(runner, deps), deps, deps.strategy.searches)
        presentation = offer.presentation
        by_call = presentation.deferred or (presentation is GROW and deps.settings.registration == "auto")
        registrar = Registrar(deps.catalog, presentation, self._measure, by_call)
        checked = Checked(
            row, deps, plan, lambda short, emit: self._spending.for_tool(short, self.ahead, emit), registrar
        )
        row = Judged(Announced(checked, deps), deps, plan, self.session, self.turn, budget_line.text)
        return Meta(row, deps, registrar, checked)

    def _caller_of(self, call: Call, emit: Emit) -> "Caller":
        """Whom the tool of this call may turn to."""
        from ecoshell.agent.callbacks import RunningCall  # where no tool runs, it is not loaded

        return RunningCall(self._deps, self._sampling, call, emit)

    def _measure(self, document: ToolDocument) -> tuple[int, bool]:
        """Tokens of a document for the model of the moment, which may change at a limit."""
        return self._deps.models.current.measure(document, self.memory.presentation)


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
