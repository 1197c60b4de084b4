"""The controllers between the shell and the screen: input goes to the shell, events go to the widgets."""

import asyncio
import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from ecoshell.budget import CapState
from ecoshell.errors import EcoshellError, StoreError
from ecoshell.events import (
    BudgetChanged,
    BudgetHeld,
    BudgetSettled,
    CallArriving,
    ContextTold,
    ErrorHappened,
    Event,
    LimitHit,
    Notice,
    PlanChanged,
    PlanWritten,
    Quote,
    SubagentFinished,
    SubagentProgressed,
    ToolRegistered,
    ToolsOffered,
    TurnFinished,
)
from ecoshell.events.plan import price_range
from ecoshell.messages import visible_line
from ecoshell.options import APPROVAL_MODES
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.drafts import Draft
from ecoshell.tui.prompt.prompt import SHELL
from ecoshell.tui.screens.welcome import requests_block
from ecoshell.tui.side.bars import TitleBar
from ecoshell.tui.side.layout import SideLayout
from ecoshell.tui.text import amount, model_name
from ecoshell.tui.transcript import event_blocks
from ecoshell.tui.transcript.blocks import CallRef
from ecoshell.tui.transcript.presenter import EventPresenter
from ecoshell.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from ecoshell.agent.command_table import Printed
    from ecoshell.agent.shell import Shell
    from ecoshell.agent.shell_status import ShellStatus
    from ecoshell.models import StartingModel


READ_ONLY = "read-only"
_RETRY_HINT = "Send any message to try again."
_MODEL_HINT = "Send any message to try again, or choose another model with F7 or /model NAME."
_SINGLE_ROLE = "single"
_MODEL_CELLS = 28
_EVENTS_PER_SLICE = 200
"""Past events shown before other tasks run."""
_STATUS_EVENTS = (
    BudgetHeld, BudgetSettled, ContextTold, LimitHit, SubagentFinished, SubagentProgressed, ToolRegistered,
    ToolsOffered, TurnFinished,
)  # fmt: skip
"""Events after which the shell's status is read again."""
_ANSWER_MODULES = ("markdown_it", "pygments.lexers")


class TranscriptController:
    """Shows events and the shell's status in title, transcript, panels and prompt."""

    def __init__(
        self, title: TitleBar, transcript: Transcript, body: SideLayout, bar: PromptBar
    ) -> None:
        self.title = title
        self._bar = bar
        self._estimate = self._model = ""
        """The turn's estimated price before its first step, and the model in use."""
        self._activity = ""
        """What is done now, also while a question hides it."""
        self._working = self._asking = False
        self._transcript = transcript
        self.column = transcript.column
        self._body = body
        self.presenter = EventPresenter(self.column, panels_shown=lambda: body.shows_panels)
        """Shows events in the transcript, and knows the user's marks."""

    def handle(self, event: Event) -> None:
        """Show an event and, during a turn, which role is thinking."""
        self.presenter.show(event)
        self._body.side.handle(event)
        self._bar.todo.handle(event)
        self._bar.background.handle(event)
        if isinstance(event, PlanChanged) and event.number <= 1:
            self._estimate = f", {price_range(event, amount)}"
        if not self._working:
            return
        if isinstance(event, CallArriving):
            self._set_activity(event.words)
            return
        role, model = self._body.side.state.thinking or (_SINGLE_ROLE, self._model)
        activity = "working" if role == _SINGLE_ROLE else f"{visible_line(role)} is thinking"
        if model != self._model:
            activity += f" · {model_name(visible_line(model), _MODEL_CELLS)}"
        self._set_activity(f"{activity}{self._estimate}")

    def show(self, status: "ShellStatus", caps: Sequence[CapState]) -> None:
        self._model = status.model
        self.title.show(status, caps)
        self._body.side.show(status, caps)
        self._bar.set_approval_mode(status.approval_mode)

    def set_working(self, working: bool) -> None:
        self._working, self._estimate = working, ""
        self._set_activity("working" if working else "")

    def set_asking(self, asking: bool) -> None:
        """Show, during a turn, that a question waits for the user, whatever else goes on."""
        self._asking = asking
        self._set_activity(self._activity)

    def _set_activity(self, activity: str) -> None:
        self._activity = activity
        is_waiting = self._asking and self._working
        self._bar.set_activity("waiting for your answer" if is_waiting else activity)

    def hint(self, text: str) -> None:
        """Show a hint below the prompt."""
        self._bar.hint(text)

    def show_progress(self, text: str) -> None:
        """Show the progress of a download; an empty text ends it."""
        if not self._working:
            self._set_activity(visible_line(text))

    def show_failure(self, error: Exception, kept: str = "") -> None:
        self.title.state = "not ready"
        self.column.drop()
        block = event_blocks.error(ErrorHappened.of(error, kept))
        hint = _RETRY_HINT if isinstance(error, StoreError) else _MODEL_HINT
        self.column.add(block, event_blocks.notice(hint))

    def show_waiting(self, question: str, model: str) -> None:
        self.title.state = f"opening {model} …"
        self.column.open(event_blocks.question(question, waiting=f"waiting until {model} is ready"))

    def show_result(self, line: str, result: str | EcoshellError) -> None:
        """Show a command and its result, unless the result is empty."""
        if isinstance(result, EcoshellError):
            block = event_blocks.error(ErrorHappened.of(result))
        else:
            block = event_blocks.command_output(result)
        if result:
            self.column.insert(event_blocks.question(line), block)

    def clear(self) -> None:
        self._transcript.clear()
        self.presenter = EventPresenter(self.column, panels_shown=lambda: self._body.shows_panels)

    async def replay(self, past: Sequence[Event], resumed: Notice | None) -> None:
        """Show a session from its past events, yielding to other tasks in between.

        The notice `resumed` among them follows a turn that was cut off.
        """
        self._bar.todo.show(())
        side = self._body.side
        side.state.clear()
        gc.disable()  # all new objects stay alive; collecting would take half as long again
        try:
            with self._transcript.filling():
                for at, event in enumerate(past, 1):
                    if event is resumed:
                        self.presenter.end_activity()
                    self.presenter.show(event)
                    self._bar.todo.handle(event)
                    side.state.handle(event)
                    if at % _EVENTS_PER_SLICE == 0:
                        await asyncio.sleep(0)
                self.presenter.end_activity()
        finally:
            gc.enable()
        side.state.end_activity()
        side.redraw()


@dataclass(slots=True, eq=False, repr=False)
class ChatController:
    """The conversation with a shell."""

    shell: "Shell"
    view: TranscriptController
    busy: bool = False
    warmed: bool = False
    """Whether loading the model was started."""
    status: "ShellStatus | None" = None
    _sent: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a command runs; later input waits for it."""
    _marking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stale: asyncio.Event = field(default_factory=asyncio.Event)
    _plan: "tuple[PlanWritten | None, Quote | None]" = (None, None)

    @property
    def stoppable(self) -> bool:
        """Whether a turn or a long command, such as `/compact`, is running."""
        return self.busy or self._sent.locked()

    def __post_init__(self) -> None:
        self.shell.on_progress = self.view.show_progress
        self.shell.on_event = self._handle

    async def load(self) -> None:
        """Show the session's past and the shell's status."""
        await self.view.replay(self.shell.past, self.shell.resumed)
        await self.refresh()
        if (why := self.shell.read_only) is not None:
            self.view.title.state = READ_ONLY
            self.view.column.insert(event_blocks.error(ErrorHappened.of(why)))

    async def starting_models(self) -> "Sequence[StartingModel]":
        """The models that the first run offers; none if they cannot be read, which is shown."""
        with self._errors_shown():
            return await self.shell.starting_models()
        return ()

    async def introduce(self, *, first: bool = False) -> None:
        """In a new session, introduce the model; at the first start, also suggest questions."""
        with self._errors_shown():
            if self.shell.past:
                return
            introduction = await self.shell.introduction()
            if introduction and not self.busy:
                self.view.column.insert(event_blocks.command_output(introduction))
            if introduction and first and not self.busy:
                status, cap = self.status, "0.10"
                if status is not None and not status.is_priced:
                    cap = status.token_cap
                if status is not None and status.caps:
                    cap = ""
                self.view.column.insert(requests_block(await self.shell.files(), cap=cap))

    def begin_turn(self) -> None:
        """Become busy at once, before the input is handled."""
        self.busy = True
        self.view.set_working(True)

    async def send(self, draft: Draft) -> bool:
        """Run a turn, or a shell command typed by the user.

        Return False if a question could not be stored; it belongs back in the prompt then.
        """
        line = draft.text.strip()
        is_command = stored = line.startswith(SHELL)
        with self._errors_shown():
            try:
                async with self._sent:
                    pass
                if is_command:
                    self._handle(await self.shell.run(line.removeprefix(SHELL)))
                else:
                    async for event in self.shell.ask(draft.text, draft.attachments):
                        stored = True
                        self._handle(event)
            except StoreError:
                self.view.title.state = READ_ONLY if self.shell.read_only is not None else ""
                raise
            finally:
                self.busy = False
                self.view.set_working(False)
        if not is_command:
            if stored:
                self.view.title.state = ""
            await self.refresh()
        return stored

    async def command(self, line: str) -> "Printed | None":
        """Run a slash command and show it with its output; None if it failed.

        During a turn, a command that only asks is not shown yet: its question waits in the queue.
        """
        with self._errors_shown():
            async with self._sent:
                with self._events_held():
                    echo, is_missing = event_blocks.question(line), self.busy
                    if not is_missing:
                        self.view.column.insert(echo)
                    try:
                        printed = await self.shell.command(line)
                        is_missing &= printed.effect != "ask" or bool(printed.text)
                    finally:
                        if is_missing:
                            self.view.column.insert(echo)
                    if printed.effect in ("clear", "session"):
                        self.view.clear()
                    if printed.text:
                        self.view.column.insert(event_blocks.command_output(printed.text))
                    await (self.load() if printed.effect == "session" else self.refresh())
                    return printed
        return None

    @contextmanager
    def _events_held(self) -> Generator[None]:
        """Show events outside turns only at the end of a command, which may clear the transcript."""
        events: list[Event] = []
        self.shell.on_event = events.append
        try:
            yield
        finally:
            self.shell.on_event = self._handle
            for event in events:
                self._handle(event)

    async def next_approval_mode(self) -> None:
        """Change what runs without asking: ask, plan mode, accept edits."""
        with self._errors_shown():
            modes = list(APPROVAL_MODES)
            at = modes.index(self.shell.approval_mode)
            mode = self.shell.set_approval_mode(modes[(at + 1) % len(modes)])
            self.view.hint(APPROVAL_MODES[mode])
            await self.refresh()

    def take_plan(self) -> "tuple[PlanWritten | None, Quote | None]":
        """The plan that the last turn has written with its quote, once."""
        plan, self._plan = self._plan, (None, None)
        return plan

    async def mark(self, call: CallRef, *, helpful: bool) -> None:
        """Store the user's mark of a call's result; the same mark again removes it."""
        with self._errors_shown():
            async with self._marking:
                previous = self.view.presenter.marks.get(call)
                mark = None if previous and previous.helpful is helpful else helpful
                for event in await self.shell.mark(call.turn, call.id, call.name, mark):
                    self._handle(event)

    async def warm(self) -> None:
        """Load the model, and the modules needed to show an answer, while a question is typed."""
        self.warmed = True
        with self._errors_shown():
            await self.shell.warm()
            for name in _ANSWER_MODULES:
                await asyncio.to_thread(import_module, name)
            self.shell.read_ahead()

    async def refresh(self) -> None:
        """Read the shell's status and show it."""
        with self._errors_shown():
            self.status = await self.shell.status()
            self.view.show(self.status, self.status.caps)

    async def refresh_after_events(self) -> None:
        """Refresh the status after events that change it, one refresh at a time."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            await self.refresh()

    @contextmanager
    def _errors_shown(self) -> Generator[None]:
        """Show an error as a block of the transcript."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - worker boundary: a defect must not close the screen
            self.view.column.insert(event_blocks.error(ErrorHappened.of(error)))

    def _handle(self, event: Event) -> None:
        self.view.handle(event)
        if isinstance(event, PlanWritten):
            self._plan = event, None
        elif isinstance(event, Quote) and event.kind == "plan":
            self._plan = self._plan[0], event
        if isinstance(event, BudgetChanged) and self.status is not None:
            self.view.show(self.status, event.caps)
        elif isinstance(event, _STATUS_EVENTS):
            self._stale.set()
