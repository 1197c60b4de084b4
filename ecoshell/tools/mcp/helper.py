"""The helper process that connects to one MCP server through the SDK, and speaks JSON Lines with the shell.

Input:
- First line: the server, `{"command": [...], "env": {…}, "cwd": path, "roots": [path]}` or `{"url", "headers": {…},
  "roots"}`, with `"auth": {"state", "client", "renew"}` if a sign-in exists or is wanted.
- Requests: `{"id", "call": name, "arguments": {…}, "seconds", "files": folder}`. Instead of `call`: `prompt`, `read` (a
  resource URI), or `complete` (a prompt) with `argument`, `prefix` and `context`.
- `{"id", "cancel": true}`, and `{"answer": number, "value": {…}}` for a question of the server.
- End of input ends the server and this process.

Output:
- Once connected, and after each change: `{"tools": [{name, description, parameters, read_only, task, fault}],
  "prompts": […], "resources": […], "templates": […], "completes", "about": text}`.
- `{"id", "progress": text}` and `{"id", "text", "ok", "images": [base64]}` for requests. Text is cut at MAX_TEXT
  characters; binary content is saved in `files` and named in the text.
- `{"ask": number, …}` with `form`, `visit` or `sample` for a question of the server; `{"ask", "withdrawn"}` ends it.
- `{"auth": state}`: the sign-in to store.
- `{"ended": reason}` as the last line, if the connection was lost.

Server output is parsed here and not in the shell. An endless line exceeds the limit of a message, and a schema with
catastrophic patterns is ended by an alarm that a responsive process keeps postponing.
"""

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ecoshell import __version__
from ecoshell.secrecy import close_process
from ecoshell.tools.mcp.questions import MAX_TEXT, Questions
from ecoshell.tools.mcp.records import (
    MAX_MESSAGE_CHARS,
    TOO_LARGE,
    describe,
    file_saver,
    images_of,
    mark_invalid_tools,
    read_lists,
    text_of,
)
from ecoshell.tools.mcp.transports import WatchedStream, http_transport, stdio_transport

if TYPE_CHECKING:
    from mcp import Client

_MAX_MEMORY = 1 << 30  # bytes of address space; a connection uses about a quarter of it
_MAX_VALUES = 100  # maximum number of completions, as in the protocol
_ALARM = 10  # seconds of processor time without a heartbeat after which this process is ended
_HEARTBEAT = 2.0  # seconds between heartbeats
_RELIST_PAUSE = 1.0  # minimum seconds between two reads of changed lists
_MAX_MESSAGES = 5_000  # maximum number of recent ones; each heartbeat forgets some
_MESSAGES_PER_HEARTBEAT = 200
_MAX_INVALID = 100  # maximum number of lines that are not valid messages
_PROGRESS_SECONDS = 1.0  # minimum seconds between two progress reports of a call
_SIGN_IN = "it requires you to sign in: run `ecoshell mcp login`"
_WRONG_KEY = "it rejects the configured Authorization header"
_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2), which adopts orphans


def main() -> None:
    """Serve until standard input or the server ends."""
    # The shell handles Ctrl-C and cancels calls itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()  # Standard error belongs to the server.
    warnings.simplefilter("ignore")
    close_process()  # It receives keys.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(ValueError, OSError):  # not supported on every system
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, hard))
    wire = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server = json.loads(sys.stdin.buffer.readline() or "null")
    if server is None:
        return
    try:
        reason = asyncio.run(Bridge(wire).serve(server))
    except MemoryError:
        reason = TOO_LARGE
    finally:  # On Linux, orphaned processes of the server are children of this one.
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        with contextlib.suppress(OSError):
            while pids := [int(pid) for pid in children.read_text(encoding="ascii").split()]:
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError, ChildProcessError):
                        os.kill(pid, signal.SIGKILL)
                        os.waitpid(pid, 0)
    if reason:
        wire.write(json.dumps({"ended": reason}).encode() + b"\n")
        wire.flush()


class Bridge:
    """One connection and its running requests."""

    def __init__(self, wire: BinaryIO) -> None:
        self._wire = wire
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._lists_changed = asyncio.Event()
        self._ended = asyncio.Event()  # the server closed the connection, or sent too much
        self._failure = ""  # why this process ended the connection
        self._messages = self._invalid = 0
        self._rejection = ""  # why the server refuses access; empty if it does not
        self._questions = Questions(self._write)

    async def serve(self, server: Mapping[str, Any]) -> str:
        """Connect, serve requests, and return why the connection was lost; empty if the input ended."""
        heartbeat = asyncio.create_task(self._keep_alive())
        self._connection = connection = asyncio.create_task(self._connect(server))
        requests = asyncio.create_task(self._read_requests())
        try:
            await asyncio.wait((connection, requests), return_when=asyncio.FIRST_COMPLETED)
            if not connection.done():
                connection.cancel()
                await asyncio.wait((connection,))
                return ""
            return self._failure if connection.cancelled() else connection.result()
        finally:
            requests.cancel()
            heartbeat.cancel()

    async def _connect(self, server: Mapping[str, Any]) -> str:
        from mcp import Client
        from mcp_types import Implementation, ListRootsResult, Root
        from pydantic import FileUrl

        async def handle(message: object) -> None:
            if getattr(message, "method", "").endswith("/list_changed"):
                self._lists_changed.set()

        async def list_roots(context: Any) -> Any:
            uris = [FileUrl(Path(root).as_uri()) for root in server["roots"]]
            return ListRootsResult(roots=[Root(uri=uri) for uri in uris])

        try:
            over_http = "url" in server
            transport = self._http(server) if over_http else stdio_transport(server, self._fail)
            async with Client(
                self._watched(transport),
                message_handler=handle,
                client_info=Implementation(name="ecoshell", version=__version__),
                cache=None,
                elicitation_callback=self._questions.elicit,
                sampling_callback=self._questions.sample,
                list_roots_callback=list_roots if server["roots"] else None,
            ) as client:
                self._client = client
                self._write(await read_lists(client))
                tasks = [self._listen(client), self._resend_lists(client)]
                following = [asyncio.create_task(task) for task in tasks]
                try:
                    await self._ended.wait()
                finally:
                    for task in following:
                        task.cancel()
            return self._failure or "it ended"
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the edge of this process, which reports all failures
            return self._rejection or self._failure or describe(error)

    async def _resend_lists(self, client: "Client") -> None:
        """Send the lists again after each change."""
        while True:
            await self._lists_changed.wait()
            self._lists_changed.clear()
            # The previous lists stay valid if these cannot be read.
            with contextlib.suppress(Exception):
                self._write(await read_lists(client))
            await asyncio.sleep(_RELIST_PAUSE)

    async def _listen(self, client: "Client") -> None:
        """Subscribe to changes of lists; servers before 2026 report them without being asked."""
        with contextlib.suppress(Exception):  # Not every server supports subscriptions.
            async with client.listen(
                tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
            ) as events:
                self._lists_changed.set()  # Changes before the subscription were not reported.
                async for _ in events:
                    self._lists_changed.set()

    async def _read_requests(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 26)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            request = json.loads(line)
            if "answer" in request:
                self._questions.receive(request)
                continue
            number = request["id"]
            if "cancel" not in request:
                self._calls[number] = task = asyncio.create_task(self._respond(number, request))
                task.add_done_callback(lambda _, number=number: self._calls.pop(number, None))
            elif task := self._calls.get(number):
                task.cancel()

    async def _respond(self, number: int, request: Mapping[str, Any]) -> None:
        images: list[str] = []
        try:
            async with self._questions.limit(request["seconds"]):
                text, ok, images = await self._run(number, request)
        except TimeoutError:
            text, ok = f"it timed out after {request['seconds']:g} s", False
        except Exception as error:  # noqa: BLE001 - a failed request must not end the others
            text, ok = describe(error), False
        if not self._ended.is_set():
            self._write({"id": number, "text": text[:MAX_TEXT], "ok": ok, "images": images})

    async def _run(self, number: int, request: Mapping[str, Any]) -> tuple[str, bool, list[str]]:
        """Run a request and return its text, whether it succeeded, and the images of the result in base64."""
        from mcp_types import PromptReference

        save = file_saver(request.get("files"))
        if "read" in request:
            resource = await self._client.read_resource(request["read"])
            text = "\n".join(text_of(content, save) for content in resource.contents)
            return text, True, images_of(resource.contents)
        if "complete" in request:
            reference = PromptReference(type="ref/prompt", name=request["complete"])
            argument = {"name": request["argument"], "value": request["prefix"]}
            context = request["context"]
            values = await self._client.complete(reference, argument, context_arguments=context)
            return json.dumps(values.completion.values[:_MAX_VALUES]), True, []
        if "prompt" in request:  # becomes one question, so messages of other roles are labelled
            prompt = await self._client.get_prompt(request["prompt"], request["arguments"])
            parts = [(message.role, text_of(message.content, save)) for message in prompt.messages]
            texts = [text if role == "user" else f"[{role}] {text}" for role, text in parts]
            return "\n\n".join(texts), True, []
        last_report = 0.0

        async def report(progress: float, total: float | None, message: str | None) -> None:
            nonlocal last_report
            if time.monotonic() - last_report >= _PROGRESS_SECONDS:
                last_report = time.monotonic()
                position = f"{progress:g} of {total:g}" if total else f"{progress:g}"
                text = f"{position} {message or ''}".strip()[:MAX_MESSAGE_CHARS]
                self._write({"id": number, "progress": text})

        name, arguments = request["call"], request["arguments"]
        result = await self._client.call_tool(name, arguments, progress_callback=report)
        texts = [text_of(block, save) for block in result.content]
        if not texts and result.structured_content is not None:
            texts = [json.dumps(result.structured_content, ensure_ascii=False)]
        return "\n".join(texts), not result.is_error, images_of(result.content)

    @asynccontextmanager
    async def _http(self, server: Mapping[str, Any]) -> AsyncGenerator[Any]:
        sign_in = auth = None
        if "auth" in server:
            from ecoshell.tools.mcp.signing import SignIn

            ask, write = self._questions.ask, self._write
            sign_in = SignIn(server, write, ask, lambda error: self._fail(describe(error)))
            auth = await sign_in.provider()

        def inspect(response: Any) -> None:
            request = response.request
            if response.status_code == 401 and sign_in is None:
                has_key = "authorization" in map(str.lower, server["headers"])
                self._rejection = _WRONG_KEY if has_key else _SIGN_IN
            is_call = request.method == "POST" and "mcp-session-id" in request.headers
            if response.status_code == 404 and is_call:
                # Probably restarted; the next connection has a new session.
                self._fail("it no longer knows the session")

        try:
            async with http_transport(server, auth, inspect) as streams:
                yield streams
        finally:
            if sign_in is not None:
                await sign_in.aclose()

    @asynccontextmanager
    async def _watched(self, transport: AbstractAsyncContextManager[Any]) -> AsyncGenerator[Any]:
        async with transport as (read, write):
            yield WatchedStream(read, self._inspect, self._ended.set), write

    def _inspect(self, message: object) -> None:
        """Count a message of the server, and mark the invalid tools of a list before the SDK validates it."""
        self._count(message)
        result = getattr(getattr(message, "message", None), "result", None)
        if isinstance(result, dict) and hasattr(self, "_client"):
            mark_invalid_tools(cast("dict[str, Any]", result), self._client.protocol_version)

    def _count(self, message: object) -> None:
        """Count a message of the server, and end the connection if there are too many."""
        self._messages += 1
        self._invalid += isinstance(message, Exception)
        if self._messages > _MAX_MESSAGES or self._invalid > _MAX_INVALID:
            self._fail("it sent too many messages")

    def _fail(self, reason: str) -> None:
        """End the connection and all its requests."""
        self._failure = reason
        self._ended.set()
        if not hasattr(self, "_client"):  # Connecting does not wait for the event.
            self._connection.cancel()

    async def _keep_alive(self) -> None:
        """Keep postponing the alarm that ends an unresponsive process."""
        while True:
            signal.setitimer(signal.ITIMER_PROF, _ALARM)
            self._messages = max(0, self._messages - _MESSAGES_PER_HEARTBEAT)
            await asyncio.sleep(_HEARTBEAT)

    def _write(self, record: Mapping[str, Any]) -> None:
        self._wire.write(json.dumps(record).encode() + b"\n")
        self._wire.flush()


if __name__ == "__main__":
    main()
