"""One session: its history, and the turns that run in it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.memory import Memory, next_view
from ecoshell.agent.past_turn import PastTurn
from ecoshell.agent.turn import Turn, TurnEnd
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.agent.turn_setup import Question, TurnSetup
from ecoshell.agent.turn_usage import TurnUsage
from ecoshell.agent.view import View
from ecoshell.budget import Amount
from ecoshell.budget.gate import finished
from ecoshell.errors import EcoshellError, StoreError, UsageError
from ecoshell.events import (
    BudgetChanged,
    BudgetSettled,
    CallFinished,
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
from ecoshell.messages import ToolSchema
from ecoshell.options import ROLES
from ecoshell.secrecy import mask_secrets

if TYPE_CHECKING:
    from ecoshell.agent.context_report import ContextReport
    from ecoshell.agent.scoring import Scorer
    from ecoshell.tools.restore import Changed, Restored

T = TypeVar("T")
Happened = TypeVar("Happened", bound=Event)
_NOT_READ_ONLY = "Resume the session without --read-only."
_BUSY_FIX = "Wait for it or stop it: Esc in the chat, Ctrl-C in the line shell, stop() in Python."


class Stopped(Exception):
    """The user stopped work that excludes turns."""


class Conversation:
    """An open session. One turn runs at a time; every event is on disk before an interface receives it."""

    def __init__(self, deps: Dependencies, session: str, past: Sequence[Event] = ()) -> None:
        self.session = session
        self.memory = Memory(deps.catalog, past)
        settled = [event for event in past if isinstance(event, BudgetSettled)]
        deps.budget.counted = {event.prompt: event.usage for event in settled if event.prompt}
        self._scorer: Scorer | None = None
        """Made with the session's first turn that may use a tool graph."""
        self.plan: TurnPlan | None = None
        """The plan of the running or last turn."""
        self._deps = deps
        self.setup = TurnSetup(deps, session, self.memory, past)
        self._turn_now: Turn | None = None
        self._emit: Emit | None = None
        """Emits an event of the running turn."""
        self.turn = self.memory.number
        """The number of the last turn; 0 before the first."""
        self.accepted: Quote | None = None
        """The quote of the plan that the next question carries out."""
        self.accepted_caps: tuple[Amount, ...] = ()
        """The caps of that question's turn."""
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

    async def ask(self, question: Question) -> AsyncGenerator[Event]:
        """Run a turn and yield its events, the last of which is TurnFinished; raises UsageError while a turn runs."""
        self.require_free()
        caps, quoted = (*question.caps, *self.accepted_caps), self.accepted
        commands = self.memory.commands
        question = mask_secrets(replace(question, commands=commands, quoted=quoted, caps=caps))
        self.accepted, self.accepted_caps = None, ()
        queue = self._queue = asyncio.Queue[Event | None]()
        self.turn += 1
        self._deps.budget.enter(self.session, self.turn)
        self._copies = self._deps.workspace.enter(self.session, self.turn)
        self._running = asyncio.create_task(self._perform(question, queue))
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
            reason = "The turn was stopped, because its events could not be written"
            message = f"{reason}: {failure.message}"
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
        """What the next model call would see: of the running turn, or of a question of typical length."""
        if self._turn_now is not None:
            return self._turn_now.view
        defers = self._deps.models.current.defers_tools
        return next_view(self.memory, self._deps.catalog, defers=defers)

    async def context_report(self) -> "ContextReport":
        """What fills the context of the next model call, in the running turn or with an empty question."""
        from ecoshell.agent.context_report import report_of

        running = self._turn_now
        view = await self.setup.view_ahead() if running is None else running.view
        return await asyncio.to_thread(report_of, self._deps, self.memory, view)

    def require_free(self) -> None:
        """Raise UsageError while a turn, or work that excludes turns, is running."""
        if self.busy:
            raise UsageError("A turn is running.", fix=_BUSY_FIX)

    async def stop(self) -> None:
        """Stop the running turn, whose stream still ends with TurnFinished, or work started by `alone`."""
        if self._running is not None:
            self._running.cancel()
            await finished(asyncio.wait([self._running]))

    async def leave(self) -> Sequence[Event]:
        """Stop the running turn and write its remaining events; the reader's stream ends.

        Returns the events of the session's end, which belong to no turn.
        """
        await self.stop()
        events: list[Event] = []

        def emit(event: Event) -> None:
            self._deps.log.queue(self.session, event)
            events.append(event)

        hooks = self._deps.hooks()
        if hooks is not None and not self._deps.agent:
            await hooks.end_session(self.session, emit)
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)
        with suppress(StoreError):  # the next write includes them
            await self._deps.log.flush()
        return events

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
            wrote = await asyncio.to_thread(log.writes, self.session, turn.copies)
            if wrote and self._deps.approvals.rules.read_only:
                reason = "This turn changed files, and the shell is read-only."
                raise UsageError(reason, fix=_NOT_READ_ONLY)
            restored = await asyncio.to_thread(restore, log, self.session, turn.copies)
            event = TurnUndone(turn.number, restored.restored, restored.kept, restored.removed)
            await self.note(event)
            if restored.kept:
                self._unrestored |= dict.fromkeys(restored.kept, turn.copies)
            else:
                await asyncio.to_thread(log.forget, self.session, turn.copies)
            return turn, event, restored.changed

    async def undo_over(self, path: str) -> "Restored":
        """Restore a file that `undo` did not restore, over its newer content.

        Raises UsageError for any other file.
        """
        from ecoshell.tools.restore import restore

        with self.occupying():
            if path not in self._unrestored:
                fix = "/undo without a file undoes a turn."
                raise UsageError(f"/undo has not skipped a file {path!r}.", fix=fix)
            if self._deps.approvals.rules.read_only:
                raise UsageError("The shell is read-only.", fix=_NOT_READ_ONLY)
            log, copies = self._deps.workspace.undo, self._unrestored[path]
            restored = await asyncio.to_thread(restore, log, self.session, copies, over=path)
            if path not in restored.kept:
                del self._unrestored[path]
            return restored

    async def compact(self) -> Compacted:
        """Replace earlier turns by a summary in the model's context.

        Raises UsageError while a turn runs and if nothing would be saved, BudgetError and ModelError; then nothing
        changes. `stop` stops it.
        """
        from ecoshell.agent.compaction import compact

        work = compact(self._deps, self.memory, partial(self._deps.log.queue, self.session))
        try:
            compacted = await self.alone(work)
        finally:
            await self._deps.log.flush()
        await self.note(compacted)
        await self.note(BudgetChanged(await self._deps.budget.caps()))
        return compacted

    async def register(self, name: str) -> Event:
        """Register a tool or a skill for the user; raises UsageError for unknown and for registered ones."""
        schema, catalog = self.known(name), self._deps.catalog
        if name in self.memory.library:
            fix = "/tools lists the registered tools."
            raise UsageError(f"{name} is registered already.", fix=fix)
        text = await asyncio.to_thread(catalog.skills[name].text) if name in catalog.skills else ""
        tokens, exact = await asyncio.to_thread(self.setup.measure, schema, text)
        counts = len(self.memory.library.names) + 1, len(catalog) + len(catalog.skills)
        event = ToolRegistered(name, tokens, exact, 0, "user", "", "", *counts, text=text)
        return await self.note(event)

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

    async def _perform(self, question: Question, queue: "asyncio.Queue[Event | None]") -> None:
        """Run one turn and put its events into the queue."""
        deps, usage, end = self._deps, TurnUsage(), TurnEnd("error")
        if self._scorer is None and deps.strategy.parallel:
            self._keep_scores()
        listeners: list[Emit] = [usage.see, self.memory.see]
        if self._scorer is not None:
            listeners.append(self._scorer.turns.add)
        emit = self._emitter(listeners, queue)
        deps.budget.limit_turn(*question.caps)
        try:
            emit(self._started(question))
            if question.caps:
                emit(BudgetChanged(await deps.budget.caps()))
            for text in question.notices:
                emit(Notice(text))
            is_planning = deps.settings.approval_mode == "plan"
            end = await self._run(question, usage, emit, listeners)
            if is_planning and end.status == "answered" and self.plan is not None:
                from ecoshell.agent import plan_mode

                plan = plan_mode.written(end.answer)
                emit(plan)
                emit(await asyncio.to_thread(plan_mode.quoted_plan, plan, self.turn, self.plan))
        except asyncio.CancelledError:
            end = TurnEnd("interrupted")
        except Exception as failure:  # noqa: BLE001 - boundary of the worker: a defect ends the turn, not the shell
            emit(ErrorHappened.of(failure))
        finally:
            try:
                await self._wind_up(end, emit)
            except (asyncio.CancelledError, EcoshellError):
                pass  # stopped again, or the ledger is locked: the turn ends anyway
            finally:
                if question.quoted is not None and end.status not in ("error", "interrupted"):
                    from ecoshell.agent.quoting import bill_of

                    emit(bill_of(question.quoted, usage.spent.nano, usage.worked_seconds))
                deps.budget.limit_turn()
                emit(_finished(self.turn, end, usage))

    def _emitter(self, listeners: Sequence[Emit], queue: "asyncio.Queue[Event | None]") -> Emit:
        """Pass each event to the listeners, the log and the reader, with secrets masked."""
        deps, hooks = self._deps, self._deps.hooks()

        def emit(event: Event) -> None:
            lost = deps.workspace.undo.take_lost() if isinstance(event, CallFinished) else ()
            for masked in mask_secrets((event, *map(Notice, lost))):
                for listener in listeners:
                    listener(masked)
                deps.log.queue(self.session, masked)
                queue.put_nowait(masked)  # the reader yields it once it is on disk
                if hooks is not None:
                    hooks.see(self.session, masked, emit)

        return emit

    def _started(self, question: Question) -> TurnStarted:
        models, settings = self._deps.models, self._deps.settings
        return TurnStarted(
            self.turn,
            question.text,
            models.name,
            models.mode,
            settings.strategy,
            question.attachments,
            self._copies,
            question.session_model or models.session_model,
            tuple(models.roles.of(role) for role in ROLES),
            settings.advisor or "",
            question.effort or settings.effort,
            "" if question.line == question.text else question.line,
        )

    async def _wind_up(self, end: TurnEnd, emit: Emit) -> None:
        """Report the caps and the score, and run the hooks of a turn's end."""
        deps = self._deps
        caps = await deps.budget.caps()
        emit(BudgetChanged(caps))
        self.setup.watch.look(caps, emit)
        if self._scorer is not None:
            await self._scorer.end(self.turn, end.status, end.answer, emit)
        hooks = deps.hooks()
        if hooks is not None and not deps.agent:
            await hooks.end_turn(self.session, self.turn, end.status, end.answer, emit)
        if deps.budget.limits:
            deps.budget.limit_turn()
            emit(BudgetChanged(await deps.budget.caps()))

    def _close(self, task: "asyncio.Task[None]", queue: "asyncio.Queue[Event | None]") -> None:
        """End the stream of a finished turn, even if it was stopped before it started."""
        if task.cancelled():
            finished = _finished(self.turn, TurnEnd("interrupted"), TurnUsage())
            self._deps.log.queue(self.session, finished)
            queue.put_nowait(finished)
        queue.put_nowait(None)

    async def _run(
        self, question: Question, usage: TurnUsage, emit: Emit, listeners: list[Emit]
    ) -> TurnEnd:
        """Set up and run a turn; adds its plan to the listeners."""
        plan, context = await self.setup.planned(question, self.turn, emit)
        self.plan = plan  # sees what the user registers while it is made
        listeners.append(plan.see)
        turn = await self.setup.turn(question, self.turn, plan, context, usage, emit)
        self._turn_now, self._emit = turn, emit
        try:
            return await turn.run()
        finally:
            self._turn_now = self._emit = None
            plan.thinking.drop()  # the last thought led to no call


def _finished(number: int, ended: TurnEnd, usage: TurnUsage) -> TurnFinished:
    return TurnFinished(
        turn=number,
        status=ended.status,
        answer=ended.answer,
        spent_nano=usage.spent.nano,
        usage=usage.usage,
        steps=usage.steps,
        registered=tuple(dict.fromkeys(usage.registered)),
        seconds=time.monotonic() - usage.started,
        saved_tokens=usage.saved_tokens,
        estimate=usage.consumption.estimate,
        estimate_nano=usage.consumption.estimate_nano,
        reason=ended.reason,
    )
