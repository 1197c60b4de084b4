from dataclasses import replace

import pytest

from ecoshell.messages import Effect
from ecoshell.tools import ResultSize, Tool, ToolOptions
from ecoshell.tools.background import BackgroundCommands
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.workspace import Workspace

EFFECTS: dict[str, set[Effect]] = {
    "list_files": {"read"},
    "read_file": {"read"},
    "search_text": {"read"},
    "count_text": {"read"},
    "write_file": {"read", "write"},
    "edit_file": {"read", "write"},
    "run_command": {"read", "write", "execute", "network"},
    "command_output": set(),
    "command_stop": set(),
    "run_python": {"read", "write", "execute", "network"},
    "run_program": {"read", "write", "execute", "network"},
    "calculate": set(),
    "current_time": set(),
    "convert_units": set(),
    "json_query": {"read"},
    "todo": set(),
    "task": set(),
}


@pytest.fixture
def tools(workspace: Workspace) -> dict[str, Tool]:
    builtin = builtin_tools(
        workspace, options=ToolOptions(command_seconds=0.3, result=ResultSize(1_000))
    )
    return {tool.schema.name: tool for tool in builtin}


def test_every_tool_declares_its_effects(tools: dict[str, Tool]):
    assert {name: set(tool.effects) for name, tool in tools.items()} == EFFECTS


def test_schemas_are_small_and_describe_every_argument(tools: dict[str, Tool]):
    for tool in tools.values():
        tool_schema = tool.schema
        assert tool_schema.description.endswith(".")
        assert "\n" not in tool_schema.description
        assert len(tool_schema.as_text()) < 700
        assert all(
            schema["description"] for schema in tool_schema.parameters["properties"].values()
        )
        assert "title" not in str(tool_schema.parameters)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        (
            "write_file",
            {"path": "README.md", "content": "one\ntwo\n"},
            "README.md created: 2 lines, 8 bytes.",
        ),
        ("read_file", {"path": "notes.txt"}, "hello\n"),
        ("list_files", {}, "notes.txt  6 bytes"),
        ("search_text", {"text": "hell"}, "notes.txt:1: hello"),
        ("count_text", {"path": "notes.txt"}, "notes.txt: 1 line, 1 word, 6 characters, 6 bytes"),
        (
            "edit_file",
            {"path": "notes.txt", "old": "hello", "new": "bye"},
            "notes.txt edited at line 1: 1 line replaced by 1 line.",
        ),
        ("run_command", {"command": "echo $((6 * 7))"}, "42"),
        ("run_python", {"code": "print(6 * 7)"}, "42"),
        ("calculate", {"expression": "17 * 23"}, "17 * 23 = 391"),
        (
            "convert_units",
            {"value": 5, "from_unit": "miles", "to_unit": "km"},
            "5 miles = 8.04672 km",
        ),
        ("json_query", {"query": "a", "text": '{"a": 1}'}, "1"),
    ],
)
async def test_every_tool_runs(
    tools: dict[str, Tool], workspace: Workspace, name: str, arguments: dict[str, object], text: str
):
    (workspace.root / "notes.txt").write_text("hello\n")
    observation = await tools[name].run(arguments)
    assert (observation.ok, observation.text) == (True, text)


async def test_a_command_that_times_out_keeps_its_output(tools: dict[str, Tool]):
    observation = await tools["run_command"].run({"command": "echo before; sleep 100"})
    assert (observation.ok, observation.text) == (
        False,
        "before\n[stopped: the time limit of 0.3 s was reached]",
    )


async def test_a_command_names_its_time_limit_and_the_background_where_there_is_one(
    workspace: Workspace,
):
    options = ToolOptions(command_seconds=0.3, background=BackgroundCommands())
    tools = {tool.schema.name: tool for tool in builtin_tools(workspace, options=options)}
    late = "[stopped: the time limit of 0.3 s was reached"
    observation = await tools["run_command"].run({"command": "sleep 100"})
    assert observation.text.endswith(f"{late}; background=true allows a day]")
    observation = await tools["run_python"].run({"code": "import time; time.sleep(100)"})
    assert observation.text.endswith(f"{late}]")
    schema = tools["run_command"].schema
    assert "stopped after 0.3 s, unless it runs in the background." in schema.as_text()
    options = replace(options, background=None)
    alone = {tool.schema.name: tool for tool in builtin_tools(workspace, options=options)}
    assert "stopped after 0.3 s." in alone["run_command"].schema.as_text()
    assert "stopped" not in replace(schema, brief=True).entry  # as small models read it


async def test_a_long_output_is_truncated_once(tools: dict[str, Tool]):
    observation = await tools["run_command"].run({"command": "seq 100000; exit 1"})
    assert observation.truncated
    assert observation.text.count("[truncated") == 1
    assert observation.text.endswith("100000\n[exit status 1]")
    assert len(observation.text) <= 1_000
