"""One life of a server, seen from the shell: its helper process, started and asked here."""

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ecoshell
from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools.measuring import following

_LINE_LIMIT = 1 << 26
"""Bytes; a list of tools is one line."""
_LAST_WORDS = 2_000
_ENDING = 6.0
"""Seconds a helper gets to end its server before it is killed itself."""
_PASSED_ON = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),  # what the SDK lets a server have
    *("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "TZ"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables of this process that the helper has; a server gets the first six, and what is configured for it."""

Record = Mapping[str, Any]


class Connection:
    """A server that is being talked with; `start` connects, and a connection that is not `alive` never lives again."""

    def __init__(self, process: Process, told: Callable[[Sequence[Record]], None]) -> None:
        self.about = ""
        """The server's own name and version."""
        self.ended = ""
        """Why the connection is over; empty while it lives."""
        self._process = process
        self._told = told
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Record]] = {}
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reason = ""
        """Why it is over, in the helper's words."""
        self._last_words = b""
        self._readers = (asyncio.create_task(self._read()), asyncio.create_task(self._listen()))

    @classmethod
    async def start(cls, server: Record, told: Callable[[Sequence[Record]], None], seconds: float) -> "Connection":
        """Connect within this time; `told` is given the list of tools, now and whenever it changes. Raises ToolError.

        `server` is what the helper is told of it.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "ecoshell.tools.mcp.helper"),
            env=_environment(),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=_LINE_LIMIT,
            start_new_session=True,  # so that Ctrl-C and a closing terminal do not reach it
        )
        connection = cls(process, told)
        try:
            connection._write(server)
            async with asyncio.timeout(seconds):
                await asyncio.shield(connection._connected)
        except TimeoutError:
            await connection.aclose()
            raise ToolError(f"it did not answer within {seconds:g} s") from None
        except BaseException:
            await asyncio.shield(connection.aclose())
            raise
        return connection

    @property
    def alive(self) -> bool:
        return not self.ended

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Observation:
        """What the server answers; cancelling this cancels the call. Raises ToolError where the connection ends."""
        number = next(self._numbers)
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        self._write({"id": number, "call": name, "arguments": dict(arguments), "seconds": seconds})
        try:
            async with following(self._process.pid):
                found = await answer
            return Observation(found["text"], ok=found["ok"])
        finally:
            if self._calls.pop(number, None) is not None:  # nobody waits any more for an answer that has not come
                self._write({"id": number, "cancel": True})

    async def aclose(self) -> None:
        """End the server, and then its helper."""
        self._end("it was closed")
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not await self._is_over(_ENDING):
            self._kill()
            await self._is_over(1.0)
        for reader in self._readers:  # what a server left behind may hold the pipes for ever
            reader.cancel()
        await asyncio.wait(self._readers)

    async def _is_over(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _write(self, record: Record) -> None:
        if self.alive and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n")

    async def _read(self) -> None:
        """Take what the helper says, until it says no more; whatever ends this, no call is left waiting."""
        try:
            while self._process.stdout is not None and (line := await self._process.stdout.readline()):
                self._take(json.loads(line))
        finally:
            with suppress(TimeoutError):  # what it said last explains how it ended
                await asyncio.wait_for(asyncio.shield(self._readers[1]), 0.5)
            self._end("it ended")

    def _take(self, record: Record) -> None:
        if "tools" in record:
            self.about = record["about"]
            self._told(record["tools"])
            if not self._connected.done():
                self._connected.set_result(None)
        elif "ended" in record:
            self._reason = record["ended"]
        elif (call := self._calls.pop(record["id"], None)) is not None and not call.done():
            call.set_result(record)

    def _end(self, why: str) -> None:
        """Tell everybody who waits that the connection is over."""
        if self.ended:
            return
        words = self._last_words.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
        why = self._reason or why
        self.ended = f"{why} ({words})" if words and words not in why else why
        for waiting in (self._connected, *self._calls.values()):
            if not waiting.done():
                waiting.set_exception(ToolError(self.ended))
        if self._connected.done():
            self._connected.exception()  # seen, so that nobody complains of one that nobody waits for
        self._calls.clear()

    def _kill(self) -> None:
        # Process.kill would reap a process that has just ended, and asyncio, which waits for it too, would complain.
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)

    async def _listen(self) -> None:
        """Keep the end of what the server prints, for the case that it dies."""
        if self._process.stderr is not None:
            while piece := await self._process.stderr.read(_LAST_WORDS):
                self._last_words = (self._last_words + piece)[-_LAST_WORDS:]


def _environment() -> dict[str, str]:
    """The helper's: no key of this process is in it, as it would be in that of every server."""
    paths = [str(Path(ecoshell.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    known = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return known | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUTF8": "1"}
