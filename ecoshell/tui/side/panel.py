"""A panel: a title line that folds it, and lines below that scroll where they must; with a list in it, or without."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar, get_args

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, Key, Paste, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ecoshell.tui.fuzzy import best
from ecoshell.tui.keys import KeysInOrder
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.text import fit, left
from ecoshell.untrusted import visible_line

Tone = Literal["text", "strong", "muted", "tool", "good", "warning", "error", "marked"]
TONES: tuple[Tone, ...] = get_args(Tone)
Piece = tuple[str, Tone]
Line = tuple[Piece, ...]
Item = TypeVar("Item")
_LABEL = 11
FILTER = Binding("slash", "filter", "filter", key_display="/")
"""For panels to put among their own keys."""
COMFORTABLE = 14
"""Items a panel would like to show, where there is no more room than needed."""
_ROOMY_FROM = 8
"""Lines of the panel from which on more than the list and a line above it are shown."""
_LONGEST_FILTER = 100


@dataclass
class ToolWanted(Message):
    """The person wants a tool's schema, why its row in the plan is as it is, or to have it registered or not."""

    tool: str
    what: Literal["schema", "why", "register", "unregister"]


class Panel(KeysInOrder, ScrollView, can_focus=True):
    """Lines drawn from the state; drawn anew only when they have changed."""

    NAME: ClassVar[str]
    """Its name in the kept arrangement, and in capitals its title."""
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
        .panel--tool { color: $primary; }
        .panel--good { color: $success; }
        .panel--warning { color: $warning; }
        .panel--error { color: $error; text-style: bold; }
        .panel--marked { color: $block-cursor-foreground; background: $block-cursor-background; }
        &:focus { border-top: heavy $primary; }
    }
    """

    folded = reactive(False, layout=True)

    class Left(Message):
        """The person wants back to where they came from."""

    class Refolded(Message):
        """The panel was folded or unfolded by the person."""

    def __init__(self, state: PanelState) -> None:
        super().__init__()
        self.state = state
        self.title = ""
        """The title line, without looks."""
        self._lines: list[Line] = []
        self._styles: dict[Tone | None, Style] = {}
        self._area = Size(0, 0)
        """The room for lines, as it was when they were drawn."""

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

    def watch_folded(self) -> None:
        self.show()

    def show(self) -> None:
        """Draw what is on the state now; nothing is done where that is what is shown already."""
        self.show_title()
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
        at = self.scroll_offset.y + y
        return self.strip(self._lines[at] if at < len(self._lines) else ())

    def strip(self, line: Line, *, marked: bool = False) -> Strip:
        """A line in the panel's colours, as wide as the panel; a marked one stands out."""
        if not self._styles:
            base = self.rich_style
            self._styles = {None: base}
            for tone in TONES:  # only what is marked has a background of its own
                full = self.get_component_rich_style(f"panel--{tone}")
                self._styles[tone] = base + (full if tone == "marked" else Style(color=full.color, bold=full.bold))
        pieces = [Segment(text, self._styles["marked" if marked else tone]) for text, tone in line]
        return Strip(pieces).adjust_cell_length(self._area.width, self._styles["marked" if marked else None])

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = {}

    def action_fold(self) -> None:
        self.folded = not self.folded
        self.post_message(self.Refolded())

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def on_click(self, event: Click) -> None:
        if event.y == 0:
            self.action_fold()

    def on_resize(self, event: Resize) -> None:
        self.show()

    def show_title(self) -> None:
        sign = "►" if self.folded else "▼"
        gist = visible_line(self.gist())
        name, rest = f" {sign} {self.NAME.upper()} ", f" {gist} " if gist else ""
        if name + rest != self.title:
            self.title = name + rest
            self.border_title = Content.assemble((name, "bold"), (rest, "$foreground"))


class Listing(Generic[Item]):
    """Items by their names; while the order is held, none moves under the person's hand."""

    def __init__(
        self,
        name: Callable[[Item], str],
        rank: Callable[[Item], int] = lambda _: 0,
        common: Callable[[Item], bool] = lambda _: True,
    ) -> None:
        """`name` tells items apart; those of a lower `rank` come first, the others in the order they are put in; what
        is not `common` is shown only where a filter finds it."""
        self.filter = ""
        """What the names shown must fit, the best fit first; empty shows all."""
        self.shown: Sequence[Item] = ()
        self.highlighted = 0
        self.name = name
        self._rank = rank
        self._common = common
        self._items: dict[str, Item] = {}
        self._order: list[str] = []

    @property
    def items(self) -> Sequence[Item]:
        """Everything that is known, shown or not."""
        return [*self._items.values()]

    @property
    def current(self) -> Item | None:
        return self.shown[self.highlighted] if self.shown else None

    def put(self, items: Sequence[Item], *, hold: bool) -> None:
        """Take over what is known now; with `hold`, those already listed stay where they are."""
        self._items = {self.name(item): item for item in items}
        listed = dict.fromkeys(name for name in self._order if hold and name in self._items)
        others = (name for name in self._items if name not in listed)
        self._order = [*listed, *sorted(others, key=lambda name: self._rank(self._items[name]))]
        self._list()

    def narrow(self, typed: str) -> None:
        """Show only what fits; the highlight goes to the best."""
        self.filter = typed
        self._list()
        self.highlighted = 0

    def to(self, at: int) -> None:
        """Put the highlight here, or at the nearer end."""
        self.highlighted = max(0, min(at, len(self.shown) - 1))

    def _list(self) -> None:
        """Show what fits; the highlight stays on its item wherever that is now."""
        held = None if self.current is None else self.name(self.current)
        items = [self._items[name] for name in self._order]
        if self.filter.strip():
            items, _ = best(self.filter, ((self.name(item).lower(), item) for item in items), len(items))
        else:
            items = [*filter(self._common, items)]
        self.shown = items
        at = next((at for at, item in enumerate(items) if self.name(item) == held), None)
        self.to(self.highlighted if at is None else at)


class ListPanel(Panel, Generic[Item]):
    """A list between some lines above it and some below; only what is in view is drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "move(-1, 'page')", "page up", show=False),
        Binding("pagedown", "move(1, 'page')", "page down", show=False),
        Binding("home,g", "move(-1, 'end')", "first", show=False),
        Binding("end,G", "move(1, 'end')", "last", show=False),
    ]

    MORE: ClassVar[Literal["schema", "why"]]
    """What there is to know of a tool for which a panel has no room."""
    NOTHING: ClassVar[str] = ""
    """Said while there is nothing to list."""

    def __init__(self, state: PanelState, items: Listing[Item]) -> None:
        self.list = items
        self._typing = False
        self._below: list[Line] = []
        self._room = 0
        """Lines between what stands above the list and below it."""
        self._drawn: tuple[object, ...] = ()
        """What it wanted, and all that was seen of it, when it was drawn last."""
        super().__init__(state)

    @abstractmethod
    def known(self) -> Sequence[Item]:
        """Everything that can be listed, from the state."""

    @abstractmethod
    def above(self, width: int) -> list[Line]:
        """What stands above the list."""

    @abstractmethod
    def item_line(self, item: Item, width: int) -> Line:
        """An item in a line."""

    @abstractmethod
    def about(self, item: Item, width: int) -> list[Line]:
        """What is said below the list of the highlighted item."""

    def below(self, width: int) -> list[Line]:
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
            fits = f" {len(self.list.shown)} fit" if self.list.filter and self.list.shown else ""
            typed = visible_line(self.list.filter) if self.list.filter.strip() else self.list.filter
            room = width - 3 - len(fits)
            seen = f"{typed[-room:] if room > 0 else ''}{'▏' if self._typing else ''}"
            lines.append((("/ ", "tool"), (seen, "strong"), (fits, "muted")))
        said = "" if self.list.items or self.state.standing is None else self.NOTHING
        if self.list.filter and self.list.items and not self.list.shown:
            said = "nothing fits"
        return [*lines, ((said, "muted"),)] if said else lines

    def show(self) -> None:
        """Draw what is on the state now; the highlight, the filter and the place in the list stay."""
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

    def action_move(self, by: int, what: Literal["line", "page", "end"] = "line") -> None:
        self._typing = False
        size = {"line": 1, "page": max(1, self._room), "end": len(self.list.shown)}[what]
        self.list.to(self.list.highlighted + by * size)
        self._draw(follow=True)

    def action_filter(self) -> None:
        """Take what is typed from now on as a filter."""
        self._typing = True
        self._draw()

    def action_open(self) -> None:
        self._typing = False
        self._draw()
        self.ask_for(self.MORE)

    def ask_for(self, what: Literal["schema", "why", "register", "unregister"]) -> None:
        if self.list.current is not None:
            self.post_message(ToolWanted(self.list.name(self.list.current), what))

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
            self.list.put(self.list.items, hold=False)
        self._draw(follow=has_focus)

    def on_paste(self, event: Paste) -> None:
        if self._typing:
            event.stop()
            self._narrow(self.list.filter + visible_line(event.text))

    async def _on_key(self, event: Key) -> None:
        typed = self.list.filter
        if not self._typing:
            return
        if event.is_printable and event.character:
            self._narrow(typed + event.character)
        elif event.key == "backspace":
            self._typing = bool(typed)
            self._narrow(typed[:-1])
        elif event.key == "ctrl+u":
            self._narrow("")
        else:
            return
        event.stop()
        event.prevent_default()  # else the panel's own keys follow

    def _narrow(self, typed: str) -> None:
        self.list.narrow(typed[:_LONGEST_FILTER])
        self._draw(follow=True)

    def _draw(self, *, follow: bool = False) -> None:
        """Draw the list as it stands; with `follow`, have the highlight in view."""
        self.show_title()
        self._area = self.scrollable_content_region.size
        self._lines = self.lines(self._area.width)
        self._below = self.below(self._area.width)
        around = len(self._lines) + len(self._below)
        self._room = self._area.height - around
        self.virtual_size = Size(0, around + len(self.list.shown))
        at, top, room = self.list.highlighted, self.scroll_offset.y, max(1, self._room)
        seen = [self.item_line(item, self._area.width) for item in self.list.shown[top : top + room]]
        drawn = (self.wanted, self._area, self.has_focus, at, self._lines, self._below, seen)
        if drawn != self._drawn:
            before, self._drawn = self._drawn, drawn
            self.refresh(layout=before[:1] != drawn[:1])
        if follow and not top <= at < top + room:
            self.scroll_to(y=at if at < top else at - room + 1, animate=False, force=True)


def row(label: str, value: str, width: int) -> Line:
    """A label and its value, values below each other."""
    return ((left(label, _LABEL), "muted"), (fit(value, width - _LABEL), "text"))


def ends(start: Piece, end: Piece, width: int) -> Line:
    """One piece at each edge; the one at the start gives way."""
    room = max(0, width - cell_len(end[0]) - 1)
    return ((left(start[0], room), start[1]), (" ", "text"), (fit(end[0], width), end[1]))


def bar(parts: Sequence[tuple[int, str]], whole: int, width: int) -> str:
    """Shares of a whole, drawn one after another with their signs; whatever is there is seen, however small."""
    drawn, room = "", width
    for part, sign in parts:
        cells = min(room, -(-part * width // max(1, whole)))
        drawn, room = drawn + sign * cells, room - cells
    return drawn + "░" * room


def percent(part: int, whole: int) -> str:
    """A share in whole percent, rounded down so that only a full whole is 100 %."""
    return f"{100 * part // max(1, whole):>3} %"


def plain(lines: Sequence[Line]) -> str:
    """Lines without looks."""
    return "\n".join("".join(text for text, _ in line) for line in lines)
