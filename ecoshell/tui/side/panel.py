"""A panel: a title line that can be clicked or keyed to fold it, and below it lines that scroll where they must."""

from abc import abstractmethod
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, Key, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ecoshell.tui.keys import act_at_once
from ecoshell.tui.side.board import Board
from ecoshell.tui.side.sheet import TONES, Line, Tone, plain
from ecoshell.untrusted import visible_line


class Panel(ScrollView, can_focus=True):
    """Lines drawn from the board; drawn anew only when they have changed."""

    NAME: ClassVar[str]
    """The panel's name in the kept arrangement, and in capitals its title."""
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "fold", "fold"),
        Binding("minus", "fold", "fold", show=False),
        Binding("escape", "leave", "back"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"panel--{tone}" for tone in TONES}
    DEFAULT_CSS = """
    Panel {
        border-top: solid $foreground 25%;
        border-title-color: $primary;
        padding: 0 0 0 1;
        overflow-x: hidden;
        scrollbar-gutter: stable;
        scrollbar-size-vertical: 1;
        .panel--text { color: $foreground; }
        .panel--strong { color: $foreground; text-style: bold; }
        .panel--muted { color: $text-muted; }
        .panel--accent { color: $primary; }
        .panel--good { color: $success; }
        .panel--near { color: $warning; }
        .panel--reached { color: $error; text-style: bold; }
        .panel--marked { color: $block-cursor-foreground; background: $block-cursor-background; }
        &:focus { border-top: heavy $primary; }
    }
    """

    class Left(Message):
        """The person wants back to where they came from."""

    class Refolded(Message):
        """The panel was folded or unfolded by the person."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self.board = board
        self.title = ""
        """The title line, without looks."""
        self._folded = False
        self._lines: list[Line] = []
        self._styles: dict[Tone | None, Style] = {}
        self._area = Size(0, 0)
        """The room for lines, as it was when they were drawn."""
        self._show_title()

    @abstractmethod
    def lines(self, width: int) -> list[Line]:
        """What the panel shows now, in lines of at most `width` cells."""

    def gist(self) -> str:
        """What the title says beside the name: the panel in a word or two."""
        return ""

    @property
    def text(self) -> str:
        """What is shown, without looks."""
        return plain(self._lines)

    @property
    def wanted(self) -> int:
        """Lines it takes to show everything, the title and a free line below included."""
        return 1 if self.folded else len(self._lines) + 2

    @property
    def folded(self) -> bool:
        """Whether only the title is shown."""
        return self._folded

    @folded.setter
    def folded(self, folded: bool) -> None:
        if folded != self._folded:
            self._folded = folded
            self._show_title()
            self.refresh(layout=True)

    def show(self) -> None:
        """Draw what is on the board now; nothing is done where that is what is shown already."""
        self._show_title()
        self._area = self.scrollable_content_region.size
        lines = self.lines(self._area.width)
        if lines == self._lines:
            return
        self._lines = lines
        self.virtual_size = Size(0, len(lines))  # another height has the panels laid out again
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines of the view, for Textual's compositor, which may ask before the panel hears of its new size."""
        self._area = self.scrollable_content_region.size
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """One line of the view, for Textual's compositor."""
        at = self.scroll_offset.y + y
        return self.strip(self._lines[at] if at < len(self._lines) else ())

    def strip(self, line: Line, *, marked: bool = False) -> Strip:
        """A line in the panel's colours, as wide as the panel; a marked one stands out."""
        if not self._styles:
            base = self.rich_style
            self._styles = {None: base, **{tone: base + self._style(tone) for tone in TONES}}
        pieces = [Segment(text, self._styles["marked" if marked else tone]) for text, tone in line]
        return Strip(pieces).adjust_cell_length(self._area.width, self._styles["marked" if marked else None])

    def notify_style_update(self) -> None:
        """Draw in the new colours."""
        super().notify_style_update()
        self._styles = {}

    def action_fold(self) -> None:
        """Fold the panel to its title, or unfold it."""
        self.folded = not self.folded
        self.post_message(self.Refolded())

    def action_leave(self) -> None:
        """Go back to where the person came from."""
        self.post_message(self.Left())

    def on_click(self, event: Click) -> None:
        """Fold or unfold at a click on the title."""
        if event.y == 0:
            self.action_fold()

    def on_resize(self, event: Resize) -> None:
        """Set the lines to the new width."""
        self.show()

    async def _on_key(self, event: Key) -> None:
        if await act_at_once(self, event.key):
            event.stop()
            event.prevent_default()

    def _show_title(self) -> None:
        sign = "►" if self.folded else "▼"
        gist = visible_line(self.gist())
        name, rest = f" {sign} {self.NAME.upper()} ", f" {gist} " if gist else ""
        if name + rest != self.title:
            self.title = name + rest
            self.border_title = Content.assemble((name, "bold"), (rest, "$foreground"))

    def _style(self, tone: Tone) -> Style:
        """The tone's colours; only what is marked has a background of its own."""
        full = self.get_component_rich_style(f"panel--{tone}")
        return full if tone == "marked" else Style(color=full.color, bold=full.bold)
