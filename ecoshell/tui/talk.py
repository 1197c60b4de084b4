"""The conversation with the shell: what is sent goes to it, what happens comes back to the screen."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ecoshell.errors import StoreError
from ecoshell.events import (
    BudgetChanged,
    BudgetHeld,
    BudgetSettled,
    ContextTold,
    ErrorHappened,
    Event,
    ToolRegistered,
    ToolsOffered,
    TurnFinished,
)
from ecoshell.tui.prompt.drafts import Draft
from ecoshell.tui.screens.welcome import requests_block
from ecoshell.tui.stage import Stage
from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.blocks import CallRef

if TYPE_CHECKING:
    from ecoshell.agent.commands import Printed
    from ecoshell.agent.shell import Shell, Standing

_CHANGES_THE_PANELS = (BudgetHeld, BudgetSettled, ContextTold, ToolRegistered, ToolsOffered, TurnFinished)
_ANSWERS_NEED = ("markdown_it", "pygments.lexers")


class Talk:
    """One shell, and the stage on which it is shown."""

    def __init__(self, shell: "Shell", stage: Stage) -> None:
        self.shell = shell
        self.busy = False
        self.warmed = False
        """Whether the model was told to get ready."""
        self._stage = stage
        self._sent = asyncio.Lock()
        """Held while a command runs: what was sent after it waits for it."""
        self._marking = asyncio.Lock()
        self._stale = asyncio.Event()
        self._standing: Standing | None = None

    @property
    def stoppable(self) -> bool:
        """Whether there is anything to stop: a turn, or a command that takes a while, such as `/compact`."""
        return self.busy or self._sent.locked()

    @property
    def mode(self) -> str:
        """Who thinks, as the shell last said; empty before it has."""
        return self._standing.mode if self._standing else ""

    async def begin(self) -> None:
        """Tell what was said in this session before, and show where it stands."""
        await self._stage.recall(await self.shell.past())
        await self.look()
        if (why := self.shell.read_only) is not None:
            self._stage.read_only(True)
            self._stage.insert(lines.error(ErrorHappened.of(why)))

    async def introduce(self, *, first: bool = False) -> None:
        """Say in a new session which model answers, and how to get a better one; at the first start, what to ask."""
        with self._fence():
            if await self.shell.past():
                return
            told = await self.shell.introduction()
            if told and not self.busy:
                self._stage.insert(lines.plain(told))
            if told and first and not self.busy:
                self._stage.insert(requests_block(await self.shell.files()))

    def ask(self, draft: Draft) -> Coroutine[Any, Any, bool]:
        """One turn, from the question to its last event; busy from now on, and not only from when it is awaited.

        Gives False when the question could not even be kept, and belongs back in the prompt.
        """
        self.busy = True
        self._stage.work(True)
        return self._ask(draft)

    async def _ask(self, draft: Draft) -> bool:
        kept = False
        with self._fence():
            try:
                async with self._sent:
                    pass
                async for event in self.shell.ask(draft.text, draft.attachments):
                    kept = True
                    self._hear(event)
            except StoreError:
                self._stage.read_only(self.shell.read_only is not None)
                raise
            finally:
                self.busy = False
                self._stage.work(False)
        if kept:
            self._stage.read_only(False)
        await self.look()
        return kept

    def run(self, command: str) -> Coroutine[Any, Any, None]:
        """Run a command of the person's own in the workspace, and show what it printed; busy from now on."""
        self.busy = True
        self._stage.work(True)
        return self._run(command)

    async def _run(self, command: str) -> None:
        with self._fence():
            try:
                async with self._sent:
                    pass
                self._hear(await self.shell.run(command))
            finally:
                self.busy = False
                self._stage.work(False)

    async def command(self, line: str) -> "Printed | None":
        """Run a slash command and show what it prints; None when it failed."""
        with self._fence():
            async with self._sent:
                self._stage.insert(lines.question(line))
                printed = await self.shell.command(line)
                await self._show(printed)
                return printed
        return None

    async def mark(self, call: CallRef, *, helpful: bool) -> None:
        """Keep the person's word on a call's result; the same word twice takes it back."""
        with self._fence():
            async with self._marking:
                word = None if self._stage.mark_of(call) is helpful else helpful
                for event in await self.shell.mark(call.turn, call.id, call.name, word):
                    self._hear(event)

    async def warm(self) -> None:
        """Have the model loaded, and what an answer is set with: a question seems to be on its way."""
        self.warmed = True
        with self._fence():
            await self.shell.warm()
            for name in _ANSWERS_NEED:
                await asyncio.to_thread(import_module, name)

    async def stop(self) -> None:
        """Stop the turn that runs; its last events still arrive."""
        await self.shell.stop()

    async def look(self) -> None:
        """Ask the shell where it stands, and show it."""
        with self._fence():
            self._standing = await self.shell.standing()
            self._stage.show(self._standing, self._standing.caps)

    async def watch(self) -> None:
        """Keep the panels up to date for as long as the screen is there; however much happens, one look at a time."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            await self.look()

    async def _show(self, printed: "Printed") -> None:
        """Show what a command came to."""
        if printed.effect in ("clear", "session"):
            self._stage.clear()
        if printed.text:
            self._stage.insert(lines.plain(printed.text))
        if printed.effect == "session":
            await self.begin()
        else:
            await self.look()

    @contextmanager
    def _fence(self) -> Generator[None]:
        """Shows an error that came instead of an event as a block of the transcript."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the edge of the workers: a defect must not take the screen
            self._stage.insert(lines.error(ErrorHappened.of(error)))

    def _hear(self, event: Event) -> None:
        self._stage.hear(event)
        if isinstance(event, BudgetChanged) and self._standing is not None:
            self._stage.show(self._standing, event.caps)
        elif isinstance(event, _CHANGES_THE_PANELS):
            self._stale.set()
