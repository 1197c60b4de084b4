"""The context screen, driven by keys."""

from dataclasses import dataclass

from picker_play import Stage
from tui_play import FakeShell, eventually

from ecoshell.agent.context_report import ContextReport, ContextUse
from ecoshell.tui.commands import screen_for
from ecoshell.tui.screens.context import ContextScreen

REPORT = ContextReport(
    "openai/gpt [b]",
    200_000,
    90_000,
    exact=False,
    compact_at=160_000,
    uses=(
        ContextUse("system", "system prompt", 2_000),
        ContextUse("tools", "read_file", 500),
        ContextUse("files", "AGENTS.md", 7_500),
        ContextUse("turns", "questions, replies and calls", 18_400),
        ContextUse("results", "run_command", 60_000),
        ContextUse("images", "2 images", 1_600),
    ),
)


@dataclass
class ReportingShell(FakeShell):
    async def context_report(self) -> ContextReport:
        return REPORT


async def test_context_screen_shows_bar_table_and_free_space():
    app = Stage(ContextScreen(ReportingShell()))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: "90,000 of 200,000" in app.text)
        for words in (
            "openai/gpt [b]",
            "(45 %)",
            "110,000 left",
            "r results",
            "run_command",
            "60,000",
            "30.0 %",
        ):
            assert words in app.text
        bar = next(line for line in app.seen if "rrrr" in line)
        assert "|" in bar
        assert bar.count("r") > bar.count("q") > bar.count("f") > bar.count("s") > 0
        await pilot.press("escape")
        assert app.given == [None]


async def test_context_screen_key_compacts():
    app = Stage(screen_for("/context", ReportingShell()))
    async with app.run_test(size=(60, 20)) as pilot:
        await eventually(pilot, lambda: "left" in app.text)
        await pilot.press("c")
        assert app.given == ["/compact"]
