"""Base classes of the screens over the chat: a box, and a box with texts that scroll."""

from typing import TypeVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.messages import Prune
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from ecoshell.messages import visible_line

T = TypeVar("T")


class ClosedOnce(ModalScreen[T]):
    """A modal screen that can be closed at any moment, even while it loads."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close the screen; ignored if it is closed already or below another one."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    async def on_prune(self, event: Prune) -> None:
        """Cancel loading before the widgets are removed; Textual does it after that."""
        self.workers.cancel_node(self)  # pyright: ignore[reportUnknownMemberType]


class Overlay(ClosedOnce[str | None]):
    """A box over the chat (on narrow screens the whole screen) that returns a text, or None if cancelled."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - as declared by Textual
    DEFAULT_CSS = """
    Overlay {
        align: center middle;
        background: $background 60%;
        & > Vertical {
            width: 90%;
            max-width: 130;
            height: 90%;
            background: $surface;
            border: round $primary;
            border-title-color: $primary;
            border-title-style: bold;
            padding: 0 1;
        }
        &.-narrow > Vertical { width: 100%; height: 100%; }
        Footer { background: $surface; }
    }
    """

    def on_click(self, event: Click) -> None:
        """Close on a click outside the box."""
        if event.widget is self:
            self.dismiss(None)


class Sheet(Overlay):
    """Texts that scroll, each filled once it is known."""

    DEFAULT_CSS = """
    Sheet {
        & > Vertical { max-width: 110; }
        VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
        VerticalScroll > Static { margin-bottom: 1; }
    }
    """

    def __init__(self, heading: str, **texts: str) -> None:
        """`texts` are the first contents of the parts, by their names."""
        super().__init__()
        self._heading = heading
        self._texts = texts

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(visible_line(self._heading))
            with VerticalScroll():
                for part, text in self._texts.items():
                    yield Static(text, id=part, markup=False)
            yield Footer(show_command_palette=False, compact=True)

    def fill(self, part: str, content: Content | str) -> None:
        self.query_one(f"#{part}", Static).update(content)
