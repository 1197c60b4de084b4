"""The transport to litellm: the model host, which outlives a command, or a child process."""

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoshell.models.host_address import (
    HostAddress,
    environ_digest,
    host_address,
    host_environ,
    read_hello,
)
from ecoshell.models.tokens import helper_environ
from ecoshell.secrecy import removed_variables

_LINE_LIMIT = 1 << 26  # bytes; a reply is one line, and a long one is still a few megabytes
_MEMORY = 4 << 30  # bytes of address space; litellm with a few asks at once takes less than half
_GRACE = 60.0  # seconds after its deadline to report an ask, and to load litellm
_LAST_WORDS = 2048
_START_SECONDS = 60.0  # maximum time until a new host listens, also on a busy machine
_START_ATTEMPTS = 3  # an idle host may end just as a command connects to it

Line = Mapping[str, Any]
_LAST_FIELDS = frozenset(
    {"reply", "error", "counted", "loaded"}
)  # fields of the last line of a request


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Folder of the model host's socket, and the idle time after which the host ends."""

    folder: Path
    idle_seconds: float


class RemoteProcess:
    """Carries asks to a process that owns litellm, and starts or restarts that process when needed.

    Belongs to the event loop that first used it. With `host`, shared asks go to the user's model host as long as one
    fits; all others go to a child, which ends with `aclose`, and by itself when this process does. Either process ends
    when it needs more than `memory` bytes, and is killed when an ask is not over `grace` seconds after its deadline.
    """

    def __init__(
        self, *, memory: int = _MEMORY, grace: float = _GRACE, host: HostOptions | None = None
    ) -> None:
        self._memory = memory
        self._grace = grace
        self._host = host
        self._numbers = itertools.count(1)
        self._links: dict[bool, _Link] = {}  # to the host (True) and to the child (False)
        self._starting = asyncio.Lock()

    async def warm(self, *, shared: bool = False) -> "_Link":
        """Connect to the host or start the child, so that litellm is loaded before the first ask."""
        async with self._starting:
            if shared and self._host is not None:
                link = self._links.get(True) or await self._connected(self._host)
                if link is not None and not link.alive:
                    await link.aclose()
                    link = await self._connected(self._host)
                if link is not None:
                    self._links[True] = link
                    return link
                self._host = None
                self._links.pop(True, None)
            child = self._links.get(False)
            if child is None or not child.alive:
                child = self._links[False] = await self._new_child()
            return child

    async def _new_child(self) -> "_Child":
        process = await asyncio.create_subprocess_exec(
            *_command("remote_worker", self._memory),
            env=helper_environ(),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=_LINE_LIMIT,
            start_new_session=True,  # so that Ctrl-C and a closing terminal reach it only through us
        )
        child = _Child(process)
        # Over the pipe: in its environment any program could read them.
        child.write({"environ": removed_variables()})
        return child

    async def _connected(self, host: HostOptions) -> "_Link | None":
        """Connect to the host, starting one if necessary; returns None when no suitable host is available."""
        environ = host_environ(helper_environ())
        address = host_address(host.folder)
        try:
            address.require_private(make=True)
            for _ in range(_START_ATTEMPTS):
                try:
                    connection = address.connect()
                except (FileNotFoundError, ConnectionRefusedError):
                    if not await self._start_host(address, host.idle_seconds, environ):
                        return None
                    continue
                with suppress(ConnectionError):
                    return await _greeted(connection, environ_digest(environ))
        except (OSError, ValueError, KeyError):  # no trustworthy host, or no answer from it
            pass
        return None

    async def _start_host(self, address: HostAddress, idle: float, environ: dict[str, str]) -> bool:
        """Start a host; returns True once a host listens, possibly one that another command started."""
        starting = await asyncio.create_subprocess_exec(
            *_command("model_host", address.folder, address.key, self._memory, idle),
            env=environ,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )
        try:
            return await asyncio.wait_for(starting.wait(), _START_SECONDS) == 0
        finally:
            if starting.returncode is None:
                starting.kill()
                await starting.wait()

    async def ask(
        self, body: Mapping[str, Any], *, max_bytes: int, seconds: float, shared: bool = False
    ) -> AsyncGenerator[Line, None]:
        """The worker's lines for one ask, until its reply or error; closing the iterator early cancels the ask.

        The answer may have `max_bytes` on the network and take this many seconds. If the process has ended, the last
        line says so; a process that does not report an expired ask is killed. Only asks that need nothing but their key
        may be `shared` with the host.
        """
        request = {"ask": body, "bytes": max_bytes, "seconds": seconds}
        async with aclosing(self._lines(request, seconds, shared=shared)) as lines:
            async for line in lines:
                yield line

    def has_loaded(self, *, shared: bool = False) -> bool:
        """Whether the process that takes the next ask has loaded litellm."""
        link = self._links.get(shared and self._host is not None)
        return link is not None and link.alive and link.is_loaded

    async def load(self, *, shared: bool = False) -> None:
        """Return when the process that takes the next ask has loaded litellm, or has ended."""
        link = await self.warm(shared=shared)
        if link.is_loaded:
            return
        async with aclosing(self._lines({"load": True}, _START_SECONDS, shared=shared)) as lines:
            async for line in lines:
                link.is_loaded = "loaded" in line

    async def count(
        self, body: Mapping[str, Any], *, seconds: float, shared: bool = False
    ) -> int | None:
        """The prompt's tokens as the provider counts them, without generating anything; None if it does not."""
        request = {"count": body, "seconds": seconds}
        async with aclosing(self._lines(request, seconds, shared=shared)) as lines:
            async for line in lines:
                return line.get("counted")
        return None

    async def _lines(
        self, request: Line, seconds: float, *, shared: bool
    ) -> AsyncGenerator[Line, None]:
        link = await self.warm(shared=shared)
        number, inbox = next(self._numbers), asyncio.Queue[Line]()
        link.inboxes[number] = inbox
        loop, silence = asyncio.get_running_loop(), "it no longer answered"
        last = loop.call_later(seconds + self._grace, link.die, silence)
        try:
            link.write({"id": number, **request})
            await link.drain()
            while True:
                line = await inbox.get()
                yield line
                if line.keys() & _LAST_FIELDS:
                    return
        finally:
            last.cancel()
            link.sent.discard(number)
            if link.inboxes.pop(number, None) is not None and link.alive:
                link.write({"id": number, "cancel": True})

    @property
    def pid(self) -> int | None:
        """Process ID of the host, or of the child if no host is connected; None if neither is alive."""
        links = (self._links.get(shared) for shared in (True, False))
        return next((link.pid for link in links if link and link.alive), None)

    async def aclose(self) -> None:
        """Disconnect from the host and end the child; running asks end with an error."""
        links, self._links = [*self._links.values()], {}
        for link in links:
            await link.aclose()


def _command(module: str, *arguments: object) -> list[str]:
    """The command of a module, without the current folder on the import path."""
    return [sys.executable, "-P", "-m", f"ecoshell.models.{module}", *map(str, arguments)]


class _Link:
    """One connection to one life of a process that owns litellm."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, pid: int) -> None:
        self.pid = pid
        self.alive = True
        self.inboxes: dict[int, asyncio.Queue[Line]] = {}
        self.sent: set[int] = set()
        self.is_loaded = False
        self._reader = reader
        self._writer = writer
        self._words = ""  # the reason the process gave for ending, or the end of its error output
        self._readers = [asyncio.create_task(self._read())]

    def write(self, record: Line) -> None:
        if not self._writer.is_closing():
            text = json.dumps(record, ensure_ascii=False)
            self._writer.write(text.encode("utf-8", "replace") + b"\n")

    async def drain(self) -> None:
        """Wait until the write buffer has room; the link dies if the process is gone."""
        try:
            await self._writer.drain()
        except ConnectionError:
            self.die()

    async def _read(self) -> None:
        """Pass each line to its ask; when reading ends, for any reason, end the remaining asks."""
        try:
            while text := await self._reader.readline():
                line = json.loads(text)
                number = line.get("id")
                if "ended" in line:
                    self._words = str(line["ended"])
                if not isinstance(number, int) or number not in self.inboxes:
                    continue
                if "sent" in line:
                    self.sent.add(number)
                    continue
                ends = "reply" in line or "error" in line
                inbox = self.inboxes.pop(number) if ends else self.inboxes[number]
                inbox.put_nowait(line)
        except ConnectionError:
            pass
        finally:
            self.die()

    def die(self, words: str = "") -> None:
        """End every running ask with an error; those that were sent may have been billed."""
        if self.alive and words:
            self.end_process()
        self.alive = False
        self.close()
        reason = words or self._words
        message = "the helper process for remote models ended" + (f": {reason}" if reason else "")
        for number, inbox in self.inboxes.items():
            sent = number in self.sent  # such a process would likely end the same way again
            error = {"kind": "busy", "message": message, "status": None}
            error |= {"billed": sent, "transient": not sent}
            inbox.put_nowait({"id": number, "error": error})
        self.inboxes.clear()

    def close(self) -> None:
        """Disconnect at once, without waiting for unread data."""
        self._writer.transport.abort()

    def end_process(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)

    async def aclose(self) -> None:
        """Disconnect and wait until the connection is closed."""
        self.close()
        await asyncio.gather(*self._readers, return_exceptions=True)
        with suppress(ConnectionError):
            await self._writer.wait_closed()


async def _greeted(connection: socket.socket, environ: str) -> _Link:
    """The link to a model host, once that has greeted.

    Raises ConnectionError when the host is ending, and OSError, ValueError or KeyError when it does not greet in time,
    or was started with other variables.
    """
    try:
        hello = await asyncio.to_thread(read_hello, connection)
        if hello["environ"] != environ:
            raise ValueError("the host was started with other variables")
        connection.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_LINE_LIMIT)
    except BaseException:
        connection.close()
        raise
    return _Link(reader, writer, int(hello["pid"]))


class _Child(_Link):
    """A child process, which ends with its link."""

    def __init__(self, process: Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process has no pipes")
        super().__init__(process.stdout, process.stdin, process.pid)
        self.process = process
        self._readers.append(asyncio.create_task(self._listen()))

    async def _listen(self) -> None:
        """Keep the end of the error output as the reason if the process dies."""
        output, stderr = b"", self.process.stderr
        while stderr is not None and (piece := await stderr.read(_LAST_WORDS)):
            output = (output + piece)[-_LAST_WORDS:]
            self._words = output.decode("utf-8", "replace").strip().rpartition("\n")[2]

    def close(self) -> None:
        # Process.kill would reap a process that has just ended, and asyncio, which waits for it too, would complain.
        if self.process.returncode is None:
            self.end_process()

    async def aclose(self) -> None:
        self.close()
        await self.process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)
