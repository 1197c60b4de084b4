"""MCP servers: well-behaved ones built with the SDK, and hostile ones."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ecoshell.errors import ToolError
from ecoshell.tools import ResultSize, caller
from ecoshell.tools.mcp.provider import McpServer
from ecoshell.tools.mcp.records import describe
from ecoshell.tools.mcp.servers import Server, parse_tools, safe_schema
from ecoshell.tools.running import contained
from ecoshell.worker import in_worker

pytest.importorskip("mcp")
SUPPORT = Path(__file__).parent.parent / "support"
COMMAND = (sys.executable, str(SUPPORT / "mcp_server.py"))


def hostile(behavior: str) -> tuple[str, ...]:
    return (sys.executable, str(SUPPORT / "hostile_mcp.py"), behavior)


@pytest.fixture
def opened(tmp_path):
    """A context manager that opens and closes a provider: `async with opened(command) as server`."""

    @asynccontextmanager
    async def provider(command=(), *, name="tried", connect_seconds=300.0, **options):
        server = McpServer(
            Server(name, command=command, cwd=str(tmp_path), **options),
            folder=tmp_path / "cache",
            result=ResultSize(),
            files=lambda: tmp_path / "files" / "session",
            connect_seconds=connect_seconds,
        )
        try:
            yield server
        finally:
            await server.aclose()

    return provider


async def run(server: McpServer, tool_name: str, **arguments):
    """Run a tool within its limits, as the shell does."""
    tool = next(tool for tool in server.tools if tool.listed.name == tool_name)
    return await contained(tool, arguments, tool.limits)


async def failure(server: McpServer, tool_name: str) -> str:
    """Return the error of a call, or its unsuccessful result; empty if it succeeds."""
    try:
        observation = await run(server, tool_name)
    except ToolError as error:
        return error.message
    return "" if observation.ok else observation.text


async def soon(condition: Callable[[], bool], seconds: float = 120) -> bool:
    """Return whether the condition becomes true within this time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110 - nothing in this process signals it
        await asyncio.sleep(0.1)
    return condition()


def start_http_server(port: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*COMMAND, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


async def has_ended(pid: int) -> bool:
    return await soon(lambda: not is_alive(pid))


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_server_starts_at_the_first_call_and_its_lists_are_cached(opened):
    async with opened(COMMAND) as first:
        assert (first.known, tuple(first.tools), first.status) == (False, (), "never connected to")
        await first.connect()
        assert {"tried.add", "tried.look"} <= {tool.schema.name for tool in first.tools}
    async with opened(COMMAND) as second:
        assert second.known
        assert second.status == "not started"
        assert (await run(second, "add", first=2, second=3)).text.replace("\n", "").replace(
            " ", ""
        ) == '{"total":5}'
        assert second.status.startswith("connected to tried")


async def test_lists_of_another_command_with_the_same_name_are_ignored(opened):
    async with opened(COMMAND) as first:
        await first.connect()
    async with opened((*COMMAND, "--other")) as other:
        assert not other.known


async def test_a_server_gets_configured_variables_and_no_key_of_the_shell(opened, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hidden-value")
    monkeypatch.setenv("REGION", "north")
    async with opened(COMMAND, env={"PLACE": "${REGION}-${MISSING:-1}"}) as server:
        await server.connect()
        assert [
            (await run(server, "look", name=name)).text
            for name in ("PLACE", "REGION", "SOME_API_KEY")
        ] == [
            "north-1",
            "nothing",
            "nothing",
        ]


async def test_an_unset_variable_is_named(opened):
    async with opened(COMMAND, env={"TOKEN": "${NOT_SET_ANYWHERE}"}) as server:
        with pytest.raises(ToolError, match="NOT_SET_ANYWHERE, which is not set"):
            await server.connect()


async def test_the_read_only_hint_counts_for_trusted_servers_only(opened):
    async with opened(hostile("read_only")) as server:
        await server.connect()
        assert server.tools[0].effects == {"read", "write", "network"}
    async with opened(hostile("read_only"), trusted=True) as server:
        assert server.tools[0].effects == {"read"}


async def test_a_cancelled_call_is_cancelled_at_the_server(opened, tmp_path):
    async with opened(COMMAND) as server:
        await server.connect()
        calling = asyncio.create_task(run(server, "wait", seconds=60, file=str(tmp_path / "ended")))
        ended = tmp_path / "ended"
        assert await soon(lambda: ended.is_file() and ended.read_text() == "begun")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert (await run(server, "add", first=1, second=1)).ok
        assert await soon(lambda: ended.read_text() == "called off")


async def test_a_call_ends_at_its_time_limit(opened):
    async with opened(COMMAND, seconds=1.0) as server:
        await server.connect()
        observation = await run(server, "wait", seconds=60, file=os.devnull)
        assert not observation.ok
        assert "timed out" in observation.text


async def test_a_result_is_truncated_at_its_limit(opened):
    async with opened(COMMAND) as server:
        await server.connect()
        observation = await run(server, "long")
        assert observation.truncated
        assert len(observation.text) < 8_200


async def test_a_new_tool_of_a_running_server_becomes_available(opened):
    async with opened(COMMAND) as server:
        await server.connect()
        tools = server.tools
        await run(server, "grow", name="grown")
        assert await soon(lambda: "tried.grown" in {tool.schema.name for tool in server.tools})
        assert (await run(server, "grown")).text == "grown"
        assert tools[0] is server.tools[0]  # Unchanged tools stay the same objects.


async def test_a_server_that_dies_during_a_call_is_restarted(opened):
    async with opened(COMMAND) as server:
        await server.connect()
        with pytest.raises(ToolError, match="tried did not finish the call: it ended"):
            await run(server, "die")
        assert (await run(server, "add", first=1, second=2)).ok


async def test_the_last_answer_of_a_server_that_ends_is_delivered(opened):
    async with opened(hostile("leaves")) as server:
        await server.connect()
        assert (await run(server, "go")).text == "the last answer"


async def test_a_server_that_keeps_failing_is_not_started_for_a_while(opened):
    async with opened(hostile("dies_at_once")) as server:
        for _ in range(2):
            with pytest.raises(ToolError, match="no licence"):
                await server.connect()
        with pytest.raises(ToolError, match=r"keeps failing: .*no licence.*next try is in 1 s"):
            await server.connect()
        assert server.status.startswith("failed: ")


async def test_a_missing_command_is_named(opened):
    async with opened(("no-such-program-anywhere",)) as server:
        with pytest.raises(
            ToolError, match="no-such-program-anywhere cannot be started: No such file"
        ):
            await server.connect()


async def test_a_server_over_http_works(opened):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with start_http_server(port) as process:
        try:
            assert await soon(lambda: is_listening(port))
            async with opened(
                url=f"http://127.0.0.1:{port}/mcp", headers={"X-Any": "thing"}
            ) as server:
                await server.connect()
                assert '"total"' in (await run(server, "add", first=2, second=3)).text
        finally:
            process.kill()


async def test_an_unreachable_address_is_an_error(opened):
    async with opened(url="http://127.0.0.1:9/mcp") as server:
        with pytest.raises(ToolError, match="tried cannot be reached"):
            await server.connect()


async def test_closing_ends_the_server_and_its_orphans(opened):
    async with opened(COMMAND) as server:
        await server.connect()
        pids = [int(pid) for pid in (await run(server, "leave_behind")).text.split()]
        assert all(map(is_alive, pids))
    if sys.platform == "linux":
        assert [await has_ended(pid) for pid in pids] == [True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="children can be found on Linux only")
async def test_a_server_that_ignores_signals_is_killed(opened):
    before = set(children_of(os.getpid()))
    async with opened(hostile("stubborn")) as server:
        await server.connect()
        children = [
            pid for helper in set(children_of(os.getpid())) - before for pid in children_of(helper)
        ]
        assert children
    assert [await has_ended(pid) for pid in children] == [True]


KILLED = """
import asyncio, os, sys
from pathlib import Path
from ecoshell.tools.mcp.provider import McpServer
from ecoshell.tools.mcp.servers import Server
from ecoshell.tools import ResultSize

async def main():
    server = McpServer(Server("tried", command=tuple(sys.argv[2:])), folder=Path(sys.argv[1]), result=ResultSize(8000))
    await server.connect()
    tool = next(tool for tool in server.tools if tool.listed.name == "leave_behind")
    print((await tool.run({})).text, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="orphans can be found on Linux only")
async def test_killing_the_shell_ends_its_servers(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path), *COMMAND]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:  # noqa: ASYNC220 - it is killed
        pids = [int(pid) for pid in shell.stdout.readline().split()]
        assert len(pids) == 2
        os.kill(shell.pid, signal.SIGKILL)
    assert [await has_ended(pid) for pid in pids] == [True, True]


# -- hostile servers


async def test_all_pages_of_a_list_are_read(opened):
    async with opened(hostile("pages")) as server:
        await server.connect()
        assert [tool.listed.name for tool in server.tools] == [f"tool{page}" for page in range(5)]


async def test_an_endless_list_is_an_error(opened):
    async with opened(hostile("endless")) as server:
        with pytest.raises(ToolError, match="its list of tools does not end"):
            await server.connect()


@pytest.mark.parametrize(
    ("behavior", "reason"),
    [
        ("long_lists", "its lists have more than 4,194,304 characters"),
        ("many", r"its list of tools has more than 2,000\b"),
    ],
)
async def test_long_lists_are_an_error(opened, behavior, reason):
    async with opened(hostile(behavior)) as server:
        with pytest.raises(ToolError, match=reason):
            await server.connect()


async def test_connecting_to_a_silent_server_times_out(opened):
    async with opened(hostile("hangs"), connect_seconds=4.0) as server:
        with pytest.raises(ToolError, match="did not answer within 4 s"):
            await server.connect()


async def test_a_call_of_a_hanging_server_times_out(opened):
    async with opened(hostile("hangs_in_call"), seconds=1.0) as server:
        await server.connect()
        observation = await run(server, "go")
        assert not observation.ok
        assert "timed out" in observation.text


@pytest.mark.parametrize(
    ("behavior", "reason"),
    [
        ("floods", "a line of more than 33,554,432 bytes"),
        ("garbage", "too many messages"),
        ("messages", "too many messages"),
    ],
)
async def test_a_flood_ends_the_call_before_its_time_limit(opened, behavior, reason):
    async with opened(hostile(behavior), seconds=600.0) as server:
        await server.connect()
        assert await failure(server, "go") == f"tried did not finish the call: it sent {reason}."


class Floods(BaseHTTPRequestHandler):
    """A server over HTTP that answers a call endlessly, in the manner given by its path."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_error(405)

    def do_DELETE(self):
        self.send_error(405)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        manner = self.path.rpartition("/")[2]
        match request["method"]:
            case "initialize":
                info = {"name": "floods", "version": "1"}
                capabilities = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
                self.answer(request, result={**capabilities, "serverInfo": info})
            case "tools/list":
                self.answer(
                    request, result={"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}
                )
            case "tools/call" if manner == "done":
                self.answer(request, result={"content": [{"type": "text", "text": manner}]})
            case "tools/call":
                self.begin("application/json" if manner == "body" else "text/event-stream")
                params = {"level": "info", "data": ""}
                notification = {
                    "jsonrpc": "2.0",
                    "method": "notifications/message",
                    "params": params,
                }
                events = f"data: {json.dumps(notification)}\n\n".encode()
                chunk = {"body": b" " * 65_536, "event": b"x" * 65_536, "events": events}[manner]
                self.wfile.write(b"data: " if manner == "event" else b"")
                with suppress(OSError):
                    while True:
                        self.wfile.write(chunk)
            case _ if "id" in request:
                self.answer(request, error={"code": -32601, "message": "no such method"})
            case _:
                self.send_response(202)
                self.end_headers()

    def begin(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def answer(self, request, **response):
        self.begin("application/json")
        self.wfile.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **response}).encode())


@pytest.mark.parametrize(
    ("behavior", "reason"),
    [
        ("event", "exceeded the 33554432 byte limit"),
        ("body", "it sent more than fits into memory"),
        ("events", "too many messages"),
    ],
)
async def test_a_flood_over_http_is_an_error(opened, behavior, reason):
    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Floods)
    threading.Thread(
        target=http_server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    ).start()
    try:
        async with opened(
            url=f"http://127.0.0.1:{http_server.server_port}/{behavior}", seconds=600.0
        ) as server:
            await server.connect()
            assert reason in await failure(server, "go")
    finally:
        http_server.shutdown()
        http_server.server_close()


class Forgets(Floods):
    """A server over HTTP that knows only its current session."""

    session = "one"

    def do_POST(self):
        if self.headers.get("Mcp-Session-Id", Forgets.session) == Forgets.session:
            super().do_POST()
        else:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_error(404)

    def begin(self, kind):
        self.send_response(200)
        self.send_header("Mcp-Session-Id", Forgets.session)
        self.send_header("Content-Type", kind)
        self.end_headers()


async def test_a_lost_session_over_http_is_one_error(opened, monkeypatch):
    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Forgets)
    threading.Thread(
        target=http_server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    ).start()
    try:
        async with opened(url=f"http://127.0.0.1:{http_server.server_port}/done") as server:
            await server.connect()
            assert (await run(server, "go")).text == "done"
            monkeypatch.setattr(Forgets, "session", "two")  # like a restarted server
            assert (
                await failure(server, "go")
                == "tried did not finish the call: it no longer knows the session."
            )
            assert (await run(server, "go")).text == "done"
    finally:
        http_server.shutdown()
        http_server.server_close()


def test_a_connection_that_ran_out_of_memory_is_reported_as_such():
    broken = ConnectionError()
    broken.__cause__ = MemoryError()
    assert describe(broken) == "it sent more than fits into memory"


async def test_a_result_that_violates_the_output_schema_is_an_error(opened):
    async with opened(hostile("lies")) as server:
        await server.connect()
        observation = await run(server, "go")
        assert not observation.ok
        assert (
            observation.text
            == "its result does not match its output schema, $.n: 'seven' is not of type 'integer'"
        )


async def test_binary_content_is_saved_as_a_file(opened, tmp_path):
    async with opened(COMMAND) as server:
        await server.connect()
        observation = await run(server, "draw")
        paths = {
            Path(path).read_bytes(): path  # noqa: ASYNC240 - small
            for path in re.findall(r"saved as (\S+)\]", observation.text)
        }
        assert set(paths) == {b"picture", b"sound", b"blob"}
        assert re.search(
            r"\[image image/png, 7 bytes, saved as \S+/files/session/image-\w+\.png\]",
            observation.text,
        )
        assert paths[b"blob"].endswith(".pdf")
        assert observation.text.count("[image image/png, not saved: ") == 2
        for path in map(Path, paths.values()):
            assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (
                0o600,
                0o700,
            )


async def test_without_a_folder_binary_content_is_not_saved(opened, monkeypatch):
    async with opened(COMMAND) as server:
        server._files = lambda: None
        await server.connect()
        assert "[image image/png, 9 bytes, not saved]" in (await run(server, "draw")).text


async def test_progress_is_reported_to_the_caller(opened):
    class Listens:
        def __init__(self):
            self.reports = []

        def progress(self, text):
            self.reports.append(text)

    listens = Listens()
    async with opened(COMMAND) as server:
        await server.connect()
        caller.set(listens)
        assert (await run(server, "count", to=500)).text == "counted"
        assert listens.reports[0] == "1 of 500 at 1"
        assert len(listens.reports) < 100  # limited in frequency


class Visits:
    """A caller that accepts and counts questions."""

    def __init__(self):
        self.questions = 0

    async def visit(self, *question, **options):
        self.questions += 1
        return True

    form = sample = visit


async def test_a_server_can_ask_a_limited_number_of_questions(opened):
    visits = Visits()
    async with opened(hostile("asks_for_ever"), seconds=3.0) as server:
        await server.connect()
        caller.set(visits)
        error = await failure(server, "go")
        assert error == "it timed out after 3 s" or error.endswith(
            "it sent too many messages."
        )  # whichever is first
        assert visits.questions == 20


@pytest.mark.parametrize("behavior", ["asks_long_form", "asks_long_address", "asks_long_sample"])
async def test_long_questions_are_declined(opened, behavior):
    visits = Visits()
    async with opened(hostile(behavior)) as server:
        await server.connect()
        caller.set(visits)
        assert re.search("decline|limited to 200,000 characters", (await run(server, "go")).text)
        assert visits.questions == 0


async def test_a_catastrophic_pattern_blocks_only_the_helper(opened):
    async with opened(hostile("regex"), seconds=1.0) as server:
        await server.connect()
        calling = asyncio.create_task(failure(server, "go"))
        assert await soon(calling.done)  # The event loop is not blocked.
        assert calling.result()


async def test_an_invalid_result_is_an_error(opened):
    async with opened(hostile("unreadable")) as server:
        await server.connect()
        assert not (await run(server, "go")).ok


async def test_escapes_do_not_reach_the_status(opened):
    async with opened(hostile("escapes")) as server:
        await server.connect()
        assert (await run(server, "go")).text.endswith("red")
        assert "\x1b" not in server.status


async def test_tools_with_invalid_names_are_rejected(opened):
    async with opened(hostile("names")) as server:
        await server.connect()
        assert [tool.listed.name for tool in server.tools] == ["good"]
        assert len(server.lists.rejected) == 3


async def test_an_invalid_tool_is_rejected_and_the_others_work(opened):
    async with opened(hostile("faults")) as server:
        await server.connect()
        assert [tool.listed.name for tool in server.tools] == ["good", "also_good"]
        assert server.lists.rejected == (
            "'bare': inputSchema is invalid: field required",
            "'array': inputSchema.type is invalid: input should be 'object'",
            "'worded': description is invalid: input should be a valid string",
            "'text': it is invalid: input should be a valid dictionary or instance of Tool",
        )
        assert (await run(server, "also_good")).ok


async def test_an_invalid_list_is_explained_in_a_sentence(opened):
    async with opened(hostile("no_list")) as server:
        with pytest.raises(ToolError) as caught:
            await server.connect()
        fault = "it sent an invalid reply, tools is invalid: input should be a valid list"
        assert caught.value.message == f"tried cannot be reached: {fault}."


async def test_a_changed_tool_returns_its_new_schema_once_instead_of_running(opened):
    async with opened(hostile("changes")) as server:
        await server.connect()
        go, removed = server.tools
        assert (await go.run({"v1": "a"})).ok
        assert await soon(lambda: server.tools[0] is not go)
        change = await go.run({"v1": "a"})
        assert not change.ok
        assert "has changed this tool" in change.text
        assert "v2" in change.text
        assert (await go.run({"v2": "a"})).ok
        assert await soon(lambda: "v3" in server.tools[0].schema.as_text())
        assert "v3" in (await go.run({"v2": "a"})).text  # reported again after the second change
        assert (await go.run({"v3": "a"})).ok
        assert "no longer has the tool gone" in (await removed.run({})).text


# -- schemas


def test_patterns_and_remote_references_are_removed_from_schemas():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "pattern": "^(a+)+$"},
            "b": {"$ref": "http://example.org/s"},
        },
        "patternProperties": {"(a+)+": {}},
        "$id": "http://example.org/",
        "required": ["a", 5],
    }
    assert safe_schema(schema) == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {}},
        "required": ["a"],
    }


def test_internal_references_are_resolved_and_recursion_ends():
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/tree"}, "one": {"$ref": "#/$defs/one"}},
        "$defs": {
            "one": {"type": "integer"},
            "tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}},
        },
    }
    plain = safe_schema(schema)
    assert plain["properties"]["one"] == {"type": "integer"}
    assert plain["properties"]["tree"]["properties"]["left"]["type"] == "object"
    assert "$ref" not in str(plain)


_MANY = range(100_000)


@pytest.mark.parametrize(
    "bomb",
    [
        {"type": "object", "properties": {f"p{at}": True for at in _MANY}, "x": "x" * 100_000},
        {f"x-{at}": 1 for at in _MANY},
        {"enum": [*_MANY]},
        {"required": ["x" * 1_000_000]},
    ],
    ids=["names", "keywords", "values", "texts"],
)
def test_a_schema_that_expands_exponentially_is_rejected(bomb):
    schema = {"type": "object", "$defs": {"bomb": bomb}}
    schema["properties"] = {f"a{at}": {"$ref": "#/$defs/bomb"} for at in range(450)}
    tools, rejected = in_worker(
        parse_tools, "any", [{"name": "go", "description": "", "parameters": schema}]
    )
    assert (tools, rejected) == ((), ("'go': its schema is too long",))


@pytest.mark.parametrize("schema", [None, [], "x", {"type": "array"}])
def test_a_tool_without_an_object_schema_is_rejected(schema):
    tools, rejected = parse_tools("any", [{"name": "go", "description": "", "parameters": schema}])
    assert (tools, len(rejected)) == ((), 1)


async def test_tools_that_require_tasks_are_rejected(opened):
    async with opened(hostile("tasks")) as server:
        await server.connect()
        assert [tool.listed.name for tool in server.tools] == ["optional"]
        assert server.lists.rejected == (
            "'required': it requires the protocol's tasks, which are not supported",
        )


@pytest.mark.parametrize(
    "odd", [{"default": float("nan")}, {"minimum": float("-inf")}, {"enum": [[float("inf")]]}]
)
def test_a_tool_whose_schema_contains_a_non_json_number_is_rejected(odd):
    schema = {"type": "object", "properties": {"a": odd}}
    tools, rejected = parse_tools("any", [{"name": "go", "description": "", "parameters": schema}])
    assert (tools, len(rejected)) == ((), 1)
