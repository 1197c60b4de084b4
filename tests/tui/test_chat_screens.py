"""Pickers and the palette in the chat, driven by keys."""

import asyncio
from dataclasses import replace

import pytest
from picker_play import here
from textual.command import CommandInput, CommandList, CommandPalette
from tui_play import FakeShell, eventually

from ecoshell.agent.shell_status import ToolDetails
from ecoshell.budget import ZERO_PRICE
from ecoshell.messages import ToolSchema
from ecoshell.models import HERE, ModelRow
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.screens.help import HelpScreen
from ecoshell.tui.screens.palette import Palette
from ecoshell.tui.screens.picker import Picker
from ecoshell.tui.screens.pickers import ModelPicker, SessionPicker
from ecoshell.tui.screens.schema import SchemaScreen

MODELS = (
    ModelRow("embedded", HERE, True, 8192, None, ZERO_PRICE),
    ModelRow("local:tiny.gguf", HERE, True, 8192, None, ZERO_PRICE),
)
READ_FILE = ToolDetails(
    ToolSchema("read_file", "Reads a file.", {}), ("read",), 0, 120, True, "", ""
)


class NoSessions:
    async def rows(self) -> list[object]:
        return []


@pytest.fixture
def shell() -> FakeShell:
    return FakeShell(known=MODELS, archive=NoSessions(), all_details={"read_file": READ_FILE})


async def opened(pilot, app, kind) -> None:
    await eventually(pilot, lambda: isinstance(app.screen, kind) and app.screen.is_mounted)


async def listed(pilot, app) -> None:
    await opened(pilot, app, Picker)
    await eventually(pilot, lambda: "reading" not in str(app.screen.query_one("#state").visual))


async def test_model_command_opens_the_picker_and_applies_the_choice(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"/model", "escape", "enter")
        await opened(pilot, app, ModelPicker)
        await listed(pilot, app)
        assert here(app.screen).endswith("in use")
        await pilot.press(*"tiny", "enter")
        await eventually(pilot, lambda: shell.commands)
        assert shell.commands == ["/model local:tiny.gguf"]
        assert app.screen is app.chat


async def test_command_with_an_argument_opens_no_screen(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"/model embedded", "enter")
        await eventually(pilot, lambda: shell.commands)
    assert shell.commands == ["/model embedded"]


@pytest.mark.parametrize(
    ("key", "kind"), [("f5", SessionPicker), ("f7", ModelPicker), ("f1", HelpScreen)]
)
async def test_key_opens_a_screen_from_the_prompt_and_ctrl_c_closes_it(make_app, shell, key, kind):
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(key)
        await opened(pilot, app, kind)
        await pilot.press("ctrl+c")
        await eventually(pilot, lambda: app.screen is app.chat)
        await pilot.press("a")
        assert app.chat.query_one(Prompt).text == "a"


@pytest.mark.parametrize(("now", "next_one"), [("single", "umi"), ("umi", "single")])
async def test_f6_toggles_between_one_model_and_three_roles(make_app, shell, now, next_one):
    shell.state = replace(shell.state, mode=now)
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller and app.chat.controller.status)
        await pilot.press("f6")
        await eventually(pilot, lambda: shell.commands)
    assert shell.commands == [f"/mode {next_one}"]


async def test_f6_during_a_turn_shows_a_hint(make_app, shell):
    shell.stops_at = 1
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*"why", "enter")
        await eventually(pilot, lambda: shell.asked)
        await pilot.press("f6")
        await eventually(
            pilot, lambda: "A turn is running" in str(app.chat.query_one("#hint").visual)
        )
        await pilot.press("escape")
        await eventually(pilot, lambda: not app.chat.controller.busy)
    assert shell.commands == []


@pytest.mark.parametrize("line", ["/sessions", "/resume"])
async def test_session_is_selected_and_escape_runs_nothing(make_app, shell, line):
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press(*line, "escape", "enter")
        await opened(pilot, app, SessionPicker)
        await listed(pilot, app)
        await pilot.press("escape")
        await eventually(pilot, lambda: app.screen is app.chat)
    assert shell.commands == []


async def test_tool_is_registered_from_its_schema(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        app.chat.action_show_tool("read_file")
        await opened(pilot, app, SchemaScreen)
        await eventually(
            pilot, lambda: "Reads a file" in str(app.screen.query_one("#about").visual)
        )
        await pilot.press("r")
        await eventually(pilot, lambda: shell.commands)
    assert shell.commands == ["/register read_file"]


@pytest.mark.parametrize(
    ("typed", "first", "done"),
    [
        ("/help", "/help", ["/help"]),
        ("model tiny", "model local:tiny.gguf", ["/model local:tiny.gguf"]),
        ("register read", "register read_file", ["/register read_file"]),
    ],
)
async def test_palette_runs_what_it_finds(make_app, shell, typed, first, done):
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await found(pilot, app, typed, first)
        await pilot.press("enter")
        await eventually(pilot, lambda: shell.commands)
    assert shell.commands == done


async def test_second_enter_in_the_palette_is_ignored(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await found(pilot, app, "/help", "/help")
        for _ in range(3):
            app.simulate_key("enter")
        await eventually(pilot, lambda: shell.commands)
        await pilot.pause()
    assert shell.commands == ["/help"]


async def test_palette_without_room_for_its_list_has_no_pages(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=(30, 4)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press("ctrl+p")
        await eventually(pilot, lambda: isinstance(app.screen, CommandPalette))
        await eventually(pilot, lambda: app.screen.query_one(CommandList).option_count)
        await pilot.press("down", "pagedown", "pageup")
        assert isinstance(app.screen, CommandPalette)


async def test_palette_search_is_cancelled_on_close(make_app, shell, monkeypatch):
    app, searching, remaining = make_app(shell), asyncio.Event(), []

    async def models() -> list[ModelRow]:
        searching.set()
        return await asyncio.Future()

    def on_unmount(_: object) -> None:  # while closing; without the list, later input would raise
        remaining.append(
            [item for item in app.workers if item.group == Palette._GATHER_COMMANDS_GROUP]
        )

    monkeypatch.setattr(shell, "models", models)
    monkeypatch.setattr(CommandInput, "on_unmount", on_unmount, raising=False)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await pilot.press("ctrl+p", "x")
        await eventually(pilot, searching.is_set)
        await pilot.press("ctrl+c")
        await eventually(pilot, lambda: remaining)
    assert remaining == [[]]


async def test_palette_types_commands_that_need_arguments(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await found(pilot, app, "/register", "/register NAME")
        await pilot.press("enter")
        await eventually(pilot, lambda: app.chat.query_one(Prompt).text == "/register ")
        await pilot.press("x")
        assert app.chat.query_one(Prompt).text == "/register x"
    assert shell.commands == []


async def test_palette_finds_the_commands_and_the_themes_of_the_screen_itself(make_app, shell):
    app = make_app(shell)
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: app.chat.controller)
        await found(pilot, app, "/theme", "/theme [NAME]")
        await pilot.press("escape")
        await found(pilot, app, "theme light", "theme light")
        await pilot.press("enter")
        await eventually(pilot, lambda: not isinstance(app.screen, CommandPalette))
        await eventually(pilot, lambda: app.theme == "light")
        assert app.theme == "light"


async def found(pilot, app, typed: str, first: str) -> None:
    """Open the palette, type, and wait until this entry is first."""

    def top() -> str:
        if not isinstance(app.screen, CommandPalette):
            return ""
        options = app.screen.query_one(CommandList).options
        return str(options[0].prompt).split("\n")[0] if options else ""

    await pilot.press("ctrl+p")
    await eventually(pilot, top)
    await pilot.press(*typed)
    await eventually(pilot, lambda: top() == first)
