"""The panels, driven by keys and clicks."""

import re
from dataclasses import replace

import pytest
from plan_play import FETCH, PLANNED
from rich.cells import cell_len
from side_play import REACHED, READY, TURN, SideApp, many_tools, said
from tui_play import FINISHED, eventually

from ecoshell.events import (
    BudgetChanged,
    BudgetSettled,
    CallStarted,
    PlanChanged,
    TextArrived,
    ToolRegistered,
)
from ecoshell.messages import Usage
from ecoshell.tui.side.bars import SummaryLine
from ecoshell.tui.side.cost import BudgetPanel, RolesPanel
from ecoshell.tui.side.plan import PlanPanel
from ecoshell.tui.side.tools import ToolsPanel

pytestmark = pytest.mark.usefixtures("quiet")
WIDE = (120, 36)


def panel(app: SideApp, kind=ToolsPanel):
    return app.chat.query_one(kind)


def current(app: SideApp) -> str:
    return panel(app).current


def line(app: SideApp, y: int, kind=ToolsPanel) -> str:
    return panel(app, kind).render_line(y).text.rstrip()


async def test_panels_follow_the_events(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        for event in TURN[:3]:
            app.body.side.handle(event)
        await eventually(pilot, lambda: "thinking" in said(panel(app, RolesPanel)))
        assert "running    $0.0071" in said(panel(app, BudgetPanel))
        for event in TURN[3:]:
            app.body.side.handle(event)
        await eventually(pilot, lambda: "1 call  2.1 s" in said(panel(app, RolesPanel)))
        assert "running    no call" in said(panel(app, BudgetPanel))
        assert "turn 1" in said(panel(app))
        app.body.side.handle(BudgetChanged((REACHED,)))
        await eventually(pilot, lambda: "reached" in said(panel(app, BudgetPanel)))


async def test_unreported_usage_is_estimated_and_marked(paths):
    status = replace(
        READY, spent_nano=1_200_000, used_tokens=852, estimated=True, estimated_nano=True
    )
    app = SideApp(paths, status)
    async with app.run_test(size=WIDE) as pilot:
        stopped = BudgetSettled(
            *(20, "single", READY.model, 52_000_000, Usage(7_200, 1_000), False, 3.0),
            estimate=Usage(812, 40),
            estimate_nano=1_200_000,
        )
        app.body.side.handle(TURN[0])
        app.body.side.handle(stopped)
        await eventually(pilot, lambda: "≈ 812 in · 40 out" in said(panel(app, RolesPanel)))
        assert "≈ $0.0012" in said(panel(app, RolesPanel))
        assert "so far     ≈ $0.0012 · ≈ 852 tok" in said(panel(app, BudgetPanel))


async def test_arriving_text_draws_no_panel(paths, monkeypatch):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        drawn = []
        for kind in (BudgetPanel, PlanPanel, ToolsPanel, RolesPanel):
            monkeypatch.setattr(panel(app, kind), "refresh", lambda *_, **__: drawn.append(1))
        for _ in range(100):
            app.body.side.handle(TextArrived("word ", "answer", "single"))
        app.chat.show(replace(READY))
        await pilot.pause()
        assert drawn == []


async def test_panels_have_a_note_before_the_session_is_open(paths):
    app = SideApp(paths, status=None)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        assert said(panel(app, BudgetPanel)) == "available once the session is open"
        assert said(panel(app)) == "available once the session is open"
        app.chat.show(READY)
        await eventually(pilot, lambda: "○ read_file" in said(panel(app)))


def new_session():
    """The status of a session whose first question will load two tools; the user registered a third."""
    rows = tuple(
        replace(row, registered=False, by="", ahead=True)
        if row.name in ("read_file", "run_command")
        else replace(row, registered=row.by == "user", by="user" if row.by == "user" else "")
        for row in READY.tools
    )
    return replace(READY, tools=rows)


async def test_a_new_session_shows_the_tools_of_its_first_question_as_loaded(paths):
    app = SideApp(paths, status=new_session())
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: panel(app).title.strip() == "▼ TOOLS  3 of 4 loaded")
        assert "LOADED 3 · 2 with the first question" in said(panel(app))
        assert re.search(r"● read_file +120  at start", said(panel(app)))
        await pilot.press("f2")
        await pilot.pause()
        assert "with the first question — Reads a f" in said(panel(app))
        await pilot.press("r")
        await pilot.pause()
        assert app.wanted == [("register", "read_file")]
        rows = tuple(
            replace(row, registered=True, by=row.by or "upfront", ahead=False)
            for row in new_session().tools
        )
        app.chat.show(replace(READY, tools=rows))
        await eventually(pilot, lambda: "first question" not in said(panel(app)))
        assert "LOADED 4" in said(panel(app))


async def test_hidden_panels_count_the_tools_of_the_first_question(paths):
    app = SideApp(paths, status=new_session())
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f5")
        summary = app.chat.query_one(SummaryLine)
        await eventually(pilot, lambda: "3/4" in str(summary.render()))
        assert "tools 3/4" in str(summary.render())


async def test_saved_schemas_are_named_below_the_schemas_they_are_compared_with(paths):
    app = SideApp(paths, past=TURN)
    async with app.run_test(size=(120, 80)) as pilot:
        await eventually(pilot, lambda: "saved so far" in said(panel(app)))
        rows = [row.split() for row in said(panel(app)).splitlines()]
        assert rows[0][:5] == ["schemas", "1.9k", "of", "14k", "tok"]
        assert rows[1] == ["schemas", "saved", "so", "far", "4.2k", "tok"]


async def test_enter_shows_the_highlighted_tools_schema(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2", "down", "down", "enter")
        await pilot.pause()
        assert app.wanted == [("schema", "read_file")]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["space"], [("unregister", "count_text")]),
        (["u"], [("unregister", "count_text")]),
        (["r"], [("unregister", "count_text")]),
        (["end", "space"], [("register", "run_command")]),
        (["end", "r"], [("register", "run_command")]),
        (["end", "u"], []),
    ],
)
async def test_keys_register_and_unregister(paths, keys, expected):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2", *keys)
        await pilot.pause()
        assert app.wanted == expected


async def test_registered_tool_stays_highlighted(paths):
    app = SideApp(paths, status=many_tools())
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2", *["pagedown"] * 4, "r")
        await pilot.pause()
        name, at, top = current(app), panel(app).highlighted, panel(app).scroll_offset.y
        rows = tuple(
            replace(row, registered=True, by="user") if row.name == name else row
            for row in many_tools().tools
        )
        app.chat.show(replace(many_tools(), tools=rows))
        await eventually(pilot, lambda: panel(app).items[current(app)].registered)
        assert current(app) == name
        assert panel(app).highlighted < at
        assert panel(app).scroll_offset.y < top
        assert f"● {name[:8]}" in said(panel(app))


async def test_slash_starts_a_filter_and_escape_clears_it(paths):
    app = SideApp(paths, status=many_tools())
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2", "slash", *"ration 500")
        await pilot.pause()
        assert "/ ration 500▏ 3 match" in said(panel(app))
        assert current(app).endswith("operation_500")
        await pilot.press("backspace")
        assert "/ ration 50▏" in said(panel(app))
        await pilot.press("down", "r")
        await pilot.pause()
        assert app.wanted[0][0] == "register"
        assert "/ ration 50 " in said(panel(app))
        await pilot.press("escape")
        assert "/ ration" not in said(panel(app))
        assert panel(app).has_focus


async def test_key_letters_are_text_in_the_filter(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2", "slash", *"run-/ <")
        assert panel(app).filter == "run-/ <"
        assert "no match" in said(panel(app))
        assert app.wanted == []
        await pilot.press(*["backspace"] * 4, "enter")
        await pilot.pause()
        assert app.wanted == [("schema", "run_command")]


async def test_backspace_in_an_empty_filter_ends_it(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2", "slash", "backspace", "u")
        await pilot.pause()
        assert app.wanted == [("unregister", "count_text")]


async def test_updates_keep_highlight_filter_and_scroll_position(paths):
    app = SideApp(paths, status=many_tools())
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2", "slash", *"service", *["pagedown"] * 5)
        previous = (current(app), panel(app).filter, panel(app).scroll_offset.y)
        assert previous[2] > 0
        for event in TURN:
            app.body.side.handle(event)
        app.chat.show(replace(many_tools(), context_tokens=9_900))
        await eventually(pilot, lambda: "9.9k of" in said(panel(app)))
        assert (current(app), panel(app).filter, panel(app).scroll_offset.y) == previous


async def test_highlight_is_always_visible(paths):
    app = SideApp(paths, status=many_tools())
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2")
        for key in ("end", "pageup", "home", "pagedown", "down", "up"):
            await pilot.press(key)
            await pilot.pause()
            drawn = [line(app, y) for y in range(panel(app).scrollable_content_region.height)]
            assert any(current(app)[:8] in text for text in drawn), key
        await pilot.press("end")
        assert panel(app).highlighted == 526


async def test_hostile_tool_name_is_escaped(paths):
    app = SideApp(paths, status=many_tools())
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.press("f2")
        output = said(panel(app))
        assert "tool␛[31mred\\u202e" in output
        assert "\x1b" not in output
        assert "数える" in output


async def test_click_highlights_and_double_click_opens_the_schema(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2")
        await pilot.pause()
        y = next(y for y in range(20) if "read_file" in line(app, y)) + 1
        await pilot.click(ToolsPanel, offset=(5, y))
        assert current(app) == "read_file"
        assert app.wanted == []
        await pilot.click(ToolsPanel, offset=(5, y), times=2)
        await pilot.pause()
        assert app.wanted == [("schema", "read_file")]


async def test_empty_tool_list_has_a_note_and_accepts_keys(paths):
    app = SideApp(paths, status=replace(READY, tools=(), context_tokens=0, everything_tokens=0))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2", "down", "enter", "space", "end", "slash", "x", "enter", "escape")
        assert "no tools known" in said(panel(app))
        assert app.wanted == []


@pytest.mark.parametrize("kind", [BudgetPanel, PlanPanel, RolesPanel])
async def test_enter_toggles_the_fold_of_a_panel(paths, kind):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        panel(app, kind).focus()
        await pilot.press("enter")
        await pilot.pause()
        assert panel(app, kind).region.height == 1
        assert panel(app, kind).title.strip().startswith("►")
        await pilot.press("enter")
        await pilot.pause()
        assert panel(app, kind).region.height > 2
        assert panel(app, kind).title.strip().startswith("▼")


async def test_minus_or_click_on_the_title_folds(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2", "minus")
        await pilot.pause()
        assert panel(app).region.height == 1
        await pilot.click(ToolsPanel, offset=(5, 0))
        await pilot.pause()
        assert panel(app).region.height > 5


async def test_folded_budget_shows_the_remaining_amount(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f4", "enter")
        assert "$0.4088 left" in panel(app, BudgetPanel).title
        app.body.side.handle(BudgetChanged((REACHED,)))
        await eventually(pilot, lambda: "$0 left · reached" in panel(app, BudgetPanel).title)


async def test_registration_is_visible_during_the_turn(paths):
    app = SideApp(paths, past=TURN[:1])
    async with app.run_test(size=WIDE) as pilot:
        app.body.side.handle(ToolRegistered("read_file", 120, True, 2, "agent"))
        await eventually(pilot, lambda: "● read_file" in said(panel(app)))
        assert "3 of 4" in panel(app).title


def blocking(tool: str) -> PlanChanged:
    """A plan that forbids this tool."""
    return replace(PLANNED, rows=(replace(FETCH, tool=tool),))


async def test_tools_are_grouped_and_groups_follow_the_events(paths):
    app = SideApp(paths, past=TURN[:1])
    async with app.run_test(size=WIDE) as pilot:
        await eventually(pilot, lambda: "LOADED 2" in said(panel(app)))
        assert "KNOWN 2" in said(panel(app))
        assert "BLOCKED" not in said(panel(app))
        app.body.side.handle(ToolRegistered("read_file", 120, True, 1, "agent"))
        app.body.side.handle(CallStarted("c1", "read_file", {}))
        app.body.side.handle(blocking("run_command"))
        await eventually(pilot, lambda: "BLOCKED 1" in said(panel(app)))
        rows = [row.strip() for row in said(panel(app)).splitlines()[1:]]
        assert rows[0] == "LOADED 3"
        assert rows[1].startswith("► read_file")
        assert rows[1].endswith("used last")
        assert rows[4] == "BLOCKED 1"
        assert rows[5].startswith("× run_command")
        assert "KNOWN" not in said(panel(app))
        app.body.side.handle(FINISHED)
        await eventually(pilot, lambda: "KNOWN 1" in said(panel(app)))
        assert "BLOCKED" not in said(panel(app))


async def test_sixty_tools_stay_readable_on_a_narrow_screen(paths):
    app = SideApp(paths, status=many_tools(66))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f2")
        await pilot.pause()
        assert "LOADED 2" in said(panel(app))
        assert "KNOWN 64" in said(panel(app))
        await pilot.press("end")
        await pilot.pause()
        height = panel(app).scrollable_content_region.height
        assert any("operation_062" in line(app, y) for y in range(height))
        assert all(cell_len(line(app, y)) <= panel(app).size.width for y in range(height))
        await pilot.press("home")
        await pilot.pause()
        assert "LOADED 2" in said(panel(app))
