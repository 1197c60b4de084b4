"""The tools panel: known and registered tools, and the tokens that their schemas take."""

from collections.abc import Mapping
from typing import ClassVar

from textual.binding import Binding, BindingType

from ecoshell.events.context import part_size
from ecoshell.messages import visible_line
from ecoshell.tui.side.panel import FILTER, Line, ListPanel, Tone, ToolRequested, justify, percent
from ecoshell.tui.side.panel_state import ToolState
from ecoshell.tui.text import align_left, align_right, fit, fit_middle, tokens

_SIZE = 6
_BY = {"user": "by you", "upfront": "at start", "agent": "agent", "first_call": "first call"}
_AHEAD = "with the first question"
_FULL_ORIGIN_MIN_WIDTH = 56
_FIXED_LINES = 3
"""Lines other than the list and facts: the title, the schemas and one free line below."""
_TALL_MIN_HEIGHT = 16
"""Panel height from which savings and the workspace context are shown above the list."""
_GROUPS: tuple[tuple[str, str, Tone], ...] = (
    ("●", "loaded", "good"),
    ("○", "known", "muted"),
    ("×", "blocked", "error"),
)


def when_words(tool: ToolState, *, long: bool) -> str:
    """When or by whom a tool was or will be registered: `turn 3` or `by you`; empty if it is not loaded."""
    if tool.ahead:
        return _AHEAD if long else _BY["upfront"]
    if not tool.registered:
        return ""
    by = _BY.get(tool.by, visible_line(tool.by))
    turn = f"turn {tool.turn}" if tool.turn else ""
    if long:
        step = f" step {tool.step}" if tool.step else ""
        return " · ".join(part for part in (by, f"{turn}{step}") if part)
    return turn if tool.by in ("agent", "first_call") and turn else by


class ToolsPanel(ListPanel[ToolState]):
    """Loaded, known and blocked tools, below the tokens of their schemas and above details of the highlighted tool."""

    NAME = "tools"
    HELP = (
        "● is loaded: its schema is in the context, in a new session with the first question. ○ is known by name, "
        "× blocked by the plan, ► was used last. "
        "The line `schemas` compares the tokens of names and schemas in the prompt with those of all schemas; "
        "`schemas saved so far` adds up the difference over the steps of paid turns. "
        "Enter shows the schema, r registers or unregisters, / filters, - folds the panel."
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
    GROUPS = len(_GROUPS)

    def load_items(self) -> Mapping[str, ToolState]:
        """All tools; the tool used last and the latest registrations come first in their group."""
        tools = sorted(
            self.state.tools, key=lambda tool: (not tool.last_used, -tool.turn, -tool.step)
        )
        return {tool.name: tool for tool in tools}

    def group(self, item: ToolState) -> int:
        return 2 if item.blocked else 0 if item.loaded else 1

    def heading(self, group: int, count: int, width: int) -> Line:
        """The group's name, its number of tools, and how many of them the first question will load."""
        _, name, tone = _GROUPS[group]
        ahead = sum(tool.ahead for tool in self.items.values() if self.group(tool) == group)
        later = f" · {'' if ahead == count else f'{ahead} '}{_AHEAD}" if ahead else ""
        numbers = fit(f"{count}{later}", width - len(name) - 1)
        return ((f"{name.upper()} ", tone), (numbers, "muted")) if count else ()

    def header_lines(self, width: int) -> list[Line]:
        status = self.state.status
        context = status.context if status else None
        is_tall = self._area.height >= _TALL_MIN_HEIGHT
        self.fixed_lines = _FIXED_LINES + (0 if self.visible_names else 1)
        loaded = sum(tool.loaded for tool in self.items.values())
        self.gist = f"{loaded} of {len(self.items)} loaded" if status else ""
        if status is None:
            return [(("available once the session is open", "muted"),)]
        now, everything = self.state.context_tokens, status.everything_tokens
        size = f"{'' if status.exact else '≈ '}{tokens(now)} of {tokens(everything)} tok"
        share = f"{size} · {percent(now, everything).strip()}"
        lines = [justify(("schemas", "muted"), (share, "text"), width)]
        if is_tall and self.state.saved_tokens:
            lines.append(
                justify(
                    ("schemas saved so far", "muted"),
                    (f"{tokens(self.state.saved_tokens)} tok", "text"),
                    width,
                )
            )
        if is_tall and context is not None:
            for part in context.parts:
                label = {"facts": "facts", "user": "your AGENTS.md"}.get(part.name, "AGENTS.md")
                size = part_size(part, context, " tok")
                lines.append(justify((label, "muted"), (size, "text"), width))
        return lines

    def item_line(self, item: ToolState, width: int) -> Line:
        """A tool in one line: sign, name, schema tokens, and when it was registered or that it was used last."""
        is_wide = width >= _FULL_ORIGIN_MIN_WIDTH
        when = "used last" if item.last_used else when_words(item, long=is_wide)
        column = 24 if is_wide else 9
        room = width - 2 - _SIZE - 1 - column
        name = align_left(fit_middle(visible_line(item.name), room), room)
        numbers = f"{align_right(tokens(item.tokens), _SIZE)} {align_right(when, column)}"
        sign, _, tone = _GROUPS[self.group(item)]
        if item.last_used:
            return (("► ", "tool"), (name, "strong"), (numbers, "tool"))
        return (
            (f"{sign} ", tone),
            (name, "text" if item.loaded else "muted"),
            (numbers, "muted"),
        )

    def detail_lines(self, item: ToolState, width: int) -> list[Line]:
        state = when_words(item, long=True) or "by name only"
        description = visible_line(item.description) or "no description"
        name = fit_middle(visible_line(item.name), width)
        return [((name, "tool"),), ((fit(f"{state} — {description}", width), "muted"),)]

    def action_switch(self, target: str) -> None:
        """Register or unregister the highlighted tool; `target` is `in`, `out` or `either`."""
        tool = self.items.get(self.current)
        if tool is not None and target in ("either", "out" if tool.registered else "in"):
            self.post_message(
                ToolRequested(tool.name, "unregister" if tool.registered else "register")
            )
