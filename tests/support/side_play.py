"""A small app with the side panels and bars, fed with real events."""

from collections.abc import Iterable
from dataclasses import replace

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Footer, Input, Static
from tui_play import CAP, STATUS

from ecoshell.agent.shell_status import ShellStatus, ToolRow
from ecoshell.budget import CapState
from ecoshell.events import (
    BudgetHeld,
    BudgetSettled,
    Event,
    StepStarted,
    ToolRegistered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.messages import Usage
from ecoshell.paths import Paths
from ecoshell.tui.side.bars import TitleBar
from ecoshell.tui.side.layout import SideLayout
from ecoshell.tui.side.panel import Line, Panel, ToolRequested
from ecoshell.tui.themes import ThemedApp

NEAR = replace(CAP, spent=441_000_000, held=12_000_000)
REACHED = replace(CAP, spent=500_000_000, held=0)
TOKENS = CapState("day", "tokens", 200_000, 63_400, 1_200)
READY = replace(STATUS, next_nano=7_100_000, next_tokens=2_300)
TURN: tuple[Event, ...] = (
    TurnStarted(1, "how many words?", "embedded", "single", "react"),
    StepStarted(1, "single", "embedded"),
    BudgetHeld(1, "single", "embedded", 7_100_000, 2_300, 512, clamped=False),
    BudgetSettled(1, "single", "embedded", 3_100_000, Usage(1_900, 60, cached=1_200), True, 2.1),
    ToolRegistered("count_text", 142, True, 1, "agent"),
    TurnFinished(1, "answered", "", 3_100_000, Usage(1_900, 60), 1, ("count_text",), 2.1, 4_200),
)
TWO_MODELS: tuple[Event, ...] = (
    *TURN,
    TurnStarted(2, "and lines?", "openai/gpt-4.1-mini", "umi", "react"),
    StepStarted(1, "planner", "openai/gpt-4.1-mini"),
    BudgetSettled(
        2, "planner", "openai/gpt-4.1-mini", 12_400_000, Usage(8_700, 420, cached=4_100), True, 6.4
    ),
    BudgetHeld(
        3,
        "caller",
        "local:/home/me/models/qwen2.5-1.5b-instruct-q4.gguf",
        0,
        1_900,
        256,
        clamped=False,
    ),
)


def plain(lines: Iterable[Line]) -> str:
    """The text of a panel's lines without styles."""
    return "\n".join("".join(text for text, _ in line) for line in lines)


def said(panel: Panel) -> str:
    """The visible text of a panel."""
    rows = (
        panel.render_line(y).text.rstrip() for y in range(panel.scrollable_content_region.height)
    )
    return "\n".join(rows).strip("\n")


def many_tools(count: int = 527) -> ShellStatus:
    """A status with this many tools, every fiftieth registered; some names are wide, hostile or very long."""
    odd = (
        "数える_言葉_とても長い名前の道具",
        "tool\x1b[31mred\u202e",
        "a_name_that_is_longer_than_any_panel_" * 3,
    )
    names = [*odd, *(f"service_{at % 37:02d}_operation_{at:03d}" for at in range(count - len(odd)))]
    tools = tuple(
        ToolRow(
            name,
            90 + at * 7 % 400,
            at % 50 == 0,
            "user" if at % 100 else "upfront",
            f"Does thing {at}.",
        )
        for at, name in enumerate(names)
    )
    return replace(READY, tools=tools, context_tokens=5_230, everything_tokens=141_200)


class SideScreen(Screen[None]):
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - declared so by Textual
    BINDINGS = [  # noqa: RUF012 - declared so by Textual
        Binding("f2", "tab('tools')", "tools"),
        Binding("f3", "tab('plan')", "plan"),
        Binding("f4", "tab('cost')", "cost"),
        Binding("f5", "side", "side"),
    ]

    def __init__(self, status: ShellStatus | None, past: Iterable[Event]) -> None:
        super().__init__()
        self._status = status
        self._past = past
        self.body = SideLayout(Static("the transcript", id="main"))

    def compose(self) -> ComposeResult:
        yield TitleBar("opening embedded …")
        yield self.body
        yield Input(placeholder="the prompt", id="prompt", compact=True)
        yield Footer(show_command_palette=False, compact=True)

    async def on_mount(self) -> None:
        self.query_one(Input).focus()
        await self.body.mount_panels()
        for event in self._past:
            self.body.side.handle(event)
        if self._status is not None:
            self.show(self._status)

    def show(self, status: ShellStatus) -> None:
        self.query_one(TitleBar).show(status, status.caps)
        self.body.side.show(status, status.caps)

    async def action_tab(self, tab: str) -> None:
        await self.body.open(tab)

    async def action_side(self) -> None:
        await self.body.open()


class SideApp(ThemedApp[int]):
    """The chat's use of the side panels, without a chat; `wanted` records requested tools."""

    def __init__(
        self, paths: Paths, status: ShellStatus | None = READY, past: Iterable[Event] = ()
    ) -> None:
        super().__init__(paths)
        self.chat = SideScreen(status, past)
        self.body = self.chat.body
        self.wanted: list[tuple[str, str]] = []

    def get_default_screen(self) -> Screen[None]:
        return self.chat

    @on(ToolRequested)
    def note(self, request: ToolRequested) -> None:
        self.wanted.append((request.action, request.tool))
