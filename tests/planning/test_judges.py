"""Judging results by rules: failures, empty results, mistakes of the caller and results with content."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shipped_tools import shipped_tools

from ecoshell.messages import Call, Observation
from ecoshell.planning.judging import by_rules
from ecoshell.tools.workspace import Workspace

QUERY = "Which trains go to Oslo tomorrow?"
ANY = Call("timetable", {"station": "Oslo"})


def judged(text, call=ANY, *, query=QUERY, **more):
    return by_rules(query, call, Observation(text, **more))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n",
        "null",
        "[]",
        "{}",
        '""',
        "None",
        "No results found.",
        "No matching trains were found",
        "0 results for 'Oslo'",
        "Nothing found.",
        "Search results:\n",
        '{"results": []}',
        '{"query": {"station": "Oslo"}, "trains": [], "count": 0}',
        '{"data": null}',
        "# Trains\n\nLoading...",
    ],
)
def test_an_empty_result_is_unhelpful(text):
    verdict = judged(text)
    assert (verdict.helpful, verdict.by, verdict.reason) == (False, "rules", "it found nothing")


@pytest.mark.parametrize(
    "text",
    [
        "Error: the upstream service broke",
        "Failed to retrieve the timetable",
        "HTTP 503 Service Unavailable",
        "404 Not Found",
        "429 Too Many Requests",
        "Rate limit exceeded, try again in 30 s",
        "The call timed out.",
        "❌ Error: out of memory",
        "sqlite3.OperationalError: no such table: trains",
        'Traceback (most recent call last):\n  File "t.py", line 3, in run\nKeyError: 5',
        '{"error": "the service is down"}',
        '{"success": false, "message": "quota used up"}',
        '{"status": "error", "data": {}}',
        '{"status": 500, "message": "internal"}',
        '{"isError": true, "text": "x"}',
        '{"results": [{"success": false, "error": "no table"}, {"success": false, "error": "no table"}]}',
        '{"/a.md": {"result": "error", "reason": "disk gone"}}',
    ],
)
def test_a_failure_reported_in_a_result_is_unhelpful(text):
    verdict = judged(text)
    assert (verdict.helpful, verdict.by) == (False, "rules")
    assert verdict.reason.startswith("it failed: ")


@pytest.mark.parametrize(
    "text",
    [
        "Oslo 06:12, 08:12 and 10:12",
        "0",
        "false",
        "2.18.4",
        '{"count": 0}',
        '{"error": 0.05, "mean": 3.1}',
        '{"error": null, "results": [{"at": "06:12"}]}',
        '{"errors": ["one source was slow"], "results": [{"at": "06:12"}]}',
        '{"results": [{"success": true}, {"success": false, "error": "x"}]}',
        '{"title": "Oslo", "tags": []}',
        '{"status": "ok", "trains": [{"at": "06:12"}]}',
        "[0, 0]",
        "Errors and exceptions\n\nAn error: what a program reports when it fails. "
        + "Handle it with care. " * 40,
        "Error: how to read it. " + "Every compiler prints one now and then. " * 40,
        "No train is late today, and no delays are expected on any of the lines to Oslo.",
        "Document report.docx created successfully",
        "Total: 0.75 EUR",
        "443 requests per second",
    ],
)
def test_any_other_result_is_helpful_but_not_for_sure(text):
    verdict = judged(text)
    assert (verdict.helpful, verdict.by, verdict.sure) == (True, "rules", False)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (ANY, "Input validation error: 'station' is a required property"),
        (ANY, "2 validation errors for timetableArguments\nstation\n  Field required"),
        (ANY, "MCP error -32602: Invalid arguments for tool timetable: expected string"),
        (ANY, "Station 'Oslo' not found."),
        (
            Call("read", {"files": [{"at": "/srv/a.md"}]}),
            "Error: ENOENT: no such file or directory, open '/srv/a.md'",
        ),
        (Call("read", {"page": "a.docx"}), "Document a.docx does not exist"),
        (Call("wait", {"timeout": -1}), "`timeout` must not be negative"),
        (Call("fetch", {"url": "http://x.org/a"}), "http://x.org/a answered 404 Not Found."),
        (
            Call("sql", {"query": "SELECT n, eurr FROM sales"}),
            'Referenced column "eurr" not found. Available: sales (n BIGINT, eur DOUBLE).',
        ),
        (
            Call("sql", {"query": "SELECT * FROM sale"}),
            "Catalog Error: Table with name sale does not exist!",
        ),
        (Call("shell", {"command": "make"}), "make: nothing to do\n[exit status 2]"),
    ],
)
def test_a_mistake_of_the_caller_is_not_judged(call, text):
    verdict = judged(text, call, ok=False)
    assert (verdict.helpful, verdict.by, verdict.sure) == (None, "", True)
    assert verdict.reason.startswith("the call was wrong, not the tool: ")


@pytest.mark.parametrize(
    "text",
    [
        "timetable failed: ConnectionError: the host hung up",
        "timetable was stopped: it took longer than 20 s.",
        "http://x.org/a answered 503 Service Unavailable.\nNot found: Oslo",
        "Failed to initialize browser: the executable doesn't exist at /srv/cache/shell",
        "The API key is missing",
        "",
    ],
)
def test_a_call_that_failed_without_a_mistake_is_unhelpful(text):
    assert judged(text, ok=False).helpful is False


def test_a_call_that_was_not_run_is_not_judged():
    verdict = judged(
        "timetable is not registered, so it was not run.", ok=False, refused="unregistered"
    )
    assert (verdict.helpful, verdict.by, verdict.reason) == (None, "", "the call was not run")


def test_a_changed_file_is_helpful_with_any_text():
    verdict = judged("", Call("edit_file", {"path": "a"}), changes="--- a\n+++ a\n")
    assert (verdict.helpful, verdict.sure) == (True, True)


@pytest.mark.parametrize(
    "name", ["mkdir", "calendar.create_event", "TravelAPI.bookFlight", "fs__write"]
)
def test_an_empty_result_of_an_action_is_not_judged(name):
    verdict = judged("null", Call(name))
    assert (verdict.helpful, verdict.sure) == (None, False)


@pytest.mark.parametrize("name", ["get_open_issues", "search", "find_and_read"])
def test_an_empty_result_of_a_lookup_is_unhelpful(name):
    assert judged("[]", Call(name)).helpful is False


def test_an_error_the_user_searches_for_is_not_a_failure():
    line = "ERROR: disk full on /dev/sda1"
    assert judged(line, query="What went wrong last night? Look for errors.").helpful is None
    assert judged(line, Call("grep", {"pattern": "ERROR"})).helpful is None
    assert (
        judged(f"{line}\nERROR: gave up\n", Call("read_file", {"path": "night.txt"})).helpful
        is None
    )
    assert judged(line).helpful is False


@given(st.text(max_size=400), st.text(max_size=20), st.booleans())
def test_rules_judge_any_text(text, tool, ok):
    verdict = by_rules(QUERY, Call(tool, {"a": [text]}), Observation(text, ok))
    assert verdict.helpful in (True, False, None)
    assert verdict.reason


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "status", "results", "count", "success", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_rules_judge_any_json(value):
    assert by_rules(QUERY, ANY, Observation(json.dumps(value))).reason


@pytest.mark.parametrize("piece", ["[", '{"a":', "no ", "error ", "_", "The file ", "'"])
def test_a_hostile_result_is_judged(piece):
    assert judged(piece * 100_000).reason
    assert judged(piece * 100_000 + "x:", ok=False).reason


@pytest.fixture
def tools(tmp_path):
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "data.json").write_text('{"a": [1]}')
    (tmp_path / "folder").mkdir()
    return shipped_tools(Workspace(tmp_path))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "nots.txt"}),
        ("read_file", {"path": "/etc/passwd"}),
        ("read_file", {"path": "folder"}),
        ("read_file", {"path": "notes.txt", "start_line": 9}),
        ("read_file", {"file": "notes.txt"}),
        ("list_files", {"path": "nowhere"}),
        ("search_text", {"text": ""}),
        ("calculate", {"expression": "1/0"}),
        ("calculate", {"expression": "2 +"}),
        ("calculate", {"expression": "frobnicate(2)"}),
        ("convert_units", {"value": "3", "from_unit": "m", "to_unit": "kg"}),
        ("convert_units", {"value": "3", "from_unit": "mooo", "to_unit": "m"}),
        ("current_time", {"timezone": "Mars"}),
        ("json_query", {"path": "data.json", "query": "a["}),
        ("json_query", {"path": "notes.txt", "query": "a"}),
        ("count_text", {}),
        ("edit_file", {"path": "notes.txt", "old": "zebra", "new": "x"}),
        ("edit_file", {"path": "notes.txt", "old": "o", "new": "x"}),
        ("write_file", {"path": "folder", "content": "x"}),
        ("run_command", {"command": "exit 3"}),
        ("run_python", {"code": "1/0"}),
        ("fetch_url", {"url": "ftp://example.org"}),
    ],
)
async def test_wrong_arguments_do_not_count_against_a_built_in_tool(tools, tool, arguments):
    observation = await tools[tool].run(arguments)
    verdict = by_rules("Do it.", Call(tool, arguments), observation)
    assert not observation.ok
    assert (verdict.helpful, verdict.sure) == (None, True), observation.text


@pytest.mark.parametrize(
    ("tool", "arguments", "helpful"),
    [
        ("read_file", {"path": "notes.txt"}, True),
        ("read_file", {"path": "empty.txt"}, None),
        ("list_files", {"path": "folder"}, None),
        ("search_text", {"text": "two"}, True),
        ("search_text", {"text": "zebra"}, False),
        ("json_query", {"path": "data.json", "query": "a"}, True),
        ("json_query", {"path": "data.json", "query": "b"}, False),
        ("write_file", {"path": "new.txt", "content": "x"}, True),
        ("run_command", {"command": "true"}, None),
        ("run_command", {"command": "echo hello"}, True),
        ("calculate", {"expression": "2*3"}, True),
    ],
)
async def test_results_of_built_in_tools_are_judged_by_content(tools, tool, arguments, helpful):
    observation = await tools[tool].run(arguments)
    assert by_rules("Do it.", Call(tool, arguments), observation).helpful is helpful, (
        observation.text
    )
