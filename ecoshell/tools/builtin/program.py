"""The tool run_program: a Python program in the sandbox that calls other tools, whose results stay out of the context.

The program writes each call at the end of a line on its standard output, and reads the result from a pipe that was its
standard input.
"""

import asyncio
import json
import os
import re
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools import Caller, caller
from ecoshell.tools.builtin.commands import CommandTools, Launch, created_mark, run_process
from ecoshell.tools.output import OutputWindow

RUN_PROGRAM = "run_program"
MAX_CALLS = 100
SECONDS = 3_600.0
"""Time limit with the calls; the program itself has that of commands."""
_SEPARATOR = b"\x1e"
"""The first byte of the mark before a call; the others are random, so that no output looks like a call."""
_MAX_CALL = 1_000_000
"""Bytes of a call."""
_PRELUDE = r"""
import json, os, sys, threading, traceback
class ToolFailed(Exception):
    pass
program, mark, most = sys.argv.pop(), sys.argv.pop().encode(), int(sys.argv.pop())
calling, replies = threading.Lock(), os.fdopen(os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
class Tools:
    def __getattr__(self, name):
        def call(*positional, **arguments):
            if positional:
                raise TypeError(f"tools.{name} takes named arguments only, such as path='a.txt'")
            request = json.dumps({"name": name, "arguments": arguments}, default=str).encode()
            if len(request) > most:
                raise ToolFailed(f"The arguments of {name} are too long: {len(request):,} of {most:,} bytes.")
            data = mark + request + b"\n"
            with calling:
                sys.stdout.flush()
                while data:
                    data = data[os.write(1, data):]
                reply = json.loads(replies.readline())
            if not reply["ok"]:
                raise ToolFailed(reply["text"])
            return reply["text"]
        return call
sys.path.append(os.getcwd())
tools = Tools()
sys.modules["tools"] = tools
try:
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__", "tools": tools, "ToolFailed": ToolFailed})
except Exception as error:
    report = traceback.TracebackException.from_exception(error)
    report.stack[:] = [frame for frame in report.stack if frame.filename != "<string>"]
    sys.exit("".join(report.format()).rstrip())
"""
_EXIT_STATUS = re.compile(r"\[exit status -?\d+\]\s*\Z")
"""Ends the result of a command that ran and failed."""


class CallOutput:
    """The output of a program, and its calls, which are not part of the text."""

    def __init__(self, size: int, mark: bytes) -> None:
        """`mark` is before each call, and a line end after it."""
        self.window = OutputWindow(size)
        self.calls: asyncio.Queue[bytes] = asyncio.Queue()
        self._mark = mark
        self._partial = b""

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            text, mark, request = line.partition(self._mark)
            self.window.feed(text if mark else line + b"\n")
            if mark:
                self.calls.put_nowait(request)
        text, separator, start = self._partial.partition(_SEPARATOR)
        self.window.feed(text)
        self._partial = separator + start
        if len(self._partial) > len(self._mark) + _MAX_CALL:
            self.window.feed(self._partial)
            self._partial = b""


@dataclass(eq=False)
class ProgramTool:
    """Runs programs that call tools; the method is the tool."""

    _commands: CommandTools
    _seconds: float
    _characters: Callable[[], int]

    async def run_program(
        self,
        code: Annotated[
            str, "Python source; tools.NAME(argument=value) returns text, or raises ToolFailed."
        ],
    ) -> Observation:
        """Run one Python program that calls many tools (edits and their check, loops over results)."""
        calling = caller.get()
        if calling is None:
            raise ToolError("Programs cannot call tools here.")
        self._commands.require_text(code)
        mark = _SEPARATOR + secrets.token_hex(8).encode()
        start = (sys.executable, "-I", "-c", _PRELUDE, str(_MAX_CALL), mark.decode())
        launch = await self._commands.launch([*start, code])
        output = CallOutput(self._characters(), mark)
        return await _Run(launch, calling, self._commands.folder, self._seconds, output).run()


class _Run:
    """One run of a program."""

    def __init__(
        self, launch: Launch, calling: Caller, folder: Any, seconds: float, output: CallOutput
    ) -> None:
        self._launch = launch
        self._calling = calling
        self._folder = folder
        self._seconds_left = seconds
        self._output = output
        self._count = 0
        self._created: list[str] = []
        self._done, self._failed = Counter[str](), Counter[str]()

    async def run(self) -> Observation:
        reading, writing = os.pipe()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_write_pipe(
            asyncio.Protocol, os.fdopen(writing, "wb", buffering=0)
        )
        status, is_late = None, False
        try:
            with self._launch.prepared() as self._created:
                async with asyncio.timeout(self._seconds_left) as limit:
                    answering = asyncio.create_task(self._answer(transport, limit))
                    try:
                        status = (await self._process(reading)).status
                    finally:
                        answering.cancel()
                        await asyncio.wait([answering])
        except TimeoutError:
            is_late = True
        except asyncio.CancelledError:  # its calls and files so far are reported
            if not self._count and not self._created:
                raise
        finally:
            transport.close()
        return self._observation(status, is_late=is_late)

    async def _process(self, reading: int) -> Any:
        try:
            return await run_process(
                self._launch.command,
                folder=self._folder,
                environment=self._launch.environment,
                seconds=SECONDS,
                window=self._output,
                stdin=reading,
            )
        finally:
            os.close(reading)

    async def _answer(self, transport: asyncio.WriteTransport, limit: asyncio.Timeout) -> None:
        """Make the calls one after another; their time does not count."""
        loop = asyncio.get_running_loop()
        while True:
            request = await self._output.calls.get()
            until, now = limit.when() or loop.time(), loop.time()
            limit.reschedule(None)
            observation = await self._call(request)
            limit.reschedule(loop.time() + max(0.0, until - now))
            transport.write(
                json.dumps({"ok": observation.ok, "text": observation.text}).encode() + b"\n"
            )

    async def _call(self, request: bytes) -> Observation:
        self._count += 1
        if self._count > MAX_CALLS:
            return Observation(f"The program made {MAX_CALLS} calls, which is the limit.", ok=False)
        try:
            record: Mapping[str, Any] = json.loads(request)
            name, arguments = str(record["name"]), cast("Mapping[str, Any]", record["arguments"])
        except (ValueError, KeyError, TypeError):
            return Observation("The call is not valid JSON.", ok=False)
        if name == RUN_PROGRAM:
            return Observation("A program cannot run another one.", ok=False)
        observation = await self._calling.use_tool(name, arguments)
        if observation.ok and observation.truncated:
            # A program would count and write what is missing.
            why = f"The result of {name} is too long for one call: ask for parts, or open the file in Python."
            observation = Observation(why, ok=False)
        elif not observation.refused and _EXIT_STATUS.search(observation.text):
            observation = replace(observation, ok=True)  # the program reads the status
        (self._done if observation.ok else self._failed)[name] += 1
        return observation

    def _observation(self, status: int | None, *, is_late: bool) -> Observation:
        output = self._output.window.text().rstrip("\n")
        marks = [self._calls_text()]
        if is_late:
            marks.append(
                "[stopped: the program reached its time limit; calls that it made are done]"
            )
        elif status:
            marks.append(f"[exit status {status}]")
        if self._created:
            marks.append(created_mark(self._created))
        text = "\n".join([output or "[no output; print what you want to see]", *marks])
        return Observation(text, ok=status == 0, truncated=self._output.window.truncated)

    def _calls_text(self) -> str:
        """The number of calls; of a program that made several, also by tool, so that a failed one can be continued."""
        counted = "1 tool call" if self._count == 1 else f"{self._count} tool calls"
        groups = [
            f"{word}{', '.join([f'{name} {number}' for name, number in calls.items()])}"
            for word, calls in (("", self._done), ("failed: ", self._failed))
            if calls
        ]
        return f"[{': '.join([counted, '; '.join(groups)]) if groups else counted}]"
