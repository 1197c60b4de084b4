"""The helper process that talks with one MCP server through the SDK: JSON Lines in, JSON Lines out.

Its first line of input is the server: `{"command": [...], "env": {…}, "cwd": path, "roots": [path]}` or `{"url",
"headers": {…}, "roots"}`, with `"auth": {"state", "client", "anew"}` where somebody has signed in or is about to. Then
come `{"id", "call": name, "arguments": {…}, "seconds", "files": folder}`, the same with `prompt`, `read` (the address
of a resource) or `complete` (a prompt, with the `argument` that has `begun` and those `given`) in the place of `call`,
and `{"id", "cancel": true}`; it ends when its input does, and ends the server before.
It writes `{"tools": [{name, description, parameters, read_only}], "prompts": […], "resources": […], "templates": […],
"completes", "about": text}` once it is connected and whenever one of the server's lists has changed, `{"updated":
address}` where a resource that was read has, `{"id", "progress": text}` while something runs and `{"id", "text", "ok",
"images": [base64]}` for what came of it, and last, where the connection ends by itself, `{"ended": why}`. Where the
server asks for something, it writes `{"ask": number, …}` with `form`, `visit` or `sample`, and is told `{"answer":
number, "value": {…}}`; `{"ask", "over"}` withdraws the question. `{"auth": state}` is what is to be kept of a sign-in.
What is answered is cut at MOST_TEXT characters; images and the like are kept as files in the folder, and named in it.

What a server sends is read here and not in the shell: a line without an end meets the limit of a line, and a schema
whose patterns take for ever the alarm that a living process keeps putting off.
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
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
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

MEMORY = 1 << 30
"""Bytes of address space; a connection takes about a quarter."""
MOST_TEXT = 200_000
"""Characters of a result; a tool's limits cut it further."""
MOST_TOOLS = 2_000
"""Entries of each list of a server."""
_MOST_LISTED = 1 << 22
"""Characters of all of a server's lists, which the shell reads whenever they have changed."""
_MOST_QUESTIONS, _MOST_FORM, _LONGEST_ADDRESS = 20, 20_000, 2_000
"""What a server may ask in one call, and the characters of a form and of an address; what is more is declined."""
_MOST_PAGES = 100
_MOST_READ = _MOST_VALUES = 100
"""Resources that are watched for changes, and values of an argument, as many as the protocol has."""
_ALARM, _HEARTBEAT = 10, 2.0
"""Seconds of processor time after which a process that no longer does anything else is ended, and seconds between two
signs that it does; a machine that is busy with others ends nothing."""
_RELIST_PAUSE = 1.0
"""Seconds between two readings of a list that its server says has changed."""
_MOST_MESSAGES, _FORGOTTEN, _MOST_GARBAGE = 5_000, 200, 100
"""Messages of a server, those of them that no longer count at each heartbeat, and lines altogether that are none."""
_LONGEST_IMAGE = MAX_BYTES * 4 // 3 + 4
"""Characters of base64 of an image that models are shown."""
_LONGEST_LINE = 1 << 25
"""Bytes of one message."""
_MOST_KEPT = 20_000_000
"""Bytes of the files that one result brings."""
_LONGEST_MESSAGE = 600
_TOLD_EACH = 1.0
"""Seconds between two words on how far a call has come."""
_GRACE = 2.0
"""Seconds a server gets to end once its input is closed, and again once it is told to."""
_SIGN_IN = "it wants you to sign in: `ecoshell mcp login` does that"
_WRONG_KEY = "it does not take the Authorization header of its settings"
_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): what a server starts and leaves behind becomes a child of this process."""


def main() -> None:
    """Serve until standard input ends, or the server does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the shell, which cancels what it wants cancelled
    logging.disable()  # what stands on standard error is the server's
    warnings.simplefilter("ignore")
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
    finally:  # what the server has left behind: on Linux such processes become this one's children
        own = Path(f"/proc/self/task/{os.getpid()}/children")
        with contextlib.suppress(OSError):
            while pids := [int(pid) for pid in own.read_text(encoding="ascii").split()]:
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError, ChildProcessError):
                        os.kill(pid, signal.SIGKILL)
                        os.waitpid(pid, 0)
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
        self._read: set[str] = set()
        """Addresses of resources whose changes the server tells."""
        self._listening: asyncio.Task[None]
        """Hears of changes, once it is connected."""
        self._over = asyncio.Event()
        """The server sends nothing any more, or too much."""
        self._why = ""
        """Why the connection is ended here, where it is."""
        self._messages = self._garbage = 0
        self._refused = ""
        """Why the server lets nobody in; empty where it does."""
        self._clocks: dict[asyncio.Timeout, float] = {}
        """Of what runs, with the seconds it had left when they were stopped, as they are while somebody is asked."""
        self._questions = 0
        """Of the server's, since the last call was begun."""
        self._asked: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._numbers = itertools.count(1)

    async def serve(self, server: Mapping[str, Any]) -> str:
        """Connect, answer what is asked, and say why it ended; empty when nobody asks any more."""
        living = asyncio.create_task(self._keep_alive())
        self._talking = talking = asyncio.create_task(self._talk(server))
        asking = asyncio.create_task(self._take_orders())
        try:
            await asyncio.wait((talking, asking), return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                talking.cancel()
                await asyncio.wait((talking,))
                return ""
            return self._why if talking.cancelled() else talking.result()
        finally:
            asking.cancel()
            living.cancel()

    async def _talk(self, server: Mapping[str, Any]) -> str:
        from mcp import Client
        from mcp_types import Implementation, ListRootsResult, ResourceUpdatedNotification, Root
        from pydantic import FileUrl

        async def heard(message: object) -> None:
            match message:
                case ResourceUpdatedNotification():
                    if (address := str(message.params.uri)) in self._read:
                        self._write({"updated": address})
                case _ if getattr(message, "method", "").endswith("/list_changed"):
                    self._stale.set()
                case _:
                    pass

        async def list_roots(context: Any) -> Any:
            return ListRootsResult(roots=[Root(uri=FileUrl(Path(root).as_uri())) for root in server["roots"]])

        about = Implementation(name="ecoshell", version=__version__)
        try:
            transport = self._watched(self._http(server) if "url" in server else _stdio(server, self._fail))
            async with Client(
                transport,
                message_handler=heard,
                client_info=about,
                cache=None,
                elicitation_callback=self._elicit,
                sampling_callback=self._sample,
                list_roots_callback=list_roots if server["roots"] else None,
            ) as client:
                self._client = client
                self._write(await _lists(client))
                self._listening = asyncio.create_task(self._listen())
                following = asyncio.create_task(self._follow(client))
                try:
                    await self._over.wait()
                finally:
                    following.cancel()
                    self._listening.cancel()
            return self._why or "it ended"
        except asyncio.CancelledError:
            raise
        except BaseException as failure:  # noqa: BLE001 - the helper's edge: whatever it is, the shell is told
            return self._refused or self._why or _words(failure)

    async def _follow(self, client: "Client") -> None:
        """Tell the list anew whenever the server says that it has changed."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            with contextlib.suppress(Exception):  # a list that cannot be read leaves the one before it in place
                self._write(await _lists(client))
            await asyncio.sleep(_RELIST_PAUSE)

    async def _listen(self) -> None:
        """Hear of changes from now on, of the resources that were read too; a server of before 2026 tells unasked."""
        from mcp.client.subscriptions import ResourceUpdated

        with contextlib.suppress(Exception):  # then it says so in the other way, or never
            async with self._client.listen(
                tools_list_changed=True,
                prompts_list_changed=True,
                resources_list_changed=True,
                resource_subscriptions=sorted(self._read),
            ) as events:
                self._stale.set()  # what changed before it listened is told by nobody
                async for event in events:
                    if not isinstance(event, ResourceUpdated):
                        self._stale.set()
                    elif (address := str(event.uri)) in self._read:
                        self._write({"updated": address})

    async def _watch(self, address: str) -> None:
        """Have the server tell when a resource changes, where it can."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        has = self._client.server_capabilities.resources
        if has is None or not has.subscribe or address in self._read or len(self._read) >= _MOST_READ:
            return
        self._read.add(address)
        if self._client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._listening.cancel()
            self._listening = asyncio.create_task(self._listen())
        else:
            with contextlib.suppress(Exception):  # it is read all the same
                await self._client.subscribe_resource(address)  # pyright: ignore[reportDeprecated] - what they have

    async def _take_orders(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 26)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            order = json.loads(line)
            if "answer" in order:
                if (asked := self._asked.get(order["answer"])) is not None and not asked.done():
                    asked.set_result(order["value"])
                continue
            number = order["id"]
            if "cancel" not in order:
                self._calls[number] = task = asyncio.create_task(self._answer(number, order))
                task.add_done_callback(lambda _, number=number: self._calls.pop(number, None))
            elif task := self._calls.get(number):
                task.cancel()

    async def _answer(self, number: int, order: Mapping[str, Any]) -> None:
        self._questions = 0
        images: list[str] = []
        try:
            async with asyncio.timeout(order["seconds"]) as clock:
                self._clocks[clock] = order["seconds"]
                try:
                    text, ok, images = await self._carried_out(number, order)
                finally:
                    del self._clocks[clock]
        except TimeoutError:
            text, ok = f"it timed out after {order['seconds']:g} s", False
        except Exception as failure:  # noqa: BLE001 - one call's failure is a line, the others go on
            text, ok = _words(failure), False
        if not self._over.is_set():
            self._write({"id": number, "text": text[:MOST_TEXT], "ok": ok, "images": images})

    async def _carried_out(self, number: int, order: Mapping[str, Any]) -> tuple[str, bool, list[str]]:
        """What came of an order, whether it did as it was told, and the images of a result in base64."""
        from mcp_types import PromptReference

        keep = _keeper(order.get("files"))
        if "read" in order:
            await self._watch(order["read"])
            resource = await self._client.read_resource(order["read"])
            return "\n".join(_part(one, keep) for one in resource.contents), True, []
        if "complete" in order:
            prompt = PromptReference(type="ref/prompt", name=order["complete"])
            argument = {"name": order["argument"], "value": order["begun"]}
            values = await self._client.complete(prompt, argument, context_arguments=order["given"])
            return json.dumps(values.completion.values[:_MOST_VALUES]), True, []
        if "prompt" in order:  # as one question; what it has the assistant say is marked so
            found = await self._client.get_prompt(order["prompt"], order["arguments"])
            parts = [(message.role, _part(message.content, keep)) for message in found.messages]
            return "\n\n".join(text if role == "user" else f"[{role}] {text}" for role, text in parts), True, []
        told = 0.0

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            nonlocal told
            if time.monotonic() - told >= _TOLD_EACH:
                told = time.monotonic()
                far = f"{progress:g} of {total:g}" if total else f"{progress:g}"
                self._write({"id": number, "progress": f"{far} {message or ''}".strip()[:_LONGEST_MESSAGE]})

        result = await self._client.call_tool(order["call"], order["arguments"], progress_callback=tell)
        texts = [_part(block, keep) for block in result.content]
        if not texts and result.structured_content is not None:
            texts = [json.dumps(result.structured_content, ensure_ascii=False)]
        images = [block.data for block in result.content if block.type == "image" and len(block.data) <= _LONGEST_IMAGE]
        return "\n".join(texts), not result.is_error, images[:MAX_IMAGES]

    @asynccontextmanager
    async def _http(self, server: Mapping[str, Any]) -> AsyncGenerator[Any]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        sign_in = auth = None
        if "auth" in server:
            from ecoshell.tools.mcp.signing import SignIn

            sign_in = SignIn(server, self._write, self._ask, lambda failure: self._fail(_words(failure)))
            auth = await sign_in.provider()

        async def see(response: Any) -> None:
            if response.status_code == 401 and sign_in is None:
                self._refused = _WRONG_KEY if "authorization" in map(str.lower, server["headers"]) else _SIGN_IN
            asked = response.request
            if response.status_code == 404 and asked.method == "POST" and "mcp-session-id" in asked.headers:
                self._fail("it has forgotten the session")  # as one does that was started anew; the next begins another

        patience = httpx2.Timeout(30, read=300)  # as the SDK has it: a stream may be silent for long
        seen = {"response": [see]}
        try:
            async with (
                httpx2.AsyncClient(headers=server["headers"], timeout=patience, auth=auth, event_hooks=seen) as client,
                streamable_http_client(server["url"], http_client=client, max_sse_event_size=_LONGEST_LINE) as streams,
            ):
                yield streams
        finally:
            if sign_in is not None:
                await sign_in.aclose()

    async def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the shell answers to a question of the server's; empty where nobody does. Meanwhile clocks stand."""
        self._questions += 1
        if self._questions > _MOST_QUESTIONS:
            return {}
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        answer = self._asked[number] = loop.create_future()
        for clock in self._clocks:
            if not clock.expired() and (end := clock.when()) is not None:
                self._clocks[clock] = end - loop.time()
                clock.reschedule(None)
        self._write({"ask": number, **question})
        try:
            return await answer
        finally:
            del self._asked[number]
            if not answer.done() or answer.cancelled():
                self._write({"ask": number, "over": True})
            for clock, left in self._clocks.items() if not self._asked else ():
                if not clock.expired() and clock.when() is None:
                    clock.reschedule(loop.time() + left)

    async def _elicit(self, context: Any, params: Any) -> Any:
        from mcp_types import ElicitResult

        wanted = {"visit": params.url} if params.mode == "url" else {"form": params.requested_schema}
        most = _LONGEST_ADDRESS if params.mode == "url" else _MOST_FORM
        if len(json.dumps(wanted)) > most:
            return ElicitResult(action="decline")
        answer = await self._ask({**wanted, "message": params.message[:MOST_TEXT]})
        return ElicitResult(action=answer.get("action", "decline"), content=answer.get("content"))

    async def _sample(self, context: Any, params: Any) -> Any:
        from mcp_types import INVALID_REQUEST, CreateMessageResult, ErrorData, TextContent

        said = [("system", params.system_prompt)] if params.system_prompt else []
        for message in params.messages:
            blocks = message.content_as_list
            if any(block.type != "text" for block in blocks):
                return ErrorData(code=INVALID_REQUEST, message="Only texts can be sampled from.")
            said.append((message.role, "\n".join(block.text for block in blocks)))
        if sum(len(text) for _, text in said) > MOST_TEXT:
            return ErrorData(code=INVALID_REQUEST, message=f"Only {MOST_TEXT:,} characters can be sampled from.")
        answer = await self._ask({"sample": said, "most": params.max_tokens})
        if "text" not in answer:
            return ErrorData(code=INVALID_REQUEST, message=answer.get("error", "It was declined."))
        content = TextContent(type="text", text=answer["text"])
        reason = "maxTokens" if answer["cut"] else "endTurn"
        return CreateMessageResult(role="assistant", content=content, model=answer["model"], stop_reason=reason)

    @asynccontextmanager
    async def _watched(self, transport: AbstractAsyncContextManager[Any]) -> AsyncGenerator[Any]:
        async with transport as (read, write):
            yield _WatchedStream(read, self._see, self._over.set), write

    def _see(self, message: object) -> None:
        """Count what the server sends."""
        self._messages += 1
        self._garbage += isinstance(message, Exception)
        if self._messages > _MOST_MESSAGES or self._garbage > _MOST_GARBAGE:
            self._fail("it sent a flood of messages")

    def _fail(self, why: str) -> None:
        """End the connection, and with it every call."""
        self._why = why
        self._over.set()
        if not hasattr(self, "_client"):  # what connects waits for something else
            self._talking.cancel()

    async def _keep_alive(self) -> None:
        """Put off the alarm that ends this process, for as long as it gets to do so."""
        while True:
            signal.setitimer(signal.ITIMER_PROF, _ALARM)
            self._messages = max(0, self._messages - _FORGOTTEN)
            await asyncio.sleep(_HEARTBEAT)

    def _write(self, record: Mapping[str, Any]) -> None:
        self._wire.write(json.dumps(record).encode() + b"\n")
        self._wire.flush()


@asynccontextmanager
async def _stdio(server: Mapping[str, Any], flooded: Callable[[str], None]) -> AsyncGenerator[Any]:
    """A server's process as the SDK wants a transport; unlike the SDK's own it reads lines only up to a bound."""
    import anyio
    from mcp.client.stdio import get_default_environment
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    loop = asyncio.get_running_loop()
    process, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(_LONGEST_LINE, loop),
        *(sys.executable, "-IS", str(Path(__file__).with_name("launch.py")), str(os.getpid()), *server["command"]),
        env=get_default_environment() | server["env"],
        cwd=server["cwd"],
        stderr=None,
        start_new_session=True,
    )
    source, sink, pid = cast("Any", protocol.stdout), cast("Any", protocol.stdin), process.get_pid()
    heard, read = anyio.create_memory_object_stream[Any](0)
    write, said = anyio.create_memory_object_stream[Any](0)

    async def hear() -> None:
        async with heard:
            try:
                while line := await source.readline():
                    try:
                        text = line.decode("utf-8", "replace")
                        await heard.send(SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False)))
                    except ValueError as garbage:
                        await heard.send(garbage)
            except ValueError:
                flooded(f"it sent a line of more than {_LONGEST_LINE:,} bytes")

    async def speak() -> None:
        async for message in said:
            sink.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            with contextlib.suppress(ConnectionError):  # it ended, which `hear` is told too
                await sink.drain()

    talking = [asyncio.create_task(hear()), asyncio.create_task(speak())]
    try:
        yield read, write
    finally:
        sink.close()
        for sent in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    while process.get_returncode() is None:  # noqa: ASYNC110 - Process.wait also waits for what it has started
                        await asyncio.sleep(0.02)
            with contextlib.suppress(ProcessLookupError):  # what it has started may outlive it
                os.killpg(pid, sent)
        for task in talking:
            task.cancel()
        process.close()


@dataclass(eq=False)
class _WatchedStream:
    """What a server sends, shown to `see`; and when it ends, which the SDK tells only those who wait for an answer.

    The SDK leaves the stream once it has handled what came last, so no answer is lost whose server ends right after it.
    """

    _stream: Any
    _see: Callable[[object], None]
    _over: Callable[[], None]

    async def __aenter__(self) -> "_WatchedStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> bool | None:
        self._over()
        return await self._stream.__aexit__(*failure)

    def __aiter__(self) -> "_WatchedStream":
        return self

    async def __anext__(self) -> Any:
        message = await self._stream.__anext__()
        self._see(message)
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


async def _lists(client: "Client") -> dict[str, Any]:
    """What the server has, as the shell is told of it; only a list of tools that cannot be read is a failure."""
    has, info = client.server_capabilities, client.server_info
    only_others = has.tools is None and (has.prompts is not None or has.resources is not None)
    tools = [] if only_others else await _pages("tools", client.list_tools)
    others: dict[str, list[Any]] = {"prompts": [], "resources": [], "resource_templates": []}
    for what, fetch, there in (
        ("prompts", client.list_prompts, has.prompts),
        ("resources", client.list_resources, has.resources),
        ("resource_templates", client.list_resource_templates, has.resources),
    ):
        with contextlib.suppress(Exception):
            others[what] = await _pages(what, fetch) if there is not None else []
    found = {
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
                "arguments": [[one.name, bool(one.required)] for one in prompt.arguments or ()],
            }
            for prompt in others["prompts"]
        ],
        "resources": [str(resource.uri) for resource in others["resources"]],
        "templates": [template.uri_template for template in others["resource_templates"]],
        "completes": has.completions is not None,
        "about": f"{info.name} {info.version}"[:_LONGEST_MESSAGE] if info is not None else "",
    }
    if len(json.dumps(found)) > _MOST_LISTED:
        raise RuntimeError(f"its lists have more than {_MOST_LISTED:,} characters")
    return found


async def _pages(what: str, fetch: Callable[..., Awaitable[Any]]) -> list[Any]:
    """All pages of one of the server's lists; raises RuntimeError for one that is too long or does not end."""
    found: list[Any] = []
    cursor: str | None = None
    for page in itertools.count(1):
        listed = await fetch(cursor=cursor)
        found += getattr(listed, what)
        if len(found) > MOST_TOOLS:
            raise RuntimeError(f"its list of {what} has more than {MOST_TOOLS:,}")
        if page > _MOST_PAGES or (listed.next_cursor and listed.next_cursor == cursor):
            raise RuntimeError(f"its list of {what} does not end ({len(found):,} {what} on {page} pages)")
        cursor = listed.next_cursor
        if not cursor:
            break
    return found


Keep = Callable[[str, str | None, str], str]
"""Keeps what is no text, given its kind, its media type and its base64, and says where."""


def _keeper(folder: str | None) -> Keep:
    """Keeps the files of one result in the folder, as far as there is room for them; without a folder none."""
    room = _MOST_KEPT if folder else 0

    def keep(kind: str, media: str | None, data: str) -> str:
        nonlocal room
        size = len(data) * 3 // 4
        about = f"{kind} {media or ''}".strip()
        if folder is None or size > room:
            return f"[{about}, {size:,} bytes, not kept]"
        try:
            content = base64.b64decode(data, validate=True)
            make_private(Path(folder))
            short = (media or "").partition("/")[2]
            ending = mimetypes.guess_extension(media or "") or (
                f".{short}" if re.fullmatch(r"\w{2,8}", short) else ".bin"
            )
            descriptor, path = tempfile.mkstemp(ending, re.sub(r"\W+", "-", kind)[:40] + "-", folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except (ValueError, OSError) as failure:
            return f"[{about}, not kept: {failure}]"
        room -= size
        return f"[{about}, {len(content):,} bytes, kept in {path}]"

    return keep


def _part(block: Any, keep: Keep) -> str:
    """A part of a result or a prompt, or of a resource, as a text."""
    match getattr(block, "type", ""):
        case "text":
            return block.text
        case "image" | "audio":
            return keep(block.type, block.mime_type, block.data)
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case _:
            resource = getattr(block, "resource", block)
            text = getattr(resource, "text", None)
            return text if text is not None else keep(f"resource {resource.uri}", resource.mime_type, resource.blob)


def _words(failure: BaseException) -> str:
    """What went wrong, in a line; of several things the first."""
    while isinstance(failure, BaseExceptionGroup):
        failure = cast("BaseExceptionGroup[BaseException]", failure).exceptions[0]
    cause: BaseException | None = failure
    while cause is not None:  # asyncio makes a broken connection of it where it reads
        if isinstance(cause, MemoryError):
            return "it sent more than there is room for"
        cause = cause.__cause__ or cause.__context__
    text = " ".join(str(failure).split()) or type(failure).__name__
    wrong: Any = failure.__cause__
    if isinstance(failure, RuntimeError) and hasattr(wrong, "json_path"):  # jsonschema's, of structured content
        text = f"its result is not as its output schema says, {wrong.json_path}: {wrong.message}"
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 1]}…"


if __name__ == "__main__":
    main()
