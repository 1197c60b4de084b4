"""Base classes of the side panels: a title line that folds, and lines or a list that scroll."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar, get_args

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, Key
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ecoshell.messages import visible_line
from ecoshell.tui.fuzzy import best
from ecoshell.tui.keys import KeysInOrder
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.text import align_left, fit, fit_end

Tone = Literal["text", "strong", "muted", "tool", "good", "warning", "error", "marked"]
TONES: tuple[Tone, ...] = get_args(Tone)
Piece = tuple[str, Tone]
Line = tuple[Piece, ...]
Item = TypeVar("Item")
SPENT, HELD, REST = "━", "╍", "─"
"""Signs of the parts of a bar."""
_LABEL = 11
FILTER = Binding("slash", "filter", "filter", key_display="/")
_COMFORTABLE_ITEMS = 14
"""List items a panel asks for before spare height is distributed."""
_ROOMY_MIN_HEIGHT = 8
"""Panel height from which details and bars are shown in addition to the list."""
_MAX_FILTER_LENGTH = 100


@dataclass
class ToolRequested(Message):
    """Show a tool's schema or the reason for its plan row, or register or unregister it."""

    tool: str
    action: Literal["schema", "why", "register", "unregister"]


class Panel(KeysInOrder, ScrollView, can_focus=True):
    """Lines drawn from the state, and redrawn only when they change."""

    NAME: ClassVar[str]
    """Lower-case name; the title shows it in capitals."""
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

    class LeaveRequested(Message):
        """The user asks to return to the prompt."""

    def __init__(self, state: PanelState) -> None:
        super().__init__()
        self.state = state
        self.title = ""
        """The title line as plain text."""
        self.gist = ""
        """A short summary for the title line."""
        self._lines: list[Line] = []
        self._styles: dict[Tone | None, Style] = {}
        self._area = Size(0, 0)
        """Room for lines when they were last drawn."""

    @abstractmethod
    def lines(self, width: int) -> list[Line]:
        """The lines to show now, each at most `width` cells wide; sets `gist`."""

    @property
    def wanted(self) -> int:
        """Height that shows everything, with the title and a free line below."""
        return 1 if self.folded else len(self._lines) + 2

    def show(self) -> None:
        """Redraw if the state has changed what is shown."""
        self._area = self.scrollable_content_region.size
        lines = self.lines(self._area.width)
        self.show_title()
        if lines == self._lines:
            return
        self._lines = lines
        self.virtual_size = Size(0, len(lines))  # another height triggers a layout of the panels
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines of the view; Textual's compositor may ask for them before the panel is resized."""
        self._area = self.scrollable_content_region.size
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        return self.strip(self._lines[at] if at < len(self._lines) else ())

    def strip(self, line: Line, *, marked: bool = False) -> Strip:
        """A line in the panel's colours, padded to its width."""
        if not self._styles:
            base = self.rich_style
            self._styles = {None: base}
            for tone in TONES:  # only the marked tone has its own background
                full = self.get_component_rich_style(f"panel--{tone}")
                self._styles[tone] = base + Style(color=full.color, bold=full.bold)
            self._styles["marked"] += self.get_component_rich_style("panel--marked")
        pieces = [Segment(text, self._styles["marked" if marked else tone]) for text, tone in line]
        rest = self._styles["marked" if marked else None]
        return Strip(pieces).adjust_cell_length(self._area.width, rest)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = {}

    def action_fold(self) -> None:
        self.folded = not self.folded

    def action_leave(self) -> None:
        self.post_message(self.LeaveRequested())

    def on_click(self, event: Click) -> None:
        if event.y == 0:
            self.action_fold()

    def on_resize(self) -> None:
        self.show()

    watch_folded = on_resize

    def show_title(self) -> None:
        sign = "►" if self.folded else "▼"
        gist = visible_line(self.gist)
        name, suffix = f" {sign} {self.NAME.upper()} ", f" {gist} " if gist else ""
        if name + suffix != self.title:
            self.title = name + suffix
            self.border_title = Content.assemble((name, "bold"), (suffix, "$foreground"))


class ListPanel(Panel, Generic[Item]):
    """A list in groups between header and footer lines; only visible rows are drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "move(-1, 'page')", "page up", show=False),
        Binding("pagedown", "move(1, 'page')", "page down", show=False),
        Binding("home,g", "move(-1, 'end')", "first", show=False),
        Binding("end,G", "move(1, 'end')", "last", show=False),
    ]

    MORE: ClassVar[Literal["schema", "why"]]
    """What `enter` shows about the highlighted tool."""
    NOTHING: ClassVar[str] = ""
    """Text shown for an empty list."""
    GROUPS: ClassVar[int]

    def __init__(self, state: PanelState) -> None:
        super().__init__(state)
        self.items: Mapping[str, Item] = {}
        """All items by name, visible or not."""
        self.visible_names: Sequence[str] = ()
        self.highlighted = 0
        self.filter = ""
        """Fuzzy filter of the names, best match first; empty shows all groups that are not folded."""
        self.folded_groups: set[int] = set()
        self.roomy = False
        """Whether there is room for more than the list and one header line."""
        self.fixed_lines = 0
        """Preferred number of lines other than the list, including the title and a free line."""
        self._rows: list[int | Line] = []
        """The list's lines: the index of a visible name, or a heading."""
        self._typing = self._was_focused = False
        self._footer: list[Line] = []
        self._room = 0
        self._drawn: tuple[object, ...] = (0, self._area, False, 0)
        """The wanted height and everything visible at the last drawing."""

    @abstractmethod
    def load_items(self) -> Mapping[str, Item]:
        """All items by name, in their order, from the state."""

    @abstractmethod
    def header_lines(self, width: int) -> list[Line]:
        """The lines above the list; sets `fixed_lines` and `gist`."""

    @abstractmethod
    def item_line(self, item: Item, width: int) -> Line:
        """An item in one line."""

    @abstractmethod
    def group(self, item: Item) -> int:
        """The item's group, from 0."""

    @abstractmethod
    def heading(self, group: int, count: int, width: int) -> Line:
        """The line above a group with this number of items; empty for none."""

    @abstractmethod
    def detail_lines(self, item: Item, width: int) -> list[Line]:
        """Details of the highlighted item, shown below the list."""

    @property
    def wanted(self) -> int:
        return 1 if self.folded else self.fixed_lines + min(len(self._rows), _COMFORTABLE_ITEMS)

    def footer_lines(self, width: int) -> list[Line]:
        shows_details = self.current and self.has_focus and self.roomy
        return self.detail_lines(self.items[self.current], width) if shows_details else []

    @property
    def current(self) -> str:
        """The highlighted name; empty if the list is empty."""
        return self.visible_names[self.highlighted] if self.visible_names else ""

    def update_items(self) -> None:
        """Reload the items, in their groups."""
        items = self.load_items()
        self.items = dict(sorted(items.items(), key=lambda pair: self.group(pair[1])))
        self.apply_filter(self.filter)

    def apply_filter(self, typed: str) -> None:
        """List only matches; a changed filter highlights the best one, otherwise the highlighted name stays.

        Until the list has the focus, its first name is highlighted.
        """
        keeps = typed == self.filter and (self.highlighted or self._was_focused)
        current, at = (self.current, self.highlighted) if keeps else ("", 0)
        self.filter = typed[:_MAX_FILTER_LENGTH]
        if self.filter.strip():
            candidates = ((name.lower(), name) for name in self.items)
            names, _ = best(self.filter, candidates, len(self.items))
        else:
            groups = {name: self.group(item) for name, item in self.items.items()}
            names = [name for name, group in groups.items() if group not in self.folded_groups]
        self.visible_names = names
        at = names.index(current) if current in names else at
        self.highlighted = max(0, min(at, len(names) - 1))

    def lines(self, width: int) -> list[Line]:
        """The header lines, the filter and the number of its matches."""
        lines = self.header_lines(width)
        if self._typing or self.filter:
            matches = ""
            if self.filter and self.visible_names:
                matches = f" {len(self.visible_names)} match"
            typed = visible_line(self.filter) if self.filter.strip() else self.filter
            text = f"{fit_end(typed, width - 3 - len(matches))}{'▏' if self._typing else ''}"
            lines.append((("/ ", "tool"), (text, "strong"), (matches, "muted")))
        note = "" if self.items or self.state.status is None else self.NOTHING
        if self.filter and self.items and not self.visible_names:
            note = "no match"
        return [*lines, ((note, "muted"),)] if note else lines

    def show(self) -> None:
        """Redraw from the state; highlight, filter and scroll position stay."""
        self.update_items()
        self._draw()

    def render_line(self, y: int) -> Strip:
        width, height = self._area
        if y < len(self._lines):
            return self.strip(self._lines[y])
        if y >= height - len(self._footer):
            return self.strip(self._footer[y - height])
        at = y - len(self._lines) + self.scroll_offset.y
        if at >= len(self._rows):
            return self.strip(())
        marked = self.has_focus and self._rows[at] == self.highlighted
        return self.strip(self._row_line(self._rows[at], width), marked=marked)

    def _row_line(self, entry: int | Line, width: int) -> Line:
        if not isinstance(entry, int):
            return entry
        return self.item_line(self.items[self.visible_names[entry]], width)

    def row_at(self, y: int) -> int | Line | None:
        """The index of the item, or the heading, in this line of the panel; None elsewhere."""
        at = y - len(self._lines) + self.scroll_offset.y
        is_row = 0 <= y - len(self._lines) < self._room and at < len(self._rows)
        return self._rows[at] if is_row else None

    def _grouped_rows(self, width: int) -> list[int | Line]:
        """The list with a heading above each group; matches of a filter are not grouped."""
        rows: list[int | Line] = []
        if self.filter.strip():
            rows += range(len(self.visible_names))
            return rows
        counts = Counter(map(self.group, self.items.values()))
        start = 0
        for group in range(self.GROUPS):
            if heading := self.heading(group, counts[group], width):
                rows.append(heading)
            if group not in self.folded_groups:
                rows += range(start, start + counts[group])
                start += counts[group]
        return rows

    def action_move(self, by: int, unit: Literal["line", "page", "end"] = "line") -> None:
        self._typing = False
        size = {"line": 1, "page": max(1, self._room), "end": len(self.visible_names)}[unit]
        self.highlighted = max(0, min(self.highlighted + by * size, len(self.visible_names) - 1))
        self._draw(follow=True)

    def action_filter(self) -> None:
        self._typing = True
        self._draw()

    def action_open(self) -> None:
        self._typing = False
        self._draw()
        if self.current:
            self.post_message(ToolRequested(self.current, self.MORE))

    def action_leave(self) -> None:
        """Clear the filter; without one, return to the prompt."""
        if self._typing or self.filter:
            self._typing = False
            self.apply_filter("")
            self._draw(follow=True)
        else:
            super().action_leave()

    def on_click(self, event: Click) -> None:
        """Highlight the clicked item; a double click opens it."""
        entry = self.row_at(event.y - 1)
        if isinstance(entry, int):
            self.highlighted = entry
            self._draw()
            if event.chain > 1:
                self.action_open()

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show or hide the highlight."""
        super().watch_has_focus(has_focus)
        self._was_focused |= has_focus
        self._typing = self._typing and has_focus
        self._draw(follow=has_focus)

    async def _on_key(self, event: Key) -> None:
        if not self._typing:
            return
        if event.is_printable and event.character:
            self.apply_filter(self.filter + event.character)
        elif event.key == "backspace":
            self._typing = bool(self.filter)
            self.apply_filter(self.filter[:-1])
        else:
            return
        self._draw(follow=True)
        event.stop()
        event.prevent_default()  # otherwise the panel's bindings run, too

    def _draw(self, *, follow: bool = False) -> None:
        """Draw the list; scroll to the highlight with `follow`, or if the size changed while focused."""
        self._area = self.scrollable_content_region.size
        self.roomy = self._area.height >= _ROOMY_MIN_HEIGHT
        self._lines = self.lines(self._area.width)
        self.show_title()
        self._footer = self.footer_lines(self._area.width)
        fixed = len(self._lines) + len(self._footer)
        self._room = self._area.height - fixed
        self._rows = self._grouped_rows(self._area.width)
        self.virtual_size = Size(0, fixed + len(self._rows))
        top, room = self.scroll_offset.y, max(1, self._room)
        at = self._rows.index(self.highlighted) if self.visible_names else 0
        first = at - 1 if at and room > 1 and not isinstance(self._rows[at - 1], int) else at
        rows = [self._row_line(entry, self._area.width) for entry in self._rows[top : top + room]]
        previous = self._drawn
        self._drawn = (self.wanted, self._area, self.has_focus, at, self._lines, self._footer, rows)
        if previous != self._drawn:
            self.refresh(layout=previous[0] != self._drawn[0])
        follow = follow or (self.has_focus and (previous[1] != self._area or previous[3] != at))
        if follow and not top <= first <= at < top + room:
            self.scroll_to(y=first if first < top else at - room + 1, animate=False, force=True)


def row(label: str, value: str, width: int) -> Line:
    """A label and its value; values of several rows align."""
    return ((align_left(label, _LABEL), "muted"), (fit(value, width - _LABEL), "text"))


def justify(start: Piece, end: Piece, width: int) -> Line:
    """One piece at each edge; the left one is shortened if needed."""
    room = max(0, width - cell_len(end[0]) - 1)
    return (
        (align_left(start[0], room), start[1]),
        (" " if room else "", "text"),
        (fit(end[0], width), end[1]),
    )


def bar(parts: Sequence[tuple[int, str]], total: int, width: int) -> str:
    """A bar of parts, each with its own sign; a part above zero takes at least one cell."""
    drawn, room = "", width
    for part, sign in parts:
        cells = min(room, -(-part * width // max(1, total)))
        drawn, room = drawn + sign * cells, room - cells
    return drawn + REST * room


def bar_line(spent: int, held: int, total: int, tone: Tone, note: Piece, width: int) -> Line:
    """A bar of what is spent and, muted, of what is reserved and left, with a note at its right."""
    drawn = bar(((spent, SPENT), (held, HELD)), total, max(0, width - cell_len(note[0]) - 1))
    used = drawn.rstrip(HELD + REST)
    return ((used, tone), (drawn[len(used) :], "muted"), (" ", "text"), note)


def percent(part: int, total: int) -> str:
    """A share in total percent, rounded down so that only a complete total is 100 %."""
    return f"{100 * part // max(1, total):>3} %"
