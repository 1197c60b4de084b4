"""The tools panel: which tools are known, which are registered, and what they take of the context."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from ecoshell.agent.printing import part_size
from ecoshell.tui.figures import tokens
from ecoshell.tui.side.board import Board, ToolState
from ecoshell.tui.side.list_panel import COMFORTABLE, FILTER, ListPanel
from ecoshell.tui.side.sheet import Line, bar, percent, row
from ecoshell.tui.side.tool_list import ToolList, about, tool_line

_AROUND = 5
"""Lines round the list: the title, three above it and a free one below."""


class ToolsPanel(ListPanel[ToolState]):
    """A list of tools between what they take of the context and what is known of the highlighted one."""

    NAME = "tools"
    HELP = (
        "● is registered: its document is in the context. ○ is known by name. Enter shows the document, space "
        "registers or unregisters, / filters, - folds the panel."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "document"),
        Binding("space", "switch", "register"),
        Binding("r", "register", "register", show=False),
        Binding("u", "unregister", "unregister", show=False),
        FILTER,
    ]

    class DocumentWanted(Message):
        """The person wants to read a tool's document."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class RegisterWanted(DocumentWanted):
        """The person wants a tool's document in the context."""

    class UnregisterWanted(DocumentWanted):
        """The person wants a tool's document out of the context."""

    def __init__(self, board: Board) -> None:
        self._tools = ToolList()
        super().__init__(board, self._tools)

    @property
    def wanted(self) -> int:
        if self.folded:
            return 1
        return _AROUND + len(self._told) + max(1, min(len(self.list.shown), COMFORTABLE))

    def known(self) -> Sequence[ToolState]:
        return self.board.tools

    def above(self, width: int) -> list[Line]:
        standing = self.board.standing
        if standing is None:
            return [(("known once the session is open", "muted"),)]
        now, everything = self.board.context_tokens, standing.everything_tokens
        approx = "" if standing.exact else "≈ "
        lines: list[Line] = [row("context", f"{approx}{tokens(now)} of {tokens(everything)} tok", width)]
        if not self.roomy:
            return lines
        used = percent(now, everything)
        drawn = bar(((now, "█"),), everything, max(0, width - len(used) - 1))
        lines.append(((drawn, "accent"), (f" {used}", "text")))
        if self.board.saved_tokens:
            lines.append(row("saved", f"{tokens(self.board.saved_tokens)} tok so far", width))
        return [*lines, *(row(label, value, width) for label, value in self._told)]

    @property
    def _told(self) -> list[tuple[str, str]]:
        """What the model is told besides tools, and what that takes of the context."""
        told = self.board.standing.context if self.board.standing else None
        if told is None:
            return []
        labels = {"user": "AGENTS.md", "project": "AGENTS.md", "facts": "facts"}
        yours = {"user": ", yours"}
        return [(labels[one.name], f"{part_size(one, told, ' tok')}{yours.get(one.name, '')}") for one in told.parts]

    def nothing(self) -> str:
        return "no tool is known" if self.board.standing else ""

    def item_line(self, item: ToolState, width: int) -> Line:
        return tool_line(item, width)

    def about(self, item: ToolState, width: int) -> list[Line]:
        return about(item, width)

    def gist(self) -> str:
        return f"{self._tools.registered} of {len(self._tools.items)}" if self.board.standing else ""

    def open_item(self, item: ToolState) -> None:
        self.post_message(self.DocumentWanted(item.name))

    def action_register(self) -> None:
        """Ask for the highlighted tool to be registered, unless it is."""
        tool = self.list.current
        if tool is not None and not tool.registered:
            self.post_message(self.RegisterWanted(tool.name))

    def action_unregister(self) -> None:
        """Ask for the highlighted tool to be taken out, if it is registered."""
        tool = self.list.current
        if tool is not None and tool.registered:
            self.post_message(self.UnregisterWanted(tool.name))

    def action_switch(self) -> None:
        """Ask for the highlighted tool to be registered, or taken out if it is."""
        self.action_register()
        self.action_unregister()
