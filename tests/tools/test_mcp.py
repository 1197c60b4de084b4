"""Servers of the Model Context Protocol: well-behaved ones of the SDK's, and some that keep to no agreement."""

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
from ecoshell.tools.mcp.helper import _words
from ecoshell.tools.mcp.provider import McpServer
from ecoshell.tools.mcp.servers import Server, listed, plain_schema
from ecoshell.tools.running import contained
from ecoshell.worker import in_worker

pytest.importorskip("mcp")
SUPPORT = Path(__file__).parent.parent / "support"
TRIED = (sys.executable, str(SUPPORT / "mcp_server.py"))


def hostile(way: str) -> tuple[str, ...]:
    return (sys.executable, str(SUPPORT / "hostile_mcp.py"), way)


@pytest.fixture
def opened(tmp_path):
    """Gives providers of servers, and closes them: `async with opened(command) as server`."""

    @asynccontextmanager
    async def provider(command=(), *, name="tried", connecting=300.0, **more):
        server = Server(name, command=command, cwd=str(tmp_path), **more)
        files = tmp_path / "files" / "session"
        made = McpServer(
            server, folder=tmp_path / "cache", result=ResultSize(), files=lambda: files, connecting=connecting
        )
        try:
            yield made
        finally:
            await made.aclose()

    return provider


async def run(server: McpServer, called: str, **arguments):
    """What a shell makes of a call: within limits, and a failure as an error."""
    tool = next(tool for tool in server.tools if tool.listed.name == called)
    return await contained(tool, arguments, tool.limits)


async def failure(server: McpServer, called: str) -> str:
    """How a call failed, by the server's word or by what became of the server; empty where it did not."""
    try:
        seen = await run(server, called)
    except ToolError as error:
        return error.message
    return "" if seen.ok else seen.text


async def soon(happened: Callable[[], bool], seconds: float = 120) -> bool:
    """Whether something happens within this time."""
    until = time.monotonic() + seconds
    while not happened() and time.monotonic() < until:  # noqa: ASYNC110 - nothing of this process tells it
        await asyncio.sleep(0.1)
    return happened()


def served(port: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([*TRIED, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


async def gone(pid: int) -> bool:
    return await soon(lambda: not is_alive(pid))


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_server_is_started_when_it_is_called_and_its_list_is_kept(opened):
    async with opened(TRIED) as first:
        assert (first.known, tuple(first.tools), first.status) == (False, (), "never connected to")
        await first.connect()
        assert {"tried.add", "tried.look"} <= {tool.schema.name for tool in first.tools}
    async with opened(TRIED) as second:
        assert second.known
        assert second.status == "not started"
        assert (await run(second, "add", first=2, second=3)).text.replace("\n", "").replace(" ", "") == '{"total":5}'
        assert second.status.startswith("connected to tried")


async def test_a_list_of_another_command_of_the_same_name_is_not_believed(opened):
    async with opened(TRIED) as first:
        await first.connect()
    async with opened((*TRIED, "--other")) as other:
        assert not other.known


async def test_a_server_has_the_variables_it_is_given_and_no_key_of_the_shell(opened, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hidden-value")
    monkeypatch.setenv("REGION", "north")
    async with opened(TRIED, env={"PLACE": "${REGION}-${MISSING:-1}"}) as server:
        await server.connect()
        assert [(await run(server, "look", name=name)).text for name in ("PLACE", "REGION", "SOME_API_KEY")] == [
            "north-1",
            "nothing",
            "nothing",
        ]


async def test_a_variable_that_is_not_set_is_named(opened):
    async with opened(TRIED, env={"TOKEN": "${NOT_SET_ANYWHERE}"}) as server:
        with pytest.raises(ToolError, match="NOT_SET_ANYWHERE, which is not set"):
            await server.connect()


async def test_what_a_tool_says_of_itself_counts_only_for_a_server_that_is_trusted(opened):
    async with opened(hostile("read_only")) as server:
        await server.connect()
        assert server.tools[0].effects == {"read", "write", "network"}
    async with opened(hostile("read_only"), trusted=True) as server:
        assert server.tools[0].effects == {"read"}


async def test_a_call_that_is_called_off_is_called_off_at_the_server(opened, tmp_path):
    async with opened(TRIED) as server:
        await server.connect()
        calling = asyncio.create_task(run(server, "wait", seconds=60, file=str(tmp_path / "ended")))
        ended = tmp_path / "ended"
        assert await soon(lambda: ended.is_file() and ended.read_text() == "begun")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert (await run(server, "add", first=1, second=1)).ok
        assert await soon(lambda: ended.read_text() == "called off")


async def test_a_call_ends_with_its_time(opened):
    async with opened(TRIED, seconds=1.0) as server:
        await server.connect()
        seen = await run(server, "wait", seconds=60, file=os.devnull)
        assert not seen.ok
        assert "timed out" in seen.text


async def test_what_a_tool_says_is_cut_at_its_limit(opened):
    async with opened(TRIED) as server:
        await server.connect()
        seen = await run(server, "long")
        assert seen.truncated
        assert len(seen.text) < 8_200


async def test_a_tool_that_a_server_has_more_is_there_soon(opened):
    async with opened(TRIED) as server:
        await server.connect()
        before = server.tools
        await run(server, "grow", name="grown")
        assert await soon(lambda: "tried.grown" in {tool.schema.name for tool in server.tools})
        assert (await run(server, "grown")).text == "grown"
        assert before[0] is server.tools[0]  # what stayed the same is the very same


async def test_a_server_that_dies_in_a_call_costs_one_error_and_is_started_again(opened):
    async with opened(TRIED) as server:
        await server.connect()
        with pytest.raises(ToolError, match="tried did not finish the call: it ended"):
            await run(server, "die")
        assert (await run(server, "add", first=1, second=2)).ok


async def test_an_answer_counts_though_the_server_ends_right_after_it(opened):
    async with opened(hostile("leaves")) as server:
        await server.connect()
        assert (await run(server, "go")).text == "the last answer"


async def test_a_server_that_keeps_failing_is_left_alone_for_a_while(opened):
    async with opened(hostile("dies_at_once")) as server:
        for _ in range(2):
            with pytest.raises(ToolError, match="no licence"):
                await server.connect()
        with pytest.raises(ToolError, match=r"keeps failing: .*no licence.*next try is in 1 s"):
            await server.connect()
        assert server.status.startswith("failed: ")


async def test_a_command_that_is_not_there_is_named(opened):
    async with opened(("no-such-program-anywhere",)) as server:
        with pytest.raises(ToolError, match="no-such-program-anywhere cannot be started: No such file"):
            await server.connect()


async def test_a_server_over_http_is_the_same(opened):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with served(port) as process:
        try:
            assert await soon(lambda: is_listening(port))
            async with opened(url=f"http://127.0.0.1:{port}/mcp", headers={"X-Any": "thing"}) as server:
                await server.connect()
                assert '"total"' in (await run(server, "add", first=2, second=3)).text
        finally:
            process.kill()


async def test_an_address_where_nobody_answers_is_an_error(opened):
    async with opened(url="http://127.0.0.1:9/mcp") as server:
        with pytest.raises(ToolError, match="tried cannot be reached"):
            await server.connect()


async def test_closing_ends_the_server_and_what_it_left_behind(opened):
    async with opened(TRIED) as server:
        await server.connect()
        pids = [int(pid) for pid in (await run(server, "leave_behind")).text.split()]
        assert all(map(is_alive, pids))
    if sys.platform == "linux":
        assert [await gone(pid) for pid in pids] == [True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="children are found on Linux alone")
async def test_a_server_that_will_not_end_is_ended(opened):
    before = set(children_of(os.getpid()))
    async with opened(hostile("stubborn")) as server:
        await server.connect()
        children = [pid for helper in set(children_of(os.getpid())) - before for pid in children_of(helper)]
        assert children
    assert [await gone(pid) for pid in children] == [True]


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


@pytest.mark.skipif(sys.platform != "linux", reason="what a server leaves behind is found on Linux alone")
async def test_killing_the_shell_leaves_no_server_behind(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path), *TRIED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:  # noqa: ASYNC220 - it is killed
        pids = [int(pid) for pid in shell.stdout.readline().split()]
        assert len(pids) == 2
        os.kill(shell.pid, signal.SIGKILL)
    assert [await gone(pid) for pid in pids] == [True, True]


# -- servers that keep to no agreement


async def test_a_list_of_several_pages_is_read_whole(opened):
    async with opened(hostile("pages")) as server:
        await server.connect()
        assert [tool.listed.name for tool in server.tools] == [f"tool{page}" for page in range(5)]


async def test_a_list_that_does_not_end_is_an_error(opened):
    async with opened(hostile("endless")) as server:
        with pytest.raises(ToolError, match="its list of tools does not end"):
            await server.connect()


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("long_lists", "its lists have more than 4,194,304 characters"),
        ("many", r"its list of tools has more than 2,000\b"),
    ],
)
async def test_lists_that_are_too_long_are_an_error(opened, way, why):
    async with opened(hostile(way)) as server:
        with pytest.raises(ToolError, match=why):
            await server.connect()


async def test_a_server_that_never_answers_is_given_up(opened):
    async with opened(hostile("hangs"), connecting=4.0) as server:
        with pytest.raises(ToolError, match="did not answer within 4 s"):
            await server.connect()


async def test_a_server_that_hangs_in_a_call_costs_one_error(opened):
    async with opened(hostile("hangs_in_call"), seconds=1.0) as server:
        await server.connect()
        seen = await run(server, "go")
        assert not seen.ok
        assert "timed out" in seen.text


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("floods", "a line of more than 33,554,432 bytes"),
        ("garbage", "a flood of messages"),
        ("messages", "a flood of messages"),
    ],
)
async def test_a_server_that_floods_ends_the_call_before_its_time_is_up(opened, way, why):
    async with opened(hostile(way), seconds=600.0) as server:
        await server.connect()
        assert await failure(server, "go") == f"tried did not finish the call: it sent {why}."


class Floods(BaseHTTPRequestHandler):
    """A server over HTTP that answers a call without an end, in the `way` of its path."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_error(405)

    def do_DELETE(self):
        self.send_error(405)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        way = self.path.rpartition("/")[2]
        match asked["method"]:
            case "initialize":
                told = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
                self.answer(asked, result={**told, "serverInfo": {"name": "floods", "version": "1"}})
            case "tools/list":
                self.answer(asked, result={"tools": [{"name": "go", "inputSchema": {"type": "object"}}]})
            case "tools/call" if way == "done":
                self.answer(asked, result={"content": [{"type": "text", "text": way}]})
            case "tools/call":
                self.begin("application/json" if way == "body" else "text/event-stream")
                said = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": ""}}
                events = f"data: {json.dumps(said)}\n\n".encode()
                piece = {"body": b" " * 65_536, "event": b"x" * 65_536, "events": events}[way]
                self.wfile.write(b"data: " if way == "event" else b"")
                with suppress(OSError):
                    while True:
                        self.wfile.write(piece)
            case _ if "id" in asked:
                self.answer(asked, error={"code": -32601, "message": "no such method"})
            case _:
                self.send_response(202)
                self.end_headers()

    def begin(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def answer(self, asked, **told):
        self.begin("application/json")
        self.wfile.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}).encode())


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("event", "exceeded the 33554432 byte limit"),
        ("body", "it sent more than there is room for"),
        ("events", "a flood of messages"),
    ],
)
async def test_a_server_over_http_that_floods_costs_one_error(opened, way, why):
    served = ThreadingHTTPServer(("127.0.0.1", 0), Floods)
    threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        async with opened(url=f"http://127.0.0.1:{served.server_port}/{way}", seconds=600.0) as server:
            await server.connect()
            assert why in await failure(server, "go")
    finally:
        served.shutdown()
        served.server_close()


class Forgets(Floods):
    """A server over HTTP that takes part in the session it is in alone."""

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


async def test_a_server_over_http_that_has_forgotten_the_session_costs_one_error(opened, monkeypatch):
    served = ThreadingHTTPServer(("127.0.0.1", 0), Forgets)
    threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        async with opened(url=f"http://127.0.0.1:{served.server_port}/done") as server:
            await server.connect()
            assert (await run(server, "go")).text == "done"
            monkeypatch.setattr(Forgets, "session", "two")  # it was started anew
            assert await failure(server, "go") == "tried did not finish the call: it has forgotten the session."
            assert (await run(server, "go")).text == "done"
    finally:
        served.shutdown()
        served.server_close()


def test_a_connection_that_broke_for_want_of_memory_is_no_mere_read_error():
    broken = ConnectionError()
    broken.__cause__ = MemoryError()
    assert _words(broken) == "it sent more than there is room for"


async def test_a_result_that_is_not_as_the_schema_promises_is_an_error(opened):
    async with opened(hostile("lies")) as server:
        await server.connect()
        seen = await run(server, "go")
        assert not seen.ok
        assert seen.text == "its result is not as its output schema says, $.n: 'seven' is not of type 'integer'"


async def test_what_is_no_text_is_kept_as_a_file_and_named(opened, tmp_path):
    async with opened(TRIED) as server:
        await server.connect()
        seen = await run(server, "draw")
        kept = {Path(path).read_bytes(): path for path in re.findall(r"kept in (\S+)\]", seen.text)}  # noqa: ASYNC240 - small
        assert set(kept) == {b"picture", b"sound", b"blob"}
        assert re.search(r"\[image image/png, 7 bytes, kept in \S+/files/session/image-\w+\.png\]", seen.text)
        assert kept[b"blob"].endswith(".pdf")
        assert seen.text.count("[image image/png, not kept: ") == 2
        for path in map(Path, kept.values()):
            assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_files_beyond_what_there_is_room_for_are_not_kept(opened, monkeypatch):
    async with opened(TRIED) as server:
        server._files = lambda: None
        await server.connect()
        assert "[image image/png, 9 bytes, not kept]" in (await run(server, "draw")).text


async def test_how_far_a_call_has_come_is_told_its_caller(opened):
    class Listens:
        def __init__(self):
            self.told = []

        def progress(self, text):
            self.told.append(text)

    listens = Listens()
    async with opened(TRIED) as server:
        await server.connect()
        caller.set(listens)
        assert (await run(server, "count", to=500)).text == "counted"
        assert listens.told[0] == "1 of 500 at 1"
        assert len(listens.told) < 100  # a word now and then, however many it sends


class Visits:
    """A caller who agrees to whatever is asked, and counts that."""

    def __init__(self):
        self.asked = 0

    async def visit(self, *question, **more):
        self.asked += 1
        return True

    form = sample = visit


async def test_a_server_that_asks_without_end_asks_nobody_any_more_and_its_call_ends(opened):
    visits = Visits()
    async with opened(hostile("asks_for_ever"), seconds=3.0) as server:
        await server.connect()
        caller.set(visits)
        told = await failure(server, "go")
        assert told == "it timed out after 3 s" or told.endswith("it sent a flood of messages.")  # whichever is first
        assert visits.asked == 20


@pytest.mark.parametrize("way", ["asks_long_form", "asks_long_address", "asks_long_sample"])
async def test_what_is_too_long_to_be_asked_is_declined(opened, way):
    visits = Visits()
    async with opened(hostile(way)) as server:
        await server.connect()
        caller.set(visits)
        assert re.search("decline|Only 200,000 characters", (await run(server, "go")).text)
        assert visits.asked == 0


async def test_a_pattern_that_takes_for_ever_costs_the_helper_alone(opened):
    async with opened(hostile("regex"), seconds=1.0) as server:
        await server.connect()
        calling = asyncio.create_task(failure(server, "go"))
        assert await soon(calling.done)  # the event loop goes on meanwhile
        assert calling.result()


async def test_a_result_that_is_none_is_an_error(opened):
    async with opened(hostile("unreadable")) as server:
        await server.connect()
        assert not (await run(server, "go")).ok


async def test_escapes_are_a_part_of_the_text_and_not_of_the_status(opened):
    async with opened(hostile("escapes")) as server:
        await server.connect()
        assert (await run(server, "go")).text.endswith("red")
        assert "\x1b" not in server.status


async def test_tools_of_odd_names_are_left_out(opened):
    async with opened(hostile("names")) as server:
        await server.connect()
        assert [tool.listed.name for tool in server.tools] == ["good"]
        assert len(server.lists.left_out) == 3


async def test_a_tool_that_was_changed_is_told_once_and_not_run_meanwhile(opened):
    async with opened(hostile("changes")) as server:
        await server.connect()
        go, left = server.tools
        assert (await go.run({"v1": "a"})).ok
        assert await soon(lambda: server.tools[0] is not go)
        told = await go.run({"v1": "a"})
        assert not told.ok
        assert "has changed this tool" in told.text
        assert "v2" in told.text
        assert (await go.run({"v2": "a"})).ok
        assert await soon(lambda: "v3" in server.tools[0].schema.as_text())
        assert "v3" in (await go.run({"v2": "a"})).text  # changed once more, it is told once more
        assert (await go.run({"v3": "a"})).ok
        assert "has no tool gone any more" in (await left.run({})).text


# -- what a schema may hold


def test_patterns_and_addresses_are_no_part_of_a_schema_that_calls_are_checked_against():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}, "b": {"$ref": "http://example.org/s"}},
        "patternProperties": {"(a+)+": {}},
        "$id": "http://example.org/",
        "required": ["a", 5],
    }
    assert plain_schema(schema) == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {}},
        "required": ["a"],
    }


def test_references_within_a_schema_are_resolved_and_circles_end():
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/tree"}, "one": {"$ref": "#/$defs/one"}},
        "$defs": {
            "one": {"type": "integer"},
            "tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}},
        },
    }
    plain = plain_schema(schema)
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
def test_a_schema_that_references_make_huge_is_left_out_before_it_is(bomb):
    schema = {"type": "object", "$defs": {"bomb": bomb}}
    schema["properties"] = {f"a{at}": {"$ref": "#/$defs/bomb"} for at in range(450)}
    tools, left_out = in_worker(listed, "any", [{"name": "go", "description": "", "parameters": schema}])
    assert (tools, left_out) == ((), ("'go': its schema is too long",))


@pytest.mark.parametrize("schema", [None, [], "x", {"type": "array"}])
def test_a_tool_without_an_objects_schema_is_left_out(schema):
    tools, left_out = listed("any", [{"name": "go", "description": "", "parameters": schema}])
    assert (tools, len(left_out)) == ((), 1)


async def test_tools_that_can_be_called_as_tasks_alone_are_left_out(opened):
    async with opened(hostile("tasks")) as server:
        await server.connect()
        assert [tool.listed.name for tool in server.tools] == ["optional"]
        assert server.lists.left_out == ("'required': it can be called as a task alone, which is not done here",)


@pytest.mark.parametrize("odd", [{"default": float("nan")}, {"minimum": float("-inf")}, {"enum": [[float("inf")]]}])
def test_a_tool_whose_schema_has_a_number_that_json_has_no_word_for_is_left_out(odd):
    schema = {"type": "object", "properties": {"a": odd}}
    tools, left_out = listed("any", [{"name": "go", "description": "", "parameters": schema}])
    assert (tools, len(left_out)) == ((), 1)
