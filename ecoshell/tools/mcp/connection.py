"""The shell's connection to a server through its helper process."""

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
from ecoshell.tools.measuring import following

_MAX_LINE = 1 << 26  # maximum bytes of a line; all lists of a server are one line
_STDERR_TAIL = 2_000  # bytes of standard error that are kept for the error message
_CLOSE_SECONDS = 6.0  # seconds that a helper gets to end its server before it is killed
_SIGN_IN_SECONDS = 660.0  # time limit of a connection for which the user has to sign in
_ENVIRONMENT = """
HOME LOGNAME PATH SHELL TERM USER
LANG LC_ALL LD_LIBRARY_PATH PYTHONHOME TZ SSL_CERT_FILE SSL_CERT_DIR
HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy
"""
"""Variables that the helper inherits, without keys; a server gets those of the first line and its configured ones."""

Record = Mapping[str, Any]
Answer = Callable[[Record, Caller], Awaitable[Record]]  # answers a question; empty if it cannot


def _images(encoded: Sequence[str]) -> tuple[Image, ...]:
    """Return the valid images of a result."""
    images: list[Image] = []
    for number, data in enumerate(encoded, 1):
        with suppress(ToolError):
            images.append(image_of_base64(data, f"image {number}"))
    return tuple(images)


class Connection:
    """A connection opened by `start`; once `ended` is set it cannot be used again."""

    def __init__(
        self, process: Process, on_record: Callable[[Record], None], answer: Answer
    ) -> None:
        self.about = ""  # name and version that the server reports
        self.ended = ""  # why the connection ended; empty while it is open
        self._process = process
        self._on_record = on_record
        self._answer = answer
        self._questions: dict[int, asyncio.Task[None]] = {}  # unanswered questions of the server
        self._numbers = itertools.count(1)
        self._requests: dict[int, asyncio.Future[Record]] = {}
        self._callers: dict[int, Caller] = {}  # callers of running requests
        self._starter = caller.get()  # answers questions until the connection is open
        self._start_timeout: asyncio.Timeout | None = None
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reason = ""  # the helper's reason for the end of the connection
        self._stderr = b""
        tasks = (self._read(), self._read_stderr())
        self._readers = [asyncio.create_task(task) for task in tasks]

    @classmethod
    async def start(
        cls, server: Record, on_record: Callable[[Record], None], answer: Answer, seconds: float
    ) -> "Connection":
        """Start the helper and connect within this time. Raises ToolError.

        `server` is the helper's first line. `on_record` receives lists and sign-ins.
        """
        inherited = [name for name in _ENVIRONMENT.split() if name in os.environ]
        environment = {name: os.environ[name] for name in inherited}
        paths = [str(Path(ecoshell.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUTF8": "1"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "ecoshell.tools.mcp.helper"),
            env=environment,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=_MAX_LINE,
            start_new_session=True,  # Ctrl-C and a closed terminal must not reach it.
        )
        connection = cls(process, on_record, answer)
        try:
            connection._write(server)
            async with asyncio.timeout(seconds) as connection._start_timeout:
                await asyncio.shield(connection._connected)
        except TimeoutError:
            await connection.aclose()
            raise ToolError(f"it did not answer within {seconds:g} s") from None
        except BaseException:
            await asyncio.shield(connection.aclose())
            raise
        return connection

    async def request(self, request: Record) -> Observation:
        """Send a request in the helper's format and return its result; progress is reported to the current caller.

        Cancellation cancels the request. Raises ToolError if the connection ends.
        """
        number = next(self._numbers)
        response = self._requests[number] = asyncio.get_running_loop().create_future()
        if (requester := caller.get()) is not None:
            self._callers[number] = requester
        self._write({"id": number, **request})
        try:
            async with following(self._process.pid):
                record = await response
            images = await asyncio.to_thread(_images, record["images"]) if record["images"] else ()
            return Observation(record["text"], ok=record["ok"], images=images)
        finally:
            self._callers.pop(number, None)
            if self._requests.pop(number, None) is not None:  # cancelled before its response
                self._write({"id": number, "cancel": True})

    async def aclose(self) -> None:
        """End the server and its helper."""
        self._end("it was closed")
        if self._process.stdin is not None:
            self._process.stdin.close()
        for seconds in (_CLOSE_SECONDS, 1.0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), seconds)
                break
            # Process.kill would reap a process that has just ended, and asyncio, which waits for it, would warn.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        for question in self._questions.values():
            question.cancel()
        for reader in self._readers:  # Processes that the server started may keep the pipes open.
            reader.cancel()
        await asyncio.wait(self._readers)

    def _write(self, record: Record) -> None:
        sink = self._process.stdin
        if not self.ended and sink is not None and not sink.is_closing():
            text = json.dumps(record, ensure_ascii=False)
            sink.write(text.encode("utf-8", "replace") + b"\n")

    async def _read(self) -> None:
        """Handle the helper's output until it ends, and then end all requests."""
        try:
            stdout = self._process.stdout
            while stdout is not None and (line := await stdout.readline()):
                self._handle(json.loads(line))
        finally:
            with suppress(TimeoutError):  # Standard error may explain the end.
                await asyncio.wait_for(asyncio.shield(self._readers[1]), 0.5)
            self._end("it ended")

    def _handle(self, record: Record) -> None:
        if "auth" in record:
            self._on_record(record)
        elif "tools" in record:
            self.about = record["about"]
            self._on_record(record)
            if not self._connected.done():
                self._connected.set_result(None)
        elif "ended" in record:
            self._reason = record["ended"]
        elif "ask" in record:
            number = record["ask"]
            if "withdrawn" not in record:
                self._questions[number] = task = asyncio.create_task(self._reply(number, record))
                task.add_done_callback(lambda _: self._questions.pop(number, None))
            elif (question := self._questions.get(number)) is not None:
                question.cancel()
        elif "progress" in record:
            if (requester := self._callers.get(record["id"])) is not None:
                requester.progress(record["progress"])
        else:
            response = self._requests.pop(record["id"], None)
            if response is not None and not response.done():
                response.set_result(record)

    async def _reply(self, number: int, question: Record) -> None:
        """Answer a question through the caller of the latest request; empty without one."""
        value: Record = {}
        try:
            requester = next(reversed(self._callers.values()), None)
            if requester is None and not self._connected.done():
                requester = self._starter
                if self._start_timeout is not None:
                    end = asyncio.get_running_loop().time() + _SIGN_IN_SECONDS
                    self._start_timeout.reschedule(end)
            if requester is not None:
                value = await self._answer(question, requester)
        finally:
            self._write({"answer": number, "value": value})

    def _end(self, reason: str) -> None:
        """Mark the connection as ended and fail all pending requests."""
        if self.ended:
            return
        last_line = self._stderr.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
        reason = self._reason or reason
        is_new = last_line and last_line not in reason
        self.ended = mask_secrets(f"{reason} ({last_line})" if is_new else reason)
        for pending in (self._connected, *self._requests.values()):
            if not pending.done():
                pending.set_exception(ToolError(self.ended))
        if self._connected.done():
            self._connected.exception()  # Retrieve it so that asyncio does not log it.
        self._requests.clear()

    async def _read_stderr(self) -> None:
        """Keep the end of the server's standard error."""
        if self._process.stderr is not None:
            while chunk := await self._process.stderr.read(_STDERR_TAIL):
                self._stderr = (self._stderr + chunk)[-_STDERR_TAIL:]
