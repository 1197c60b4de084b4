"""The context screen: a bar and a table of what fills the model's context."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Static

from ecoshell.agent.command_table import table
from ecoshell.agent.context_report import (
    FREE,
    KINDS,
    ContextReport,
    Kind,
    bar_cells,
    headline,
    report_rows,
)
from ecoshell.errors import EcoshellError
from ecoshell.messages import visible
from ecoshell.tui.screens.picker import Overlay

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell

_STYLES: Mapping[Kind, str] = {
    "system": "$foreground-muted",
    "tools": "$secondary",
    "files": "$warning",
    "turns": "$primary",
    "results": "$success",
    "images": "$accent",
}
_FRAME_CELLS = 6
"""Border and padding around the bar."""


class ContextScreen(Overlay):
    """Returns the slash command that compacts the session, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "dismiss('/compact')", "compact"),
        Binding("escape,q", "dismiss(None)", "close"),
    ]
    DEFAULT_CSS = """
    ContextScreen {
        & > Vertical { max-width: 110; }
        VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
        VerticalScroll > Static { margin-bottom: 1; }
    }
    """

    def __init__(self, shell: "Shell") -> None:
        super().__init__()
        self._shell = shell

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "context"
            with VerticalScroll():
                yield Static("counting …", id="head", markup=False)
                yield Static("", id="bar", markup=False)
                yield Static("", id="parts", markup=False)
            yield Footer(show_command_palette=False, compact=True)

    @work
    async def on_mount(self) -> None:
        """Measure the next request."""
        self.query_one(VerticalScroll).focus()
        try:
            report = await self._shell.context_report()
        except EcoshellError as error:
            self.query_one("#head", Static).update(visible(str(error)))
            return
        self.call_after_refresh(self._show, report)

    def _show(self, report: ContextReport) -> None:
        self.query_one("#head", Static).update(Content(visible(headline(report))))
        width = max(20, self.query_one(Vertical).size.width - _FRAME_CELLS)
        cells = (
            Content.styled(sign, _STYLES[kind] if kind else "$foreground-muted")
            for sign, kind in bar_cells(report, width)
        )
        legend = [
            Content.assemble((letter, _STYLES[kind]), f" {words}")
            for kind, (letter, words) in KINDS.items()
        ]
        legend.append(Content(f"{FREE} free   | compacted here"))
        self.query_one("#bar", Static).update(
            Content("\n").join((Content("").join(cells), Content("   ").join(legend)))
        )
        head = ("part", "what", "tokens" if report.exact else "≈ tokens", "share")
        self.query_one("#parts", Static).update(Content(table(head, report_rows(report))))
