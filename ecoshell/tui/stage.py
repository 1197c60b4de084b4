"""The parts of the screen that follow a conversation: its title, the transcript, the panels and their summary."""

import asyncio
import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ecoshell.budget.caps import CapState
from ecoshell.errors import EcoshellError
from ecoshell.events import (
    ApprovalWanted,
    CostWanted,
    ErrorHappened,
    Event,
    LimitHit,
    PlanChanged,
    TrustWanted,
)
from ecoshell.planning.plan_news import price_range
from ecoshell.tui.figures import amount
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.side.bars import TitleBar
from ecoshell.tui.side.body import Body
from ecoshell.tui.side.sheet import model_name
from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.blocks import Block, CallRef
from ecoshell.tui.transcript.teller import Teller
from ecoshell.tui.transcript.view import Transcript
from ecoshell.untrusted import visible_line

if TYPE_CHECKING:
    from ecoshell.agent.shell import Standing

READ_ONLY = "read-only"
_AGAIN = "Sending anything tries to open the shell again."
_UNNAMED = "single"
"""The role of one model alone, which is not worth a word."""
_MODEL = 28
_BREATH = 200
"""Events of an old session told in one go."""


class Stage:
    """Shows events and standings; knows nothing of where they come from."""

    def __init__(self, title: TitleBar, transcript: Transcript, body: Body, bar: PromptBar) -> None:
        self._title = title
        self._bar = bar
        self._estimate = self._leads = ""
        """What the turn was estimated at before its first step, and the model that leads."""
        self._working = False
        self._transcript = transcript
        self._body = body
        self._teller = Teller(transcript, beside=lambda: body.beside)

    def hear(self, event: Event) -> None:
        """Show one event."""
        self._teller.tell(event)
        self._body.hear(event)
        if isinstance(event, PlanChanged) and event.number <= 1:
            self._estimate = f", {price_range(event, amount)}"
        if self._working:
            asks = isinstance(event, (ApprovalWanted, CostWanted, LimitHit, TrustWanted))
            self._bar.doing("waits for your answer" if asks else self._doing)

    @property
    def _doing(self) -> str:
        """That a turn is under way or, of several roles, who thinks; the model where it is not the one that leads."""
        role, model = self._body.thinking or (_UNNAMED, self._leads)
        words = "working" if role == _UNNAMED else f"{visible_line(role)} is thinking"
        name = "" if model == self._leads else f" · {model_name(visible_line(model), _MODEL)}"
        return f"{words}{name}{self._estimate}"

    def mark_of(self, call: CallRef) -> bool | None:
        """What the person said of a call's result; None when nothing, or not any more."""
        return self._teller.mark_of(call)

    def show(self, standing: "Standing", caps: Sequence[CapState]) -> None:
        """Show where the session stands."""
        self._leads = standing.model
        self._title.show(standing)
        self._body.show(standing, caps)

    def work(self, working: bool) -> None:
        """Show whether a turn is under way."""
        self._working, self._estimate = working, ""
        self._bar.doing("working" if working else "")

    def read_only(self, reading: bool) -> None:
        """Show whether anything can be asked."""
        self._title.say(READ_ONLY if reading else "")

    def fail(self, error: Exception, kept: str = "") -> None:
        """Say that there is no shell and why."""
        self._title.say("not ready")
        self._transcript.drop()
        self._transcript.add(lines.error(ErrorHappened.of(error, kept)), lines.notice(_AGAIN))

    def warn(self, complaints: Sequence[str]) -> None:
        """Say what is wrong and stops nothing."""
        self._transcript.insert(*map(lines.notice, complaints))

    def wait(self, question: str, model: str) -> None:
        """Show a question that waits for the shell."""
        self._title.say(f"opening {model} …")
        self._transcript.open(lines.question(question, waiting=f"waits until {model} is ready"))

    def answer(self, line: str, answer: str | EcoshellError) -> None:
        """Show what a command came to; the command itself only when there is something to say."""
        if isinstance(answer, EcoshellError):
            self.insert(lines.question(line), lines.error(ErrorHappened.of(answer)))
        elif answer:
            self.insert(lines.question(line), lines.plain(answer))

    def insert(self, *blocks: Block) -> None:
        """Put finished blocks above what is still arriving."""
        self._transcript.insert(*blocks)

    def clear(self) -> None:
        """Take everything out of the transcript."""
        self._transcript.clear()
        self._teller = Teller(self._transcript, beside=lambda: self._body.beside)

    async def recall(self, past: Sequence[Event]) -> None:
        """Show another session from its events so far; a long one does not hold up the screen."""
        with _no_garbage():
            await self._recall(past)

    async def _recall(self, past: Sequence[Event]) -> None:
        with self._transcript.filling():
            for at, event in enumerate(past):
                self._teller.tell(event)
                if at % _BREATH == _BREATH - 1:
                    await asyncio.sleep(0)
            self._teller.rest()
        await self._body.recall(past)


@contextmanager
def _no_garbage() -> Generator[None]:
    """Look for no garbage: all that is made meanwhile stays, and looking at it takes half as long again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
