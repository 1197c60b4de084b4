"""The helper process that connects to one MCP server through the SDK, and speaks JSON Lines with the shell.

Input:
- First line: the server, `{"command": [...], "env": {…}, "cwd": path, "roots": [path]}` or `{"url", "headers": {…},
  "roots"}`, with `"auth": {"state", "client", "renew"}` if a sign-in exists or is wanted.
- Requests: `{"id", "call": name, "arguments": {…}, "seconds", "files": folder}`. Instead of `call`: `prompt`, `read` (a
  resource URI), or `complete` (a prompt) with `argument`, `prefix` and `context`.
- `{"id", "cancel": true}`, and `{"answer": number, "value": {…}}` for a question of the server.
- End of input ends the server and this process.

Output:
- Once connected, and after each change: `{"tools": [{name, description, parameters, read_only}], "prompts": […],
  "resources": […], "templates": […], "completes", "about": text}`.
- `{"id", "progress": text}` and `{"id", "text", "ok", "images": [base64]}` for requests. Text is cut at MAX_TEXT
  characters; binary content is saved in `files` and named in the text.
- `{"updated": URI}` if a resource that was read has changed.
- `{"ask": number, …}` with `form`, `visit` or `sample` for a question of the server; `{"ask", "withdrawn"}` ends it.
- `{"auth": state}`: the sign-in to store.
- `{"ended": reason}` as the last line, if the connection was lost.

Server output is parsed here and not in the shell. An endless line exceeds the limit of a message, and a schema with
catastrophic patterns is ended by an alarm that a responsive process keeps postponing.
"""

import asyncio
import base64
import contextlib
import ctypes
import itertools
import json
import logging
import mimetypes
import os
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ecoshell import __version__
from ecoshell.images import MAX_BYTES, MAX_IMAGES
from ecoshell.paths import make_private
from ecoshell.secrecy import close_process

if TYPE_CHECKING:
    from mcp import Client

_MAX_MEMORY = 1 << 30
"""Bytes of address space; a connection uses about a quarter of it."""
MAX_TEXT = 200_000
"""Maximum characters of a result; the tool's own limit is usually lower."""
_MAX_ENTRIES = 2_000
"""Maximum entries of each of the server's lists."""
_MAX_LIST_CHARS = 1 << 22
"""Maximum characters of all lists together, which the shell reads after each change."""
_MAX_PAGES = 100
_MAX_QUESTIONS = 20
"""Maximum number of the server's questions per call; further ones are declined."""
_MAX_FORM_CHARS = 20_000
_MAX_URL_CHARS = 2_000
_MAX_WATCHED = 100
"""Maximum number of resources whose changes are reported."""
_MAX_VALUES = 100
"""Maximum number of completions, as in the protocol."""
_ALARM = 10
"""Seconds of processor time without a heartbeat after which this process is ended."""
_HEARTBEAT = 2.0
"""Seconds between heartbeats."""
_RELIST_PAUSE = 1.0
"""Minimum seconds between two reads of changed lists."""
_MAX_MESSAGES = 5_000
"""Maximum number of recent messages; each heartbeat forgets _MESSAGES_PER_HEARTBEAT of them."""
_MESSAGES_PER_HEARTBEAT = 200
_MAX_INVALID = 100
"""Maximum number of lines that are not valid messages."""
_MAX_IMAGE_CHARS = MAX_BYTES * 4 // 3 + 4
"""Maximum length of an image in base64 that models receive."""
_MAX_LINE = 1 << 25
"""Maximum bytes of one message."""
_MAX_FILE_BYTES = 20_000_000
"""Maximum bytes of the files saved for one result."""
_MAX_MESSAGE_CHARS = 600
_PROGRESS_SECONDS = 1.0
"""Minimum seconds between two progress reports of a call."""
_GRACE = 2.0
"""Seconds that a server gets to end after its input is closed, and again after SIGTERM."""
_SIGN_IN = "it requires you to sign in: run `ecoshell mcp login`"
_WRONG_KEY = "it rejects the configured Authorization header"
_TOO_LARGE = "it sent more than fits into memory"
_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): orphaned processes of a server become children of this process."""


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
        reason = _TOO_LARGE
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
        self._watched_uris: set[str] = set()
        """Resources whose changes the server reports."""
        self._listener: asyncio.Task[None]
        """Receives change notifications once connected."""
        self._ended = asyncio.Event()
        """The server closed the connection, or sent too much."""
        self._failure = ""
        """Why this process ended the connection."""
        self._messages = self._invalid = 0
        self._rejection = ""
        """Why the server refuses access; empty if it does not."""
        self._timeouts: dict[asyncio.Timeout, float] = {}
        """Timeouts of running requests, with the seconds that remained when a question suspended them."""
        self._questions = 0
        """Number of the server's questions since the last request started."""
        self._answers: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._numbers = itertools.count(1)

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
        from mcp_types import Implementation, ListRootsResult, ResourceUpdatedNotification, Root
        from pydantic import FileUrl

        async def handle(message: object) -> None:
            match message:
                case ResourceUpdatedNotification():
                    if (uri := str(message.params.uri)) in self._watched_uris:
                        self._write({"updated": uri})
                case _ if getattr(message, "method", "").endswith("/list_changed"):
                    self._lists_changed.set()
                case _:
                    pass

        async def list_roots(context: Any) -> Any:
            return ListRootsResult(
                roots=[Root(uri=FileUrl(Path(root).as_uri())) for root in server["roots"]]
            )

        try:
            transport = self._watched(
                self._http(server) if "url" in server else _stdio(server, self._fail)
            )
            async with Client(
                transport,
                message_handler=handle,
                client_info=Implementation(name="ecoshell", version=__version__),
                cache=None,
                elicitation_callback=self._elicit,
                sampling_callback=self._sample,
                list_roots_callback=list_roots if server["roots"] else None,
            ) as client:
                self._client = client
                self._write(await _lists(client))
                self._listener = asyncio.create_task(self._listen())
                updates = asyncio.create_task(self._resend_lists(client))
                try:
                    await self._ended.wait()
                finally:
                    updates.cancel()
                    self._listener.cancel()
            return self._failure or "it ended"
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the edge of this process, which reports all failures
            return self._rejection or self._failure or _describe(error)

    async def _resend_lists(self, client: "Client") -> None:
        """Send the lists again after each change."""
        while True:
            await self._lists_changed.wait()
            self._lists_changed.clear()
            # The previous lists stay valid if these cannot be read.
            with contextlib.suppress(Exception):
                self._write(await _lists(client))
            await asyncio.sleep(_RELIST_PAUSE)

    async def _listen(self) -> None:
        """Subscribe to changes of lists and watched resources; servers before 2026 report them without being asked."""
        from mcp.client.subscriptions import ResourceUpdated

        with contextlib.suppress(Exception):  # Not every server supports subscriptions.
            async with self._client.listen(
                tools_list_changed=True,
                prompts_list_changed=True,
                resources_list_changed=True,
                resource_subscriptions=sorted(self._watched_uris),
            ) as events:
                self._lists_changed.set()  # Changes before the subscription were not reported.
                async for event in events:
                    if not isinstance(event, ResourceUpdated):
                        self._lists_changed.set()
                    elif (uri := str(event.uri)) in self._watched_uris:
                        self._write({"updated": uri})

    async def _watch(self, uri: str) -> None:
        """Subscribe to changes of a resource if the server supports it."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        support, watched = self._client.server_capabilities.resources, self._watched_uris
        if (
            support is None
            or not support.subscribe
            or uri in watched
            or len(watched) >= _MAX_WATCHED
        ):
            return
        watched.add(uri)
        if self._client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._listener.cancel()
            self._listener = asyncio.create_task(self._listen())
        else:
            with contextlib.suppress(Exception):  # The resource can be read without a subscription.
                await self._client.subscribe_resource(uri)  # pyright: ignore[reportDeprecated] - for older servers

    async def _read_requests(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 26)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            request = json.loads(line)
            if "answer" in request:
                if (
                    answer := self._answers.get(request["answer"])
                ) is not None and not answer.done():
                    answer.set_result(request["value"])
                continue
            number = request["id"]
            if "cancel" not in request:
                self._calls[number] = task = asyncio.create_task(self._respond(number, request))
                task.add_done_callback(lambda _, number=number: self._calls.pop(number, None))
            elif task := self._calls.get(number):
                task.cancel()

    async def _respond(self, number: int, request: Mapping[str, Any]) -> None:
        self._questions = 0
        images: list[str] = []
        try:
            async with asyncio.timeout(request["seconds"]) as timeout:
                self._timeouts[timeout] = request["seconds"]
                try:
                    text, ok, images = await self._run(number, request)
                finally:
                    del self._timeouts[timeout]
        except TimeoutError:
            text, ok = f"it timed out after {request['seconds']:g} s", False
        except Exception as error:  # noqa: BLE001 - a failed request must not end the others
            text, ok = _describe(error), False
        if not self._ended.is_set():
            self._write({"id": number, "text": text[:MAX_TEXT], "ok": ok, "images": images})

    async def _run(self, number: int, request: Mapping[str, Any]) -> tuple[str, bool, list[str]]:
        """Run a request and return its text, whether it succeeded, and the images of the result in base64."""
        from mcp_types import PromptReference

        save = _file_saver(request.get("files"))
        if "read" in request:
            await self._watch(request["read"])
            resource = await self._client.read_resource(request["read"])
            text = "\n".join(_text_of(content, save) for content in resource.contents)
            return text, True, _images_of(resource.contents)
        if "complete" in request:
            reference = PromptReference(type="ref/prompt", name=request["complete"])
            argument = {"name": request["argument"], "value": request["prefix"]}
            values = await self._client.complete(
                reference, argument, context_arguments=request["context"]
            )
            return json.dumps(values.completion.values[:_MAX_VALUES]), True, []
        if "prompt" in request:  # becomes one question, so messages of other roles are labelled
            prompt = await self._client.get_prompt(request["prompt"], request["arguments"])
            parts = [(message.role, _text_of(message.content, save)) for message in prompt.messages]
            return (
                "\n\n".join(text if role == "user" else f"[{role}] {text}" for role, text in parts),
                True,
                [],
            )
        last_report = 0.0

        async def report(progress: float, total: float | None, message: str | None) -> None:
            nonlocal last_report
            if time.monotonic() - last_report >= _PROGRESS_SECONDS:
                last_report = time.monotonic()
                position = f"{progress:g} of {total:g}" if total else f"{progress:g}"
                self._write(
                    {
                        "id": number,
                        "progress": f"{position} {message or ''}".strip()[:_MAX_MESSAGE_CHARS],
                    }
                )

        result = await self._client.call_tool(
            request["call"], request["arguments"], progress_callback=report
        )
        texts = [_text_of(block, save) for block in result.content]
        if not texts and result.structured_content is not None:
            texts = [json.dumps(result.structured_content, ensure_ascii=False)]
        return "\n".join(texts), not result.is_error, _images_of(result.content)

    @asynccontextmanager
    async def _http(self, server: Mapping[str, Any]) -> AsyncGenerator[Any]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        sign_in = auth = None
        if "auth" in server:
            from ecoshell.tools.mcp.signing import SignIn

            sign_in = SignIn(
                server, self._write, self._ask, lambda error: self._fail(_describe(error))
            )
            auth = await sign_in.provider()

        async def inspect(response: Any) -> None:
            if response.status_code == 401 and sign_in is None:
                self._rejection = (
                    _WRONG_KEY if "authorization" in map(str.lower, server["headers"]) else _SIGN_IN
                )
            request = response.request
            if (
                response.status_code == 404
                and request.method == "POST"
                and "mcp-session-id" in request.headers
            ):
                # Probably restarted; the next connection has a new one.
                self._fail("it no longer knows the session")

        timeout = httpx2.Timeout(30, read=300)  # As in the SDK: a stream may be silent for long.
        hooks = {"response": [inspect]}
        try:
            async with (
                httpx2.AsyncClient(
                    headers=server["headers"], timeout=timeout, auth=auth, event_hooks=hooks
                ) as client,
                streamable_http_client(
                    server["url"], http_client=client, max_sse_event_size=_MAX_LINE
                ) as streams,
            ):
                yield streams
        finally:
            if sign_in is not None:
                await sign_in.aclose()

    async def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the shell's answer to a question of the server, empty if none; timeouts are suspended meanwhile."""
        self._questions += 1
        if self._questions > _MAX_QUESTIONS:
            return {}
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        answer = self._answers[number] = loop.create_future()
        for timeout in self._timeouts:
            if not timeout.expired() and (end := timeout.when()) is not None:
                self._timeouts[timeout] = end - loop.time()
                timeout.reschedule(None)
        self._write({"ask": number, **question})
        try:
            return await answer
        finally:
            del self._answers[number]
            if not answer.done() or answer.cancelled():
                self._write({"ask": number, "withdrawn": True})
            for timeout, seconds in self._timeouts.items() if not self._answers else ():
                if not timeout.expired() and timeout.when() is None:
                    timeout.reschedule(loop.time() + seconds)

    async def _elicit(self, context: Any, params: Any) -> Any:
        from mcp_types import ElicitResult

        question = (
            {"visit": params.url} if params.mode == "url" else {"form": params.requested_schema}
        )
        if len(json.dumps(question)) > (
            _MAX_URL_CHARS if params.mode == "url" else _MAX_FORM_CHARS
        ):
            return ElicitResult(action="decline")
        answer = await self._ask({**question, "message": params.message[:MAX_TEXT]})
        return ElicitResult(action=answer.get("action", "decline"), content=answer.get("content"))

    async def _sample(self, context: Any, params: Any) -> Any:
        from mcp_types import INVALID_REQUEST, CreateMessageResult, ErrorData, TextContent

        messages = [("system", params.system_prompt)] if params.system_prompt else []
        for message in params.messages:
            blocks = message.content_as_list
            if any(block.type != "text" for block in blocks):
                return ErrorData(code=INVALID_REQUEST, message="Sampling supports text only.")
            messages.append((message.role, "\n".join(block.text for block in blocks)))
        if sum(len(text) for _, text in messages) > MAX_TEXT:
            return ErrorData(
                code=INVALID_REQUEST, message=f"Sampling is limited to {MAX_TEXT:,} characters."
            )
        answer = await self._ask({"sample": messages, "max_tokens": params.max_tokens})
        if "text" not in answer:
            return ErrorData(code=INVALID_REQUEST, message=answer.get("error", "It was declined."))
        content = TextContent(type="text", text=answer["text"])
        reason = "maxTokens" if answer["cut"] else "endTurn"
        return CreateMessageResult(
            role="assistant", content=content, model=answer["model"], stop_reason=reason
        )

    @asynccontextmanager
    async def _watched(self, transport: AbstractAsyncContextManager[Any]) -> AsyncGenerator[Any]:
        async with transport as (read, write):
            yield _WatchedStream(read, self._count, self._ended.set), write

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


@asynccontextmanager
async def _stdio(server: Mapping[str, Any], fail: Callable[[str], None]) -> AsyncGenerator[Any]:
    """Start a server and yield its transport; unlike the SDK's own, it limits the length of lines."""
    import anyio
    from mcp.client.stdio import get_default_environment
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    loop = asyncio.get_running_loop()
    process, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(_MAX_LINE, loop),
        *(
            sys.executable,
            "-IS",
            str(Path(__file__).with_name("launch.py")),
            str(os.getpid()),
            *server["command"],
        ),
        env=get_default_environment() | server["env"],
        cwd=server["cwd"],
        stderr=None,
        start_new_session=True,
    )
    source, sink = cast("Any", protocol.stdout), cast("Any", protocol.stdin)
    incoming, read = anyio.create_memory_object_stream[Any](0)
    write, outgoing = anyio.create_memory_object_stream[Any](0)

    async def receive() -> None:
        async with incoming:
            try:
                while line := await source.readline():
                    try:
                        text = line.decode("utf-8", "replace")
                        await incoming.send(
                            SessionMessage(
                                jsonrpc_message_adapter.validate_json(text, by_name=False)
                            )
                        )
                    except ValueError as invalid:
                        await incoming.send(invalid)
            except ValueError:
                fail(f"it sent a line of more than {_MAX_LINE:,} bytes")

    async def send() -> None:
        async for message in outgoing:
            sink.write(
                message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            )
            # The server ended, as `receive` notices too.
            with contextlib.suppress(ConnectionError):
                await sink.drain()

    tasks = [asyncio.create_task(receive()), asyncio.create_task(send())]
    try:
        yield read, write
    finally:
        sink.close()
        await _end(process)
        for task in tasks:
            task.cancel()
        process.close()


async def _end(process: asyncio.SubprocessTransport) -> None:
    """End a server and its process group, by force if it does not end by itself."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                while process.get_returncode() is None:  # noqa: ASYNC110 - Process.wait also waits for descendants
                    await asyncio.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):  # Its descendants may outlive it.
            os.killpg(process.get_pid(), signal_number)


@dataclass(eq=False)
class _WatchedStream:
    """The messages of a server; reports each message, and the end, which the SDK reports to running requests only.

    The SDK leaves the stream after handling the last message, so the last answer of a server that ends is not lost.
    """

    _stream: Any
    _on_message: Callable[[object], None]
    _on_end: Callable[[], None]

    async def __aenter__(self) -> "_WatchedStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> bool | None:
        self._on_end()
        return await self._stream.__aexit__(*failure)

    def __aiter__(self) -> "_WatchedStream":
        return self

    async def __anext__(self) -> Any:
        message = await self._stream.__anext__()
        self._on_message(message)
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


async def _lists(client: "Client") -> dict[str, Any]:
    """Return the server's lists as a record for the shell; raises only if the tools cannot be listed."""
    supported, info = client.server_capabilities, client.server_info
    no_tools = supported.tools is None and (
        supported.prompts is not None or supported.resources is not None
    )
    tools = [] if no_tools else await _pages("tools", client.list_tools)
    optional: dict[str, list[Any]] = {"prompts": [], "resources": [], "resource_templates": []}
    for kind, fetch, support in (
        ("prompts", client.list_prompts, supported.prompts),
        ("resources", client.list_resources, supported.resources),
        ("resource_templates", client.list_resource_templates, supported.resources),
    ):
        with contextlib.suppress(Exception):
            optional[kind] = await _pages(kind, fetch) if support is not None else []
    lists = {
        "tools": [
            {
                "name": tool.name,
                "description": tool.description or tool.title or "",
                "parameters": tool.input_schema,
                "read_only": bool(tool.annotations and tool.annotations.read_only_hint),
                "task": bool(tool.execution and tool.execution.task_support == "required"),
            }
            for tool in tools
        ],
        "prompts": [
            {
                "name": prompt.name,
                "description": prompt.description or prompt.title or "",
                "arguments": [
                    [argument.name, bool(argument.required)] for argument in prompt.arguments or ()
                ],
            }
            for prompt in optional["prompts"]
        ],
        "resources": [str(resource.uri) for resource in optional["resources"]],
        "templates": [template.uri_template for template in optional["resource_templates"]],
        "completes": supported.completions is not None,
        "about": f"{info.name} {info.version}"[:_MAX_MESSAGE_CHARS] if info is not None else "",
    }
    if len(json.dumps(lists)) > _MAX_LIST_CHARS:
        raise RuntimeError(f"its lists have more than {_MAX_LIST_CHARS:,} characters")
    return lists


async def _pages(kind: str, fetch: Callable[..., Awaitable[Any]]) -> list[Any]:
    """Return the entries of all pages of a list; raises RuntimeError if it is too long or endless."""
    entries: list[Any] = []
    cursor: str | None = None
    for number in itertools.count(1):
        page = await fetch(cursor=cursor)
        entries += getattr(page, kind)
        if len(entries) > _MAX_ENTRIES:
            raise RuntimeError(f"its list of {kind} has more than {_MAX_ENTRIES:,}")
        if number > _MAX_PAGES or (page.next_cursor and page.next_cursor == cursor):
            raise RuntimeError(
                f"its list of {kind} does not end ({len(entries):,} {kind} on {number} pages)"
            )
        cursor = page.next_cursor
        if not cursor:
            break
    return entries


Save = Callable[[str, str | None, str], str]
"""Saves binary content, given its kind, media type and base64, and returns a note with the path."""


def _file_saver(folder: str | None) -> Save:
    """Return a function that saves the files of one result in the folder, within a size limit; None saves nothing."""
    room = _MAX_FILE_BYTES if folder else 0

    def save(kind: str, media: str | None, data: str) -> str:
        nonlocal room
        size = len(data) * 3 // 4
        label = f"{kind} {media or ''}".strip()
        if folder is None or size > room:
            return f"[{label}, {size:,} bytes, not saved]"
        try:
            content = base64.b64decode(data, validate=True)
            make_private(Path(folder))
            subtype = (media or "").partition("/")[2]
            fallback = f".{subtype}" if re.fullmatch(r"\w{2,8}", subtype) else ".bin"
            suffix = mimetypes.guess_extension(media or "") or fallback
            descriptor, path = tempfile.mkstemp(
                suffix, re.sub(r"\W+", "-", kind)[:40] + "-", folder
            )
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except (ValueError, OSError) as error:
            return f"[{label}, not saved: {error}]"
        room -= size
        return f"[{label}, {len(content):,} bytes, saved as {path}]"

    return save


def _text_of(block: Any, save: Save) -> str:
    """Return a block of a result, prompt or resource as text."""
    match getattr(block, "type", ""):
        case "text":
            return block.text
        case "image" | "audio":
            return save(block.type, block.mime_type, block.data)
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case _:
            resource = getattr(block, "resource", block)
            text = getattr(resource, "text", None)
            return (
                text
                if text is not None
                else save(f"resource {resource.uri}", resource.mime_type, resource.blob)
            )


def _images_of(blocks: Iterable[Any]) -> list[str]:
    """Return the images among blocks and resources in base64, except those too large for models."""
    images: list[str] = []
    for block in blocks:
        content = getattr(block, "resource", block)
        data = getattr(content, "blob", None) or getattr(content, "data", None)
        is_image = (getattr(content, "mime_type", None) or "").startswith("image/")
        if is_image and isinstance(data, str) and len(data) <= _MAX_IMAGE_CHARS:
            images.append(data)
    return images[:MAX_IMAGES]


def _describe(error: BaseException) -> str:
    """Return an error as one line; the first of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    cause: BaseException | None = error
    while cause is not None:  # asyncio reports it as a broken connection
        if isinstance(cause, MemoryError):
            return _TOO_LARGE
        cause = cause.__cause__ or cause.__context__
    text = " ".join(str(error).split()) or type(error).__name__
    invalid: Any = error.__cause__
    # Jsonschema's, for structured content.
    if isinstance(error, RuntimeError) and hasattr(invalid, "json_path"):
        text = (
            f"its result does not match its output schema, {invalid.json_path}: {invalid.message}"
        )
    return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[: _MAX_MESSAGE_CHARS - 1]}…"


if __name__ == "__main__":
    main()
