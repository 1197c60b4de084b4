"""Placement of transcript and panels at several sizes, driven by keys and mouse."""

from dataclasses import replace
from itertools import product

import pytest
from side_play import READY, TWO_MODELS, SideApp, many_tools
from textual.command import CommandPalette
from textual.events import Key
from textual.widgets import Input
from tui_play import eventually

from ecoshell.tui.side.bars import SummaryLine, TitleBar
from ecoshell.tui.side.cost import BudgetPanel, RolesPanel
from ecoshell.tui.side.layout import TabRow
from ecoshell.tui.side.panel import Panel
from ecoshell.tui.side.plan import PlanPanel
from ecoshell.tui.side.tools import ToolsPanel

pytestmark = pytest.mark.usefixtures("quiet")
WIDE, NARROW = (120, 36), (80, 24)
KEYS = [("f2", ToolsPanel), ("f3", PlanPanel), ("f4", BudgetPanel)]


def shown(app: SideApp, selector) -> bool:
    return bool(app.chat.query_one(selector).region.area)


def side(app: SideApp) -> int:
    return app.body.side.region.width


def in_prompt(app: SideApp) -> bool:
    return app.chat.query_one(Input).has_focus


async def test_wide_screen_shows_panels_next_to_the_transcript(paths):
    app = SideApp(paths, past=TWO_MODELS)
    async with app.run_test(size=(100, 24)) as pilot:
        for size, width in (((100, 24), 38), ((120, 36), 38), ((200, 50), 60)):
            await pilot.resize_terminal(*size)
            await eventually(pilot, lambda width=width: side(app) == width)
            assert shown(app, "#main")
            assert all(panel.region.area for panel in app.chat.query(Panel))
            assert not shown(app, SummaryLine)
            assert app.chat.query_one("#main").region.width + 1 + width == size[0]


async def test_narrow_screen_shows_the_transcript_and_a_summary(paths):
    app = SideApp(paths)
    async with app.run_test(size=(60, 24)) as pilot:
        for size in ((60, 24), (80, 24), (99, 40)):
            await pilot.resize_terminal(*size)
            await eventually(
                pilot, lambda size=size: app.chat.query_one("#main").region.width == size[0]
            )
            assert not any(panel.region.area for panel in app.chat.query(Panel))
            assert "session: $0.4088 of $0.50 left · tools 2/4" in str(
                app.chat.query_one(SummaryLine).render()
            )


@pytest.mark.parametrize("size", [(60, 20), NARROW])
async def test_narrow_screen_keys_toggle_tabs(paths, size):
    app = SideApp(paths, past=TWO_MODELS)
    async with app.run_test(size=size) as pilot:
        for (key, kind), back in product(KEYS, ("escape", "same key")):
            await pilot.press(key)
            await pilot.pause()
            assert not shown(app, "#main")
            assert app.chat.query_one(kind).has_focus
            assert side(app) == size[0]
            assert {type(panel) for panel in app.chat.query(Panel) if panel.region.area} == (
                {BudgetPanel, RolesPanel} if kind is BudgetPanel else {kind}
            )
            assert f"[{key} " in str(app.chat.query_one(TabRow).render())
            await pilot.press(key if back == "same key" else back)
            await pilot.pause()
            assert shown(app, "#main")
            assert in_prompt(app)


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        (50, " esc transcript   f2 tools   f3 plan  [f4 cost]"),
        (40, " esc   f2 tools   f3 plan  [f4 cost]"),
        (30, " esc   f2   f3  [f4 cost]"),
    ],
)
async def test_current_tab_is_visible_on_a_narrow_screen(paths, columns, row):
    app = SideApp(paths)
    async with app.run_test(size=(columns, 16)) as pilot:
        await pilot.press("f4")
        await pilot.pause()
        tabs = app.chat.query_one(TabRow)
        assert tabs.render_line(0).text.strip() == row.strip()
        await pilot.click(TabRow, offset=(row.index("f2") + 2, 0))
        await pilot.pause()
        assert shown(app, ToolsPanel)


async def test_tabs_are_switched_by_key_and_mouse(paths):
    app = SideApp(paths)
    async with app.run_test(size=NARROW) as pilot:
        await pilot.press("f2", "f3")
        await pilot.pause()
        assert shown(app, PlanPanel)
        assert not shown(app, ToolsPanel)
        row = str(app.chat.query_one(TabRow).render())
        await pilot.click(TabRow, offset=(row.index("f4 cost") + 2, 0))
        await pilot.pause()
        assert shown(app, BudgetPanel)
        await pilot.click(TabRow, offset=(row.index("transcript") + 2, 0))
        await pilot.pause()
        assert shown(app, "#main")


async def test_wide_screen_keys_toggle_focus_of_a_panel(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        for key, kind in KEYS:
            await pilot.press(key)
            assert app.chat.query_one(kind).has_focus
            await pilot.press(key)
            await pilot.pause()
            assert in_prompt(app)
            await pilot.press(key, "escape")
            await pilot.pause()
            assert in_prompt(app)
            assert shown(app, kind)


async def test_palette_opened_while_leaving_a_panel_has_the_focus(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2")
        await eventually(pilot, lambda: app.chat.query_one(ToolsPanel).has_focus)
        for key in ("escape", "ctrl+p"):  # in one packet, as on a slow connection
            app.post_message(Key(key, None))
        await eventually(
            pilot, lambda: isinstance(app.screen, CommandPalette) and app.chat.focused is not None
        )
        await eventually(pilot, lambda: isinstance(app.chat.focused, Input))
        assert app.focused is not app.chat.focused
        await pilot.press("escape")
        await eventually(pilot, lambda: app.screen is app.chat)
        assert in_prompt(app)


async def test_panels_are_hidden_and_shown_by_key(paths):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f2", "f5")
        await pilot.pause()
        assert app.chat.query_one("#main").region.width == 120
        assert shown(app, SummaryLine)
        assert in_prompt(app)
        await pilot.press("f3")
        await pilot.pause()
        assert shown(app, PlanPanel)
        await pilot.press("f5", "f5")
        await pilot.pause()
        assert shown(app, PlanPanel)


async def test_narrow_screen_panel_key_toggles_the_first_tab(paths):
    app = SideApp(paths)
    async with app.run_test(size=NARROW) as pilot:
        await pilot.press("f5")
        await pilot.pause()
        assert shown(app, ToolsPanel)
        await pilot.press("f5")
        await pilot.pause()
        assert shown(app, "#main")


@pytest.mark.parametrize("width", [100, 120])
async def test_resizing_switches_between_panels_and_tabs(paths, width: int):
    app = SideApp(paths)
    async with app.run_test(size=(width, 30)) as pilot:
        await pilot.press("f2")
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert shown(app, "#main")
        assert not shown(app, ToolsPanel)
        await pilot.press("f2")
        await pilot.pause()
        assert side(app) == 80
        await pilot.resize_terminal(width, 30)
        await pilot.pause()
        assert shown(app, "#main")
        assert side(app) == 38
        assert shown(app, RolesPanel)


@pytest.mark.parametrize("key", ["f2", "f3", "f4"])
async def test_hidden_panel_gives_the_focus_to_the_prompt(paths, key: str):
    app = SideApp(paths)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press(key)
        await eventually(pilot, lambda: app.body.side.has_focus_within)
        await pilot.resize_terminal(*NARROW)
        await eventually(pilot, lambda: not shown(app, ToolsPanel))
        await pilot.pause()
        assert in_prompt(app)


async def test_every_panel_can_be_reached_at_every_height(paths):
    app = SideApp(paths, status=many_tools(), past=TWO_MODELS)
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.press("f4")
        panels = (BudgetPanel, PlanPanel, ToolsPanel, RolesPanel)
        for height, kind in product((24, 18, 12, 8, 4, 1), panels):
            await pilot.resize_terminal(120, height)
            app.chat.query_one(kind).focus()
            await pilot.pause()
            panel = app.chat.query_one(kind)
            assert panel.has_focus
            room = app.body.side.region.height
            await eventually(
                pilot,
                lambda panel=panel, room=room: panel.region.height >= min(room - 3, panel.wanted),
            )
            assert sum(each.region.height for each in app.chat.query(Panel)) <= max(0, room)


def bar(app: SideApp) -> str:
    return str(app.chat.query_one(TitleBar).render())


async def test_title_shows_opening_then_mode_and_model(paths):
    app = SideApp(paths, status=None)
    async with app.run_test(size=NARROW) as pilot:
        await pilot.pause()
        assert bar(app).split() == ["ecoshell", "opening", "embedded", "…"]
        app.chat.show(READY)
        title = app.chat.query_one(TitleBar)
        assert bar(app).startswith("ecoshell · fix-readme")
        assert bar(app).endswith(" $0.4088 left · embedded, demo model (f7 changes it)")
        title.state = "read-only"
        assert bar(app).endswith(" read-only  $0.4088 left · embedded demo (f7)")
        title.state = ""
        await pilot.resize_terminal(120, 24)
        await eventually(pilot, lambda: "one model" in bar(app))
        assert bar(app).endswith(" $0.4088 left · one model · embedded, demo model (f7 changes it)")


@pytest.mark.parametrize(
    ("model", "columns", "end"),
    [
        ("embedded", 60, "$0.4088 left · embedded demo (f7)"),
        ("embedded", 40, "$0.4088 left · demo (f7)"),
        ("openai/gpt-5-mini", 60, "$0.4088 left · openai/gpt-5-mini"),
        ("anthropic/claude-haiku-4-5", 60, "$0.4088 left · …/claude-haiku-4-5"),
        ("openai/gpt-5-mini", 40, "$0.4088 left · …/gpt-5-m…"),
    ],
)
async def test_narrow_title_keeps_the_cap_and_the_model(paths, model, columns, end):
    app = SideApp(paths, status=replace(READY, model=model))
    async with app.run_test(size=(columns, 24)) as pilot:
        await eventually(pilot, lambda: "left · " in bar(app))
        assert bar(app).endswith(f" {end}")


async def test_title_fits_every_width_and_keeps_the_state(paths):
    long = replace(
        READY,
        title="a title \x1b[31m" + "w" * 300,
        model="local:/home/me/models/" + "m" * 60 + ".gguf",
    )
    app = SideApp(paths, status=long)
    async with app.run_test(size=(120, 24)) as pilot:
        for width in (120, 80, 60, 30):
            await pilot.resize_terminal(width, 24)
            app.chat.query_one(TitleBar).state = "read-only"
            await eventually(pilot, lambda width=width: len(bar(app)) == width - 2)
            assert "read-only" in bar(app)
            assert bar(app).startswith("ecoshell · a title ␛[31m"[: width - 14])
            assert "\x1b" not in bar(app)
