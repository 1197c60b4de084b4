"""A question in the middle of a picker: a text to type, or yes or no; the list stays in sight."""

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.widgets import Input, Static

from ecoshell.tui.keys import act_at_once
from ecoshell.untrusted import visible


class Line(Input):
    """A line to type in, whose keys act in the order they were typed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    async def _on_key(self, event: Key) -> None:
        if await act_at_once(self, event.key):
            event.stop()
            event.prevent_default()

    def action_leave(self) -> None:
        """Leave without an answer."""
        self.query_ancestor(Aside).resolve(None)


class YesOrNo(Static, can_focus=True):
    """Takes y as yes; every other key that could be meant as an answer is a no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "say('yes')", "yes"),
        Binding("n,escape,enter,space,tab", "say('')", "no", key_display="n"),
    ]

    def action_say(self, word: str) -> None:
        """Answer."""
        self.query_ancestor(Aside).resolve(word or None)


class Aside(Vertical):
    """Asks one thing at a time; out of sight while there is nothing to ask."""

    DEFAULT_CSS = """
    Aside {
        display: none;
        height: auto;
        border-top: solid $warning;
        &.-on { display: block; }
        & > Static { height: auto; }
        & > Line, & > YesOrNo { display: none; &.-on { display: block; } }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._answer: asyncio.Future[str | None] | None = None
        self._asked = Static("", markup=False)
        self._line = Line(compact=True)
        self._yes_or_no = YesOrNo("y yes · n no", markup=False)

    def compose(self) -> ComposeResult:
        """What is asked, and where to answer."""
        yield self._asked
        yield self._line
        yield self._yes_or_no

    @property
    def is_open(self) -> bool:
        """Whether something is being asked."""
        return self._answer is not None and not self._answer.done()

    async def text(self, asked: str, value: str = "", *, secret: bool = False) -> str | None:
        """The text that was typed, which begins as `value`; None when the person went back. A secret is not shown."""
        self._line.password = secret
        self._line.value = value
        self._line.cursor_position = len(value)
        return await self._ask(asked, self._line)

    async def sure(self, asked: str) -> bool:
        """Whether the person says yes."""
        return await self._ask(asked, self._yes_or_no) is not None

    def say(self, asked: str) -> None:
        """Put what is being asked into other words."""
        self._asked.update(visible(asked))

    def resolve(self, answer: str | None) -> None:
        """Answer, unless that has happened already."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer with what was typed."""
        event.stop()
        self.resolve(event.value)

    def on_unmount(self) -> None:
        """Whoever still waits is answered: there is no screen to answer on."""
        self.resolve(None)

    async def _ask(self, asked: str, where: Line | YesOrNo) -> str | None:
        before = self.screen.focused
        self.resolve(None)
        self._answer = asyncio.get_running_loop().create_future()
        self.say(asked)
        self._show(where)
        where.focus()
        try:
            return await self._answer
        finally:
            if self.is_attached:  # else the screen was closed meanwhile
                self._show(None)
                if before is not None:
                    before.focus()

    def _show(self, where: Line | YesOrNo | None) -> None:
        self.set_class(where is not None, "-on")
        for widget in (self._line, self._yes_or_no):
            widget.set_class(widget is where, "-on")
        self.screen.refresh_bindings()
