"""The tools panel: which tools are known, which are registered, and what they take of the context."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from ecoshell.events.describe import part_size
from ecoshell.tui.side.panel import COMFORTABLE, FILTER, Line, Listing, ListPanel, bar, percent, row
from ecoshell.tui.side.panel_state import PanelState, ToolState
from ecoshell.tui.text import fit, fit_middle, left, right, tokens
from ecoshell.untrusted import visible_line

_SIZE = 6
_BY = {"user": "by you", "upfront": "up front", "agent": "agent"}
_LONG_WHEN_FROM = 56
"""Columns from which on a row says in full when a tool was registered, and by whom."""
_AROUND = 5
"""Lines round the list: the title, three above it and a free one below."""


def tool_list() -> Listing[ToolState]:
    """Registered tools first, as those registered last come into the context last."""
    return Listing(lambda tool: tool.name, lambda tool: 0 if tool.registered else 1)


def tool_line(tool: ToolState, width: int) -> Line:
    """One tool in a line: its state, its name, the tokens of its document, and when it was registered."""
    when = when_words(tool, long=width >= _LONG_WHEN_FROM)
    column = 24 if width >= _LONG_WHEN_FROM else 9
    room = width - 2 - _SIZE - 1 - column
    name = left(fit_middle(visible_line(tool.name), room), room)
    numbers = f"{right(tokens(tool.tokens), _SIZE)} {left(when, column)}"
    if tool.registered:
        return (("● ", "good"), (name, "text"), (numbers, "muted"))
    return ((f"○ {name}{numbers}", "muted"),)


def when_words(tool: ToolState, *, long: bool) -> str:
    """When a tool was registered, and by whom: `turn 3`, or `by you`, or nothing while it is not."""
    if not tool.registered:
        return ""
    by = _BY.get(tool.by, visible_line(tool.by))
    turn = f"turn {tool.turn}" if tool.turn else ""
    if long:
        step = f" step {tool.step}" if tool.step else ""
        return " · ".join(part for part in (by, f"{turn}{step}") if part)
    return turn if tool.by == "agent" and turn else by


def about(tool: ToolState, width: int) -> list[Line]:
    """What is known of one tool, in two lines."""
    state = when_words(tool, long=True) or "by name only"
    description = visible_line(tool.description) or "no description"
    name = fit_middle(visible_line(tool.name), width)
    return [((name, "tool"),), ((fit(f"{state} — {description}", width), "muted"),)]


class ToolsPanel(ListPanel[ToolState]):
    """A list of tools between what they take of the context and what is known of the highlighted one."""

    NAME = "tools"
    HELP = (
        "● is registered: its document is in the context. ○ is known by name. Enter shows the document, space "
        "registers or unregisters, / filters, - folds the panel."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "document"),
        Binding("space", "switch('either')", "register"),
        Binding("r", "switch('in')", "register", show=False),
        Binding("u", "switch('out')", "unregister", show=False),
        FILTER,
    ]

    MORE = "schema"

    def __init__(self, state: PanelState) -> None:
        super().__init__(state, tool_list())

    @property
    def wanted(self) -> int:
        if self.folded:
            return 1
        return _AROUND + len(self._told) + max(1, min(len(self.list.shown), COMFORTABLE))

    def known(self) -> Sequence[ToolState]:
        return self.state.tools

    def above(self, width: int) -> list[Line]:
        standing = self.state.standing
        if standing is None:
            return [(("known once the session is open", "muted"),)]
        now, everything = self.state.context_tokens, standing.everything_tokens
        approx = "" if standing.exact else "≈ "
        lines: list[Line] = [row("context", f"{approx}{tokens(now)} of {tokens(everything)} tok", width)]
        if not self.roomy:
            return lines
        used = percent(now, everything)
        drawn = bar(((now, "█"),), everything, max(0, width - len(used) - 1))
        lines.append(((drawn, "tool"), (f" {used}", "text")))
        if self.state.saved_tokens:
            lines.append(row("saved", f"{tokens(self.state.saved_tokens)} tok so far", width))
        return [*lines, *(row(label, value, width) for label, value in self._told)]

    @property
    def _told(self) -> list[tuple[str, str]]:
        """What the model is told besides tools, and what that takes of the context."""
        told = self.state.standing.context if self.state.standing else None
        if told is None:
            return []
        labels = {"user": "AGENTS.md", "project": "AGENTS.md", "facts": "facts"}
        yours = {"user": ", yours"}
        return [(labels[one.name], f"{part_size(one, told, ' tok')}{yours.get(one.name, '')}") for one in told.parts]

    def nothing(self) -> str:
        return "no tool is known" if self.state.standing else ""

    def item_line(self, item: ToolState, width: int) -> Line:
        return tool_line(item, width)

    def about(self, item: ToolState, width: int) -> list[Line]:
        return about(item, width)

    def gist(self) -> str:
        registered = sum(tool.registered for tool in self.list.items)
        return f"{registered} of {len(self.list.items)}" if self.state.standing else ""

    def action_switch(self, wanted: str) -> None:
        """Ask for the highlighted tool to be registered or taken out, whichever it is not and is wanted."""
        tool = self.list.current
        if tool is not None and wanted in ("either", "out" if tool.registered else "in"):
            self.ask_for("unregister" if tool.registered else "register")
