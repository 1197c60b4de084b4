"""What joins the shell and the screen: what is sent goes to the shell, what happens comes back to the widgets."""

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
    ApprovalWanted,
    BudgetChanged,
    BudgetHeld,
    BudgetSettled,
    ContextTold,
    CostWanted,
    ErrorHappened,
    Event,
    LimitHit,
    PlanChanged,
    ToolRegistered,
    ToolsOffered,
    TrustWanted,
    TurnFinished,
)
from ecoshell.events.describe import price_range
from ecoshell.messages import visible_line
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
    from ecoshell.agent.commands import Printed
    from ecoshell.agent.shell import Shell, Standing


READ_ONLY = "read-only"
_AGAIN = "Sending anything tries to open the shell again."
_UNNAMED = "single"
"""The role of one model alone, which is not worth a word."""
_MODEL = 28
_BREATH = 200
"""Events of an old session told in one go."""
_CHANGES_THE_PANELS = (BudgetHeld, BudgetSettled, ContextTold, ToolRegistered, ToolsOffered, TurnFinished)
_ANSWERS_NEED = ("markdown_it", "pygments.lexers")


class TranscriptController:
    """Shows events and standings in title, transcript, panels and prompt; knows nothing of where they come from."""

    def __init__(self, title: TitleBar, transcript: Transcript, body: SideLayout, bar: PromptBar) -> None:
        self.title = title
        self._bar = bar
        self._estimate = self._leads = ""
        """What the turn was estimated at before its first step, and the model that leads."""
        self._working = False
        self._transcript = transcript
        self.column = transcript.column
        self._body = body
        self.presenter = EventPresenter(self.column, beside=lambda: body.shows_panels)
        """What tells the events to the transcript, and knows the person's marks."""

    def hear(self, event: Event) -> None:
        """Show one event; while a turn is under way also who of several roles thinks, and with which model."""
        self.presenter.show(event)
        self._body.side.hear(event)
        if isinstance(event, PlanChanged) and event.number <= 1:
            self._estimate = f", {price_range(event, amount)}"
        if isinstance(event, (ApprovalWanted, CostWanted, LimitHit, TrustWanted)) and self._working:
            self._bar.doing("waits for your answer")
        elif self._working:
            role, model = self._body.side.state.thinking or (_UNNAMED, self._leads)
            words = "working" if role == _UNNAMED else f"{visible_line(role)} is thinking"
            name = "" if model == self._leads else f" · {model_name(visible_line(model), _MODEL)}"
            self._bar.doing(f"{words}{name}{self._estimate}")

    def show(self, standing: "Standing", caps: Sequence[CapState]) -> None:
        self._leads = standing.model
        self.title.show(standing)
        self._body.side.show(standing, caps)

    def work(self, working: bool) -> None:
        self._working, self._estimate = working, ""
        self._bar.doing("working" if working else "")

    def fail(self, error: Exception, kept: str = "") -> None:
        self.title.state = "not ready"
        self.column.drop()
        self.column.add(event_blocks.error(ErrorHappened.of(error, kept)), event_blocks.notice(_AGAIN))

    def wait(self, question: str, model: str) -> None:
        self.title.state = f"opening {model} …"
        self.column.open(event_blocks.question(question, waiting=f"waits until {model} is ready"))

    def answer(self, line: str, answer: str | EcoshellError) -> None:
        """Show what a command came to; the command itself only when there is something to say."""
        if isinstance(answer, EcoshellError):
            self.column.insert(event_blocks.question(line), event_blocks.error(ErrorHappened.of(answer)))
        elif answer:
            self.column.insert(event_blocks.question(line), event_blocks.plain(answer))

    def clear(self) -> None:
        self._transcript.clear()
        self.presenter = EventPresenter(self.column, beside=lambda: self._body.shows_panels)

    async def recall(self, past: Sequence[Event]) -> None:
        """Show another session from its events so far; a long one does not hold up the screen."""
        gc.disable()  # all that is made meanwhile stays, and looking at it takes half as long again
        try:
            with self._transcript.filling():
                for at, event in enumerate(past):
                    self.presenter.show(event)
                    if at % _BREATH == _BREATH - 1:
                        await asyncio.sleep(0)
                self.presenter.rest()
            await self._body.side.recall(past)
        finally:
            gc.enable()


@dataclass(slots=True, eq=False, repr=False)
class ChatController:
    """The conversation with one shell."""

    shell: "Shell"
    view: TranscriptController
    busy: bool = False
    warmed: bool = False
    """Whether the model was told to get ready."""
    standing: "Standing | None" = None
    """Where the shell stands, as it last said."""
    _sent: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a command runs: what was sent after it waits for it."""
    _marking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stale: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def stoppable(self) -> bool:
        """Whether there is anything to stop: a turn, or a command that takes a while, such as `/compact`."""
        return self.busy or self._sent.locked()

    async def begin(self) -> None:
        """Tell what was said in this session before, and show where it stands."""
        await self.view.recall(self.shell.past)
        await self.look()
        if (why := self.shell.read_only) is not None:
            self.view.title.state = READ_ONLY
            self.view.column.insert(event_blocks.error(ErrorHappened.of(why)))

    async def introduce(self, *, first: bool = False) -> None:
        """Say in a new session which model answers, and how to get a better one; at the first start, what to ask."""
        with self._fence():
            if self.shell.past:
                return
            told = await self.shell.introduction()
            if told and not self.busy:
                self.view.column.insert(event_blocks.plain(told))
            if told and first and not self.busy:
                self.view.column.insert(requests_block(await self.shell.files()))

    def begin_turn(self) -> None:
        """Be busy from now on, and not only from when what is sent has been taken up."""
        self.busy = True
        self.view.work(True)

    async def send(self, draft: Draft) -> bool:
        """One turn, from the question to its last event, or a command of the person's own, run in the workspace.

        False when a question could not even be kept, and belongs back in the prompt.
        """
        line = draft.text.strip()
        is_command = kept = line.startswith(SHELL)
        with self._fence():
            try:
                async with self._sent:
                    pass
                if is_command:
                    self._hear(await self.shell.run(line.removeprefix(SHELL)))
                else:
                    async for event in self.shell.ask(draft.text, draft.attachments):
                        kept = True
                        self._hear(event)
            except StoreError:
                self.view.title.state = READ_ONLY if self.shell.read_only is not None else ""
                raise
            finally:
                self.busy = False
                self.view.work(False)
        if not is_command:
            if kept:
                self.view.title.state = ""
            await self.look()
        return kept

    async def command(self, line: str) -> "Printed | None":
        """Run a slash command and show what it prints; None when it failed."""
        with self._fence():
            async with self._sent:
                self.view.column.insert(event_blocks.question(line))
                printed = await self.shell.command(line)
                if printed.effect in ("clear", "session"):
                    self.view.clear()
                if printed.text:
                    self.view.column.insert(event_blocks.plain(printed.text))
                await (self.begin() if printed.effect == "session" else self.look())
                return printed
        return None

    async def mark(self, call: CallRef, *, helpful: bool) -> None:
        """Keep the person's word on a call's result; the same word twice takes it back."""
        with self._fence():
            async with self._marking:
                word = None if self.view.presenter.marks.get(call) is helpful else helpful
                for event in await self.shell.mark(call.turn, call.id, call.name, word):
                    self._hear(event)

    async def warm(self) -> None:
        """Have the model loaded, and what an answer is set with: a question seems to be on its way."""
        self.warmed = True
        with self._fence():
            await self.shell.warm()
            for name in _ANSWERS_NEED:
                await asyncio.to_thread(import_module, name)
            self.shell.read_ahead()

    async def look(self) -> None:
        """Ask the shell where it stands, and show it."""
        with self._fence():
            self.standing = await self.shell.standing()
            self.view.show(self.standing, self.standing.caps)

    async def watch(self) -> None:
        """Keep the panels up to date for as long as the screen is there; however much happens, one look at a time."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            await self.look()

    @contextmanager
    def _fence(self) -> Generator[None]:
        """Shows an error that came instead of an event as a block of the transcript."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the edge of the workers: a defect must not take the screen
            self.view.column.insert(event_blocks.error(ErrorHappened.of(error)))

    def _hear(self, event: Event) -> None:
        self.view.hear(event)
        if isinstance(event, BudgetChanged) and self.standing is not None:
            self.view.show(self.standing, event.caps)
        elif isinstance(event, _CHANGES_THE_PANELS):
            self._stale.set()
