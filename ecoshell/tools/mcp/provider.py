"""The tools of one MCP server: known from a cached list, and run by the server, which is started when it is needed."""

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
    KeptSignIn,
    Listed,
    Prompt,
    Server,
    listed,
    plain_schema,
    prompts_of,
    typable,
)

CONNECTING = 60.0
"""Seconds a server may take to answer at all; some are downloaded first."""
_THINKING = 3_600.0
"""Seconds a person may take to answer what a server asks in a call."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a server is started once more that failed twice, doubled each time, and the most of them."""


class McpServer:
    """One server. Its `tools` are as they were listed last; nothing runs before `connect`, or a call of one of them.

    Belongs to the event loop that first connects.
    """

    def __init__(
        self,
        server: Server,
        *,
        folder: Path,
        result: ResultSize,
        files: Callable[[], Path | None] = lambda: None,
        connecting: float = CONNECTING,
    ) -> None:
        """`folder` has the cached lists, `result` says how long a tool's result may be, and `files` is where
        images and the like are kept now."""
        self.server = server
        self.name = server.name
        self.limits = Limits(connecting + server.seconds + _THINKING, result)
        """Of one call, for which the server may have to be started first; `server.seconds` it may take itself."""
        self._cache = CachedLists(folder, server)
        self._sign_in = KeptSignIn(server)
        self._files = files
        self._patience = connecting
        self._lists: Lists | None = None
        """None until the cached lists were read."""
        self._updated: set[str] = set()
        """Resources that have changed since they were read."""
        self._known = False
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._failures = 0
        self._failed_at = 0.0
        self._fault = ""
        self._background: set[asyncio.Task[None]] = set()
        self._keeping: set[asyncio.Task[None]] = set()
        self._unkept = ""
        """Why the last sign-in could not be kept."""

    @property
    def lists(self) -> "Lists":
        """What it lists, as far as that is known now; may block the first time."""
        if self._lists is None:
            cached = self._cache.read()
            self._known = cached is not None
            self._take(cached or {})
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
            return f"connected to {visible_line(self._connection.about)}" if self._connection.about else "connected"
        if self._fault:
            return f"failed: {self._fault}"
        return "not started" if self.known else "never connected to"

    def warm(self) -> None:
        """Connect in the background; a failure is told where it matters."""

        async def connect() -> None:
            with suppress(ToolError):  # `status` says so, and so does the next call
                await self.connect()

        task = asyncio.get_running_loop().create_task(connect())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def connect(self) -> None:
        """Have the server connected, and its tools up to date; raises ToolError, at once where it keeps failing."""
        await self._living()

    async def sign_in(self) -> None:
        """Connect, and have the caller of this moment sign in anew where the server wants it; raises ToolError, also
        where nothing keeps that."""
        await self._living(anew=True)
        await asyncio.gather(*self._keeping)
        if self._unkept:
            raise ToolError(f"{self.name} lets you in, but the keyring does not keep that: {self._unkept}")

    async def call(self, tool: "McpTool", arguments: Mapping[str, Any]) -> Observation:
        """Run a tool of this server; raises ToolError where it cannot be reached or ends meanwhile."""
        connection = await self._living()
        now = next((one for one in self.tools if one.listed.name == tool.listed.name), None)
        if now is None:
            return Observation(f"{self.name} has no tool {tool.listed.name} any more.", ok=False)
        if now.schema.parameters != tool.told:
            tool.told = now.schema.parameters
            text = f"{self.name} has changed this tool, so it was not run. This is it now:\n{now.schema.as_text()}"
            return Observation(text, ok=False)
        try:
            return await self._carry_out(connection, {"call": tool.listed.name, "arguments": dict(arguments)})
        except ToolError as failure:
            raise ToolError(f"{self.name} did not finish the call: {failure.message}.") from failure

    async def read(self, address: str) -> Observation:
        """A resource, as much of it as is text; raises ToolError."""
        connection = await self._living()
        self._updated.discard(address)
        return await self._carry_out(connection, {"read": address})

    def updates(self) -> Sequence[str]:
        """The resources that have changed since they were read, each told once."""
        updated, self._updated = sorted(self._updated), set()
        return updated

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Observation:
        """A question the server has ready; raises ToolError."""
        return await self._carry_out(await self._living(), {"prompt": name, "arguments": dict(arguments)})

    async def values(self, prompt: str, argument: str, begun: str, given: Mapping[str, str]) -> Sequence[str]:
        """What an argument that begins so could be, as the server knows it, given others; raises ToolError."""
        if not self.lists.completes:
            return ()
        if self._connection is None or self._connection.ended:
            if not self._background:
                self.warm()
            await asyncio.wait(self._background)  # who asks may give up at the next key: the server comes all the same
        order = {"complete": prompt, "argument": argument, "begun": begun, "given": dict(given)}
        seen = await self._carry_out(await self._living(), order)
        with suppress(ValueError):  # it was cut
            return typable(json.loads(seen.text)) if seen.ok else ()
        return ()

    async def _carry_out(self, connection: Connection, order: Record) -> Observation:
        files = self._files()
        more = {"seconds": self.server.seconds, "files": None if files is None else str(files)}
        seen = await connection.carry_out({**order, **more})
        self._failures = 0
        return seen

    async def _asked(self, question: Record, asking: Caller) -> Record:
        """The caller's answer to a question of the server's."""
        if "form" in question:
            try:
                schema = plain_schema(question["form"])
            except (ValueError, RecursionError):
                return {}
            content = await asking.form(self.name, question["message"], schema)
            return {} if content is None else {"action": "accept", "content": content}
        if "visit" in question:
            agreed = await asking.visit(self.name, question["message"], question["visit"])
            return {"action": "accept"} if agreed else {}
        messages = [Message(speaker, text) for speaker, text in question["sample"]]
        try:
            sample = await asking.sample(self.name, messages, question["most"], allowed=self.server.sampling)
        except ToolError as failure:
            return {"error": failure.message}
        return {"text": sample.text, "model": sample.model, "cut": sample.cut}

    def forget(self) -> None:
        """Let the next one of this name know nothing of its tools, and not be signed in."""
        self._cache.forget()
        self._sign_in.forget()

    async def aclose(self) -> None:
        for task in tuple(self._background):
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()
        await asyncio.gather(*self._keeping)

    async def _living(self, *, anew: bool = False) -> Connection:
        async with self._connecting:
            if self._connection is not None and not self._connection.ended:
                return self._connection
            if self._connection is not None:
                self._note_failure(self._connection.ended)
                await self._connection.aclose()
                self._connection = None
            # the first failure is followed by another try at once
            pause = 0.0 if self._failures < 2 else min(_FIRST_PAUSE * 2 ** (self._failures - 2), _LONGEST_PAUSE)
            wait = self._failed_at + pause - time.monotonic()
            if wait > 0:
                raise ToolError(f"{self.name} keeps failing: {self._fault}. The next try is in {math.ceil(wait)} s.")
            try:
                told = await asyncio.to_thread(self._told, anew)
                connection = await Connection.start(told, self._take_live, self._asked, self._patience)
            except (ToolError, OSError) as failure:
                self._note_failure(failure.message if isinstance(failure, ToolError) else str(failure))
                raise ToolError(f"{self.name} cannot be reached: {self._fault}.") from failure
            self._connection, self._fault = connection, ""
            return connection

    def _told(self, anew: bool) -> Record:
        """What the helper is told of the server, with what is kept of a sign-in; may block."""
        told = self.server.told()
        state = self._sign_in.read() if self.server.may_sign_in else None
        if state or (anew and self.server.may_sign_in):
            told["auth"] = {"state": state or {}, "client": self.server.client(), "anew": anew}
        return told

    def _note_failure(self, why: str) -> None:
        self._fault, self._failed_at, self._failures = visible_line(why), time.monotonic(), self._failures + 1

    def _take_live(self, lists: Record) -> None:
        async def keep() -> None:
            self._unkept = visible_line(await asyncio.to_thread(self._sign_in.write, lists["auth"]))

        if "auth" in lists:  # what came of a sign-in is kept in the background
            task = asyncio.create_task(keep())
            self._keeping.add(task)
            task.add_done_callback(self._keeping.discard)
        elif "updated" in lists:
            self._updated.add(lists["updated"])
        else:
            self._known = True
            self._take(lists)
            self._cache.write(lists)

    def _take(self, lists: Record) -> None:
        """Have the tools of these lists; those that are as they were stay the very same."""
        before = {tool.listed.name: tool for tool in self._lists.tools} if self._lists is not None else {}
        found, left_out = listed(self.name, lists.get("tools", ()))
        after = [before.get(one.name) or McpTool(self, one) for one in found]
        pairs = zip(after, found, strict=True)
        self._lists = Lists(
            tuple(tool if tool.listed == one else McpTool(self, one) for tool, one in pairs),
            left_out,
            typable(lists.get("resources")),
            typable(lists.get("templates")),
            prompts_of(lists.get("prompts")),
            lists.get("completes") is True,
        )


@dataclass(frozen=True, slots=True)
class Lists:
    """What a server lists."""

    tools: tuple["McpTool", ...]
    left_out: tuple[str, ...]
    """What of its tools cannot be used, in words."""
    resources: tuple[str, ...]
    """The addresses of its resources; it may have more."""
    templates: tuple[str, ...]
    """Addresses of resources with places to fill in, as `notes://{day}`."""
    prompts: tuple[Prompt, ...]
    """The questions it has ready."""
    completes: bool
    """Whether it knows what arguments of prompts could be."""


class McpTool:
    """A tool of a server, under the server's name and its own: `time.get_current_time`."""

    price_nano = 0

    def __init__(self, owner: McpServer, listed: Listed) -> None:
        self.listed = listed
        self.schema = listed.schema
        believed = listed.read_only and owner.server.trusted
        self.effects: frozenset[Effect] = frozenset(("read",) if believed else ("read", "write", "network"))
        self.limits = owner.limits
        self.told = listed.schema.parameters
        """The parameters as the model was told them last."""
        self._owner = owner

    def warm(self) -> None:
        """Have the server connected by the time the tool is called."""
        self._owner.warm()

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        return await self._owner.call(self, arguments)
