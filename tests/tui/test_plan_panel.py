"""The plan panel, as keystrokes and clicks, beside a transcript and in a chat."""

from dataclasses import replace

import pytest
from plan_play import (
    BLACKLISTED,
    COUNTED,
    FOLLOWED,
    HELPED,
    PLANNED,
    QUOTA,
    SPENT,
    USED,
    plan_of_many,
)
from side_play import READY, SideApp, said
from tui_play import FINISHED, STANDING, STARTED, FakeShell, eventually

from ecoshell.agent.shell import ToolDetails
from ecoshell.messages import ToolDocument
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.screens.document import DocumentScreen
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


async def test_the_panel_follows_a_turn_from_planned_to_used_to_replanned_to_forbidden(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: "no plan yet" in said(panel(app)))
        app.body.side.hear(STARTED)
        app.body.side.hear(PLANNED)
        await eventually(pilot, lambda: "0/2 ok" in said(panel(app)))
        assert panel(app).title.strip() == "▼ PLAN  btp"
        app.body.side.hear(USED)
        await eventually(pilot, lambda: "1/2 ok" in said(panel(app)))
        assert panel(app).title.strip() == "▼ PLAN  btp · replanned 1×"
        app.body.side.hear(QUOTA)
        await eventually(pilot, lambda: "2/2 quota" in said(panel(app)))
        app.body.side.hear(BLACKLISTED)
        await eventually(pilot, lambda: "1/1 blacklist" in said(panel(app)))
        app.body.side.hear(SPENT)
        await eventually(pilot, lambda: "0/0 budget" in said(panel(app)))
        assert "↔ a step did not cost what was" in said(panel(app))
        assert panel(app).title.strip().endswith("replanned 4×")


async def test_a_plan_is_shown_with_the_next_frame(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        app.body.side.hear(STARTED)
        app.body.side.hear(PLANNED)
        await pilot.pause()
        assert "count_text" in said(panel(app))


async def test_many_plans_in_one_go_are_drawn_once(paths, monkeypatch):
    app = SideApp(paths, past=(STARTED, USED))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        drawn = []
        show = panel(app).show
        monkeypatch.setattr(panel(app), "show", lambda: (drawn.append(1), show()))
        for number in range(1, 200):
            app.body.side.hear(replace(USED, number=number))
        await pilot.pause()
        assert drawn == [1]
        assert "replanned 198×" in panel(app).title


async def test_a_registration_draws_no_plan(paths, monkeypatch):
    app = SideApp(paths, past=(STARTED, PLANNED))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        drawn = []
        monkeypatch.setattr(panel(app), "refresh", lambda *_, **__: drawn.append(1))
        app.body.side.hear(COUNTED[0])
        app.chat.show(replace(READY, next_nano=1))
        await pilot.pause()
        assert drawn == []


async def test_enter_asks_why_of_the_highlighted_row_and_minus_folds(paths):
    app = SideApp(paths, past=(STARTED, USED))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f3", "down", "enter")
        await pilot.pause()
        assert app.wanted == [("why", "read_file")]
        await pilot.press("minus")
        await pilot.pause()
        assert panel(app).region.height == 1
        assert panel(app).title.strip() == "► PLAN  3 of 5 planned · replanned 1×"
        await pilot.press("enter")
        await pilot.pause()
        assert panel(app).region.height > 5
        assert len(app.wanted) == 1


async def test_on_a_tall_screen_everything_is_said_of_the_highlighted_row_as_soon_as_the_panel_is_gone_to(paths):
    app = SideApp(paths, past=(STARTED, USED))
    async with app.run_test(size=(120, 70)) as pilot:
        await pilot.press("f3")
        await eventually(pilot, lambda: said(panel(app)).endswith("$0.0012 ± $0.0003: worth its price"))
        assert "√ count_text" in said(panel(app))
        await pilot.press("f2")
        await eventually(pilot, lambda: "worth its price" not in said(panel(app)))
        assert "Counts words." in said(app.chat.query_one(ToolsPanel))


async def test_a_filter_finds_a_tool_among_many_and_escape_takes_it_away(paths):
    app = SideApp(paths, past=(STARTED, plan_of_many()))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f3", "slash", *"oper 041", "enter")
        await pilot.pause()
        assert app.wanted == [("why", "service_04_operation_041")]
        await pilot.press("escape")
        await pilot.pause()
        assert len(panel(app).shown) == 60
        assert panel(app).has_focus
        assert said(panel(app)).splitlines()[-4] == "  and 16,404 more tools"


async def test_tools_of_which_nothing_is_known_share_a_line_until_a_filter_finds_them(paths):
    new = tuple(replace(PLANNED.rows[2], tool=f"new_tool_{at}") for at in range(4))
    app = SideApp(paths, past=(STARTED, replace(PLANNED, rows=(*PLANNED.rows[:2], *new))))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f3")
        await pilot.pause()
        assert panel(app).shown == ["count_text", "read_file"]
        assert "√ 4 tools not used yet: / finds them" in said(panel(app))
        await pilot.press("slash", *"tool_3", "enter")
        await pilot.pause()
        assert app.wanted == [("why", "new_tool_3")]
        assert "not used yet" not in said(panel(app))


async def test_no_row_moves_under_the_hand_and_all_are_in_order_afterwards(paths):
    app = SideApp(paths, past=(STARTED, PLANNED))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f3", "down", "down")
        await pilot.pause()
        app.body.side.hear(replace(USED, rows=USED.rows[::-1]))
        await eventually(pilot, lambda: "1/2" in said(panel(app)))
        assert panel(app).shown == [row.tool for row in PLANNED.rows]
        assert panel(app).current == "list_folder"
        await pilot.press("escape")
        await pilot.pause()
        assert panel(app).shown == [row.tool for row in USED.rows[::-1]]


async def test_switching_plans_off_empties_the_panel_and_no_key_breaks_it(paths):
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


async def test_the_summary_of_a_narrow_screen_counts_what_is_planned(paths):
    app = SideApp(paths, past=(STARTED, PLANNED))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: "plan 3 of 5" in str(app.chat.query_one(SummaryLine).render()))
        app.chat.show(replace(READY, plan="off"))
        await eventually(pilot, lambda: "plan" not in str(app.chat.query_one(SummaryLine).render()))
        assert "plan" not in str(app.chat.query_one(SummaryLine).render())


@pytest.mark.parametrize("size", [(30, 10), (60, 24), (99, 20), (100, 8)])
async def test_any_size_of_the_terminal_will_do(paths, size):
    app = SideApp(paths, past=(STARTED, plan_of_many()))
    async with app.run_test(size=size) as pilot:
        await pilot.press("f3", "end", "home", "pagedown")
        await pilot.pause()
        assert panel(app).region.height > 1
        shown = [panel(app).render_line(y).text for y in range(panel(app).scrollable_content_region.height)]
        assert any("√" in line for line in shown)


async def test_the_estimate_stands_beside_what_is_done_until_the_turn_ends(make_app):
    app = make_app(FakeShell(events=FOLLOWED, stops_at=2))
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"how many", "enter")
        await eventually(pilot, lambda: "working, about $0.002 to $0.011 · 0 s · esc stops" in doing(app))
        assert "plan: 3 of 5 tools" in app.chat.query_one(Transcript).column.plain
        await pilot.press("escape")
        await eventually(pilot, lambda: doing(app) == "")


async def test_a_transcript_tells_the_first_plan_and_later_only_what_may_not_be_used_any_more(make_app):
    app = make_app(FakeShell(events=(STARTED, PLANNED, *COUNTED, HELPED, USED, QUOTA, FINISHED)))
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"how many", "enter")
        await eventually(pilot, lambda: "saved" in app.chat.query_one(Transcript).column.plain)
        told = [line.strip() for line in app.chat.query_one(Transcript).column.plain.splitlines() if "plan:" in line]
        assert told == [
            "·  plan: 3 of 5 tools",
            "·  plan: count_text (quota) may not be used any more",
        ]


async def test_enter_shows_the_arithmetic_above_the_tools_document(make_app):
    document = ToolDocument("count_text", "Counts words.", {})
    shell = FakeShell(
        state=replace(STANDING, planned=BLACKLISTED),
        all_details={"count_text": ToolDetails(document, ("read",), 0, 120, True, "", None, "")},
        printed={"/plan why count_text": "value  0.91 = (Σ w·helpful \x1b[31m4.10 + 0.1)"},
    )
    app = make_app(shell)
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press("f3", "enter")
        await eventually(pilot, lambda: isinstance(app.screen, DocumentScreen))
        await eventually(pilot, lambda: "value  0.91" in str(app.screen.query_one("#plan").visual))
        assert "\x1b" not in str(app.screen.query_one("#plan").visual)
        await eventually(pilot, lambda: "Counts words." in str(app.screen.query_one("#about").visual))
        await pilot.press("escape")
        await eventually(pilot, lambda: app.screen is app.chat)
        assert "value" not in app.chat.query_one(Transcript).column.plain
    assert shell.commands == ["/plan why count_text"]
