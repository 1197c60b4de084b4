"""The transcript widget: a scrollable view of a column of blocks."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, cast

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive, var
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from ecoshell.tui.keys import Hint
from ecoshell.tui.transcript.blocks import GROUNDS, TONES, CallRef, Ground
from ecoshell.tui.transcript.column import BlockColumn, BlockItem, Spot
from ecoshell.tui.transcript.painting import MARGIN, Painter, finished

if TYPE_CHECKING:
    from ecoshell.tui.transcript.search import Search

_MAX_FINISHED_LINES = 1_000
_REPAINT_INTERVAL = 1 / 22
"""Minimum seconds between two updates while text streams in."""


class Transcript(ScrollView, can_focus=True):
    """A view of a column of blocks with a block cursor, folding, marks, copying and search.

    It follows the end of the column until the user scrolls up.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor(-1)", "Block above", show=False),
        Binding("down,j", "cursor(1)", "Block below", show=False),
        Binding("left_square_bracket,ctrl+up", "turn(-1)", "Turn above", show=False),
        Binding("right_square_bracket,ctrl+down", "turn(1)", "Turn below", show=False),
        Binding("enter", "fold", "open/fold"),
        Binding("y", "copy", "copy"),
        Binding("plus", "mark(True)", "helpful", key_display="+"),
        Binding("minus", "mark(False)", "unhelpful", key_display="-"),
        Binding("slash,ctrl+f", "search", "search"),
        Binding("n", "go_to_match(1)", "Next match", show=False),
        Binding("N", "go_to_match(-1)", "Previous match", show=False),
        Binding("ctrl+o", "fold(True)", "Open or fold the newest", show=False),
        Binding("home", "scroll_to_line(0)", "First line", show=False),
        Binding("end", "end", "Last line", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("escape", "app.focus('prompt')", "prompt"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"transcript--{tone}" for tone in TONES),
        *(f"transcript--{ground}-line" for ground in GROUNDS),
        "transcript--cursor",
        "transcript--hit",
        "transcript--hit-now",
    }
    HELP = (
        "The conversation. Up and down (j, k) move from block to block, [ and ] from turn to turn, enter opens or "
        "folds a long block or opens a subagent's transcript, y copies it, / searches, n and N go from match to match, "
        "esc returns to the prompt. On a call, + and - mark its result as helpful or unhelpful, which overrides any "
        "judge when turns are planned; the same key again removes the mark."
    )
    DEFAULT_CSS = """
    Transcript {
        padding: 0 1;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        .transcript--text { color: $foreground; }
        .transcript--muted { color: $foreground-muted; }
        .transcript--question { color: $foreground; text-style: bold; }
        .transcript--thought { color: $secondary; text-style: italic; }
        .transcript--tool { color: $primary; }
        .transcript--good { color: $success; }
        .transcript--warning { color: $warning; }
        .transcript--error { color: $error; }
        .transcript--heading { color: $primary; text-style: bold; }
        .transcript--link { color: $primary; text-style: underline; }
        .transcript--code { color: $foreground 85%; }
        .transcript--keyword { color: $primary; text-style: bold; }
        .transcript--name { color: $secondary; }
        .transcript--string { color: $success; }
        .transcript--number { color: $warning; }
        .transcript--comment { color: $foreground-muted; text-style: italic; }
        .transcript--added { color: $success; }
        .transcript--removed { color: $error; }
        .transcript--hunk { color: $secondary; text-style: italic; }
        .transcript--added-line { background: $success 12%; }
        .transcript--removed-line { background: $error 12%; }
        .transcript--cursor { color: $accent; text-style: bold; }
        .transcript--hit { color: $warning; text-style: underline; }
        .transcript--hit-now { text-style: reverse bold; }
    }
    """

    @dataclass
    class MarkRequested(Message):
        """Mark a call's result; marking it the same way again removes the mark."""

        call: CallRef
        helpful: bool

    @dataclass
    class SessionRequested(Message):
        """Open the transcript of a subagent's session."""

        session: str
        name: str

    search: "reactive[Search | None]" = reactive(None)
    _pointed: var[BlockItem | None] = var(None, bindings=True)
    has_news = var(False)
    """Whether something was added below the view while it does not follow the end."""

    def __init__(self) -> None:
        super().__init__()
        self.column = BlockColumn(self._changed)
        self._due = self._moving = self._stale = self._arrived = False
        self._shown_at = 0.0
        self._following = True
        self._anchor: Spot | None = None
        """The top of the view while it does not follow the end."""
        self._finished: dict[int, tuple[Strip, Strip]] = {}
        """Painted lines by number, and as they are sent to the screen; Textual's cache changes with every scroll."""
        self._look_of_finished: tuple[object, ...] = ()
        self._offered: CallRef | None = None
        """The call that the footer's keys can mark."""

    def clear(self) -> None:
        self._pointed = self._anchor = None
        self._following = True
        self.search = None
        self.column.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        base, ground = self.rich_style, self.background_colors[1]
        filters = self.get_line_filters()
        look = (base, ground, self.size.width, filters)
        if look != self._look_of_finished or len(self._finished) > _MAX_FINISHED_LINES:
            self._look_of_finished = look
            self._finished.clear()
        pointed = range(0)
        if self._cursor is not None and self.has_focus:
            pointed = self.column.span(self._cursor)
        strips: list[Strip] = []
        for at in (self.scroll_offset.y + y for y in crop.line_range):
            line = self.column.line(at)
            marks: list[tuple[int, int, Style]] = []
            if self.search is not None and (spot := self.column.spot(at)) is not None:
                for start, end, now in self.search.highlights(*spot):
                    marks.append((start, end, self._look("hit-now" if now else "hit")))
            selection = self.text_selection
            if selection is not None and (span := selection.get_span(at)) is not None:
                style = self.screen.get_component_rich_style("screen--selection")
                marks.append((max(span[0], line.lead), span[1], style))
            painted, strip = self._finished.get(at, (None, line.strip))
            if painted is not line.strip or marks or at in pointed:
                cursor = self._look("cursor") if at in pointed else None
                strip = finished(line.strip, at, self.size.width, base, marks, cursor)
                for line_filter in filters:
                    strip = strip.apply_filter(line_filter, ground)
                if not marks and cursor is None:
                    self._finished[at] = line.strip, strip
            strips.append(strip)
        if crop.column_span != (0, self.outer_size.width):
            return [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        return self.render_lines(Region(0, y, self.outer_size.width, 1))[0]

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without margins and signs and with wrapped lines joined.

        Blocks selected completely are returned as they were written.
        """
        first, start = selection.start.transpose if selection.start else (0, 0)
        last, end = selection.end.transpose if selection.end else (self.column.height, None)
        parts: list[str] = []
        for item in self.column.items:
            span = self.column.span(item)
            begins_inside = first < span.start or (first == span.start and start <= MARGIN)
            if span and begins_inside and span.stop <= last:
                parts += ["\n", item.full_text]  # not laid out, which would move what is below
                continue
            at = max(span.start, first)
            while at <= last and at in self.column.span(item):
                line = self.column.line(at)
                left = max(start if at == first else 0, line.lead)
                text = line.strip.text[left : end if at == last else None]
                parts += ["\n" if line.glue is None else line.glue, text.rstrip()]
                at += 1
        return "".join(parts[1:]), "\n"

    def notify_style_update(self) -> None:
        """Repaint in the new colours; Textual updates the component styles after this call."""
        super().notify_style_update()
        self.call_later(self.on_resize)

    def on_resize(self) -> None:
        """Repaint for another width or theme, the visible part at once."""
        width, painter_before = self.scrollable_content_region.width, self.column.painter
        grounds: dict[Ground, Style] = {}
        for ground in GROUNDS:
            full = self.get_component_rich_style(f"transcript--{ground}-line")
            grounds[ground] = Style(bgcolor=full.bgcolor)
        painter = Painter({tone: self._look(tone) for tone in TONES}, width, grounds)
        before = (painter_before.width, painter_before.styles, painter_before.grounds)
        if width and before != (width, painter.styles, grounds):
            self.column.repaint(painter)
            self._stale = True
        self._show()

    def _look(self, name: str) -> Style:
        """Colour and attributes of a component style, without its background."""
        full = self.get_component_rich_style(f"transcript--{name}")
        return Style(
            color=full.color,
            bold=full.bold,
            italic=full.italic,
            underline=full.underline,
            reverse=full.reverse,
        )

    # -- scrolling

    @property
    def _view(self) -> range:
        top = self.scroll_offset.y
        return range(top, top + self.scrollable_content_region.height)

    @contextmanager
    def filling(self) -> Generator[None]:
        """Defer drawing until the end, while many blocks are added."""
        due, self._due = self._due, True
        try:
            yield
        finally:
            self._due = due
            self._changed()

    def _changed(self, redraw_all: bool = True, arrived: bool = False) -> None:
        """Schedule an update; `redraw_all` is False if only streamed text was added."""
        self._stale = self._stale or redraw_all
        self._arrived = self._arrived or arrived
        if not self._due:
            self._due = True
            wait = self._shown_at + _REPAINT_INTERVAL - monotonic()
            if wait > 0:
                self.set_timer(wait, self._show)
            else:
                self.call_later(self._show)

    def _show(self) -> None:
        """Draw now: the end of the column, or from the line that was at the top before."""
        self._due, self._shown_at = False, monotonic()
        if not self.scrollable_content_region.width:
            return
        previous = (self.scroll_offset.y, self.virtual_size)
        first, height = self.column.catch_up(), self.scrollable_content_region.height
        if self._following:
            top = self.column.reveal_end(height)
        else:
            top = self.column.line_of(self._anchor) if self._anchor else 0
            self.column.reveal(top, height)
        self._fit(top)
        if self._stale or previous != (self.scroll_offset.y, self.virtual_size):
            self.refresh()
        elif first < self._view.stop:
            self.refresh_lines(first, self._view.stop - first)
        self.has_news = not self._following and (self.has_news or self._arrived)
        self._stale = self._arrived = False
        if self._offered != self._markable:  # judged while the cursor was on it
            self._offered = self._markable
            self.refresh_bindings()

    def _fit(self, top: int) -> None:
        """Adopt the column's height, and scroll to this line."""
        self._moving = True
        size = Size(self.scrollable_content_region.width, self.column.height)
        if size != self.virtual_size:
            # without the watchers, which would lay out the whole screen for every line
            self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]
            self._scroll_update(size)
        self.scroll_to(y=top, animate=False, immediate=True, force=True)
        self._moving = False
        self._anchor = self.column.spot(self.scroll_offset.y)
        self.column.release()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Paint lines that come into view; follow the end once it is reached, until the user scrolls up."""
        super().watch_scroll_y(old_value, new_value)
        if self._moving:
            return
        if new_value >= self.max_scroll_y:
            self._following, self.has_news = True, False
        elif new_value < old_value:
            self._following = False
        top, height = round(new_value), self.scrollable_content_region.height
        if self._following:
            top = self.column.reveal_end(height)
        elif 0 < old_value - new_value <= 3 * height:
            top += self.column.reveal_above(round(old_value), round(old_value) - top)
        self.column.reveal(top, height)
        self._fit(top)

    def action_scroll_to_line(self, top: int) -> None:
        """Scroll to a line, as far as the lines below it allow."""
        self.column.reveal(top, self.scrollable_content_region.height)
        self._fit(top)
        self._following = self.scroll_offset.y >= self.max_scroll_y
        self.has_news = self.has_news and not self._following
        self.refresh()

    def action_end(self) -> None:
        """Scroll to the last line and follow it."""
        self._following = True
        self._show()

    def action_page(self, by: int) -> None:
        self.scroll_relative(y=by * max(1, len(self._view) - 1), animate=False)

    # -- block cursor

    def action_cursor(self, by: int) -> None:
        """Move the block cursor; inside a block higher than the view, scroll half a page first."""
        items, view = self.column.items, self._view
        edge = self.column.spot(view.start if by > 0 else view.stop - 1)
        if edge is None:
            return
        here = self.column.span(self._cursor) if self._cursor else range(0)
        if self._cursor is None or not (here.start < view.stop and here.stop > view.start):
            item = edge.item
        elif (here.stop > view.stop) if by > 0 else (here.start < view.start):
            self.scroll_relative(y=by * max(1, len(view) // 2), animate=False)
            return
        else:
            item = items[min(max(self._cursor.index + by, 0), len(items) - 1)]
        self._pointed = item  # and scroll as much of it as fits into view
        self.column.reveal(self.column.span(item).start, len(view))
        lines, view = self.column.span(item), self._view
        if lines.start < view.start or len(lines) > len(view):
            self.action_scroll_to_line(lines.start)
        elif lines.stop > view.stop:
            self.action_scroll_to_line(lines.stop - len(view))
        self.refresh()

    def action_turn(self, by: int) -> None:
        items, top = self.column.items, self.column.spot(self.scroll_offset.y)
        if top is None:
            return
        at = (self._cursor or top.item).index
        ahead = items[at + 1 :] if by > 0 else items[:at][::-1]
        target = next((item for item in ahead if item.block.turn), None)
        if target is None:
            self.action_end() if by > 0 else self.action_scroll_to_line(0)
        else:
            self._pointed = target
            self.action_scroll_to_line(self.column.span(target).start)

    def action_fold(self, newest: bool = False, *, item: BlockItem | None = None) -> None:
        """Toggle the fold of a block: `item`, the newest foldable one, or the one under the cursor."""
        if newest:
            item = next((item for item in reversed(self.column.items) if item.block.foldable), None)
        elif item is None:
            item = self._cursor
        if item is not None and item.block.session[0]:
            self.post_message(self.SessionRequested(*item.block.session))
        elif item is not None and item.block.foldable:
            top = self.scroll_offset.y
            self.column.fold(item, opened=not item.opened)
            self.action_scroll_to_line(min(top, self.column.span(item).start))
        elif item is not None:
            self.post_message(Hint("Nothing is folded away in this block."))

    @property
    def _cursor(self) -> BlockItem | None:
        """The block under the cursor, unless it was removed."""
        return self._pointed if self._pointed is not None and self._pointed.index >= 0 else None

    @property
    def _markable(self) -> CallRef | None:
        """The call under the cursor if its result was judged."""
        return self._cursor.block.call if self._cursor is not None else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer marks only if the cursor is on a judged result."""
        return action != "mark" or self._markable is not None

    def action_mark(self, helpful: bool) -> None:
        if (call := self._markable) is not None:
            self.post_message(self.MarkRequested(call, helpful=helpful))

    def action_copy(self) -> None:
        if self._cursor is not None:
            self.app.copy_to_clipboard(self._cursor.full_text)  # pyright: ignore[reportUnknownMemberType]
            self.post_message(Hint("The block is copied."))

    def on_click(self, event: Click) -> None:
        """Open a link or a fold; otherwise move the cursor to the block, and toggle its fold if it was there."""
        at = self.scroll_offset.y + event.get_content_offset_capture(self).y
        spot = self.column.spot(at)
        if self.text_selection is not None or spot is None or at >= self.column.height:
            return
        if event.style.link:
            self.app.open_url(event.style.link)  # pyright: ignore[reportUnknownMemberType]
        elif self.column.line(at).folds or spot.item is self._cursor:
            self.action_fold(item=spot.item)
        else:
            self._pointed = spot.item
            self.refresh()

    # -- search

    def action_search(self) -> None:
        from ecoshell.tui.transcript.search import SearchBar  # not needed for the first frame

        fields = self.screen.query("SearchBar Input")
        if fields:
            fields.first().focus()
        else:
            row = next(node for node in self.ancestors_with_self if node.parent is self.screen)
            self.screen.mount(SearchBar(self), after=cast("Widget", row))

    def action_go_to_match(self, by: int) -> None:
        line = self.search.move(by) if self.search else None
        if line is not None:
            self._following = False
            if line not in self._view:
                self.action_scroll_to_line(max(0, line - len(self._view) // 3))
            self.refresh()
