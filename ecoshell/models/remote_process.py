"""The shell's end of the helper process that owns litellm (remote_worker): one process, many asks at once."""

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any

from ecoshell.models.helper import helper_command, helper_environ
from ecoshell.secrecy import taken

_LINE_LIMIT = 1 << 26
"""Bytes; a reply is one line, and a long one is still a few megabytes."""
_MEMORY = 4 << 30
"""Bytes of address space; litellm with a few asks at once takes less than half."""
_GRACE = 60.0
"""Seconds after an ask's deadline by which the process must have said so; it may first have to load litellm."""
_LAST_WORDS = 2048

Line = Mapping[str, Any]


class RemoteProcess:
    """Starts the helper process when it is first needed, again after it died, and carries asks to it.

    Belongs to the event loop that first used it. The process ends with `aclose`, and by itself when this one does or
    when it needs more than `memory` bytes; it is ended when an ask is not over `grace` seconds after its time.
    """

    def __init__(self, *, memory: int = _MEMORY, grace: float = _GRACE) -> None:
        self._memory = memory
        self._grace = grace
        self._child: _Child | None = None
        self._starting = asyncio.Lock()

    async def warm(self) -> None:
        """Start the process, so that litellm is loaded by the time it is asked; returns at once."""
        await self._living()

    async def ask(self, body: Mapping[str, Any], *, most: int, seconds: float) -> AsyncGenerator[Line, None]:
        """The worker's lines for one ask, down to its reply or error; closing this early cancels the ask.

        The answer may come to `most` bytes on the network, and take this many seconds from its first to its last.
        """
        child = await self._living()
        number, inbox = child.open()
        last = asyncio.get_running_loop().call_later(seconds + self._grace, child.give_up)
        try:
            await child.send({"id": number, "ask": body, "bytes": most, "seconds": seconds})
            while True:
                line = await inbox.get()
                yield line
                if "reply" in line or "error" in line:
                    return
        finally:
            last.cancel()
            child.shut(number)

    @property
    def pid(self) -> int | None:
        """The process's number, while it lives."""
        return self._child.process.pid if self._child is not None and self._child.alive else None

    async def aclose(self) -> None:
        """End the process; asks under way end with an error."""
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def _living(self) -> "_Child":
        async with self._starting:
            if self._child is None or not self._child.alive:
                self._child = await _Child.start(self._memory)
            return self._child


class _Child:
    """One life of the helper process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.alive = True
        self._numbers = itertools.count(1)
        self._inboxes: dict[int, asyncio.Queue[Line]] = {}
        self._sent: set[int] = set()
        self._last_words = b""
        self._readers = (asyncio.create_task(self._read()), asyncio.create_task(self._listen()))

    @classmethod
    async def start(cls, memory: int) -> "_Child":
        process = await asyncio.create_subprocess_exec(
            *helper_command("ecoshell.models.remote_worker"),
            str(memory),
            env=helper_environ(),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=_LINE_LIMIT,
            start_new_session=True,  # so that Ctrl-C and a closing terminal reach it only through us
        )
        child = cls(process)
        child._write({"environ": taken()})  # over the pipe: in its environment any program could read them
        return child

    def open(self) -> tuple[int, asyncio.Queue[Line]]:
        """A number for a new ask, and where its lines will arrive."""
        number = next(self._numbers)
        inbox: asyncio.Queue[Line] = asyncio.Queue()
        self._inboxes[number] = inbox
        return number, inbox

    async def send(self, record: Line) -> None:
        """Write one line; when the process is gone, the ask's inbox says so."""
        self._write(record)
        if self.process.stdin is not None:
            try:
                await self.process.stdin.drain()
            except ConnectionError:
                self._die()

    def shut(self, number: int) -> None:
        """Take no more lines of this ask; one that is not finished is cancelled."""
        self._sent.discard(number)
        if self._inboxes.pop(number, None) is not None and self.alive:
            self._write({"id": number, "cancel": True})

    def give_up(self) -> None:
        """End a process that is stuck: it does not even say that an ask's time is over."""
        self._last_words = b"it no longer answered"
        self._die()

    async def end(self) -> None:
        """End the process; it holds nothing that needs saving, and its connections close with it."""
        self._kill()
        await self.process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def _write(self, record: Line) -> None:
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n")

    async def _read(self) -> None:
        """Hand each line to its ask, until there are no more; whatever ends this, no ask is left waiting."""
        try:
            while self.process.stdout is not None and (line := await self.process.stdout.readline()):
                self._deliver(json.loads(line))
        finally:
            self._die()

    def _deliver(self, line: Line) -> None:
        number = line.get("id")
        inbox = self._inboxes.get(number) if isinstance(number, int) else None
        if inbox is None or not isinstance(number, int):
            return
        if "sent" in line:
            self._sent.add(number)
            return
        if "reply" in line or "error" in line:
            del self._inboxes[number]
        inbox.put_nowait(line)

    def _die(self) -> None:
        """Tell every ask under way that its process is gone; those that had been sent may have been billed."""
        self.alive = False
        self._kill()
        words = self._last_words.decode("utf-8", "replace").strip().rpartition("\n")[2]
        message = "the helper process for remote models ended" + (f": {words}" if words else "")
        for number, inbox in self._inboxes.items():
            error = {"kind": "busy", "message": message, "status": None, "billed": number in self._sent}
            inbox.put_nowait({"id": number, "error": error})
        self._inboxes.clear()

    def _kill(self) -> None:
        if self.process.returncode is not None:
            return
        if sys.platform == "win32":
            self.process.kill()
            return
        # Process.kill would reap a process that has just ended, and asyncio, which waits for it too, would complain.
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)

    async def _listen(self) -> None:
        """Keep the end of what the process prints, for the case that it dies."""
        if self.process.stderr is not None:
            while piece := await self.process.stderr.read(_LAST_WORDS):
                self._last_words = (self._last_words + piece)[-_LAST_WORDS:]
