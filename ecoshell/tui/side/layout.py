"""Place the transcript and the side panels: next to each other or, on a narrow screen, in tabs."""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.events import Click
from textual.reactive import reactive
from textual.widget import Widget

from ecoshell.tui.side.bars import SummaryLine

if TYPE_CHECKING:
    from ecoshell.tui.side.stack import SidePanels


TABS = (("tools", "f2"), ("plan", "f3"), ("cost", "f4"))
_TABS_WITH_TRANSCRIPT = (("", "esc"), *TABS)
_FOCUSED_PANELS = {"tools": "tools", "plan": "plan", "cost": "budget"}
"""The panel that takes the focus in each tab."""


class TabRow(Widget):
    """One line with the tabs; the current one is bold and in brackets, and the others lose names that do not fit."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    TabRow { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    tab = reactive("")
    """The current tab; empty for the transcript."""

    def render(self) -> Content:
        width = self.content_size.width
        rows = [self._texts(keys_only) for keys_only in range(len(_TABS_WITH_TRANSCRIPT) + 1)]
        texts = next((row for row in rows if cell_len("".join(row)) <= width), rows[-1])
        self._spans: list[tuple[int, str]] = []
        parts: list[Content] = []
        end = 1
        for (name, _), text in zip(_TABS_WITH_TRANSCRIPT, texts, strict=True):
            parts.append(Content.styled(text, "bold $primary" if name == self.tab else ""))
            end += cell_len(text)
            self._spans.append((end, name))
        return Content.assemble(*parts)

    def _texts(self, keys_only: int) -> list[str]:
        """The text of each tab; the first `keys_only` of them are keys without names, except the current one."""
        texts: list[str] = []
        for at, (name, key) in enumerate(_TABS_WITH_TRANSCRIPT):
            is_short = at < keys_only and name != self.tab
            label = key if is_short else f"{key} {name or 'transcript'}"
            texts.append(f"[{label}] " if name == self.tab else f" {label}  ")
        return texts

    async def on_click(self, event: Click) -> None:
        layout = self.query_ancestor(SideLayout)
        clicked = next((name for end, name in self._spans if event.x < end), None)
        if clicked in ("", self.tab):
            layout.leave()
        elif clicked is not None:
            await layout.open(clicked)


class SideLayout(Horizontal):
    """Lay out the transcript and the side panels.

    The screen's classes `-narrow` and `-wide` select the layout. A narrow screen shows a summary line, and the panels
    in tabs.
    """

    SCOPED_CSS = False
    DEFAULT_CSS = """
    SideLayout {
        height: 1fr;
        & > .main { width: 1fr; }
        & > .side {
            box-sizing: content-box;
            width: 30%;
            min-width: 38;
            max-width: 60;
            border-left: solid $foreground 25%;
        }
        & > TabRow { dock: top; display: none; }
        & > SummaryLine { dock: bottom; display: none; }
    }
    .-wide SideLayout.-hidden {
        & > .side { display: none; }
        & > SummaryLine { display: block; }
    }
    .-narrow SideLayout {
        & > .side { display: none; width: 1fr; min-width: 0; max-width: 100%; border-left: none; }
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

    def __init__(self, main: Widget) -> None:
        super().__init__()
        self._main = main
        self._tab = ""
        self._frame = Container(classes="side")
        self._mounting = asyncio.Lock()
        self._summary = SummaryLine()
        self.side: SidePanels
        """The panels; set by `mount_panels`."""

    def compose(self) -> ComposeResult:
        yield TabRow()
        self._main.add_class("main", update=False)  # styles are applied when it is mounted
        yield self._main
        yield self._frame
        yield self._summary

    async def mount_panels(self) -> None:
        """Mount the panels once, after the first frame."""
        async with self._mounting:
            if self._frame.children:
                return
            await asyncio.to_thread(import_module, "ecoshell.tui.side.stack")
            from ecoshell.tui.side.stack import SidePanels

            self.side = SidePanels(self._summary)
            await self._frame.mount(self.side)

    @property
    def shows_panels(self) -> bool:
        """Whether the panels are next to the transcript."""
        return not self._narrow and not self.has_class("-hidden")

    async def open(self, tab: str = "") -> None:
        """Focus a tab of TABS, or return to the prompt if it has the focus.

        Without a tab, toggle the panels; on a narrow screen, open the first tab or return from it.
        """
        if not tab and not self._narrow:
            self.toggle_class("-hidden")
            if self.has_class("-hidden") and self._frame.has_focus_within:
                self.leave()
            return
        if not tab and self._tab:
            self.leave()
            return
        tab = tab or TABS[0][0]
        await self.mount_panels()
        panel = next(panel for panel in self.side.panels if _FOCUSED_PANELS[tab] == panel.NAME)
        if panel.has_focus:
            self.leave()
            return
        panel.folded = False
        self._show_tab(tab)
        self.remove_class("-hidden")
        panel.focus()

    def leave(self) -> None:
        """Return to the prompt, and from a tab to the transcript."""
        self._show_tab("")
        self.screen.query_one("#prompt").focus()  # of this screen, even below a modal one

    on_panel_leave_requested = leave

    def on_resize(self) -> None:
        """Move the focus to the prompt if the focused panel is hidden now."""
        if self._narrow and not self._tab and self._frame.has_focus_within:
            self.call_after_refresh(self.leave)

    @property
    def _narrow(self) -> bool:
        return self.screen.has_class("-narrow")

    def _show_tab(self, tab: str) -> None:
        self._tab = tab if self._narrow else ""
        self.set_class(bool(self._tab), "-tab")
        for name, _ in TABS:
            self.set_class(name == self._tab, f"-{name}")
        self.query_one(TabRow).tab = self._tab
