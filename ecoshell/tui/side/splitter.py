"""The line between the transcript and the side, which the mouse can drag."""

from rich.segment import Segment
from textual.events import MouseDown, MouseMove, MouseUp
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget


class Splitter(Widget):
    """One column; says where it is dragged to, and nothing moves it but whoever hears that."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Splitter {
        width: 1;
        color: $foreground 25%;
        &:hover, &.-dragged { color: $primary; }
    }
    """

    class Dragged(Message):
        """The line shall stand in this column of the screen; `done` once the mouse lets go of it."""

        def __init__(self, column: int, *, done: bool = False) -> None:
            super().__init__()
            self.column = column
            self.done = done

    def render_line(self, y: int) -> Strip:
        """One line of the view, for Textual's compositor."""
        heavy = self.mouse_hover or self.has_class("-dragged")
        return Strip([Segment("┃" if heavy else "│", self.rich_style)])

    def on_mouse_down(self, event: MouseDown) -> None:
        """Take hold."""
        event.stop()
        self.add_class("-dragged")
        self.capture_mouse()

    def on_mouse_move(self, event: MouseMove) -> None:
        """Follow the mouse while it holds the line."""
        if self.has_class("-dragged"):
            event.stop()
            self.post_message(self.Dragged(event.screen_x))

    def on_mouse_up(self, event: MouseUp) -> None:
        """Let go."""
        if self.has_class("-dragged"):
            event.stop()
            self.remove_class("-dragged")
            self.release_mouse()
            self.post_message(self.Dragged(event.screen_x, done=True))
