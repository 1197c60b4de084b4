"""Lines that must fit a terminal of 80 columns."""

import re
from collections.abc import Callable

import pytest
from plan_play import ADVICE, PLANNED, TOKEN_PLAN
from textual.events import AppBlur, AppFocus
from textual.pilot import Pilot
from tui_play import COUNTING, FakeShell, eventually

from ecoshell.agent.plan_text import plan_table
from ecoshell.events import PlanChanged
from ecoshell.models import StartingModel
from ecoshell.tui.app import ChatApp
from ecoshell.tui.keys import KeyLine
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.screens.start_question import StartQuestion
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


async def test_the_highlighted_offer_of_the_first_start_is_in_sight(make_app: MakeApp) -> None:
    offers = [
        StartingModel(name, "key", f"{name}: your key, $0.50 in, $3.00 out per million tokens")
        for name in ("first", "second", "third")
    ]
    app = make_app(FakeShell(offers=offers), model=None)
    async with app.run_test(size=(40, 12)) as pilot:
        await eventually(pilot, lambda: app.screen.query(StartQuestion))
        for offer in offers:
            row = f"{offer.name}: your"
            await eventually(pilot, lambda row=row: any(row in line for line in screen(pilot)))
            assert row in "\n".join(screen(pilot))
            await pilot.press("down")


@pytest.mark.parametrize(
    ("columns", "title"),
    [
        (40, "| 17.6 MB of 98.4 MB · esc stops"),
        (60, "| 17.6 MB of 98.4 MB · 12.7 s left · 0 s · esc stops"),
        (80, "| 17.6 MB of 98.4 MB · 12.7 s left · 5.0 MB/s · 0 s · esc stops"),
        (
            100,
            "| 17.6 MB of 98.4 MB · 12.7 s left · 5.0 MB/s · downloading a/mod…GUF:Q4_K_M · 0 s · esc stops",
        ),
    ],
)
async def test_a_download_keeps_amounts_time_left_and_the_stop_key(
    make_app: MakeApp, columns: int, title: str
) -> None:
    app = make_app(FakeShell())
    async with app.run_test(size=(columns, 24)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        progress = "17.6 MB of 98.4 MB · 12.7 s left · 5.0 MB/s"
        app.chat.view.show_progress(f"{progress} · downloading a/model-of-a-long-name-GGUF:Q4_K_M")
        await eventually(pilot, lambda: any("esc stops" in line for line in screen(pilot)))
        assert f" {title} ─" in "\n".join(screen(pilot))


@pytest.mark.parametrize(
    ("columns", "mode", "title"),
    [
        (54, "ask", "▼ new content below: end goes there · esc stops"),
        (53, "ask", "▼ new content below: end goes there · esc stops"),
        (52, "ask", "counting words · 0 s · esc stops"),
        (16, "ask", "esc stops"),
        (40, "edits", "edits are accepted ·… · esc stops"),
    ],
)
async def test_a_narrow_title_keeps_the_stop_key(
    make_app: MakeApp, columns: int, mode: str, title: str
) -> None:
    app = make_app(FakeShell())
    async with app.run_test(size=(columns, 24)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        bar = app.query_one(PromptBar)
        bar.set_approval_mode(mode)
        bar.set_activity("counting words")
        bar.show_news(news=True)
        await pilot.pause()
        shown = str(bar.border_title).strip(" |/-\\")
        assert re.sub(r"\d+ s", "0 s", shown) == title


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
