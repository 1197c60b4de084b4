"""The context screen: a bar and a table of what fills the model's context."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content

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
from ecoshell.tui.screens.overlay import Sheet

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
_FREE = "$foreground-muted"
_FRAME_CELLS = 6
"""Border and padding around the bar."""


class ContextScreen(Sheet):
    """Returns the slash command that compacts the session, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "dismiss('/compact')", "compact"),
        Binding("escape,q", "dismiss(None)", "close"),
    ]

    def __init__(self, shell: "Shell") -> None:
        super().__init__("context", head="counting …", bar="", parts="")
        self._shell = shell

    @work
    async def on_mount(self) -> None:
        """Measure the next request."""
        try:
            report = await self._shell.context_report()
        except EcoshellError as error:
            self.fill("head", visible(str(error)))
            return
        self.call_after_refresh(self._show, report)

    def _show(self, report: ContextReport) -> None:
        self.fill("head", visible(headline(report)))
        width = max(20, self.query_one(Vertical).size.width - _FRAME_CELLS)
        signs = bar_cells(report, width)
        cells = (Content.styled(sign, _STYLES[kind] if kind else _FREE) for sign, kind in signs)
        legend = [
            Content.assemble((letter, _STYLES[kind]), f" {words}")
            for kind, (letter, words) in KINDS.items()
        ]
        legend.append(Content(f"{FREE} free   | compacted here"))
        lines = (Content("").join(cells), Content("   ").join(legend))
        self.fill("bar", Content("\n").join(lines))
        head = ("part", "what", "tokens" if report.exact else "≈ tokens", "share")
        self.fill("parts", table(head, report_rows(report)))
