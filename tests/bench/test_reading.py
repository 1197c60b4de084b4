from pathlib import Path

import pytest
from bench_play import written

from ecoshell.errors import UsageError
from ecoshell_bench.reading import read_runs, read_tools


def test_only_successful_runs_are_read(catalog: Path, replay: Path) -> None:
    runs = read_runs(replay, read_tools(catalog))
    assert [run.query for run in runs] == ["count the text of a", "weather and mail"]


def test_used_tools_are_unique_in_the_order_of_first_use(catalog: Path, replay: Path) -> None:
    assert read_runs(replay, read_tools(catalog))[0].used == ("read_file", "count_text")


def test_shared_tool_name_is_qualified_with_the_server(tmp_path: Path) -> None:
    file = written(
        tmp_path / "tools.jsonl",
        {"name": "read", "description": "", "server": "disk"},
        {"name": "read", "description": "", "server": "mail"},
        {"name": "send", "description": None, "server": "mail"},
    )
    tools = read_tools(file)
    assert list(tools.schemas) == ["disk.read", "mail.read", "send"]
    assert tools.names["mail", "read"] == "mail.read"


def test_ambiguous_tools_are_refused(tmp_path: Path) -> None:
    file = written(
        tmp_path / "tools.jsonl", *[{"name": "read", "description": "", "server": "disk"}] * 2
    )
    with pytest.raises(UsageError, match=r"tools.jsonl:2 repeats the tool name disk.read"):
        read_tools(file)


def test_tool_outside_the_catalog_keeps_its_recorded_name(catalog: Path, tmp_path: Path) -> None:
    foreign = {
        "thought": None,
        "server": "away",
        "tool": "dig",
        "args": {"deep": True},
        "observation": "earth",
    }
    file = written(tmp_path / "replay.jsonl", {"query": "dig", "steps": [foreign], "final": None})
    (run,) = read_runs(file, read_tools(catalog))
    assert (run.steps[0].tool, run.steps[0].called, run.steps[0].arguments) == (
        None,
        "dig",
        '{"deep": true}',
    )
    assert run.used == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "replay.jsonl:1 is not JSON"),
        ("\n[1]", "replay.jsonl:2 is not a JSON object"),
        ('{"steps": [], "final": ""}', "replay.jsonl:1: `query`: "),
        ('{"query": "", "final": "", "steps": 3}', "`steps`: "),
        ('{"query": "", "final": "", "steps": [3]}', "`steps.1`: "),
        (
            '{"query": "", "final": "", "steps": [{"tool": "x", "thought": ""}]}',
            "`steps.1.observation`: ",
        ),
        ('{"query": "", "steps": [], "success": false}', "has no successful run"),
        ("", "has no successful run"),
    ],
)
def test_invalid_line_is_reported_with_its_number(
    catalog: Path, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "replay.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_runs(file, read_tools(catalog))


def test_missing_file_and_binary_file_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "tools.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    for file in (binary, tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_tools(file)
