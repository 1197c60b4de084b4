"""The conversation with the shell: what is sent goes to it, what happens comes back to the screen."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ecoshell.budget.caps import CapState
from ecoshell.events import (
    Answer,
    BudgetChanged,
    BudgetHeld,
    BudgetSettled,
    ErrorHappened,
    Event,
    ToolRegistered,
    ToolsOffered,
    TurnFinished,
)
from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.teller import Teller
from ecoshell.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell, Standing

Show = Callable[["Standing", Sequence[CapState]], None]
_CHANGES_THE_PANELS = (BudgetHeld, BudgetSettled, ToolRegistered, ToolsOffered, TurnFinished)
_BREATH = 100
"""Events of an old session told in one go."""


class Talk:
    """One shell, one transcript; `show` is given the standing whenever it has changed."""

    def __init__(self, shell: "Shell", transcript: Transcript, show: Show) -> None:
        self.shell = shell
        self.busy = False
        self._transcript = transcript
        self._teller = Teller(transcript)
        self._show = show
        self._stale = asyncio.Event()
        self._standing: Standing | None = None

    async def begin(self) -> None:
        """Tell what was said in this session before, and show where it stands."""
        for at, event in enumerate(await self.shell.past()):
            await self._tell(event)
            if at % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)  # a long session must not hold up the screen
        await self.look()

    def ask(self, question: str) -> Coroutine[Any, Any, None]:
        """One turn, from the question to its last event; busy from now on, and not only from when it is awaited."""
        self.busy = True
        return self._ask(question)

    async def _ask(self, question: str) -> None:
        with self._fence():
            try:
                async for event in self.shell.ask(question):
                    await self._hear(event)
            finally:
                self.busy = False
        await self.look()

    async def command(self, line: str) -> bool:
        """Run a slash command; says whether it asks to leave."""
        self._transcript.insert(lines.question(line))
        with self._fence():
            printed = await self.shell.command(line)
            if printed.effect in ("clear", "session"):
                self._transcript.clear()
            if printed.text:
                self._transcript.insert(lines.plain(printed.text))
            if printed.effect == "session":
                await self.begin()
            await self.look()
            return printed.effect == "quit"
        return False

    async def stop(self) -> None:
        """Stop the turn that runs; its last events still arrive."""
        await self.shell.stop()

    async def look(self) -> None:
        """Ask the shell where it stands, and show it."""
        with self._fence():
            self._standing = await self.shell.standing()
            self._show(self._standing, self._standing.caps)

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
            self._transcript.insert(lines.error(ErrorHappened.of(error)))

    async def _tell(self, event: Event) -> None:
        if isinstance(event, Answer):
            await asyncio.to_thread(self._transcript.prepare, lines.answer(event))
        self._teller.tell(event)

    async def _hear(self, event: Event) -> None:
        await self._tell(event)
        if isinstance(event, BudgetChanged) and self._standing is not None:
            self._show(self._standing, event.caps)
        elif isinstance(event, _CHANGES_THE_PANELS):
            self._stale.set()
