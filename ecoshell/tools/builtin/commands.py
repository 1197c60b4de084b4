"""Programs in the workspace: run_command, run_python, and processes that are bounded and leave nothing behind."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.secrecy import environ
from ecoshell.tools import Subject, ToolOptions
from ecoshell.tools.running import following, truncation_mark
from ecoshell.tools.workspace import Workspace

_CHUNK = 1 << 16
_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL, and for the last output of a program that has ended."""

_SECRET_NAME = re.compile(
    r"KEY(?!BOARD|MAP)|TOKEN|SECRET|PASSW|PASSPHRASE|PGPASS|_PWD$|CREDENTIAL|AUTH|COOKIE|_PAT$|_DSN$", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"\b(?:sk|pk|rk)[-_][\w-]{16}|\bgh[a-z]_\w{16}|github_pat_|\bglpat-|\bxox[a-z]-|\bhf_\w{16}|\bAKIA\w{12}|\bAIza\w{16}"
    r"|\beyJ[\w-]{16}|-----BEGIN|://[^/\s:@]*:[^/\s@]+@"
)
_QUIET = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
_QUIET["GIT_OPTIONAL_LOCKS"] = "0"  # a look at a repository writes no index, so that no hook runs after it


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of a program; `status` is negative when a signal ended it."""

    status: int
    output: str
    """Standard output and standard error, in the order they were written."""
    truncated: bool
    timed_out: bool


class OutputWindow:
    """Keeps the beginning and the end of a stream of bytes, whatever its length, and counts the rest.

    The end is kept because that is where programs say what went wrong.
    """

    def __init__(self, size: int) -> None:
        self._head_size = size * 2 // 3
        self._tail_size = size - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Bytes fed so far."""

    @property
    def truncated(self) -> bool:
        """Whether bytes were dropped."""
        return self.total > len(self._head) + len(self._tail)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-self._tail_size :]
        del self._tail[: max(0, len(self._tail) - self._tail_size)]

    def text(self) -> str:
        """What was kept, decoded as UTF-8, with the mark where bytes were dropped."""
        if not self.truncated:
            return bytes(self._head + self._tail).decode(errors="replace")
        shown = len(self._head) + len(self._tail)
        head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        return f"{head}\n{truncation_mark(shown, self.total, 'bytes')}\n{tail}"


def safe_environment(environment: Mapping[str, str], keep: frozenset[str] = frozenset()) -> dict[str, str]:
    """The variables a command may see: those that look like a key, token or password by name or value are left out."""
    seen = {
        name: value
        for name, value in environment.items()
        if name in keep or not (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))
    }
    return seen | _QUIET


async def run_process(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    window: int,
    given: int = asyncio.subprocess.DEVNULL,
) -> Finished:
    """Run a program to its end or for `seconds`; keep at most `window` bytes of its output.

    `given` is the descriptor of a file that it reads as standard input. When this returns or is cancelled the whole
    process group has been ended, as it is when this process is killed. Raises ToolError if it cannot be started.
    """
    output = OutputWindow(window)
    read_end, write_end = os.pipe()  # of our own: asyncio's would wait for every descendant that still holds the other
    reader = asyncio.StreamReader(limit=_CHUNK)
    protocol = asyncio.StreamReaderProtocol(reader)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(read_end, "rb", buffering=0))

    async def drain() -> None:
        while data := await reader.read(_CHUNK):
            output.feed(data)

    in_time = True
    try:
        process = await _start(command, folder, environment, given, write_end)
        with watchdog.watching(process.pid):
            reading = asyncio.create_task(drain())
            try:
                async with asyncio.timeout(seconds), following(process.pid):
                    await process.wait()
            except TimeoutError:
                in_time = False
            finally:
                await _end(process, reading)
    finally:
        transport.close()
    return Finished(process.returncode or 0, output.text(), output.truncated, timed_out=not in_time)


async def _start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], given: int, write_end: int
) -> asyncio.subprocess.Process:
    announced, stdout = watchdog.announced(command, write_end)
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *announced,
            cwd=folder,
            env=environment,
            stdin=given,
            stdout=stdout,
            stderr=write_end,
            start_new_session=True,  # a group of its own, and no terminal to ask for passwords on
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:  # asyncio alone would end the program, but not what it has started by now
        await asyncio.wait([starting])
        if starting.exception() is None:
            with watchdog.watching(starting.result().pid):
                _signal(starting.result(), signal.SIGKILL)
                await starting.result().wait()
        raise
    except (OSError, ValueError) as error:
        raise ToolError(f"{command[0]} could not be started: {error}.") from error
    finally:
        os.close(write_end)


async def _end(process: asyncio.subprocess.Process, reading: asyncio.Task[None]) -> None:
    """End what is left of the group, first gently, and take what it still printed."""
    try:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _GRACE)
    finally:
        _signal(process, signal.SIGKILL)
        try:
            await process.wait()
            await asyncio.wait([reading], timeout=_GRACE)  # a daemon that left the group may hold the pipe for ever
        finally:
            reading.cancel()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


# -- the watchdog

_SCRIPT = """
while read -r sign group; do
  if [ "$sign" = + ]; then
    groups="$groups $group"
  else
    kept=
    for each in $groups; do [ "$each" = "$group" ] || kept="$kept $each"; done
    groups=$kept
  fi
done
[ -n "$groups" ] || exit 0
for each in $groups; do kill -s TERM -- "-$each"; done
sleep 1
for each in $groups; do kill -s KILL -- "-$each"; done
"""
_ANNOUNCED = '(echo "+ $$") 2>/dev/null; exec "$@" >&2'
"""Says its group before it becomes the program, so that there is no moment in which nobody knows of that.

The brackets: where nobody listens, the signal for that ends what is in them, and not the program.
"""


@dataclass(eq=False)
class Watchdog:
    """Knows which process groups run, and has them ended when this process is gone; starts at the first."""

    _groups: set[int] = field(default_factory=set[int])
    _program: subprocess.Popen[bytes] | None = None

    def announced(self, command: Sequence[str], output: int) -> tuple[Sequence[str], int]:
        """A command that makes itself known to the watchdog, with the descriptor that is to be its standard output.

        Its standard error has to be `output`, where both then go. It has to lead a process group, and to be `watching`
        when it has started. Where no watchdog can be started, the command is given as it is.
        """
        if self._program is None or self._program.poll() is not None:  # one that was killed; the next knows all groups
            self._program = None
            system, nothing = {"PATH": os.defpath}, subprocess.DEVNULL
            with contextlib.suppress(OSError):  # in a session of its own, which no signal from a terminal reaches
                self._program = subprocess.Popen(
                    ["/bin/sh", "-c", _SCRIPT],
                    cwd="/",
                    env=system,
                    stdin=subprocess.PIPE,
                    stdout=nothing,
                    stderr=nothing,
                    start_new_session=True,
                )
                if self._program.stdin is not None:
                    os.set_blocking(self._program.stdin.fileno(), False)
            self._say("".join(f"+ {group}\n" for group in self._groups))
        if self._program is None or self._program.stdin is None:
            return command, output
        return ["/bin/sh", "-c", _ANNOUNCED, "sh", *command], self._program.stdin.fileno()

    @contextlib.contextmanager
    def watching(self, group: int) -> Generator[None]:
        """While it lasts, a process group that was announced ends with this process; it has ended by the end of it."""
        self._groups.add(group)
        try:
            yield
        finally:
            self._groups.discard(group)
            self._say(f"- {group}\n")

    def _say(self, lines: str) -> None:
        """Say something to the watchdog that runs, without ever waiting for it."""
        if lines and self._program is not None and self._program.stdin is not None:
            with contextlib.suppress(OSError):  # it was killed meanwhile, or stopped for so long that the pipe is full
                os.write(self._program.stdin.fileno(), lines.encode())


watchdog = Watchdog()
"""That of this process."""


_RUN = "import os, sys; sys.path.append(os.getcwd()); exec(compile(sys.argv.pop(), '<code>', 'exec'))"
"""What is in the workspace can be imported, and hides no module of Python's own."""
_LONGEST = 100_000
"""Characters of a command; the system takes 128 KiB in one argument."""
_NOT_RUN = (126, 127)
"""With these a shell ends that cannot run, or does not find, what it was told to."""


@dataclass(eq=False)
class CommandTools:
    """The program runners of one workspace; each public method is a tool."""

    _workspace: Workspace
    _options: ToolOptions

    async def run_command(self, command: Annotated[str, "Shell command line.", Subject.COMMAND]) -> Observation:
        """Run a shell command or program here (move, copy, delete, git, build, test) and show its output."""
        return _told(await self._run(["/bin/sh", "-c"], command), "")

    async def run_python(self, code: Annotated[str, "Python source; print what you want to see."]) -> Observation:
        """Run Python code or a script and show what it prints."""
        return _told(await self._run([sys.executable, "-I", "-c", _RUN], code), " Use print(...) to see a value.")

    async def _run(self, program: Sequence[str], text: str) -> Finished:
        if not text.strip():
            raise ToolError("There is nothing to run: the text is empty.")
        if "\0" in text or len(text.encode("utf-8", "replace")) > _LONGEST:
            raise ToolError(
                f"It cannot be run: at most {_LONGEST} bytes and no NUL characters; write a file and run that."
            )
        return await run_process(
            [*program, text],
            folder=self._workspace.root,
            environment=safe_environment(environ, self._options.keep_variables),
            seconds=self._options.command_seconds,
            window=self._options.result.characters - 200,  # room for the marks
        )


def _told(finished: Finished, hint: str) -> Observation:
    """The output, and a last line for what the output does not say."""
    marks: list[str] = []
    if not finished.output.strip():
        marks.append(f"[no output.{hint}]" if finished.status == 0 else "[no output]")
    if finished.timed_out:
        marks.append("[stopped: the time limit was reached]")
    elif finished.status < 0:
        marks.append(f"[ended by signal {-finished.status}]")
    elif finished.status:
        marks.append(f"[exit status {finished.status}]")
    text = "\n".join([finished.output.rstrip("\n"), *marks] if finished.output.strip() else marks)
    return Observation(text, ok=finished.status == 0 and not finished.timed_out, truncated=finished.truncated)


async def passes(command: str, text: str, *, folder: Path, options: ToolOptions) -> bool:
    """Whether a shell command ends with 0 when it reads this text from its standard input.

    It runs under the limits of run_command. Raises ToolError where it cannot tell: it cannot be run, takes too long, or
    is ended by a signal.
    """
    given = await asyncio.to_thread(_file_of, text)
    try:
        finished = await run_process(
            ["/bin/sh", "-c", command],
            folder=folder,
            environment=safe_environment(environ, options.keep_variables),
            seconds=options.command_seconds,
            window=options.result.characters,
            given=given.fileno(),
        )
    finally:
        given.close()
    if finished.timed_out:
        raise ToolError(f"It took longer than {options.command_seconds:g} s.")
    if finished.status < 0:
        raise ToolError(f"It was ended by signal {-finished.status}.")
    if finished.status in _NOT_RUN:
        raise ToolError(f"It cannot be run: {finished.output.strip() or f'exit status {finished.status}'}")
    return finished.status == 0


def _file_of(text: str) -> BinaryIO:
    """The text in a file without a name, to be read from its beginning; unlike a pipe, it waits for no reader."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(text.encode("utf-8", "replace"))
    file.seek(0)
    return file
