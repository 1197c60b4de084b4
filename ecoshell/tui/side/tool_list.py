"""The known tools as a list to move in: which are shown, in which order, and which one is highlighted."""

from collections.abc import Sequence

from ecoshell.tui.figures import tokens
from ecoshell.tui.fuzzy import best
from ecoshell.tui.side.board import ToolState
from ecoshell.tui.side.sheet import Line, fit, fit_middle, left, right
from ecoshell.untrusted import visible_line

_SIZE = 6
_BY = {"user": "by you", "upfront": "up front", "agent": "agent"}
_LONG_WHEN_FROM = 56
"""Columns from which on a row says in full when a tool was registered, and by whom."""


class ToolList:
    """Registered tools first; while the order is held, none moves under the person's hand."""

    def __init__(self) -> None:
        self.filter = ""
        """What the names shown must fit, the best fit first; empty shows all."""
        self.shown: Sequence[ToolState] = ()
        self.highlighted = 0
        self._tools: dict[str, ToolState] = {}
        self._order: list[str] = []

    @property
    def current(self) -> ToolState | None:
        """The highlighted tool; None while nothing is shown."""
        return self.shown[self.highlighted] if self.shown else None

    @property
    def count(self) -> int:
        """How many tools are known."""
        return len(self._tools)

    @property
    def registered(self) -> int:
        """How many of them are registered."""
        return sum(tool.registered for tool in self._tools.values())

    def put(self, tools: Sequence[ToolState], *, hold: bool) -> None:
        """Take over what is known now; with `hold`, those already listed stay where they are."""
        self._tools = {tool.name: tool for tool in tools}
        if hold:
            listed = dict.fromkeys(name for name in self._order if name in self._tools)
            self._order = [*listed, *(name for name in self._tools if name not in listed)]
            self._list()
        else:
            self.sort()

    def sort(self) -> None:
        """Put the registered ones first, as those registered last come into the context last."""
        self._order = sorted(self._tools, key=lambda name: not self._tools[name].registered)
        self._list()

    def narrow(self, typed: str) -> None:
        """Show only what fits; the highlight goes to the best."""
        self.filter = typed
        self._list()
        self.highlighted = 0

    def move(self, by: int) -> None:
        """Move the highlight, no further than the ends."""
        self.to(self.highlighted + by)

    def to(self, at: int) -> None:
        """Put the highlight here, or at the nearer end."""
        self.highlighted = max(0, min(at, len(self.shown) - 1))

    def _list(self) -> None:
        """Show what fits; the highlight stays on its tool wherever that is now."""
        held = self.current
        tools = [self._tools[name] for name in self._order]
        if self.filter.strip():
            tools, _ = best(self.filter, ((tool.name.lower(), tool) for tool in tools), len(tools))
        self.shown = tools
        at = next((at for at, tool in enumerate(tools) if held is not None and tool.name == held.name), None)
        self.to(self.highlighted if at is None else at)


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
