"""The room between title and prompt: the transcript with the panels beside it or, on a narrow screen, in its place."""

import asyncio
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.cells import cell_len
from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.events import Click, MouseDown, MouseMove, MouseUp
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from ecoshell.paths import is_special, make_private, replacement
from ecoshell.tui.side.bars import SummaryLine

if TYPE_CHECKING:
    from ecoshell.tui.side.stack import SidePanels


_LONGEST = 64 * 1024
_MOST_COLUMNS = 1_000
FOLDED_AT_FIRST = ("plan", "roles")
"""Panels that are no more than their titles until the person opens them: two are enough to begin with."""
TABS = (("tools", "f2"), ("plan", "f3"), ("cost", "f4"))
_NARROWEST, _WIDEST = 38, 60
"""Columns the side takes unasked: three tenths of the screen, between these."""
_LEAST, _LEAST_BESIDE = 24, 40
"""Columns that the side and what is beside it keep, however the line between them is moved."""
_FIRST = {"tools": "tools", "plan": "plan", "cost": "budget"}
"""The name of the panel that takes the focus, of each tab."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What the person chose: the side's width, whether it is hidden, and the names of the panels that are folded."""

    width: int | None = None
    """In columns; None is as wide as it suits the screen."""
    hidden: bool = False
    folded: tuple[str, ...] = ()


def read_arrangement(file: Path) -> Arrangement:
    """The arrangement of the last time; whatever in the file makes no sense is left out, and none is no error."""
    if is_special(file):
        return Arrangement()
    try:
        with file.open(encoding="utf-8") as source:
            found: object = json.loads(source.read(_LONGEST))
    except FileNotFoundError:
        return Arrangement(folded=FOLDED_AT_FIRST)
    except (OSError, ValueError, RecursionError):
        return Arrangement()
    known = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    width, folded = known.get("width"), known.get("folded")
    names = cast("list[object]", folded) if isinstance(folded, list) else []
    return Arrangement(
        width=width if type(width) is int and 0 < width <= _MOST_COLUMNS else None,
        hidden=known.get("hidden") is True,
        folded=tuple(name for name in names if isinstance(name, str)),
    )


def write_arrangement(file: Path, arrangement: Arrangement) -> None:
    """Keep the arrangement, whole or not at all; where it cannot be written the screen is only as it was next time."""
    with suppress(OSError):
        make_private(file.parent)
        with replacement(file) as fresh:
            fresh.write(json.dumps(asdict(arrangement)).encode() + b"\n")


class TabRow(Widget):
    """One line that names the tabs; the one that is shown stands in brackets and stands out."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    TabRow { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    tab = reactive("")
    """The tab that is marked; empty is the transcript."""

    def render(self) -> Content:
        self._spans: list[tuple[int, str]] = []
        parts: list[Content] = []
        end = 1
        for name, key in (("", "esc"), *TABS):
            label = f"{key} {name or 'transcript'}"
            text = f"[{label}] " if name == self.tab else f" {label}  "
            parts.append(Content.styled(text, "bold $primary" if name == self.tab else ""))
            end += cell_len(text)
            self._spans.append((end, name))
        return Content.assemble(*parts)

    async def on_click(self, event: Click) -> None:
        layout = self.query_ancestor(SideLayout)
        chosen = next((name for end, name in self._spans if event.x < end), None)
        if chosen in ("", self.tab):
            layout.leave()
        elif chosen is not None:
            await layout.open(chosen)


class Splitter(Widget):
    """One column, the edge of the side, which the mouse drags."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Splitter {
        width: 1;
        color: $foreground 25%;
        &:hover, &.-dragged { color: $primary; }
    }
    """

    def render_line(self, y: int) -> Strip:
        heavy = self.mouse_hover or self.has_class("-dragged")
        return Strip([Segment("┃" if heavy else "│", self.rich_style)])

    def on_mouse_down(self, event: MouseDown) -> None:
        event.stop()
        self.add_class("-dragged")
        self.capture_mouse()

    @on(MouseMove)
    @on(MouseUp)
    def drag(self, event: MouseMove | MouseUp) -> None:
        """Have the side as wide as the mouse says; it is kept once the mouse lets go."""
        if self.has_class("-dragged"):
            event.stop()
            done, layout = isinstance(event, MouseUp), self.query_ancestor(SideLayout)
            if done:
                self.remove_class("-dragged")
                self.release_mouse()
            layout.widen(to=layout.region.right - event.screen_x - 1, kept=done)


def side_width(wanted: int | None, whole: int) -> int:
    """Columns of the side on a body of `whole` columns: what the person wants, within reason."""
    width = max(_NARROWEST, min(whole * 3 // 10, _WIDEST)) if wanted is None else wanted
    return max(_LEAST, min(width, whole - _LEAST_BESIDE))


class SideLayout(Horizontal):
    """Lays out the transcript and the side; how the person arranged them is kept in a file.

    The screen's classes `-narrow` and `-wide` say which layout is on. A narrow screen shows the panels in tabs, a line
    that sums them up otherwise.
    """

    SCOPED_CSS = False
    DEFAULT_CSS = """
    SideLayout {
        height: 1fr;
        & > .main { width: 1fr; }
        & > TabRow { dock: top; display: none; }
        & > SummaryLine { dock: bottom; display: none; }
    }
    .-wide SideLayout.-hidden {
        & > Splitter, & > .side { display: none; }
        & > SummaryLine { display: block; }
    }
    .-narrow SideLayout {
        & > Splitter, & > .side { display: none; }
        & > SummaryLine { display: block; }
    }
    .-narrow SideLayout.-tab {
        & > .main { display: none; }
        & > TabRow { display: block; }
        & > .side { display: block; }
        Panel { display: none; }
    }
    .-narrow SideLayout.-tools ToolsPanel { display: block; }
    .-narrow SideLayout.-plan PlanPanel { display: block; }
    .-narrow SideLayout.-cost { BudgetPanel, RolesPanel { display: block; } }
    """

    def __init__(self, main: Widget, state_file: Path) -> None:
        """`main` is what stands beside the side; the file keeps the arrangement."""
        super().__init__()
        self._main = main
        self._file = state_file
        self._arrangement = read_arrangement(state_file)
        self._unsaved: Arrangement | None = None
        self._tab = ""
        self._frame = Container(classes="side")
        self._furnishing = asyncio.Lock()
        self._summary = SummaryLine()
        self.side: SidePanels
        """The panels; there are none before `furnish`."""

    def compose(self) -> ComposeResult:
        self.set_class(self._arrangement.hidden, "-hidden")
        self.on_resize()
        yield TabRow()
        self._main.add_class("main", update=False)  # its styles are found once it is there
        yield self._main
        yield Splitter()
        yield self._frame
        yield self._summary

    async def furnish(self) -> None:
        """Put the panels into their place, once: no first frame waits for them."""
        async with self._furnishing:
            if self._frame.children:
                return
            await asyncio.to_thread(import_module, "ecoshell.tui.side.stack")
            from ecoshell.tui.side.stack import SidePanels

            self.side = SidePanels(self._summary, self._arrangement.folded)
            await self._frame.mount(self.side)

    def on_unmount(self) -> None:
        if self._unsaved is not None:
            write_arrangement(self._file, self._unsaved)

    @property
    def beside(self) -> bool:
        return not self._narrow and not self.has_class("-hidden")

    async def open(self, tab: str = "") -> None:
        """Go to a tab of TABS, or back to the prompt from there: in the side where there is room, else in its place.

        Without one, hide the side or show it; on a narrow screen, go to the first tab or back.
        """
        if not tab and not self._narrow:
            self.toggle_class("-hidden")
            self._arrange()
            if self.has_class("-hidden") and self._frame.has_focus_within:
                self.leave()
            return
        if not tab and self._tab:
            self.leave()
            return
        tab = tab or TABS[0][0]
        await self.furnish()
        panel = next(panel for panel in self.side.panels if _FIRST[tab] == panel.NAME)
        if panel.has_focus:
            self.leave()
            return
        panel.folded = False
        self._show_tab(tab)
        self.remove_class("-hidden")
        self._arrange()
        panel.focus()

    def leave(self) -> None:
        """Go back to the prompt, and from a tab to the transcript."""
        self._show_tab("")
        self.screen.query_one("#prompt").focus()  # of this screen, whatever lies over it

    on_panel_left = leave

    def widen(self, *, to: int | None = None, by: int = 0, kept: bool = True) -> None:
        """Give the side so many columns, or so many more than it has; and keep that, unless the mouse still drags."""
        whole = self.size.width
        now = side_width(self._arrangement.width, whole)
        self._arrangement = replace(self._arrangement, width=side_width(now + by if to is None else to, whole))
        self.on_resize()
        if kept:
            self._arrange()

    def on_resize(self) -> None:
        """Give the side its width; before there is a size, that of the screen counts."""
        whole = self.size.width or self.screen.size.width
        self._frame.styles.width = "1fr" if self._narrow else side_width(self._arrangement.width, whole)
        if self._narrow and not self._tab and self._frame.has_focus_within:
            self.call_after_refresh(self.leave)  # no keys for what is out of sight

    @property
    def _narrow(self) -> bool:
        return self.screen.has_class("-narrow")

    def _show_tab(self, tab: str) -> None:
        self._tab = tab if self._narrow else ""
        self.set_class(bool(self._tab), "-tab")
        for name, _ in TABS:
            self.set_class(name == self._tab, f"-{name}")
        self.query_one(TabRow).tab = self._tab

    def _arrange(self) -> None:
        """Keep what the person arranged; writing it down waits for no one."""
        folded = self._arrangement.folded
        if self._frame.children:
            folded = tuple(panel.NAME for panel in self.side.panels if panel.folded)
        arrangement = replace(self._arrangement, hidden=self.has_class("-hidden"), folded=folded)
        idle, self._arrangement, self._unsaved = self._unsaved is None, arrangement, arrangement
        if idle:
            self.run_worker(self._keep())

    on_panel_refolded = _arrange

    async def _keep(self) -> None:
        """Write down the arrangement until it is the one that is kept."""
        while (arrangement := self._unsaved) is not None:
            await asyncio.to_thread(write_arrangement, self._file, arrangement)
            if self._unsaved is arrangement:
                self._unsaved = None
