"""The tools panel: which tools are known, which are registered, and what they take of the context."""

from collections.abc import Mapping
from typing import ClassVar

from textual.binding import Binding, BindingType

from ecoshell.events.describe import part_size
from ecoshell.messages import visible_line
from ecoshell.tui.side.panel import FILTER, Line, ListPanel, ToolWanted, bar, percent, row
from ecoshell.tui.side.panel_state import ToolState
from ecoshell.tui.text import fit, fit_middle, left, right, tokens

_SIZE = 6
_BY = {"user": "by you", "upfront": "up front", "agent": "agent", "first_call": "first call"}
_LONG_WHEN_FROM = 56
"""Columns from which on a row says in full when a tool was registered, and by whom."""
_AROUND = 5
"""Lines round the list: the title, three above it and a free one below."""


def when_words(tool: ToolState, *, long: bool) -> str:
    """When a tool was registered, and by whom: `turn 3`, or `by you`, or nothing while it is not."""
    if not tool.registered:
        return ""
    by = _BY.get(tool.by, visible_line(tool.by))
    turn = f"turn {tool.turn}" if tool.turn else ""
    if long:
        step = f" step {tool.step}" if tool.step else ""
        return " · ".join(part for part in (by, f"{turn}{step}") if part)
    return turn if tool.by in ("agent", "first_call") and turn else by


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
    NOTHING = "no tool is known"

    def known(self) -> Mapping[str, ToolState]:
        """Registered tools stand first, as those registered last come into the context last."""
        return {tool.name: tool for tool in sorted(self.state.tools, key=lambda tool: not tool.registered)}

    def above(self, width: int) -> list[Line]:
        standing = self.state.standing
        told = standing.context if standing else None
        self.around = _AROUND + len(told.parts if told else ()) + (0 if self.shown else 1)
        registered = sum(tool.registered for tool in self.items.values())
        self.gist = f"{registered} of {len(self.items)}" if standing else ""
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
        if told is not None:  # what the model is told besides tools
            for part in told.parts:
                yours = ", yours" if part.name == "user" else ""
                label = "facts" if part.name == "facts" else "AGENTS.md"
                lines.append(row(label, f"{part_size(part, told, ' tok')}{yours}", width))
        return lines

    def item_line(self, item: ToolState, width: int) -> Line:
        """One tool in a line: its state, its name, the tokens of its document, and when it was registered."""
        when = when_words(item, long=width >= _LONG_WHEN_FROM)
        column = 24 if width >= _LONG_WHEN_FROM else 9
        room = width - 2 - _SIZE - 1 - column
        name = left(fit_middle(visible_line(item.name), room), room)
        numbers = f"{right(tokens(item.tokens), _SIZE)} {left(when, column)}"
        if item.registered:
            return (("● ", "good"), (name, "text"), (numbers, "muted"))
        return ((f"○ {name}{numbers}", "muted"),)

    def about(self, item: ToolState, width: int) -> list[Line]:
        state = when_words(item, long=True) or "by name only"
        description = visible_line(item.description) or "no description"
        name = fit_middle(visible_line(item.name), width)
        return [((name, "tool"),), ((fit(f"{state} — {description}", width), "muted"),)]

    def action_switch(self, wanted: str) -> None:
        """Ask for the highlighted tool to be registered or taken out, whichever it is not and is wanted."""
        tool = self.items.get(self.current)
        if tool is not None and wanted in ("either", "out" if tool.registered else "in"):
            self.post_message(ToolWanted(tool.name, "unregister" if tool.registered else "register"))
