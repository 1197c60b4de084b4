"""The helper process that talks with one MCP server through the SDK: JSON Lines in, JSON Lines out.

Its first line of input is the server: `{"command": [...], "env": {…}, "cwd": path}` or `{"url", "headers": {…}}`. Then
come `{"id", "call": name, "arguments": {…}, "seconds"}` and `{"id", "cancel": true}`; it ends when its input does, and
ends the server before. It writes `{"tools": [{name, description, parameters, read_only}], "about": text}` once it is
connected and whenever the server's list has changed, `{"id", "text", "ok"}` for what came of each call, and last, where
the connection ends by itself, `{"ended": why}`. What a call answers is cut at MOST_TEXT characters.

What a server sends is read here and not in the shell: a line without an end meets the limit of memory, and a schema
whose patterns take for ever the alarm that a living process keeps putting off.
"""

import asyncio
import contextlib
import ctypes
import itertools
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ecoshell import __version__
from ecoshell.secrecy import close_process

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, Tool

MEMORY = 1 << 30
"""Bytes of address space; a connection takes about a quarter."""
MOST_TEXT = 200_000
"""Characters of a result; a tool's limits cut it further."""
MOST_TOOLS = 2_000
_MOST_PAGES = 100
_ALARM, _HEARTBEAT = 20, 2.0
"""Seconds after which a process that no longer does anything else is ended, and between two signs that it does."""
_RELIST_PAUSE = 1.0
"""Seconds between two readings of a list that its server says has changed."""
_MOST_MESSAGES, _MOST_GARBAGE = 20_000, 100
"""Messages of a server between two heartbeats, and lines of it altogether that are no messages."""
_LONGEST_MESSAGE = 600
_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): what a server starts and leaves behind becomes a child of this process."""


def main() -> None:
    """Serve until standard input ends, or the server does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the shell, which cancels what it wants cancelled
    logging.disable()  # what stands on standard error is the server's
    close_process()  # it is told keys
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(ValueError, OSError):  # a system that does not know it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
    wire = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server = json.loads(sys.stdin.buffer.readline() or "null")
    if server is None:
        return
    try:
        why = asyncio.run(Bridge(wire).serve(server))
    except MemoryError:
        why = "it sent more than there is room for"
    finally:
        _end_descendants()
    if why:
        wire.write(json.dumps({"ended": why}).encode() + b"\n")
        wire.flush()


class Bridge:
    """One connection, and the calls that are under way on it."""

    def __init__(self, wire: BinaryIO) -> None:
        self._wire = wire
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._stale = asyncio.Event()
        """The server's list is said to have changed."""
        self._over = asyncio.Event()
        """The server sends nothing any more, or too much."""
        self._why = "it ended"
        self._messages = self._garbage = 0

    async def serve(self, server: Mapping[str, Any]) -> str:
        """Connect, answer what is asked, and say why it ended; empty when nobody asks any more."""
        living = asyncio.create_task(self._keep_alive())
        talking = asyncio.create_task(self._talk(server))
        asking = asyncio.create_task(self._take_orders())
        try:
            await asyncio.wait((talking, asking), return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                talking.cancel()
                await asyncio.wait((talking,))
                return ""
            return talking.result()
        finally:
            asking.cancel()
            living.cancel()

    async def _talk(self, server: Mapping[str, Any]) -> str:
        from mcp import Client
        from mcp_types import Implementation

        async def heard(message: object) -> None:
            if getattr(message, "method", "") == "notifications/tools/list_changed":
                self._stale.set()

        about = Implementation(name="ecoshell", version=__version__)
        try:
            transport = self._watched(_transport(server))
            async with Client(transport, message_handler=heard, client_info=about, cache=None) as client:
                self._client = client
                self._write({"tools": await _listed(client), "about": _about(client)})
                following = asyncio.create_task(self._follow(client))
                try:
                    await self._over.wait()
                finally:
                    following.cancel()
            return self._why
        except asyncio.CancelledError:
            raise
        except BaseException as failure:  # noqa: BLE001 - the helper's edge: whatever it is, the shell is told
            return _words(failure)

    async def _follow(self, client: "Client") -> None:
        """Tell the list anew whenever the server says that it has changed."""
        from mcp.client.subscriptions import ListenNotSupportedError

        async def listen() -> None:
            with contextlib.suppress(ListenNotSupportedError, Exception):  # then it says so in the other way, or never
                async with client.listen(tools_list_changed=True) as events:
                    self._stale.set()  # what changed before it listened is told by nobody
                    async for _ in events:
                        self._stale.set()

        listening = asyncio.create_task(listen())
        try:
            while True:
                await self._stale.wait()
                self._stale.clear()
                with contextlib.suppress(Exception):  # a list that cannot be read leaves the one before it in place
                    self._write({"tools": await _listed(client), "about": _about(client)})
                await asyncio.sleep(_RELIST_PAUSE)
        finally:
            listening.cancel()

    async def _take_orders(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 26)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            order = json.loads(line)
            number = order["id"]
            if "cancel" not in order:
                self._calls[number] = task = asyncio.create_task(self._answer(number, order))
                task.add_done_callback(lambda _, number=number: self._calls.pop(number, None))
            elif task := self._calls.get(number):
                task.cancel()

    async def _answer(self, number: int, order: Mapping[str, Any]) -> None:
        try:
            result = await self._client.call_tool(
                order["call"], order["arguments"], read_timeout_seconds=order["seconds"]
            )
            self._write({"id": number, "text": _text(result), "ok": not result.is_error})
        except Exception as failure:  # noqa: BLE001 - one call's failure is a line, the others go on
            if not self._over.is_set():
                self._write({"id": number, "text": _words(failure), "ok": False})

    @asynccontextmanager
    async def _watched(self, transport: AbstractAsyncContextManager[Any]) -> AsyncGenerator[Any]:
        async with transport as (read, write):
            yield _Watched(read, self._see, self._over.set), write

    def _see(self, message: object) -> None:
        """Count what the server sends."""
        self._messages += 1
        self._garbage += isinstance(message, Exception)
        if self._messages > _MOST_MESSAGES or self._garbage > _MOST_GARBAGE:
            self._why = "it sent a flood of messages"
            self._over.set()

    async def _keep_alive(self) -> None:
        """Put off the alarm that ends this process, for as long as it gets to do so."""
        while True:
            signal.alarm(_ALARM)
            self._messages = 0
            await asyncio.sleep(_HEARTBEAT)

    def _write(self, record: Mapping[str, Any]) -> None:
        self._wire.write(json.dumps(record).encode() + b"\n")
        self._wire.flush()


def _transport(server: Mapping[str, Any]) -> AbstractAsyncContextManager[Any]:
    if "url" in server:
        return _http(server)
    from mcp.client.stdio import StdioServerParameters, stdio_client

    launch = ["-IS", str(Path(__file__).with_name("launch.py")), str(os.getpid())]
    return stdio_client(
        StdioServerParameters(
            command=sys.executable,
            args=[*launch, *server["command"]],
            env=server["env"],
            cwd=server["cwd"],
            encoding_error_handler="replace",
        )
    )


@asynccontextmanager
async def _http(server: Mapping[str, Any]) -> AsyncGenerator[Any]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    patience = httpx2.Timeout(30, read=300)  # as the SDK has it: a stream may be silent for long
    async with (
        httpx2.AsyncClient(headers=server["headers"], timeout=patience) as client,
        streamable_http_client(server["url"], http_client=client) as streams,
    ):
        yield streams


class _Watched:
    """What a server sends, shown to `see`; and when it ends, which the SDK tells only those who wait for an answer."""

    def __init__(self, stream: Any, see: Callable[[object], None], over: Callable[[], None]) -> None:
        self._stream = stream
        self._see = see
        self._over = over

    async def __aenter__(self) -> "_Watched":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> bool | None:
        self._over()
        return await self._stream.__aexit__(*failure)

    def __aiter__(self) -> "_Watched":
        return self

    async def __anext__(self) -> Any:
        message = await self._stream.__anext__()
        self._see(message)
        return message

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def last_context(self) -> Any:
        """The sender's context, where the stream carries that."""
        return getattr(self._stream, "last_context", None)


async def _listed(client: "Client") -> list[dict[str, Any]]:
    """All pages of the server's list; raises RuntimeError for one that does not end."""
    found: list[Tool] = []
    cursor: str | None = None
    for page in itertools.count(1):
        listed = await client.list_tools(cursor=cursor)
        found += listed.tools
        if len(found) > MOST_TOOLS or page > _MOST_PAGES or (listed.next_cursor and listed.next_cursor == cursor):
            raise RuntimeError(f"its list of tools does not end ({len(found):,} tools on {page} pages)")
        cursor = listed.next_cursor
        if not cursor:
            break
    return [
        {
            "name": tool.name,
            "description": tool.description or tool.title or "",
            "parameters": tool.input_schema,
            "read_only": bool(tool.annotations and tool.annotations.read_only_hint),
        }
        for tool in found
    ]


def _about(client: "Client") -> str:
    info = client.server_info
    return f"{info.name} {info.version}"[:_LONGEST_MESSAGE] if info is not None else ""


def _text(result: "CallToolResult") -> str:
    """What a result says: its texts, the structured content where there is none, and what else came, by its kind."""
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return "\n".join(parts)[:MOST_TEXT]


def _part(block: Any) -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.type} {block.mime_type}, {len(block.data) * 3 // 4:,} bytes, not shown]"
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case _:
            inside = block.resource
            return getattr(inside, "text", None) or f"[{inside.uri}, {inside.mime_type or 'data'}, not shown]"


def _words(failure: BaseException) -> str:
    """What went wrong, in a line; of several things the first."""
    while isinstance(failure, BaseExceptionGroup):
        failure = cast("BaseExceptionGroup[BaseException]", failure).exceptions[0]
    if isinstance(failure, MemoryError):
        return "it sent more than there is room for"
    text = " ".join(str(failure).split()) or type(failure).__name__
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 1]}…"


def _end_descendants() -> None:
    """Kill what the server has left behind; on Linux, where such processes become this one's children."""
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    with contextlib.suppress(OSError):
        while pids := [int(pid) for pid in own.read_text(encoding="ascii").split()]:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
