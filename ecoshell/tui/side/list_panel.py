"""A panel with a list in it, which keys and the mouse move through and a filter narrows."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic

from textual.binding import Binding, BindingType
from textual.events import Click, Key, Paste, Resize
from textual.geometry import Size
from textual.strip import Strip

from ecoshell.tui.side.board import Board
from ecoshell.tui.side.listing import Item, Listing
from ecoshell.tui.side.panel import Panel
from ecoshell.tui.side.sheet import Line, plain
from ecoshell.untrusted import visible_line

FILTER = Binding("slash", "filter", "filter", key_display="/")
"""For panels to put among their own keys."""
COMFORTABLE = 14
"""Items a panel would like to show, where there is no more room than needed."""
_ROOMY_FROM = 8
"""Lines of the panel from which on more than the list and a line above it are shown."""
_LONGEST_FILTER = 100


class ListPanel(Panel, Generic[Item]):
    """A list between some lines above it and some below; only what is in view is drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home,g", "end(-1)", "first", show=False),
        Binding("end,G", "end(1)", "last", show=False),
    ]

    def __init__(self, board: Board, items: Listing[Item]) -> None:
        self.list = items
        self._typing = False
        self._below: list[Line] = []
        self._asked_for = 0
        """The lines it wanted when it was drawn last."""
        super().__init__(board)

    @abstractmethod
    def known(self) -> Sequence[Item]:
        """Everything that can be listed, from the board."""

    @abstractmethod
    def above(self, width: int) -> list[Line]:
        """What stands above the list."""

    @abstractmethod
    def item_line(self, item: Item, width: int) -> Line:
        """An item in a line."""

    @abstractmethod
    def about(self, item: Item, width: int) -> list[Line]:
        """What is said below the list of the highlighted item."""

    @abstractmethod
    def open_item(self, item: Item) -> None:
        """Ask for more of an item than there is room for."""

    def nothing(self) -> str:
        """What is said while there is nothing to list."""
        return ""

    def below(self, width: int) -> list[Line]:
        """What stands below the list."""
        item = self.list.current
        return self.about(item, width) if item is not None and self.has_focus and self.roomy else []

    @property
    def roomy(self) -> bool:
        """Whether there is room for more than the list and a line above it."""
        return self._area.height >= _ROOMY_FROM

    @property
    def text(self) -> str:
        listed = (self.item_line(item, self._area.width) for item in self.list.shown)
        return plain([*self._lines, *listed, *self._below])

    def lines(self, width: int) -> list[Line]:
        """What stands above the list, the filter and what it leaves included."""
        lines = self.above(width)
        if self._typing or self.list.filter:
            lines.append(self._filter_line(width))
        said = "" if self.list.shown else "nothing fits" if self.list.items else self.nothing()
        return [*lines, ((said, "muted"),)] if said else lines

    def show(self) -> None:
        """Draw what is on the board now; the highlight, the filter and the place in the list stay."""
        self.list.put(self.known(), hold=self.has_focus)
        self._draw()

    def render_line(self, y: int) -> Strip:
        width, height = self._area
        if y < len(self._lines):
            return self.strip(self._lines[y])
        if y >= height - len(self._below):
            return self.strip(self._below[y - height])
        at = y - len(self._lines) + self.scroll_offset.y
        if at >= len(self.list.shown):
            return self.strip(())
        marked = self.has_focus and at == self.list.highlighted
        return self.strip(self.item_line(self.list.shown[at], width), marked=marked)

    def action_move(self, by: int) -> None:
        """Move the highlight."""
        self._typing = False
        self.list.move(by)
        self._draw(follow=True)

    def action_page(self, by: int) -> None:
        """Move the highlight by what is in view."""
        self.action_move(by * max(1, self._room))

    def action_end(self, by: int) -> None:
        """Move the highlight to the first item or the last."""
        self.action_move(by * len(self.list.shown))

    def action_filter(self) -> None:
        """Take what is typed from now on as a filter."""
        self._typing = True
        self._draw()

    def action_open(self) -> None:
        """Ask for more of the highlighted item."""
        self._typing = False
        self._draw()
        if self.list.current is not None:
            self.open_item(self.list.current)

    def action_leave(self) -> None:
        """Take the filter away; without one, go back to where the person came from."""
        if self._typing or self.list.filter:
            self._typing = False
            self._narrow("")
        else:
            super().action_leave()

    def on_click(self, event: Click) -> None:
        """Highlight the item under the mouse; a second click asks for more of it."""
        y = event.y - 1 - len(self._lines)
        at = y + self.scroll_offset.y
        if 0 <= y < self._room and at < len(self.list.shown):
            self.list.to(at)
            self._draw()
            if event.chain > 1:
                self.action_open()

    def on_resize(self, event: Resize) -> None:
        """Set the list to the new size, the highlight in view."""
        event.prevent_default()
        self._draw(follow=self.has_focus)

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show what is highlighted; afterwards, put in order what was kept in its place under the person's hand."""
        super().watch_has_focus(has_focus)
        if not has_focus:
            self._typing = False
            self.list.sort()
        self._draw(follow=has_focus)

    def on_paste(self, event: Paste) -> None:
        """Filter by what is pasted."""
        if self._typing:
            event.stop()
            self._narrow(self.list.filter + visible_line(event.text))

    async def _on_key(self, event: Key) -> None:
        if self._typing and self._type(event):
            event.stop()
            event.prevent_default()  # else the panel's own keys follow

    def _type(self, event: Key) -> bool:
        """Let a key change the filter; says whether it did."""
        typed = self.list.filter
        if event.is_printable and event.character:
            self._narrow(typed + event.character)
        elif event.key == "backspace":
            self._typing = bool(typed)
            self._narrow(typed[:-1])
        elif event.key == "ctrl+u":
            self._narrow("")
        else:
            return False
        return True

    def _narrow(self, typed: str) -> None:
        self.list.narrow(typed[:_LONGEST_FILTER])
        self._draw(follow=True)

    def _filter_line(self, width: int) -> Line:
        fits = f" {len(self.list.shown)} fit" if self.list.filter and self.list.shown else ""
        typed = visible_line(self.list.filter) if self.list.filter.strip() else self.list.filter
        room = width - 3 - len(fits)
        cursor = "▏" if self._typing else ""
        return (("/ ", "accent"), (f"{typed[-room:] if room > 0 else ''}{cursor}", "strong"), (fits, "muted"))

    @property
    def _room(self) -> int:
        """Items in view."""
        return self._area.height - len(self._lines) - len(self._below)

    def _draw(self, *, follow: bool = False) -> None:
        """Draw the list as it stands; with `follow`, have the highlight in view."""
        self._show_title()
        self._area = self.scrollable_content_region.size
        self._lines = self.lines(self._area.width)
        self._below = self.below(self._area.width)
        around = self._area.height - self._room
        self.virtual_size = Size(0, around + len(self.list.shown))
        asked_for, self._asked_for = self._asked_for, self.wanted
        self.refresh(layout=asked_for != self._asked_for)
        if not follow:
            return
        at, top, room = self.list.highlighted, self.scroll_offset.y, max(1, self._room)
        if not top <= at < top + room:
            self.scroll_to(y=at if at < top else at - room + 1, animate=False, force=True)
