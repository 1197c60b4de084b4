"""Lines that must fit a terminal of 80 columns."""

from collections.abc import Callable

import pytest
from plan_play import ADVICE, PLANNED, TOKEN_PLAN
from textual.events import AppBlur, AppFocus
from textual.pilot import Pilot
from tui_play import COUNTING, FakeShell, eventually

from ecoshell.agent.plan_text import plan_table
from ecoshell.events import PlanChanged
from ecoshell.tui.app import ChatApp
from ecoshell.tui.keys import KeyLine
from ecoshell.tui.transcript.view import Transcript

MakeApp = Callable[..., ChatApp]


def screen(pilot: Pilot[int]) -> list[str]:
    return [
        "".join(item.text for item in strip)
        for strip in pilot.app.screen._compositor.render_strips()
    ]


@pytest.mark.parametrize("plan", [PLANNED, TOKEN_PLAN, ADVICE])
async def test_each_row_of_a_plan_is_one_line(make_app: MakeApp, plan: PlanChanged) -> None:
    table = plan_table(plan.rows, plan.unit, enforced=plan.enforced)
    app = make_app(FakeShell(printed={"/plan": table}))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"/plan", "enter")
        await eventually(
            pilot, lambda: "low past success" in app.chat.query_one(Transcript).column.plain
        )
        for row in table.splitlines():
            await eventually(pilot, lambda row=row: any(row in line for line in screen(pilot)))
        assert max(map(len, table.splitlines())) < 80


def keys(pilot: Pilot[int]) -> list[str]:
    """The labels of the completely visible keys."""
    return screen(pilot)[-1].split()


async def test_narrow_footer_keeps_keys_of_the_focused_widget(make_app: MakeApp) -> None:
    app = make_app(FakeShell(COUNTING))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: "f4 cost ^q quit ^p commands" in screen(pilot)[-1])
        await pilot.press("tab")
        await eventually(
            pilot, lambda: "esc prompt f1 help ^q quit ^p commands" in screen(pilot)[-1]
        )
        await pilot.press("f2")
        await eventually(pilot, lambda: "r register / filter f1 help" in screen(pilot)[-1])
        assert keys(pilot)[-2:] == ["^p", "commands"]
        await pilot.resize_terminal(120, 36)
        await eventually(pilot, lambda: "f4 cost ^q quit ^p commands" in screen(pilot)[-1])


async def test_footer_is_drawn_again_only_for_other_keys(make_app: MakeApp) -> None:
    app = make_app(FakeShell(COUNTING))
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: "f4 cost ^q quit ^p commands" in screen(pilot)[-1])
        footer = app.screen.query_one(KeyLine)
        before = list(footer.children)
        app.screen.refresh_bindings()
        await pilot.pause()
        assert list(footer.children) == before
        app.post_message(AppBlur())
        await pilot.press("tab")
        app.post_message(AppFocus())
        await eventually(pilot, lambda: "esc prompt" in screen(pilot)[-1])
