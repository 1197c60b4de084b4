"""A panel: a title line that folds it, and lines below that scroll where they must; with a list in it, or without."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar, get_args

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, Key, Paste
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ecoshell.messages import visible_line
from ecoshell.tui.fuzzy import best
from ecoshell.tui.keys import KeysInOrder
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.text import fit, fit_end, left

Tone = Literal["text", "strong", "muted", "tool", "good", "warning", "error", "marked"]
TONES: tuple[Tone, ...] = get_args(Tone)
Piece = tuple[str, Tone]
Line = tuple[Piece, ...]
Item = TypeVar("Item")
_LABEL = 11
FILTER = Binding("slash", "filter", "filter", key_display="/")
"""For panels to put among their own keys."""
_COMFORTABLE = 14
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

    def __init__(self, state: PanelState) -> None:
        super().__init__()
        self.state = state
        self.title = ""
        """The title line, without looks."""
        self.gist = ""
        """What the title says beside the name: the panel in a word or two."""
        self._lines: list[Line] = []
        self._styles: dict[Tone | None, Style] = {}
        self._area = Size(0, 0)
        """The room for lines, as it was when they were drawn."""

    @abstractmethod
    def lines(self, width: int) -> list[Line]:
        """What the panel shows now, in lines of at most `width` cells; sets `gist`."""

    @property
    def wanted(self) -> int:
        """Lines it takes to show everything, the title and a free line below included."""
        return 1 if self.folded else len(self._lines) + 2

    def show(self) -> None:
        """Draw what is on the state now; nothing is done where that is what is shown already."""
        self._area = self.scrollable_content_region.size
        lines = self.lines(self._area.width)
        self.show_title()
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

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def on_click(self, event: Click) -> None:
        if event.y == 0:
            self.action_fold()

    def on_resize(self) -> None:
        self.show()

    watch_folded = on_resize

    def show_title(self) -> None:
        sign = "►" if self.folded else "▼"
        gist = visible_line(self.gist)
        name, rest = f" {sign} {self.NAME.upper()} ", f" {gist} " if gist else ""
        if name + rest != self.title:
            self.title = name + rest
            self.border_title = Content.assemble((name, "bold"), (rest, "$foreground"))


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

    def __init__(self, state: PanelState) -> None:
        super().__init__(state)
        self.items: Mapping[str, Item] = {}
        """Everything that is known, shown or not."""
        self.shown: Sequence[str] = ()
        """The names that are listed."""
        self.highlighted = 0
        self.filter = ""
        """What the names shown must fit, the best fit first; empty shows all but the seldom."""
        self.seldom: Collection[str] = ()
        """Names that are shown only where a filter finds them."""
        self.roomy = False
        """Whether there is room for more than the list and a line above it."""
        self.around = 0
        """Lines it would like to show above and below the list, its title and a free line included."""
        self._order: Sequence[str] = ()
        self._typing = False
        self._below: list[Line] = []
        self._room = 0
        """Lines between what stands above the list and below it."""
        self._drawn: tuple[object, ...] = (0, self._area)
        """What it wanted, and all that was seen of it, when it was drawn last."""

    @abstractmethod
    def known(self) -> Mapping[str, Item]:
        """Everything that can be listed by its name, from the state, in its order."""

    @abstractmethod
    def above(self, width: int) -> list[Line]:
        """What stands above the list; sets `around` and `gist`."""

    @abstractmethod
    def item_line(self, item: Item, width: int) -> Line:
        """An item in a line."""

    @abstractmethod
    def about(self, item: Item, width: int) -> list[Line]:
        """What is said below the list of the highlighted item."""

    @property
    def wanted(self) -> int:
        return 1 if self.folded else self.around + min(len(self.shown), _COMFORTABLE)

    def below(self, width: int) -> list[Line]:
        return self.about(self.items[self.current], width) if self.current and self.has_focus and self.roomy else []

    @property
    def current(self) -> str:
        """The name that is highlighted; empty while none is listed."""
        return self.shown[self.highlighted] if self.shown else ""

    def put(self, *, hold: bool) -> None:
        """List what is known now; with `hold`, what is listed already stays where it is under the person's hand."""
        self.items = self.known()
        listed = (name for name in self._order if hold and name in self.items)
        self._order = [*dict.fromkeys((*listed, *self.items))]
        self.narrow(self.filter)

    def narrow(self, typed: str) -> None:
        """List only what fits; the highlight stays on its item or, with another filter, goes to the best."""
        held, at = (self.current, self.highlighted) if typed == self.filter else ("", 0)
        self.filter = typed[:_LONGEST_FILTER]
        if self.filter.strip():
            names, _ = best(self.filter, ((name.lower(), name) for name in self._order), len(self._order))
        else:
            names = [name for name in self._order if name not in self.seldom]
        self.shown = names
        self.highlighted = names.index(held) if held in names else max(0, min(at, len(names) - 1))

    def lines(self, width: int) -> list[Line]:
        """What stands above the list, the filter and what it leaves included."""
        lines = self.above(width)
        if self._typing or self.filter:
            fits = f" {len(self.shown)} fit" if self.filter and self.shown else ""
            typed = visible_line(self.filter) if self.filter.strip() else self.filter
            room = width - 3 - len(fits)
            seen = f"{fit_end(typed, room)}{'▏' if self._typing else ''}"
            lines.append((("/ ", "tool"), (seen, "strong"), (fits, "muted")))
        said = "" if self.items or self.state.standing is None else self.NOTHING
        if self.filter and self.items and not self.shown:
            said = "nothing fits"
        return [*lines, ((said, "muted"),)] if said else lines

    def show(self) -> None:
        """Draw what is on the state now; the highlight, the filter and the place in the list stay."""
        self.put(hold=self.has_focus)
        self._draw()

    def render_line(self, y: int) -> Strip:
        width, height = self._area
        if y < len(self._lines):
            return self.strip(self._lines[y])
        if y >= height - len(self._below):
            return self.strip(self._below[y - height])
        at = y - len(self._lines) + self.scroll_offset.y
        if at >= len(self.shown):
            return self.strip(())
        marked = self.has_focus and at == self.highlighted
        return self.strip(self.item_line(self.items[self.shown[at]], width), marked=marked)

    def action_move(self, by: int, what: Literal["line", "page", "end"] = "line") -> None:
        self._typing = False
        size = {"line": 1, "page": max(1, self._room), "end": len(self.shown)}[what]
        self.highlighted = max(0, min(self.highlighted + by * size, len(self.shown) - 1))
        self._draw(follow=True)

    def action_filter(self) -> None:
        """Take what is typed from now on as a filter."""
        self._typing = True
        self._draw()

    def action_open(self) -> None:
        self._typing = False
        self._draw()
        if self.current:
            self.post_message(ToolWanted(self.current, self.MORE))

    def action_leave(self) -> None:
        """Take the filter away; without one, go back to where the person came from."""
        if self._typing or self.filter:
            self._typing = False
            self.narrow("")
            self._draw(follow=True)
        else:
            super().action_leave()

    def on_click(self, event: Click) -> None:
        """Highlight the item under the mouse; a second click asks for more of it."""
        y = event.y - 1 - len(self._lines)
        at = y + self.scroll_offset.y
        if 0 <= y < self._room and at < len(self.shown):
            self.highlighted = at
            self._draw()
            if event.chain > 1:
                self.action_open()

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show what is highlighted; afterwards, put in order what was kept in its place under the person's hand."""
        super().watch_has_focus(has_focus)
        if not has_focus:
            self._typing = False
            self.put(hold=False)
        self._draw(follow=has_focus)

    def on_paste(self, event: Paste) -> None:
        if self._typing:
            event.stop()
            self.narrow(self.filter + visible_line(event.text))
            self._draw(follow=True)

    async def _on_key(self, event: Key) -> None:
        if not self._typing:
            return
        if event.is_printable and event.character:
            self.narrow(self.filter + event.character)
        elif event.key == "backspace":
            self._typing = bool(self.filter)
            self.narrow(self.filter[:-1])
        elif event.key == "ctrl+u":
            self.narrow("")
        else:
            return
        self._draw(follow=True)
        event.stop()
        event.prevent_default()  # else the panel's own keys follow

    def _draw(self, *, follow: bool = False) -> None:
        """Draw the list as it stands; with `follow`, or another size under the person's hand, the highlight in view."""
        self._area = self.scrollable_content_region.size
        self.roomy = self._area.height >= _ROOMY_FROM
        self._lines = self.lines(self._area.width)
        self.show_title()
        self._below = self.below(self._area.width)
        around = len(self._lines) + len(self._below)
        self._room = self._area.height - around
        self.virtual_size = Size(0, around + len(self.shown))
        at, top, room = self.highlighted, self.scroll_offset.y, max(1, self._room)
        seen = [self.item_line(self.items[name], self._area.width) for name in self.shown[top : top + room]]
        before = self._drawn
        self._drawn = (self.wanted, self._area, self.has_focus, at, self._lines, self._below, seen)
        if before != self._drawn:
            self.refresh(layout=before[0] != self._drawn[0])
        follow = follow or (self.has_focus and before[1] != self._area)
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
