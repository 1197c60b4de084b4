"""The line above the transcript and the line that stands for the panels on a narrow screen."""

from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from textual.widgets import Static

from ecoshell.untrusted import visible_line

if TYPE_CHECKING:
    from ecoshell.agent.shell import Standing


class TitleBar(Static):
    """Which session this is, who thinks in it, and with which model."""

    DEFAULT_CSS = """
    TitleBar { height: 1; padding: 0 1; background: $panel; color: $foreground; text-wrap: nowrap; }
    """

    def __init__(self, model: str) -> None:
        super().__init__("", markup=False)
        self._left = "ecoshell"
        self._right = visible_line(model)

    def on_resize(self) -> None:
        """Set the right side to the right edge."""
        self._set()

    def say(self, state: str) -> None:
        """Show a state, such as `opening …`, on the right."""
        self._right = visible_line(state)
        self._set()

    def show(self, standing: "Standing") -> None:
        """Show the session's title, mode, strategy and model."""
        title = visible_line(standing.title) or "new session"
        self._left = f"ecoshell · {title}"
        self._right = f"{standing.mode} · {standing.strategy} ─ {visible_line(standing.model)}"
        self._set()

    def _set(self) -> None:
        width = self.content_size.width
        right = set_cell_size(self._right, min(cell_len(self._right), max(0, width - 10)))
        room = width - cell_len(right) - 1
        left = self._left if cell_len(self._left) <= room else set_cell_size(self._left, max(0, room - 1)) + "…"
        self.update(set_cell_size(left, max(0, room)) + " " + right)


class SummaryLine(Static):
    """The panels in one line, for screens too narrow to show them."""

    DEFAULT_CSS = """
    SummaryLine { height: 1; padding: 0 1; color: $foreground 70%; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
