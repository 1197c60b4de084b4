"""The plan panel, driven by keys and clicks, alone and in a chat."""

from dataclasses import replace

import pytest
from plan_play import (
    BLACKLISTED,
    COUNTED,
    FOLLOWED,
    HELPED,
    PLANNED,
    QUOTA,
    RUN,
    SPENT,
    USED,
    plan_of_many,
)
from side_play import READY, SideApp, said
from tui_play import FINISHED, STARTED, STATUS, FakeShell, eventually

from ecoshell.agent.shell_status import ToolDetails
from ecoshell.events import CallStarted
from ecoshell.messages import ToolSchema
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.screens.schema import SchemaScreen
from ecoshell.tui.side.bars import SummaryLine
from ecoshell.tui.side.plan import PlanPanel
from ecoshell.tui.side.tools import ToolsPanel
from ecoshell.tui.transcript.view import Transcript

pytestmark = pytest.mark.usefixtures("quiet")
WIDE = (120, 36)


def panel(app) -> PlanPanel:
    return app.chat.query_one(PlanPanel)


def doing(app) -> str:
    return str(app.chat.query_one(PromptBar).border_title)


async def test_plan_panel_follows_a_turn(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: "no plan yet" in said(panel(app)))
        app.body.side.handle(STARTED)
        app.body.side.handle(PLANNED)
        await eventually(pilot, lambda: "0/2 ok" in said(panel(app)))
        assert panel(app).title.strip() == "▼ PLAN  $0.0429 of $0.05 left"
        app.body.side.handle(USED)
        await eventually(pilot, lambda: "1/2 ok" in said(panel(app)))
        assert panel(app).title.strip() == "▼ PLAN  $0.0416 of $0.05 left"
        assert "↔ count_text was used" in said(panel(app))
        app.body.side.handle(QUOTA)
        await eventually(pilot, lambda: "2/2 quota" in said(panel(app)))
        app.body.side.handle(BLACKLISTED)
        await eventually(pilot, lambda: "1/1 blacklist" in said(panel(app)))
        app.body.side.handle(SPENT)
        await eventually(pilot, lambda: "0/0 budget" in said(panel(app)))
        assert "↔ a step did not cost what was" in said(panel(app))
        assert panel(app).title.strip() == "▼ PLAN  $0.0009 of $0.05 left"


async def test_plan_is_shown_with_the_next_frame(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        app.body.side.handle(STARTED)
        app.body.side.handle(PLANNED)
        await pilot.pause()
        assert "count_text" in said(panel(app))


async def test_plans_in_quick_succession_are_drawn_once(paths, monkeypatch):
    app = SideApp(paths, past=(STARTED, USED))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        drawn = []
        show = panel(app).show
        monkeypatch.setattr(panel(app), "show", lambda: (drawn.append(1), show()))
        for number in range(1, 200):
            app.body.side.handle(replace(USED, number=number))
        await pilot.pause()
        assert drawn == [1]
        assert panel(app).state.plan.number == 199


async def test_registration_draws_no_plan(paths, monkeypatch):
    app = SideApp(paths, past=(STARTED, PLANNED))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        drawn = []
        monkeypatch.setattr(panel(app), "refresh", lambda *_, **__: drawn.append(1))
        app.body.side.handle(COUNTED[0])
        app.chat.show(replace(READY, next_nano=1))
        await pilot.pause()
        assert drawn == []


async def test_enter_opens_the_arithmetic_and_minus_folds(paths):
    app = SideApp(paths, past=(STARTED, USED))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f3", "down", "enter")
        await pilot.pause()
        assert app.wanted == [("why", "read_file")]
        await pilot.press("minus")
        await pilot.pause()
        assert panel(app).region.height == 1
        assert panel(app).title.strip() == "► PLAN  $0.0416 of $0.05 left"
        await pilot.press("enter")
        await pilot.pause()
        assert panel(app).region.height > 5
        assert len(app.wanted) == 1


async def test_tall_screen_shows_details_of_the_highlighted_row_on_focus(paths):
    app = SideApp(paths, past=(STARTED, USED))
    async with app.run_test(size=(120, 70)) as pilot:
        await pilot.press("f3")
        await eventually(
            pilot, lambda: said(panel(app)).endswith("$0.0012 ± $0.0003: worth its price")
        )
        assert "√ count_text" in said(panel(app))
        await pilot.press("f2")
        await eventually(pilot, lambda: "worth its price" not in said(panel(app)))
        assert "Counts words." in said(app.chat.query_one(ToolsPanel))


async def test_filter_finds_a_tool_and_escape_clears_it(paths):
    app = SideApp(paths, past=(STARTED, plan_of_many()))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f3", "slash", *"oper 041", "enter")
        await pilot.pause()
        assert app.wanted == [("why", "service_04_operation_041")]
        await pilot.press("escape")
        await pilot.pause()
        assert len(panel(app).visible_names) == 60
        assert panel(app).has_focus
        assert said(panel(app)).splitlines()[-4] == "  and 16,404 more tools"


async def test_irrelevant_tools_share_a_line_until_filtered_or_unfolded(paths):
    new = tuple(replace(PLANNED.rows[2], tool=f"new_tool_{at}", chance=0.05) for at in range(4))
    app = SideApp(paths, past=(STARTED, replace(PLANNED, rows=(*PLANNED.rows[:2], *new, RUN))))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f3")
        await pilot.pause()
        assert panel(app).visible_names == ["count_text", "read_file"]
        assert "► 5 more · m shows them" in said(panel(app))
        await pilot.press("slash", *"tool_3", "enter")
        await pilot.pause()
        assert app.wanted == [("why", "new_tool_3")]
        assert "m shows them" not in said(panel(app))
        await pilot.press("escape", "m", "end", "enter")
        await pilot.pause()
        assert "▼ 5 more · m hides them" in said(panel(app))
        assert app.wanted[1:] == [("why", "run_command")]
        y = next(y for y in range(30) if "m hides them" in panel(app).render_line(y).text)
        await pilot.click(PlanPanel, offset=(5, y + 1))
        assert panel(app).visible_names == ["count_text", "read_file"]
        assert panel(app).current == "read_file"


async def test_switching_plans_off_empties_the_panel(paths):
    app = SideApp(paths, past=(STARTED, PLANNED, FINISHED))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f3", "down")
        app.chat.show(replace(READY, plan="off"))
        await eventually(pilot, lambda: "plan off" in said(panel(app)))
        assert panel(app).title.strip() == "▼ PLAN  off"
        await pilot.press("down", "end", "pageup", "enter")
        await pilot.pause()
        assert app.wanted == []
        assert panel(app).folded


async def test_narrow_summary_counts_planned_tools(paths):
    app = SideApp(paths, past=(STARTED, PLANNED))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(
            pilot, lambda: "plan 3 of 5" in str(app.chat.query_one(SummaryLine).render())
        )
        app.chat.show(replace(READY, plan="off"))
        await eventually(pilot, lambda: "plan" not in str(app.chat.query_one(SummaryLine).render()))
        assert "plan" not in str(app.chat.query_one(SummaryLine).render())


@pytest.mark.parametrize("size", [(30, 10), (60, 24), (99, 20), (100, 8)])
async def test_plan_panel_works_at_every_size(paths, size):
    app = SideApp(paths, past=(STARTED, plan_of_many()))
    async with app.run_test(size=size) as pilot:
        await pilot.press("f3", "end", "home", "pagedown")
        await pilot.pause()
        assert panel(app).region.height > 1
        output = [
            panel(app).render_line(y).text
            for y in range(panel(app).scrollable_content_region.height)
        ]
        assert any("√" in line for line in output)


async def test_estimate_is_shown_until_the_turn_ends(make_app):
    app = make_app(FakeShell(events=FOLLOWED, stops_at=2))
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"how many", "enter")
        await eventually(
            pilot, lambda: "working, about $0.002 to $0.011 · 0 s · esc stops" in doing(app)
        )
        assert "plan: 3 of 5 tools" in app.chat.query_one(Transcript).column.plain
        await pilot.press("escape")
        await eventually(pilot, lambda: doing(app) == "")


async def test_transcript_shows_the_first_plan_and_newly_forbidden_tools(make_app):
    app = make_app(FakeShell(events=(STARTED, PLANNED, *COUNTED, HELPED, USED, QUOTA, FINISHED)))
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"how many", "enter")
        await eventually(pilot, lambda: "saved" in app.chat.query_one(Transcript).column.plain)
        text_shown = [
            line.strip()
            for line in app.chat.query_one(Transcript).column.plain.splitlines()
            if "plan:" in line
        ]
        assert text_shown == [
            "·  plan: 3 of 5 tools",
            "·  plan: count_text (quota) may no longer be used",
        ]


async def test_enter_shows_the_arithmetic_above_the_schema(make_app):
    schema = ToolSchema("count_text", "Counts words.", {})
    shell = FakeShell(
        state=replace(STATUS, planned=BLACKLISTED),
        all_details={"count_text": ToolDetails(schema, ("read",), 0, 120, True, "", "")},
        printed={"/plan why count_text": "value  0.91 = (Σ w·helpful \x1b[31m4.10 + 0.1)"},
    )
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press("f3", "enter")
        await eventually(pilot, lambda: isinstance(app.screen, SchemaScreen))
        await eventually(pilot, lambda: "value  0.91" in str(app.screen.query_one("#plan").visual))
        assert "\x1b" not in str(app.screen.query_one("#plan").visual)
        await eventually(
            pilot, lambda: "Counts words." in str(app.screen.query_one("#about").visual)
        )
        await pilot.press("escape")
        await eventually(pilot, lambda: app.screen is app.chat)
        assert "value" not in app.chat.query_one(Transcript).column.plain
    assert shell.commands == ["/plan why count_text"]


async def test_one_key_explains_the_tool_used_last(make_app):
    schema = ToolSchema("read_file", "Reads a file.", {})
    details = ToolDetails(schema, ("read",), 0, 120, True, "", "")
    turn = (STARTED, PLANNED, CallStarted("c1", "read_file", {"path": "x"}), FINISHED)
    app = make_app(FakeShell(turn, all_details={"read_file": details}))
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press("alt+w")
        await eventually(
            pilot, lambda: "There is no plan yet" in str(app.chat.query_one("#hint").visual)
        )
        await pilot.press(*"how many", "enter")
        await eventually(pilot, lambda: "alt+w why" in said(panel(app)))
        await pilot.press("alt+w")
        await eventually(pilot, lambda: isinstance(app.screen, SchemaScreen))
    assert app.shell.commands == ["/plan why read_file"]
