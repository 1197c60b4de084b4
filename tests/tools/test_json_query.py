import json

import pytest

from ecoshell.errors import ToolError
from ecoshell.tools import ToolOptions
from ecoshell.tools.builtin.search import SearchTools
from ecoshell.tools.workspace import Workspace

DATA = {"users": [{"name": "Ada", "age": 36}, {"name": "Bé", "age": 20}], "title": "x"}


@pytest.fixture
def tool(workspace: Workspace) -> SearchTools:
    (workspace.root / "data.json").write_text("\ufeff" + json.dumps(DATA))
    return SearchTools(workspace, ToolOptions(file_bytes=100_000))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("title", '"x"'),
        ("users[0].name", '"Ada"'),
        ("$.users[1].name", '"Bé"'),
        ("$", json.dumps(DATA, ensure_ascii=False)),
        ("users[?age > `30`].name", '["Ada"]'),
        ("length(users)", "2"),
    ],
)
def test_values_are_extracted_from_files_and_texts(tool: SearchTools, query: str, expected: str):
    assert tool.json_query(query, path="data.json") == expected
    assert tool.json_query(query, text=json.dumps(DATA)) == expected


@pytest.mark.parametrize(
    ("data", "outline"),
    [
        (DATA, "title, users[*].name, users[*].age"),
        ([{"a b": {"c": 1}}, {"d": 2}], '[*]."a b".c'),
        ({"a": {}, "b": []}, "a, b"),
        (1, "@"),
        (
            {f"k{number}": number for number in range(30)},
            ", ".join(f"k{number}" for number in range(20)) + ", …",
        ),
    ],
)
def test_a_query_without_a_result_lists_the_paths(tool: SearchTools, data: object, outline: str):
    assert (
        tool.json_query("missing[7]", text=json.dumps(data))
        == f"Nothing was found. The text contains {outline}."
    )


def test_a_unique_nested_key_is_found(tool: SearchTools):
    server = {"server": {"port": 8473, "name": "a"}, "log": {"name": "b"}}
    assert (
        tool.json_query("port", text=json.dumps(server))
        == "Nothing was found. But server.port is 8473."
    )
    assert "name is" not in tool.json_query("name", text=json.dumps(server))
    assert tool.json_query("age", text=json.dumps(DATA)).startswith(
        "Nothing was found. But users[*].age is ["
    )


def test_the_list_of_paths_is_short(tool: SearchTools):
    deep = "[" * 500 + "]" * 500
    assert len(tool.json_query("missing", text=json.dumps({"a" * 90_000: deep}))) < 600
    assert len(tool.json_query("missing", text=deep)) < 600


@pytest.mark.parametrize(
    ("query", "text", "words"),
    [
        ("a", "{", "not JSON: .* line 1, column 2"),
        ("a", "[" * 90_000, "cannot be read as JSON"),
        ("a", "1" * 10_000, "cannot be read as JSON"),
        ("a[", "{}", "not a JMESPath query"),
        ("", "{}", "not a JMESPath query"),
        ("nosuch(a)", "{}", "not a JMESPath query"),
        ("length(a)", "{}", "not a JMESPath query"),
        ("(" * 999, "{}", "JMESPath|applied"),
        ("a" * 1_001, "{}", "too long"),
    ],
)
def test_invalid_queries_are_explained(tool: SearchTools, query: str, text: str, words: str):
    with pytest.raises(ToolError, match=words):
        tool.json_query(query, text=text)


def test_a_file_or_a_text_is_required_and_the_file_takes_precedence(tool: SearchTools):
    with pytest.raises(ToolError, match="either"):
        tool.json_query("a")
    with pytest.raises(ToolError, match=r"Nearest: data\.json"):
        tool.json_query("a", path="date.json", text='{"a": 1}')
