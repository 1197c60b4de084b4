"""The transcript: what was asked, thought, called and answered, as lines that cost nothing while off screen."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.events import Click, Resize
from textual.geometry import Region
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from ecoshell.tui.transcript.blocks import TONES, Block, CallRef, Piece, Tone
from ecoshell.tui.transcript.column import STREAM
from ecoshell.tui.transcript.copying import selected
from ecoshell.tui.transcript.finish import Finish
from ecoshell.tui.transcript.item import Item
from ecoshell.tui.transcript.marks import Highlights, marked, with_cursor
from ecoshell.tui.transcript.painter import Painter
from ecoshell.tui.transcript.viewport import Viewport

if TYPE_CHECKING:
    from ecoshell.tui.transcript.finding import Search


class Transcript(Viewport, can_focus=True):
    """A column of blocks that can be pointed at, opened, marked, copied and searched."""

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
        Binding("ctrl+o", "fold_newest", "Open or fold the newest", show=False),
        Binding("home", "home", "First line", show=False),
        Binding("end", "end", "Last line", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("escape", "app.prompt", "prompt"),
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

    class Hint(Message):
        """Something to tell the person where hints are shown."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class MarkWanted(Message):
        """The person says whether a call's result helped; the same word twice takes it back."""

        def __init__(self, call: CallRef, *, helpful: bool) -> None:
            super().__init__()
            self.call = call
            self.helpful = helpful

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name for it
        super().__init__(id=id)
        self._finish = Finish(Style(), 0, Color(0, 0, 0), ())
        self._cursor: Item | None = None
        self._search: Search | None = None
        self._highlights: Highlights | None = None

    @property
    def text(self) -> str:
        """Everything in it, without looks."""
        return self._column.plain

    def add(self, *blocks: Block) -> None:
        """Close what is open and put finished blocks below."""
        self._column.add(*blocks)
        self._changed(arrived=True)

    def insert(self, *blocks: Block) -> None:
        """Put finished blocks above what is open."""
        self._column.insert(*blocks)
        self._changed(arrived=True)

    def open(self, block: Block, key: str = STREAM) -> None:
        """Put a block that is replaced when its key is settled."""
        self._column.open(block, key)
        self._changed(arrived=True)

    def stream(self, text: str, sign: str, tone: Tone) -> None:
        """Add streamed text to the open end."""
        self._column.stream(text, sign, tone)
        self._changed(whole=False, arrived=True)

    def settle(self, block: Block | None = None, key: str = STREAM) -> None:
        """Close what is open under this key: as this block or, without one, as it stands."""
        self._column.settle(block, key)
        self._changed(arrived=block is not None)

    def judge(self, call: CallRef, verdict: tuple[Piece, ...]) -> None:
        """Show what was thought of a call's result, beside it."""
        self._column.judge(call, verdict)
        self._changed()
        self.refresh_bindings()  # the cursor may be on it, and it can be marked now

    def redraw(self, block: Block) -> None:
        """Put a block in the place of the one of its name."""
        self._column.redraw(block)
        self._changed()

    def drop(self, key: str = STREAM) -> None:
        """Take away what is open under this key."""
        self._column.drop(key)
        self._changed()

    def clear(self) -> None:
        """Take everything away."""
        self._column.clear()
        self._cursor = self._anchor = None
        self._following = True
        self.end_search()
        self._changed()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Some lines of the view, for Textual's compositor."""
        look = Finish(self.rich_style, self.size.width, self.background_colors[1], self.get_line_filters())
        finish = self._finish = self._finish if self._finish == look else look
        strips = [self._line(finish, self.scroll_offset.y + y) for y in crop.line_range]
        if crop.column_span != (0, self.outer_size.width):
            return [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """One line of the view, from edge to edge."""
        return self.render_lines(Region(0, y, self.outer_size.width, 1))[0]

    def _line(self, finish: Finish, at: int) -> Strip:
        line = self._column.line(at)
        marks = list(self._marks(at, line.lead))
        pointed = self._cursor is not None and self.has_focus and at in self._column.span(self._cursor)
        if not marks and not pointed:
            return finish.line(at, line.strip)
        strip = marked(finish.extended(line.strip), marks)
        return finish.padded(at, with_cursor(strip, finish.base + self._look("cursor")) if pointed else strip)

    def _marks(self, at: int, lead: int) -> Iterator[tuple[int, int, Style]]:
        if self._highlights is not None and (spot := self._column.spot(at)) is not None:
            for start, end, now in self._highlights.on(*spot):
                yield start, end, self._look("hit-now" if now else "hit")
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(at)) is not None:
            yield max(span[0], lead), span[1], self.screen.get_component_rich_style("screen--selection")

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, for copying."""
        return selected(self._column, selection), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Show the selection as it is now."""
        self.refresh()

    def notify_style_update(self) -> None:
        """Paint everything in the new colours, which Textual gives the components after it has called this."""
        super().notify_style_update()
        self.call_later(self._repaint)

    def on_resize(self, event: Resize) -> None:
        """Wrap everything at the new width, what is seen at once and the rest when it is looked at."""
        if not self._repaint():
            self._show()

    def _repaint(self) -> bool:
        """Paint anew if the width or the colours have changed; says whether they have."""
        width, before = self.scrollable_content_region.width, self._column.painter
        painter = Painter({tone: self._look(tone) for tone in TONES}, width)
        if not width or (before is not None and before.paints_like(painter)):
            return False
        self._column.repaint(painter)
        self._stale = True
        self._show()
        return True

    def _look(self, name: str) -> Style:
        """Colour and attributes of a component; the background is the transcript's own."""
        full = self.get_component_rich_style(f"transcript--{name}")
        return Style(
            color=full.color, bold=full.bold, italic=full.italic, underline=full.underline, reverse=full.reverse
        )

    def on_focus(self) -> None:
        """Show the block cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Hide the block cursor."""
        self.refresh()

    # -- moving about

    def action_cursor(self, by: int) -> None:
        """Move the block cursor; in a block that is higher than the view, move by half a page first."""
        items, view = self._column.items, self._view
        at = items.index(self._cursor) if self._cursor in items else -1
        here = self._column.span(items[at]) if at >= 0 else range(0)
        if not items:
            return
        if not (here.start < view.stop and here.stop > view.start):
            item = self._column.at(view.start if by > 0 else view.stop - 1)
        elif (here.stop > view.stop) if by > 0 else (here.start < view.start):
            self.scroll_relative(y=by * max(1, len(view) // 2), animate=False)
            return
        else:
            item = items[min(max(at + by, 0), len(items) - 1)]
        self._point_at(item)

    def action_turn(self, by: int) -> None:
        """Go to where the turn before or after begins."""
        items = self._column.items
        if not items:
            return
        here = self._cursor if self._cursor in items else self._column.at(self.scroll_offset.y)
        at = items.index(here)
        ahead = items[at + 1 :] if by > 0 else items[:at][::-1]
        found = next((item for item in ahead if item.block.turn), None)
        if found is None:
            self.action_end() if by > 0 else self.action_home()
        else:
            self._put_cursor(found)
            self._stand(self._column.span(found).start)

    def action_fold(self) -> None:
        """Open or fold the block under the cursor."""
        if self._cursor is not None:
            self._fold(self._cursor)

    def action_fold_newest(self) -> None:
        """Open or fold the newest block that can be."""
        found = next((item for item in reversed(self._column.items) if item.block.foldable), None)
        if found is not None:
            self._fold(found)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to mark only where the cursor is on a result that was judged."""
        return action != "mark" or (self._cursor is not None and self._cursor.block.markable is not None)

    def action_mark(self, helpful: bool) -> None:
        """Say whether the result under the cursor helped."""
        call = self._cursor.block.markable if self._cursor is not None else None
        if call is not None:
            self.post_message(self.MarkWanted(call, helpful=helpful))

    def action_copy(self) -> None:
        """Copy the block under the cursor."""
        if self._cursor is not None:
            self.app.copy_to_clipboard(self._cursor.whole)  # pyright: ignore[reportUnknownMemberType]
            self.post_message(self.Hint("The block is copied."))

    def on_click(self, event: Click) -> None:
        """Open a link, or what is folded; else put the cursor on the block, and fold it with the next click."""
        at = self.scroll_offset.y + event.get_content_offset_capture(self).y
        if self.text_selection is not None or not self._column.items or at >= self._column.height:
            return
        item = self._column.at(at)
        if event.style.link:
            self.app.open_url(event.style.link)  # pyright: ignore[reportUnknownMemberType]
        elif self._column.line(at).folds or item is self._cursor:
            self._fold(item)
        else:
            self._put_cursor(item)
            self.refresh()

    def _point_at(self, item: Item) -> None:
        """Put the cursor on a block, and bring as much of it into view as there is room for."""
        self._put_cursor(item)
        height = self.scrollable_content_region.height
        self._column.reveal(self._column.span(item).start, height)
        lines, view = self._column.span(item), self._view
        if lines.start < view.start or len(lines) > height:
            self._stand(lines.start)
        elif lines.stop > view.stop:
            self._stand(lines.stop - height)
        self.refresh()

    def _put_cursor(self, item: Item) -> None:
        self._cursor = item
        self.refresh_bindings()

    def _fold(self, item: Item) -> None:
        """Open or fold a block, its beginning staying in view."""
        if not item.block.foldable:
            self.post_message(self.Hint("Nothing is folded away in this block."))
            return
        top = self.scroll_offset.y
        self._column.fold(item, opened=not item.opened)
        self._stand(min(top, self._column.span(item).start))

    # -- searching

    def action_search(self) -> None:
        """Show the search bar."""
        from ecoshell.tui.transcript.search import SearchBar  # it is not needed for the first frame

        bars = self.screen.query(SearchBar)
        if bars:
            bars.first().focus_input()
        else:
            row = next(node for node in self.screen.children if self in node.walk_children(with_self=True))
            self.screen.mount(SearchBar(self), after=row)

    def search_for(self, text: str) -> "Search":
        """A new search, its hits shown as they are found."""
        from ecoshell.tui.transcript.finding import Search  # no first frame waits for it

        self._search = Search(text, self._column)
        if spot := self._column.spot(self.scroll_offset.y):
            self._search.begin_at = spot.item
        self._highlights = Highlights(self._search)
        self.refresh()
        return self._search

    def end_search(self) -> None:
        """Show no hits any more."""
        self._search = self._highlights = None
        self.refresh()

    def action_found(self, by: int) -> None:
        """Go to the hit after or before."""
        line = self._search.move(by) if self._search else None
        if line is not None:
            self._following = False
            self.go_to(line, context=self.scrollable_content_region.height // 3)
            self.refresh()
