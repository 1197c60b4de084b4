"""The tools panel: known and registered tools, and the context tokens they take."""

from collections.abc import Mapping
from typing import ClassVar

from textual.binding import Binding, BindingType

from ecoshell.events.describe import part_size
from ecoshell.messages import visible_line
from ecoshell.tui.side.panel import FILTER, Line, ListPanel, ToolRequested, bar, percent, row
from ecoshell.tui.side.panel_state import ToolState
from ecoshell.tui.text import align_left, align_right, fit, fit_middle, tokens

_SIZE = 6
_BY = {"user": "by you", "upfront": "at start", "agent": "agent", "first_call": "first call"}
_FULL_ORIGIN_MIN_WIDTH = 56
_FIXED_LINES = 6
"""Lines other than the list: the title, four above the list and one free line below."""


def when_words(tool: ToolState, *, long: bool) -> str:
    """When or by whom a tool was registered: `turn 3` or `by you`; empty if it is not registered."""
    if not tool.registered:
        return ""
    by = _BY.get(tool.by, visible_line(tool.by))
    turn = f"turn {tool.turn}" if tool.turn else ""
    if long:
        step = f" step {tool.step}" if tool.step else ""
        return " · ".join(part for part in (by, f"{turn}{step}") if part)
    return turn if tool.by in ("agent", "first_call") and turn else by


class ToolsPanel(ListPanel[ToolState]):
    """The list of tools, below their context use and above details of the highlighted tool."""

    NAME = "tools"
    HELP = (
        "● is loaded: its schema is in the context. ○ is known by name, × blocked by the plan. Enter shows the "
        "schema, r registers or unregisters, / filters, - folds the panel."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "schema"),
        Binding("r", "switch('either')", "register"),
        Binding("space", "switch('either')", "register", show=False),
        Binding("u", "switch('out')", "unregister", show=False),
        FILTER,
    ]

    MORE = "schema"
    NOTHING = "no tools known"

    def load_items(self) -> Mapping[str, ToolState]:
        """Loaded tools come first, then those known by name, then blocked ones."""
        return {tool.name: tool for tool in sorted(self.state.tools, key=lambda tool: (tool.blocked, not tool.by))}

    def header_lines(self, width: int) -> list[Line]:
        status = self.state.status
        context = status.context if status else None
        self.fixed_lines = _FIXED_LINES + len(context.parts if context else ()) + (0 if self.visible_names else 1)
        registered = sum(tool.registered for tool in self.items.values())
        self.gist = f"{registered} of {len(self.items)} loaded" if status else ""
        if status is None:
            return [(("available once the session is open", "muted"),)]
        now, everything = self.state.context_tokens, status.everything_tokens
        approx = "" if status.exact else "≈ "
        lines: list[Line] = [row("context", f"{approx}{tokens(now)} of {tokens(everything)} tok", width)]
        if not self.roomy:
            return lines
        blocked = sum(tool.blocked for tool in self.items.values())
        known = sum(not tool.registered and not tool.blocked for tool in self.items.values())
        groups: Line = ((f"● {registered} loaded", "good"), (f"   ○ {known} known", "muted"))
        lines.append((*groups, (f"   × {blocked} blocked", "error")) if blocked else groups)
        used = percent(now, everything)
        drawn = bar(((now, "█"),), everything, max(0, width - len(used) - 1))
        lines.append(((drawn, "tool"), (f" {used}", "text")))
        if self.state.saved_tokens:
            lines.append(row("saved", f"{tokens(self.state.saved_tokens)} tok so far", width))
        if context is not None:  # instructions and facts
            for part in context.parts:
                yours = ", yours" if part.name == "user" else ""
                label = "facts" if part.name == "facts" else "AGENTS.md"
                lines.append(row(label, f"{part_size(part, context, ' tok')}{yours}", width))
        return lines

    def item_line(self, item: ToolState, width: int) -> Line:
        """A tool in one line: sign, name, schema tokens, and when it was registered."""
        is_wide = width >= _FULL_ORIGIN_MIN_WIDTH
        when, column = when_words(item, long=is_wide), 24 if is_wide else 9
        if item.last_used:
            when = f"{when} · used last" if is_wide and when else "used last"
        room = width - 2 - _SIZE - 1 - column
        name = align_left(fit_middle(visible_line(item.name), room), room)
        numbers = f"{align_right(tokens(item.tokens), _SIZE)} {align_left(when, column)}"
        if item.blocked:
            return (("× ", "error"), (name, "muted"), (numbers, "muted"))
        if item.registered:
            return (("● ", "good"), (name, "strong" if item.last_used else "text"), (numbers, "muted"))
        return ((f"○ {name}{numbers}", "muted"),)

    def detail_lines(self, item: ToolState, width: int) -> list[Line]:
        state = when_words(item, long=True) or "by name only"
        description = visible_line(item.description) or "no description"
        name = fit_middle(visible_line(item.name), width)
        return [((name, "tool"),), ((fit(f"{state} — {description}", width), "muted"),)]

    def action_switch(self, target: str) -> None:
        """Register or unregister the highlighted tool; `target` is `in`, `out` or `either`."""
        tool = self.items.get(self.current)
        if tool is not None and target in ("either", "out" if tool.registered else "in"):
            self.post_message(ToolRequested(tool.name, "unregister" if tool.registered else "register"))
