"""Runs a program in a process group of its own, keeps a bounded part of what it prints, and leaves nothing behind."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ecoshell.errors import ToolError
from ecoshell.tools.builtin.watchdog import watchdog
from ecoshell.tools.limits import OutputWindow
from ecoshell.tools.measuring import following

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
    async with _pipe() as (reader, write_end):
        process = await _start(command, folder, environment, given, write_end)
        with watchdog.watching(process.pid):
            in_time = await _see_out(process, asyncio.create_task(_drain(reader, output)), seconds)
    return Finished(process.returncode or 0, output.text(), output.truncated, timed_out=not in_time)


async def _see_out(process: asyncio.subprocess.Process, reading: asyncio.Task[None], seconds: float) -> bool:
    """Wait for the end of a program, and bring it about after `seconds`; whether it ended by itself."""
    try:
        async with asyncio.timeout(seconds), following(process.pid):
            await process.wait()
    except TimeoutError:
        return False
    finally:
        await _end(process, reading)
    return True


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


@contextlib.asynccontextmanager
async def _pipe() -> AsyncGenerator[tuple[asyncio.StreamReader, int]]:
    """A pipe of our own: asyncio's would wait for every descendant that still holds the other end."""
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader(limit=_CHUNK)
    protocol = asyncio.StreamReaderProtocol(reader)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(read_end, "rb", buffering=0))
    try:
        yield reader, write_end
    finally:
        transport.close()


async def _drain(reader: asyncio.StreamReader, output: OutputWindow) -> None:
    while data := await reader.read(_CHUNK):
        output.feed(data)


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
