"""The tools in a list, and each of them in a line."""

from ecoshell.tui.figures import tokens
from ecoshell.tui.side.board import ToolState
from ecoshell.tui.side.listing import Listing
from ecoshell.tui.side.sheet import Line, fit, fit_middle, left, right
from ecoshell.untrusted import visible_line

_SIZE = 6
_BY = {"user": "by you", "upfront": "up front", "agent": "agent"}
_LONG_WHEN_FROM = 56
"""Columns from which on a row says in full when a tool was registered, and by whom."""


class ToolList(Listing[ToolState]):
    """Registered tools first, as those registered last come into the context last."""

    def __init__(self) -> None:
        super().__init__(lambda tool: tool.name, lambda tool: 0 if tool.registered else 1)

    @property
    def registered(self) -> int:
        """How many of the known tools are registered."""
        return sum(tool.registered for tool in self.items)


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
    return [((name, "accent"),), ((fit(f"{state} — {description}", width), "muted"),)]
