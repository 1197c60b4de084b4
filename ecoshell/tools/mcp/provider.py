"""The tools of one MCP server: known from a cached list, and run by the server, which is started when it is needed."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ecoshell.errors import ToolError
from ecoshell.messages import Effect, Observation, ToolDocument
from ecoshell.tools.base import Limits
from ecoshell.tools.mcp.connection import Connection, Record
from ecoshell.tools.mcp.servers import CachedList, Listed, Server, listed
from ecoshell.untrusted import visible_line

CONNECTING = 60.0
"""Seconds a server may take to answer at all; some are downloaded first."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a server is started once more that failed twice, doubled each time, and the most of them."""


class McpServer:
    """One server. Its `tools` are as they were listed last; nothing runs before `connect`, or a call of one of them.

    Belongs to the event loop that first connects.
    """

    def __init__(self, server: Server, *, folder: Path, characters: int, connecting: float = CONNECTING) -> None:
        """`folder` has the cached lists, `characters` is what a tool may say in one observation."""
        self.server = server
        self.limits = Limits(connecting + server.seconds, characters)
        """Of one call, for which the server may have to be started first."""
        self.left_out: tuple[str, ...] = ()
        """What of its list cannot be used, in words."""
        self._cache = CachedList(folder, server)
        self._patience = connecting
        self._tools: tuple[McpTool, ...] | None = None
        """None until the cached list was read."""
        self._known = False
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._failures = 0
        self._failed_at = 0.0
        self._fault = ""
        self._background: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def tools(self) -> Sequence["McpTool"]:
        if self._tools is None:
            records = self._cache.read()
            self._take(records or ())
            self._known = records is not None
        return self._tools or ()

    @property
    def known(self) -> bool:
        return bool(self.tools) or self._known

    @property
    def status(self) -> str:
        if self._connection is not None and self._connection.alive:
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

    async def call(self, tool: "McpTool", arguments: Mapping[str, Any]) -> Observation:
        """Run a tool of this server; raises ToolError where it cannot be reached or ends meanwhile."""
        connection = await self._living()
        now = next((one for one in self.tools if one.listed.name == tool.listed.name), None)
        if now is None:
            return Observation(f"{self.name} has no tool {tool.listed.name} any more.", ok=False)
        if now.document.parameters != tool.document.parameters and not tool.told:
            tool.told = True
            text = f"{self.name} has changed this tool, so it was not run. This is it now:\n{now.document.as_text()}"
            return Observation(text, ok=False)
        try:
            seen = await connection.call(tool.listed.name, arguments, self.server.seconds)
        except ToolError as failure:
            raise ToolError(f"{self.name} did not finish the call: {failure.message}.") from failure
        self._failures = 0
        return seen

    def forget(self) -> None:
        """Let the next one of this name know nothing of its tools."""
        self._cache.forget()

    async def aclose(self) -> None:
        for task in tuple(self._background):
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _living(self) -> Connection:
        async with self._connecting:
            if self._connection is not None and self._connection.alive:
                return self._connection
            if self._connection is not None:
                self._note_failure(self._connection.ended)
                await self._connection.aclose()
                self._connection = None
            wait = self._failed_at + self._pause - time.monotonic()
            if wait > 0:
                raise ToolError(f"{self.name} keeps failing: {self._fault}. The next try is in {math.ceil(wait)} s.")
            try:
                connection = await Connection.start(self.server.told(), self._take_live, self._patience)
            except (ToolError, OSError) as failure:
                self._note_failure(failure.message if isinstance(failure, ToolError) else str(failure))
                raise ToolError(f"{self.name} cannot be reached: {self._fault}.") from failure
            self._connection, self._fault = connection, ""
            return connection

    @property
    def _pause(self) -> float:
        """Seconds to wait after the last failure; the first is followed by another try at once."""
        return 0.0 if self._failures < 2 else min(_FIRST_PAUSE * 2 ** (self._failures - 2), _LONGEST_PAUSE)

    def _note_failure(self, why: str) -> None:
        self._fault, self._failed_at, self._failures = visible_line(why), time.monotonic(), self._failures + 1

    def _take_live(self, records: Sequence[Record]) -> None:
        self._known = True
        self._take(records)
        self._cache.write(records)

    def _take(self, records: Sequence[Any]) -> None:
        """Have the tools of this list; those that are as they were stay the very same."""
        before = {tool.listed.name: tool for tool in self._tools or ()}
        found, self.left_out = listed(self.name, records)
        after = [before.get(one.name) or McpTool(self, one) for one in found]
        pairs = zip(after, found, strict=True)
        self._tools = tuple(tool if tool.listed == one else McpTool(self, one) for tool, one in pairs)


class McpTool:
    """A tool of a server, under the server's name and its own: `time.get_current_time`."""

    def __init__(self, owner: McpServer, listed: Listed) -> None:
        self.listed = listed
        self.told = False
        """Whether the model was told that the tool takes other arguments by now."""
        self._owner = owner

    @property
    def document(self) -> ToolDocument:
        return self.listed.document

    @property
    def effects(self) -> frozenset[Effect]:
        return self.listed.effects(trusted=self._owner.server.trusted)

    @property
    def price_nano(self) -> int:
        return 0

    @property
    def limits(self) -> Limits:
        return self._owner.limits

    def warm(self) -> None:
        """Have the server connected by the time the tool is called."""
        self._owner.warm()

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        return await self._owner.call(self, arguments)
