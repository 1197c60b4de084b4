"""The transcript: what was asked, thought, called and answered, as lines that cost nothing while off screen."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive, var
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from ecoshell.tui.keys import Hint
from ecoshell.tui.transcript.blocks import TONES, CallRef
from ecoshell.tui.transcript.column import BlockColumn, BlockItem, Spot
from ecoshell.tui.transcript.painting import MARGIN, Finish, Painter

if TYPE_CHECKING:
    from ecoshell.tui.transcript.search import Search

_REPAINT = 1 / 22
"""Seconds between two paintings of what arrives, at least."""
_AHEAD = 0.1
"""Seconds of quiet before what is near the screen is painted ahead."""
_SLICE = 0.006
"""Seconds of painting ahead in one go."""


class Transcript(ScrollView, can_focus=True):
    """A view of a column of blocks that can be pointed at, opened, marked, copied and searched.

    It stays at the column's end for as long as it is there.
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
        Binding("n", "found(1)", "Next hit", show=False),
        Binding("N", "found(-1)", "Hit before", show=False),
        Binding("ctrl+o", "fold(True)", "Open or fold the newest", show=False),
        Binding("home", "stand(0)", "First line", show=False),
        Binding("end", "end", "Last line", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("escape", "app.focus('prompt')", "prompt"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"transcript--{tone}" for tone in TONES),
        "transcript--cursor",
        "transcript--hit",
        "transcript--hit-now",
    }
    HELP = (
        "What was asked, thought, called and answered. Up and down (j, k) move from block to block, [ and ] from turn "
        "to turn, enter opens or folds a long one, y copies it, / searches, n and N go from hit to hit, esc goes back "
        "to the prompt. On a call, + and - mark its result as helpful or unhelpful, which outweighs any judge when "
        "turns are planned; the same key again takes the mark back."
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
        .transcript--cursor { color: $accent; text-style: bold; }
        .transcript--hit { color: $warning; text-style: underline; }
        .transcript--hit-now { text-style: reverse bold; }
    }
    """

    @dataclass
    class MarkWanted(Message):
        """The person says whether a call's result helped; the same word twice takes it back."""

        call: CallRef
        helpful: bool

    search: "reactive[Search | None]" = reactive(None)
    _pointed: var[BlockItem | None] = var(None, bindings=True)
    news = var(False)
    """Whether something has arrived below what is seen, while the view does not follow the end."""

    def __init__(self) -> None:
        super().__init__()
        self.column = BlockColumn(self._changed)
        self._due = self._ahead_due = self._moving = self._stale = self._arrived = False
        self._shown_at = 0.0
        self._following = True
        self._anchor: Spot | None = None
        """What stands at the top of the view while it does not follow the end."""
        self._finish = Finish(Style(), 0, Color(0, 0, 0), ())
        self._offered: CallRef | None = None
        """The call that the keys in the footer can mark."""

    def clear(self) -> None:
        self._pointed = self._anchor = None
        self._following = True
        self.search = None
        self.column.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        look = Finish(self.rich_style, self.size.width, self.background_colors[1], self.get_line_filters())
        finish = self._finish = self._finish if self._finish == look else look
        pointed = self.column.span(self._cursor) if self._cursor is not None and self.has_focus else range(0)
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
            strips.append(finish.line(at, line.strip, marks, self._look("cursor") if at in pointed else None))
        if crop.column_span != (0, self.outer_size.width):
            return [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        return self.render_lines(Region(0, y, self.outer_size.width, 1))[0]

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """What stands between two places, without margins and signs, and with wrapped lines in one piece again.

        Blocks that are selected whole are given as they were written.
        """
        first, start = (selection.start.y, selection.start.x) if selection.start else (0, 0)
        last, end = (selection.end.y, selection.end.x) if selection.end else (self.column.height, None)
        parts: list[str] = []
        for item in self.column.items:
            span = self.column.span(item)
            if span and first <= span.start and span.stop <= last and (first < span.start or start <= MARGIN):
                parts += ["\n", item.whole]  # and nothing of it is laid out, which would move what is below
                continue
            at = max(span.start, first)
            while at <= last and at in self.column.span(item):
                line = self.column.line(at)
                text = line.strip.text[max(start if at == first else 0, line.lead) : end if at == last else None]
                parts += ["\n" if line.glue is None else line.glue, text.rstrip()]
                at += 1
        return "".join(parts[1:]), "\n"

    def notify_style_update(self) -> None:
        """Paint everything in the new colours, which Textual gives the components after it has called this."""
        super().notify_style_update()
        self.call_later(self.on_resize)

    def on_resize(self) -> None:
        """Paint at another width or in other colours what is seen at once, and the rest when it is looked at."""
        width, before = self.scrollable_content_region.width, self.column.painter
        painter = Painter({tone: self._look(tone) for tone in TONES}, width)
        if width and (before.width, before.styles) != (width, painter.styles):
            self.column.repaint(painter)
            self._stale = True
        self._show()

    def _look(self, name: str) -> Style:
        """Colour and attributes of a component; the background is the transcript's own."""
        full = self.get_component_rich_style(f"transcript--{name}")
        return Style(
            color=full.color, bold=full.bold, italic=full.italic, underline=full.underline, reverse=full.reverse
        )

    # -- standing at a line

    @property
    def _view(self) -> range:
        return range(self.scroll_offset.y, self.scroll_offset.y + self.scrollable_content_region.height)

    @contextmanager
    def filling(self) -> Generator[None]:
        """Show nothing of what is put meanwhile until the end: for a long session that is told in one go."""
        due, self._due = self._due, True
        try:
            yield
        finally:
            self._due = due
            self._changed()

    def _changed(self, whole: bool = True, arrived: bool = False) -> None:
        """Show what has changed, soon, at most 22 times a second; not the whole when only text was streamed."""
        self._stale = self._stale or whole
        self._arrived = self._arrived or arrived
        if not self._due:
            self._due = True
            wait = self._shown_at + _REPAINT - monotonic()
            if wait > 0:
                self.set_timer(wait, self._show)
            else:
                self.call_later(self._show)

    def _show(self) -> None:
        """Show as much as there is: the end, or what stood at the top before."""
        self._due, self._shown_at = False, monotonic()
        if not self.scrollable_content_region.width:
            return
        before = (self.scroll_offset.y, self.virtual_size)
        first, height = self.column.catch_up(), self.scrollable_content_region.height
        if self._following:
            top = self.column.reveal_end(height)
        else:
            top = self.column.line_of(self._anchor) if self._anchor else 0
            self.column.reveal(top, height)
        self._fit(top)
        if self._stale or before != (self.scroll_offset.y, self.virtual_size):
            self.refresh()
        elif first < self._view.stop:
            self.refresh_lines(first, self._view.stop - first)
        self.news = not self._following and (self.news or self._arrived)
        self._stale = self._arrived = False
        if self._offered != self._markable:  # it was judged while the cursor was on it
            self._offered = self._markable
            self.refresh_bindings()

    def _fit(self, top: int) -> None:
        """Take the column's height as the content's, and stand at this line of it."""
        self._moving = True
        size = Size(self.scrollable_content_region.width, self.column.height)
        if size != self.virtual_size:
            # without its watchers, which would have the whole screen laid out again for every line
            self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]
            self._scroll_update(size)
        self.scroll_to(y=top, animate=False, immediate=True, force=True)
        self._moving = False
        self._anchor = self.column.spot(self.scroll_offset.y)
        if not self._ahead_due:
            self._ahead_due = True
            self.set_timer(_AHEAD, self._paint_ahead)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Paint what has come into view; follow the end from when it is reached until the view moves up from it."""
        super().watch_scroll_y(old_value, new_value)
        if self._moving:
            return
        if new_value >= self.max_scroll_y:
            self._following, self.news = True, False
        elif new_value < old_value:
            self._following = False
        top, height = round(new_value), self.scrollable_content_region.height
        if self._following:
            top = self.column.reveal_end(height)
        elif 0 < old_value - new_value <= 3 * height:
            top += self.column.reveal_above(round(old_value), round(old_value) - top)[0]
        self.column.reveal(top, height)
        self._fit(top)

    def _paint_ahead(self) -> None:
        """Paint what is a screen or two away, so that scrolling finds it; the lines in view stay where they are."""
        self._ahead_due = False
        until, top, height = perf_counter() + _SLICE, self.scroll_offset.y, self.scrollable_content_region.height
        more, done = self.column.reveal_above(top, 2 * height, until)
        done = self.column.reveal(top + more, 3 * height, until) and done
        self.column.forget_far(top + more, height)
        if more or self.column.height != self.virtual_size.height:
            self._fit(top + more)
        if not done and not self._ahead_due:
            self._ahead_due = True
            self.set_timer(_REPAINT, self._paint_ahead)

    def action_stand(self, top: int) -> None:
        """Stand at a line, as exactly as the lines below it allow."""
        self.column.reveal(top, self.scrollable_content_region.height)
        self._fit(top)
        self._following = self.scroll_offset.y >= self.max_scroll_y
        self.news = self.news and not self._following
        self.refresh()

    def action_end(self) -> None:
        """Go to the last line, and follow it."""
        self._following = True
        self._show()

    def action_page(self, by: int) -> None:
        self.scroll_relative(y=by * max(1, self.scrollable_content_region.height - 1), animate=False)

    # -- moving about

    def action_cursor(self, by: int) -> None:
        """Move the block cursor; in a block that is higher than the view, move by half a page first."""
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
        self._pointed = item  # as much of it is brought into view as there is room for
        self.column.reveal(self.column.span(item).start, len(view))
        lines, view = self.column.span(item), self._view
        if lines.start < view.start or len(lines) > len(view):
            self.action_stand(lines.start)
        elif lines.stop > view.stop:
            self.action_stand(lines.stop - len(view))
        self.refresh()

    def action_turn(self, by: int) -> None:
        items, top = self.column.items, self.column.spot(self.scroll_offset.y)
        if top is None:
            return
        at = (self._cursor or top.item).index
        ahead = items[at + 1 :] if by > 0 else items[:at][::-1]
        found = next((item for item in ahead if item.block.turn), None)
        if found is None:
            self.action_end() if by > 0 else self.action_stand(0)
        else:
            self._pointed = found
            self.action_stand(self.column.span(found).start)

    def action_fold(self, newest: bool = False, *, item: BlockItem | None = None) -> None:
        """Open or fold this block, or the newest that can be, or the one under the cursor; its beginning is in view."""
        if newest:
            item = next((item for item in reversed(self.column.items) if item.block.foldable), None)
        elif item is None:
            item = self._cursor
        if item is not None and item.block.foldable:
            top = self.scroll_offset.y
            self.column.fold(item, opened=not item.opened)
            self.action_stand(min(top, self.column.span(item).start))
        elif item is not None:
            self.post_message(Hint("Nothing is folded away in this block."))

    @property
    def _cursor(self) -> BlockItem | None:
        """The block that the cursor is on, for as long as it is there."""
        return self._pointed if self._pointed is not None and self._pointed.index >= 0 else None

    @property
    def _markable(self) -> CallRef | None:
        """The call under the cursor, if its result was judged."""
        return self._cursor.block.call if self._cursor is not None and self._cursor.block.judged else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to mark only where the cursor is on a result that was judged."""
        return action != "mark" or self._markable is not None

    def action_mark(self, helpful: bool) -> None:
        if (call := self._markable) is not None:
            self.post_message(self.MarkWanted(call, helpful=helpful))

    def action_copy(self) -> None:
        if self._cursor is not None:
            self.app.copy_to_clipboard(self._cursor.whole)  # pyright: ignore[reportUnknownMemberType]
            self.post_message(Hint("The block is copied."))

    def on_click(self, event: Click) -> None:
        """Open a link, or what is folded; else put the cursor on the block, and fold it with the next click."""
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

    # -- searching

    def action_search(self) -> None:
        from ecoshell.tui.transcript.search import SearchBar  # it is not needed for the first frame

        fields = self.screen.query("SearchBar Input")
        if fields:
            fields.first().focus()
        else:
            row = next(node for node in self.screen.children if self in node.walk_children(with_self=True))
            self.screen.mount(SearchBar(self), after=row)

    def action_found(self, by: int) -> None:
        line = self.search.move(by) if self.search else None
        if line is not None:
            self._following = False
            if line not in self._view:
                self.action_stand(max(0, line - len(self._view) // 3))
            self.refresh()
