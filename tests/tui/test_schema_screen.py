"""The tool schema screen, driven by keys."""

from dataclasses import replace

import pytest
from picker_play import Stage
from tui_play import FakeShell, eventually

from ecoshell.agent.shell_status import ToolDetails
from ecoshell.errors import UsageError
from ecoshell.messages import ToolSchema
from ecoshell.tui.screens.schema import SchemaScreen

SCHEMA = ToolSchema(
    "read_file",
    "Read a file of the workspace.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File, relative to the workspace."},
            "start": {"type": "integer"},
            "anything": True,
        },
        "required": ["path"],
    },
)
KNOWN = ToolDetails(SCHEMA, ("read",), 0, 120, True, "", "")
REGISTERED = replace(
    KNOWN,
    by="agent",
    why="read_file, used with a chance of 40%: name only",
    exact=False,
)


def stage(tool_details: ToolDetails = KNOWN) -> Stage:
    return Stage(SchemaScreen(FakeShell(all_details={"read_file": tool_details}), "read_file"))


async def test_schema_shows_description_arguments_and_tokens():
    app = stage()
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: "Read a file" in app.text)
        for words in (
            "○ known by name only",
            "120 tokens while it is registered · costs nothing to use",
            "comes with ecoshell · may read files",
            "path  string",
            "File, relative to the workspace.",
            "start  integer, optional",
            "anything  any, optional",
        ):
            assert words in app.text
        assert "JSON schema\n" not in app.text


async def test_schema_shows_who_registered_the_tool_and_why():
    app = stage(REGISTERED)
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: "● registered by the agent" in app.text)
        assert "≈ 120 tokens" in app.text
        assert "used with a chance of 40%" in app.text


async def test_a_skill_shows_its_text():
    app = stage(replace(KNOWN, skill="Instructions of the skill pdf:\n\nUse pypdf."))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: "Use pypdf." in app.text)
        assert "120 tokens while it is registered" in app.text
        assert "Takes no arguments" not in app.text


async def test_schema_shows_server_and_price():
    schema = replace(SCHEMA, server="weather [b]")
    app = stage(replace(KNOWN, schema=schema, price_nano=2_000_000, effects=()))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: "from the server" in app.text)
        assert "from the server weather [b] · has no side effects" in app.text
        assert "$0.002" in app.text


@pytest.mark.parametrize(
    ("tool_details", "key", "wrong", "line"),
    [(KNOWN, "r", "u", "/register read_file"), (REGISTERED, "u", "r", "/unregister read_file")],
    ids=["known", "registered"],
)
async def test_only_the_applicable_key_returns_its_command(tool_details, key, wrong, line):
    app = stage(tool_details)
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: "Read a file" in app.text)
        await pilot.press(wrong)
        assert app.given == []
        await pilot.press(key)
        await eventually(pilot, lambda: app.given)
    assert app.given == [line]


async def test_schema_is_unfolded_and_folded_by_key():
    app = stage()
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(pilot, lambda: "Read a file" in app.text)
        await pilot.press("s")
        await eventually(pilot, lambda: '"properties": {' in app.text)
        await pilot.press("s")
        await eventually(pilot, lambda: '"properties": {' not in app.text)
        await pilot.press("escape")
        await eventually(pilot, lambda: app.given)
    assert app.given == [None]


async def test_unknown_tool_shows_an_error_without_actions():
    class NoSuchTool(FakeShell):
        async def tool_details(self, name):
            raise UsageError("There is no tool called 'x'.", fix="Did you mean read_file?")

    app = Stage(SchemaScreen(NoSuchTool(), "x"))
    async with app.run_test(size=(80, 24)) as pilot:
        await eventually(
            pilot, lambda: "There is no tool called 'x'. Did you mean read_file?" in app.text
        )
        await pilot.press("r", "u", "s")
        assert app.given == []


async def test_hostile_schemas_are_escaped():
    bad = "[bold]x[/] \x1b[2J \u202e"
    schema = ToolSchema(
        "read_file", bad, {"properties": {bad: {"type": bad, "description": bad}}, "title": bad}
    )
    app = stage(replace(KNOWN, schema=schema))
    async with app.run_test(size=(120, 36)) as pilot:
        await eventually(pilot, lambda: "[bold]x[/] ␛[2J \\u202e" in app.text)
        await pilot.press("s")
        await eventually(pilot, lambda: '"title"' in app.text)
        assert "\x1b" not in app.text
