"""One life of a server, seen from the shell: its helper process, started and asked here."""

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ecoshell
from ecoshell.errors import ToolError
from ecoshell.images import image_of_base64
from ecoshell.messages import Image, Observation
from ecoshell.secrecy import mask_secrets
from ecoshell.tools import Caller, caller
from ecoshell.tools.running import following

_LINE_LIMIT = 1 << 26
"""Bytes; a list of tools is one line."""
_LAST_WORDS = 2_000
_ENDING = 6.0
"""Seconds a helper gets to end its server before it is killed itself."""
_SIGNING_IN = 660.0
"""Seconds for connecting to a server that the person has to sign in to."""
_PASSED_ON = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),  # what the SDK lets a server have
    *("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "TZ"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables of this process that the helper has; a server gets the first six, and what is configured for it."""

Record = Mapping[str, Any]
Asked = Callable[[Record, Caller], Awaitable[Record]]
"""Answers what a server asks the caller of a call; empty is no answer."""


def _images(encoded: Sequence[str]) -> tuple[Image, ...]:
    """What of a result's images models can be shown; the text names all of them."""
    found: list[Image] = []
    for number, data in enumerate(encoded, 1):
        with suppress(ToolError):
            found.append(image_of_base64(data, f"image {number}"))
    return tuple(found)


class Connection:
    """A server that is being talked with; `start` connects, and a connection that has `ended` never lives again."""

    def __init__(self, process: Process, told: Callable[[Record], None], asked: Asked) -> None:
        self.about = ""
        """The server's own name and version."""
        self.ended = ""
        """Why the connection is over; empty while it lives."""
        self._process = process
        self._told = told
        self._asked = asked
        self._questions: dict[int, asyncio.Task[None]] = {}
        """Of the server's, that nobody has answered yet."""
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Record]] = {}
        self._callers: dict[int, Caller] = {}
        """Who made the calls that are under way, where somebody listens."""
        self._starter = caller.get()
        """Who wants it connected, and answers until it is."""
        self._patience: asyncio.Timeout | None = None
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reason = ""
        """Why it is over, in the helper's words."""
        self._last_words = b""
        self._readers = (asyncio.create_task(self._read()), asyncio.create_task(self._listen()))

    @classmethod
    async def start(cls, server: Record, told: Callable[[Record], None], asked: Asked, seconds: float) -> "Connection":
        """Connect within this time; `told` is given the server's lists, now and whenever they change. Raises ToolError.

        `server` is what the helper is told of it; `asked` answers what the server asks while a call is under way.
        """
        # no key of this process is in the helper's environment, as it would be in that of every server
        known = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        paths = [str(Path(ecoshell.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "ecoshell.tools.mcp.helper"),
            env=known | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUTF8": "1"},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=_LINE_LIMIT,
            start_new_session=True,  # so that Ctrl-C and a closing terminal do not reach it
        )
        connection = cls(process, told, asked)
        try:
            connection._write(server)
            async with asyncio.timeout(seconds) as connection._patience:
                await asyncio.shield(connection._connected)
        except TimeoutError:
            await connection.aclose()
            raise ToolError(f"it did not answer within {seconds:g} s") from None
        except BaseException:
            await asyncio.shield(connection.aclose())
            raise
        return connection

    async def carry_out(self, order: Record) -> Observation:
        """What the server answers to a call, a `prompt` or a `read`, as the helper has them; the caller of the moment
        is told how far it has come. Cancelling this cancels it. Raises ToolError where the connection ends.
        """
        number = next(self._numbers)
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        if (asking := caller.get()) is not None:
            self._callers[number] = asking
        self._write({"id": number, **order})
        try:
            async with following(self._process.pid):
                found = await answer
            images = await asyncio.to_thread(_images, found["images"]) if found["images"] else ()
            return Observation(found["text"], ok=found["ok"], images=images)
        finally:
            self._callers.pop(number, None)
            if self._calls.pop(number, None) is not None:  # nobody waits any more for an answer that has not come
                self._write({"id": number, "cancel": True})

    async def aclose(self) -> None:
        """End the server, and then its helper."""
        self._end("it was closed")
        if self._process.stdin is not None:
            self._process.stdin.close()
        for patience in (_ENDING, 1.0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), patience)
                break
            # Process.kill would reap one that has just ended, and asyncio, which waits for it too, would complain
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        for question in self._questions.values():
            question.cancel()
        for reader in self._readers:  # what a server left behind may hold the pipes for ever
            reader.cancel()
        await asyncio.wait(self._readers)

    def _write(self, record: Record) -> None:
        if not self.ended and self._process.stdin is not None and not self._process.stdin.is_closing():
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
        if "auth" in record or "updated" in record:
            self._told(record)
        elif "tools" in record:
            self.about = record["about"]
            self._told(record)
            if not self._connected.done():
                self._connected.set_result(None)
        elif "ended" in record:
            self._reason = record["ended"]
        elif "ask" in record:
            number = record["ask"]
            if "over" not in record:
                self._questions[number] = task = asyncio.create_task(self._answer(number, record))
                task.add_done_callback(lambda _: self._questions.pop(number, None))
            elif (question := self._questions.get(number)) is not None:
                question.cancel()
        elif "progress" in record:
            if (asking := self._callers.get(record["id"])) is not None:
                asking.progress(record["progress"])
        elif (call := self._calls.pop(record["id"], None)) is not None and not call.done():
            call.set_result(record)

    async def _answer(self, number: int, question: Record) -> None:
        """Answer on behalf of whoever made the call that was begun last; without one it is nobody."""
        value: Record = {}
        try:
            asking = next(reversed(self._callers.values()), None)
            if asking is None and not self._connected.done():
                asking = self._starter
                if self._patience is not None:
                    self._patience.reschedule(asyncio.get_running_loop().time() + _SIGNING_IN)
            if asking is not None:
                value = await self._asked(question, asking)
        finally:
            self._write({"answer": number, "value": value})

    def _end(self, why: str) -> None:
        """Tell everybody who waits that the connection is over."""
        if self.ended:
            return
        words = self._last_words.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
        why = self._reason or why
        self.ended = mask_secrets(f"{why} ({words})" if words and words not in why else why)
        for waiting in (self._connected, *self._calls.values()):
            if not waiting.done():
                waiting.set_exception(ToolError(self.ended))
        if self._connected.done():
            self._connected.exception()  # seen, so that nobody complains of one that nobody waits for
        self._calls.clear()

    async def _listen(self) -> None:
        """Keep the end of what the server prints, for the case that it dies."""
        if self._process.stderr is not None:
            while piece := await self._process.stderr.read(_LAST_WORDS):
                self._last_words = (self._last_words + piece)[-_LAST_WORDS:]
