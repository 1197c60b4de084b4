"""The transcript: what was asked, thought, called and answered, as lines that cost nothing while off screen."""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from ecoshell.tui.transcript.blocks import TONES, Block, Tone
from ecoshell.tui.transcript.column import Column
from ecoshell.tui.transcript.painter import Painter

_REPAINT = 1 / 30
"""Seconds between two paintings of streamed text, at least."""


class Transcript(ScrollView, can_focus=True):
    """A column of blocks; the view stays at its end for as long as it is there."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.prompt", "Prompt")]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"transcript--{tone}" for tone in TONES}
    HELP = "What was asked, thought, called and answered. The arrow and page keys move, esc goes back to the prompt."
    DEFAULT_CSS = """
    Transcript {
        padding: 0 1;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        .transcript--text { color: $foreground; }
        .transcript--muted { color: $foreground 60%; }
        .transcript--question { color: $foreground; text-style: bold; }
        .transcript--thought { color: $secondary; text-style: italic; }
        .transcript--tool { color: $primary; }
        .transcript--good { color: $success; }
        .transcript--warning { color: $warning; }
        .transcript--error { color: $error; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name for it
        super().__init__(id=id)
        self._column = Column()
        self._due = False
        self._following = True

    @property
    def text(self) -> str:
        """Everything in it, without looks."""
        return self._column.plain

    def add(self, *blocks: Block) -> None:
        """Close what is open and put finished blocks below."""
        self._column.add(*blocks)
        self._show()

    def insert(self, *blocks: Block) -> None:
        """Put finished blocks above what is open."""
        self._column.insert(*blocks)
        self._show()

    def open(self, block: Block) -> None:
        """Put a block that is replaced when it is settled."""
        self._column.open(block)
        self._show()

    def stream(self, text: str, sign: str, tone: Tone) -> None:
        """Add streamed text to the open end; painted at most thirty times a second."""
        self._column.stream(text, sign, tone)
        if not self._due:
            self._due = True
            self.set_timer(_REPAINT, self._show)

    def settle(self, block: Block | None = None) -> None:
        """Close the open end: as this block or, without one, as it stands."""
        self._column.settle(block)
        self._show()

    def prepare(self, block: Block) -> None:
        """Do the slow part of painting a block ahead of time; may be called in a thread."""
        self._column.prepare(block)

    def drop(self) -> None:
        """Take the open end away."""
        self._column.drop()
        self._show()

    def clear(self) -> None:
        """Take everything away."""
        self._column.clear()
        self._show()

    def render_line(self, y: int) -> Strip:
        """One line of the view, for Textual's compositor."""
        at = self.scroll_offset.y + y
        base = self.rich_style
        strip = self._column.line(at).crop_extend(0, self.size.width, base).apply_style(base)
        if (selection := self.text_selection) is not None and (span := selection.get_span(at)) is not None:
            strip = _highlighted(strip, span, self.screen.get_component_rich_style("screen--selection"))
        return strip.apply_offsets(0, at)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, for copying."""
        return selection.extract(self.text), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Show the selection as it is now."""
        self.refresh()

    def notify_style_update(self) -> None:
        """Paint everything in the new colours."""
        super().notify_style_update()
        self._repaint()

    def on_resize(self, event: Resize) -> None:
        """Wrap everything at the new width."""
        self._repaint()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the end from the moment it is reached until the view moves up from it."""
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self._following = True
        elif new_value < old_value:
            self._following = False

    def _repaint(self) -> None:
        width = self.scrollable_content_region.width
        if width:
            styles: dict[Tone, Style] = {tone: self._style(tone) for tone in TONES}
            self._column.repaint(Painter(styles), width)
            self._show()

    def _style(self, tone: Tone) -> Style:
        """The tone's colour and attributes; the background is the transcript's own."""
        full = self.get_component_rich_style(f"transcript--{tone}")
        return Style(color=full.color, bold=full.bold, italic=full.italic)

    def _show(self) -> None:
        """Show as much as there is, and stay at the end if the view was there."""
        self._due = False
        self._column.paint()
        self.virtual_size = Size(self.scrollable_content_region.width, self._column.height)
        if self._following:
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        self.refresh()


def _highlighted(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """The strip with the characters of the span in the selection's style; -1 stands for the end."""
    start = strip.index_to_cell_position(span[0])
    end = strip.cell_length if span[1] == -1 else strip.index_to_cell_position(span[1])
    chosen = Strip(Segment.apply_style(strip.crop(start, end), post_style=style))
    return Strip.join([strip.crop(0, start), chosen, strip.crop(end)])
