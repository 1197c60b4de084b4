"""The transports of the helper: a server as a child process, or over HTTP."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

MAX_LINE = 1 << 25  # maximum bytes of one message
_GRACE = 2.0  # seconds that a server gets to end after its input is closed, and again after SIGTERM

Fail = Callable[[str], None]  # ends the connection for this reason


@asynccontextmanager
async def stdio_transport(server: Mapping[str, Any], fail: Fail) -> AsyncGenerator[Any]:
    """Start a server and yield its streams; unlike the SDK's own transport, it limits the length of lines."""
    import anyio
    from mcp.client.stdio import get_default_environment

    loop, launcher = asyncio.get_running_loop(), Path(__file__).with_name("launch.py")
    process, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(MAX_LINE, loop),
        *(sys.executable, "-IS", str(launcher), str(os.getpid()), *server["command"]),
        env=get_default_environment() | server["env"],
        cwd=server["cwd"],
        stderr=None,
        start_new_session=True,
    )
    source, sink = cast("Any", protocol.stdout), cast("Any", protocol.stdin)
    incoming, read = anyio.create_memory_object_stream[Any](0)
    write, outgoing = anyio.create_memory_object_stream[Any](0)
    works = (_receive(source, incoming, fail), _send(outgoing, sink))
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield read, write
    finally:
        sink.close()
        await _end(process)
        for task in tasks:
            task.cancel()
        process.close()


async def _receive(source: asyncio.StreamReader, incoming: Any, fail: Fail) -> None:
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    async with incoming:
        try:
            while line := await source.readline():
                try:
                    text = line.decode("utf-8", "replace")
                    message = jsonrpc_message_adapter.validate_json(text, by_name=False)
                    await incoming.send(SessionMessage(message))
                except ValueError as invalid:
                    await incoming.send(invalid)
        except ValueError:
            fail(f"it sent a line of more than {MAX_LINE:,} bytes")


async def _send(outgoing: Any, sink: asyncio.StreamWriter) -> None:
    async for message in outgoing:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        sink.write(text.encode() + b"\n")
        with contextlib.suppress(ConnectionError):  # The server ended, as `_receive` notices too.
            await sink.drain()


async def _end(process: asyncio.SubprocessTransport) -> None:
    """End a server and its process group, by force if it does not end by itself."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                while process.get_returncode() is None:  # noqa: ASYNC110 - Process.wait also waits for descendants
                    await asyncio.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):  # Its descendants may outlive it.
            os.killpg(process.get_pid(), signal_number)


@asynccontextmanager
async def http_transport(
    server: Mapping[str, Any], auth: Any, inspect: Callable[[Any], None]
) -> AsyncGenerator[Any]:
    """Connect to a server by its URL and yield its streams; `inspect` receives each response."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def on_response(response: Any) -> None:
        inspect(response)

    timeout = httpx2.Timeout(30, read=300)  # As in the SDK: a stream may be silent for long.
    hooks = {"response": [on_response]}
    async with (
        httpx2.AsyncClient(
            headers=server["headers"], timeout=timeout, auth=auth, event_hooks=hooks
        ) as client,
        streamable_http_client(
            server["url"], http_client=client, max_sse_event_size=MAX_LINE
        ) as streams,
    ):
        yield streams


@dataclass(eq=False)
class WatchedStream:
    """The messages of a server; reports each message, and the end, which the SDK reports to running requests only.

    The SDK leaves the stream after handling the last message, so the last answer of a server that ends is not lost.
    """

    _stream: Any
    _on_message: Callable[[object], None]
    _on_end: Callable[[], None]

    async def __aenter__(self) -> "WatchedStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> bool | None:
        self._on_end()
        return await self._stream.__aexit__(*failure)

    def __aiter__(self) -> "WatchedStream":
        return self

    async def __anext__(self) -> Any:
        message = await self._stream.__anext__()
        self._on_message(message)
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
