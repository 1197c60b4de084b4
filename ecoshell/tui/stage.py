"""The parts of the screen that follow a conversation: its title, the transcript, the panels and their summary."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ecoshell.budget.caps import CapState
from ecoshell.events import Event
from ecoshell.tui.side.bars import TitleBar
from ecoshell.tui.side.body import Body
from ecoshell.tui.transcript.blocks import Block
from ecoshell.tui.transcript.teller import Teller
from ecoshell.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from ecoshell.agent.shell import Standing

READ_ONLY = "read-only"
_BREATH = 200
"""Events of an old session told in one go."""


class Stage:
    """Shows events and standings; knows nothing of where they come from."""

    def __init__(self, title: TitleBar, transcript: Transcript, body: Body) -> None:
        self._title = title
        self._transcript = transcript
        self._body = body
        self._teller = Teller(transcript)

    def hear(self, event: Event) -> None:
        """Show one event."""
        self._teller.tell(event)
        self._body.hear(event)

    def show(self, standing: "Standing", caps: Sequence[CapState]) -> None:
        """Show where the session stands."""
        self._title.show(standing)
        self._body.show(standing, caps)

    def work(self, working: bool) -> None:
        """Show whether a turn is under way."""
        self._title.work(working)

    def read_only(self, reading: bool) -> None:
        """Show whether anything can be asked."""
        self._title.say(READ_ONLY if reading else "")

    def insert(self, *blocks: Block) -> None:
        """Put finished blocks above what is still arriving."""
        self._transcript.insert(*blocks)

    def clear(self) -> None:
        """Take everything out of the transcript."""
        self._transcript.clear()
        self._teller = Teller(self._transcript)

    async def recall(self, past: Sequence[Event]) -> None:
        """Show another session from its events so far; a long one does not hold up the screen."""
        with self._transcript.filling():
            for at, event in enumerate(past):
                self._teller.tell(event)
                if at % _BREATH == _BREATH - 1:
                    await asyncio.sleep(0)
        await self._body.recall(past)
