"""The tools of one MCP server, known from a cached list; the server is started for its first call."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import ToolError
from ecoshell.messages import Effect, Message, Observation, visible_line
from ecoshell.tools import Caller, Limits, ResultSize
from ecoshell.tools.mcp.connection import Connection, Record
from ecoshell.tools.mcp.servers import (
    CachedLists,
    ListedTool,
    Prompt,
    Server,
    StoredSignIn,
    parse_prompts,
    parse_tools,
    safe_schema,
    typable,
)

_CONNECT_SECONDS = 60.0  # time limit for connecting; some servers are downloaded first
_QUESTION_SECONDS = 3_600.0  # time that the user has to answer a server's questions during a call
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds, doubled after each failure but the first


class McpServer:
    """A server and its last known tools; started by `connect` or by the first call of a tool.

    Belongs to the event loop that first connects.
    """

    def __init__(
        self,
        server: Server,
        *,
        folder: Path,
        result: ResultSize,
        files: Callable[[], Path | None] = lambda: None,
        connect_seconds: float = _CONNECT_SECONDS,
    ) -> None:
        """`folder` contains the cached lists; `files` returns the current folder for images and other binary data."""
        self.server = server
        self.name = server.name
        self.limits = Limits(connect_seconds + server.seconds + _QUESTION_SECONDS, result)
        """Limits of a call including the start of the server and its questions."""
        self._cache = CachedLists(folder, server)
        self._stored_sign_in = StoredSignIn(server)
        self._files = files
        self._connect_seconds = connect_seconds
        self._lists: Lists | None = None  # None until the cached lists were read
        self._known = False
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._failures = 0
        self._failed_at = 0.0
        self._fault = ""
        self._background: set[asyncio.Task[None]] = set()
        self._stores: set[asyncio.Task[None]] = set()  # running stores of sign-ins
        self._store_error = ""  # why the last sign-in could not be stored

    @property
    def lists(self) -> "Lists":
        """The last known lists; the first access may block."""
        if self._lists is None:
            cached = self._cache.read()
            self._known = cached is not None
            self._update(cached or {})
        return cast("Lists", self._lists)

    @property
    def tools(self) -> Sequence["McpTool"]:
        return self.lists.tools

    @property
    def known(self) -> bool:
        return bool(self.tools) or self._known

    @property
    def status(self) -> str:
        if self._connection is not None and not self._connection.ended:
            about = visible_line(self._connection.about)
            return f"connected to {about}" if about else "connected"
        if self._fault:
            return f"failed: {self._fault}"
        return "not started" if self.known else "never connected to"

    def warm(self) -> None:
        """Connect in the background; `status` shows a failure."""

        async def connect() -> None:
            with suppress(ToolError):
                await self.connect()

        task = asyncio.get_running_loop().create_task(connect())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def connect(self) -> None:
        """Connect and update the tools; raises ToolError, immediately if the server failed repeatedly."""
        await self._open()

    async def sign_in(self) -> None:
        """Connect and let the current caller sign in again if required.

        Raises ToolError, also if the sign-in could not be stored.
        """
        await self._open(renew=True)
        await asyncio.gather(*self._stores)
        if self._store_error:
            problem = f"the keyring could not store that: {self._store_error}"
            raise ToolError(f"You are signed in to {self.name}, but {problem}")

    async def call(self, tool: "McpTool", arguments: Mapping[str, Any]) -> Observation:
        """Run a tool of this server; raises ToolError if the connection fails."""
        connection = await self._open()
        name = tool.listed.name
        current = next((other for other in self.tools if other.listed.name == name), None)
        if current is None:
            return Observation(f"{self.name} no longer has the tool {name}.", ok=False)
        if current.schema.parameters != tool.reported_parameters:
            tool.reported_parameters = current.schema.parameters
            text = f"{self.name} has changed this tool, so it was not run. The new schema:"
            return Observation(f"{text}\n{current.schema.as_text()}", ok=False)
        try:
            request = {"call": name, "arguments": dict(arguments)}
            return await self._request(connection, request)
        except ToolError as error:
            raise ToolError(f"{self.name} did not finish the call: {error.message}.") from error

    async def read(self, uri: str) -> Observation:
        """Return the text and the images of a resource; raises ToolError."""
        return await self._request(await self._open(), {"read": uri})

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Observation:
        """Return a prompt of the server as a question; raises ToolError."""
        request = {"prompt": name, "arguments": dict(arguments)}
        return await self._request(await self._open(), request)

    async def values(
        self, prompt: str, argument: str, prefix: str, context: Mapping[str, str]
    ) -> Sequence[str]:
        """Return completions of a prompt's argument, with the other arguments as context; raises ToolError."""
        if not self.lists.completes:
            return ()
        if self._connection is None or self._connection.ended:
            if not self._background:
                self.warm()
            # Connecting continues if this is cancelled by the next key.
            await asyncio.wait(self._background)
        request = {
            "complete": prompt,
            "argument": argument,
            "prefix": prefix,
            "context": dict(context),
        }
        observation = await self._request(await self._open(), request)
        with suppress(ValueError):  # truncated
            return typable(json.loads(observation.text)) if observation.ok else ()
        return ()

    async def _request(self, connection: Connection, request: Record) -> Observation:
        files = self._files()
        options = {"seconds": self.server.seconds, "files": None if files is None else str(files)}
        observation = await connection.request({**request, **options})
        self._failures = 0
        return observation

    async def _answer(self, question: Record, requester: Caller) -> Record:
        """Return the caller's answer to a question of the server."""
        if "form" in question:
            try:
                schema = safe_schema(question["form"])
            except (ValueError, RecursionError):
                return {}
            content = await requester.form(self.name, question["message"], schema)
            return {} if content is None else {"action": "accept", "content": content}
        if "visit" in question:
            agreed = await requester.visit(self.name, question["message"], question["visit"])
            return {"action": "accept"} if agreed else {}
        messages = [Message(role, text) for role, text in question["sample"]]
        try:
            sample = await requester.sample(
                self.name, messages, question["max_tokens"], allowed=self.server.sampling
            )
        except ToolError as error:
            return {"error": error.message}
        return {"text": sample.text, "model": sample.model, "cut": sample.cut}

    def forget(self) -> None:
        """Delete the cached lists and the stored sign-in."""
        self._cache.forget()
        self._stored_sign_in.forget()

    async def aclose(self) -> None:
        for task in tuple(self._background):
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()
        await asyncio.gather(*self._stores)

    async def _open(self, *, renew: bool = False) -> Connection:
        """Return the open connection, or connect; `renew` signs in again."""
        async with self._connecting:
            if self._connection is not None and not self._connection.ended:
                return self._connection
            if self._connection is not None:
                self._record_failure(self._connection.ended)
                await self._connection.aclose()
                self._connection = None
            # The first failure is retried without a pause.
            doublings = self._failures - 2
            pause = 0.0 if doublings < 0 else min(_FIRST_PAUSE * 2**doublings, _LONGEST_PAUSE)
            wait = self._failed_at + pause - time.monotonic()
            if wait > 0:
                text = f"{self.name} keeps failing: {self._fault}."
                raise ToolError(f"{text} The next try is in {math.ceil(wait)} s.")
            try:
                server = await asyncio.to_thread(self._helper_input, renew)
                connection = await Connection.start(
                    server, self._receive, self._answer, self._connect_seconds
                )
            except (ToolError, OSError) as error:
                self._record_failure(error.message if isinstance(error, ToolError) else str(error))
                raise ToolError(f"{self.name} cannot be reached: {self._fault}.") from error
            self._connection, self._fault = connection, ""
            return connection

    def _helper_input(self, renew: bool) -> Record:
        """Return the first line for the helper, with a stored sign-in; may block."""
        server = self.server.helper_input()
        state = self._stored_sign_in.read() if self.server.may_sign_in else None
        if state or (renew and self.server.may_sign_in):
            client = self.server.oauth_client()
            server["auth"] = {"state": state or {}, "client": client, "renew": renew}
        return server

    def _record_failure(self, reason: str) -> None:
        self._fault, self._failed_at = visible_line(reason), time.monotonic()
        self._failures += 1

    def _receive(self, record: Record) -> None:
        async def store() -> None:
            error = await asyncio.to_thread(self._stored_sign_in.write, record["auth"])
            self._store_error = visible_line(error)

        if "auth" in record:
            task = asyncio.create_task(store())
            self._stores.add(task)
            task.add_done_callback(self._stores.discard)
        else:
            self._known = True
            self._update(record)
            self._cache.write(record)

    def _update(self, lists: Record) -> None:
        """Replace the lists; unchanged tools remain the same objects."""
        tools = self._lists.tools if self._lists is not None else ()
        previous = {tool.listed.name: tool for tool in tools}
        entries, rejected = parse_tools(self.name, lists.get("tools", ()))

        def current(entry: ListedTool) -> McpTool:
            tool = previous.get(entry.name)
            return tool if tool is not None and tool.listed == entry else McpTool(self, entry)

        self._lists = Lists(
            tuple(map(current, entries)),
            rejected,
            typable(lists.get("resources")),
            typable(lists.get("templates")),
            parse_prompts(lists.get("prompts")),
            lists.get("completes") is True,
        )


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists of a server."""

    tools: tuple["McpTool", ...]
    rejected: tuple[str, ...]  # messages about unusable tools
    resources: tuple[str, ...]  # URIs of resources; the server may have others
    templates: tuple[str, ...]  # URI templates of resources, such as `notes://{day}`
    prompts: tuple[Prompt, ...]
    completes: bool  # whether it completes arguments of prompts


class McpTool:
    """A tool of a server, named after both: `time.get_current_time`."""

    price_nano = 0

    def __init__(self, owner: McpServer, listed: ListedTool) -> None:
        self.listed = listed
        self.schema = listed.schema
        is_read_only = listed.read_only and owner.server.trusted
        effects: tuple[Effect, ...] = ("read",) if is_read_only else ("read", "write", "network")
        self.effects: frozenset[Effect] = frozenset(effects)
        self.limits = owner.limits
        self.reported_parameters = listed.schema.parameters  # as the model knows them
        self._owner = owner

    def warm(self) -> None:
        self._owner.warm()

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        return await self._owner.call(self, arguments)
