"""The tools run_command and run_python, which run programs with limits and end all their processes."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, BinaryIO

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.secrecy import environ
from ecoshell.tools import Subject, ToolOptions
from ecoshell.tools.background import BackgroundCommand, BackgroundCommands, state_mark
from ecoshell.tools.measuring import following
from ecoshell.tools.output import OutputWindow, Sink, UnreadOutput
from ecoshell.tools.sandbox import Reach, Sandbox, obstacle, reach
from ecoshell.tools.workspace import Workspace

_CHUNK = 1 << 16
_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL, and for reading the last output of an ended program."""

_SECRET_NAME = re.compile(
    r"KEY(?!BOARD|MAP)|TOKEN|SECRET|PASSW|PASSPHRASE|PGPASS|_PWD$|CREDENTIAL|AUTH|COOKIE|_PAT$|_DSN$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\b(?:sk|pk|rk)[-_][\w-]{16}|\bgh[a-z]_\w{16}|github_pat_|\bglpat-|\bxox[a-z]-|\bhf_\w{16}|\bAKIA\w{12}|\bAIza\w{16}"
    r"|\beyJ[\w-]{16}|-----BEGIN|://[^/\s:@]*:[^/\s@]+@"
)
_QUIET = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",  # Reading commands do not write the index, and so run no hook.
}


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a program; `status` is negative if a signal ended it."""

    status: int
    output: str
    """Standard output and standard error, interleaved."""
    truncated: bool
    timed_out: bool
    created: tuple[str, ...] = ()
    """New paths of the workspace that other programs execute later."""


def safe_environment(
    environment: Mapping[str, str], keep: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return the variables for a command, without those whose name or value looks like a secret."""
    safe = {
        name: value
        for name, value in environment.items()
        if name in keep or not (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))
    }
    return safe | _QUIET


async def run_process(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    window: "int | Sink",
    stdin: int = asyncio.subprocess.DEVNULL,
) -> Finished:
    """Run a program for at most `seconds`, and keep at most `window` bytes of its output, or feed all to `window`.

    Ends the whole process group before it returns or is cancelled, and also if this process is killed. Raises ToolError
    if the program cannot be started.
    """
    output = OutputWindow(window) if isinstance(window, int) else window
    read_end, write_end = os.pipe()  # asyncio's pipe would wait for every descendant that holds it.
    reader = asyncio.StreamReader(limit=_CHUNK)
    protocol = asyncio.StreamReaderProtocol(reader)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: protocol, os.fdopen(read_end, "rb", buffering=0)
    )

    async def drain() -> None:
        while data := await reader.read(_CHUNK):
            output.feed(data)

    in_time = True
    try:
        process = await _start(command, folder, environment, stdin, write_end)
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
    status, timed_out = process.returncode or 0, not in_time
    if not isinstance(output, OutputWindow):
        return Finished(status, "", False, timed_out)
    return Finished(status, output.text(), output.truncated, timed_out)


async def _start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: int, write_end: int
) -> asyncio.subprocess.Process:
    wrapped, stdout = watchdog.wrap(command, write_end)
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *wrapped,
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=write_end,
            start_new_session=True,  # a separate process group without a terminal for password prompts
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:  # asyncio would end the program but not its descendants.
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
    """End the process group, with SIGTERM first, and read the remaining output."""
    try:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _GRACE)
    finally:
        _signal(process, signal.SIGKILL)
        try:
            await process.wait()
            # A daemon outside the group may keep the pipe open.
            await asyncio.wait([reading], timeout=_GRACE)
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
_WRAPPER = '(echo "+ $$") 2>/dev/null; exec "$@" >&2'
"""Registers its process group with the watchdog before it executes the program.

The subshell confines SIGPIPE, in case the watchdog has ended.
"""


@dataclass(eq=False)
class Watchdog:
    """A shell process that ends the running process groups when this process dies; started for the first group."""

    _groups: set[int] = field(default_factory=set[int])
    _process: subprocess.Popen[bytes] | None = None

    def wrap(self, command: Sequence[str], output: int) -> tuple[Sequence[str], int]:
        """Return a command that registers with the watchdog, and the descriptor for its standard output.

        Start it as leader of a process group with `output` as standard error, which receives all output, and then use
        `watching`. Returns the command unchanged if the watchdog cannot be started.
        """
        if self._process is None or self._process.poll() is not None:  # not started, or killed
            self._process = None
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _SCRIPT],
                    cwd="/",
                    env={"PATH": os.defpath},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Signals of the terminal must not reach it.
                )
                if self._process.stdin is not None:
                    os.set_blocking(self._process.stdin.fileno(), False)
            self._send("".join(f"+ {group}\n" for group in self._groups))
        if self._process is None or self._process.stdin is None:
            return command, output
        return ["/bin/sh", "-c", _WRAPPER, "sh", *command], self._process.stdin.fileno()

    @contextlib.contextmanager
    def watching(self, group: int) -> Generator[None]:
        """Watch a process group of a wrapped command; it must have ended when the context exits."""
        self._groups.add(group)
        try:
            yield
        finally:
            self._groups.discard(group)
            self._send(f"- {group}\n")

    def _send(self, lines: str) -> None:
        """Send lines to the watchdog without blocking."""
        if lines and self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # It was killed, or its pipe is full.
                os.write(self._process.stdin.fileno(), lines.encode())


watchdog = Watchdog()


_RUN = (
    "import os, sys; sys.path.append(os.getcwd()); exec(compile(sys.argv.pop(), '<code>', 'exec'))"
)
"""Makes the workspace importable, after Python's own modules."""
_MAX_BYTES = 100_000
"""Maximum size of a command; the system allows 128 KiB per argument."""
_DETACHES = re.compile(r"(?<![&>])&\s*(?:$|\)|;|\n)|^\s*(?:nohup|setsid)\s", re.MULTILINE)
"""Shell text that leaves programs running."""
_NOT_STARTED = re.compile(
    r"(bwrap|namespaces): .*(Read-only file system|No such file or directory).*\n"
)
"""Output of a sandbox that did not start because a file that it covers was deleted meanwhile."""
_DETACHED = "[programs that it left running have ended; use background=true for those]"
_BACKGROUND_SECONDS = 86_400.0
_MAX_WAIT = 60.0
"""Longest wait for the end of a background command, in seconds."""
_SHELL_FAILURES = (126, 127)
"""Exit statuses of a shell that cannot execute or find the program."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A program with its variables, as the sandbox allows it."""

    command: Sequence[str]
    environment: dict[str, str]
    reach: Reach
    sandbox: Sandbox | None

    def prepared(self) -> AbstractContextManager[list[str]]:
        """Hold the reserved paths of the workspace while the program runs, and list new paths that are executed."""
        return contextlib.nullcontext([]) if self.sandbox is None else self.sandbox.prepared()


@dataclass(eq=False)
class CommandTools:
    """The tools of one workspace; each public method is a tool."""

    _workspace: Workspace
    _options: ToolOptions

    async def run_command(
        self,
        command: Annotated[str, "Shell command line.", Subject.COMMAND],
        background: Annotated[bool, "Return its ID at once, for command_output."] = False,
    ) -> Observation:
        """Run a shell command or program here (move, copy, delete, git, build, test) and show its output."""
        program = ["/bin/sh", "-c", command]
        return await self._run(program, "", background=background, may_detach=True)

    async def command_output(
        self,
        id: Annotated[str, "ID of a background command."],  # noqa: A002 - the name that models expect
        wait: Annotated[int, "Seconds to wait for its end, at most 60."] = 0,
    ) -> Observation:
        """Show what a background command has printed since it was last read, and whether it still runs."""
        commands = self._background()
        command = commands.get(id)
        if wait > 0:
            await commands.wait(command, min(wait, _MAX_WAIT, self._options.command_seconds))
        return _background_observation(command)

    async def command_stop(self, id: Annotated[str, "ID of a background command."]) -> Observation:  # noqa: A002
        """Stop a background command (kill, end) and show what it has printed since it was last read."""
        commands = self._background()
        command = commands.get(id)
        await commands.stop(command)
        return _background_observation(command)

    async def run_python(
        self, code: Annotated[str, "Python source; print what you want to see."]
    ) -> Observation:
        """Run Python code or a script and show what it prints."""
        return await self._run(
            [sys.executable, "-I", "-c", _RUN, code], " Use print(...) to see a value."
        )

    @property
    def folder(self) -> Path:
        """The folder in which programs run."""
        return self._workspace.root

    def require_text(self, text: str) -> None:
        """Raise ToolError for a text that cannot be an argument of a program."""
        if not text.strip():
            raise ToolError("There is nothing to run: the text is empty.")
        if "\0" in text or len(text.encode("utf-8", "replace")) > _MAX_BYTES:
            raise ToolError(
                f"The text is too long (at most {_MAX_BYTES} bytes) or contains a NUL character; run it from a file."
            )

    def _background(self) -> BackgroundCommands:
        if self._options.background is None:
            raise ToolError("Background commands need a session.")
        return self._options.background

    async def _run(
        self,
        program: Sequence[str],
        hint: str,
        *,
        background: bool = False,
        may_detach: bool = False,
    ) -> Observation:
        """Run a program; `hint` follows the mark of empty output, `may_detach` says that `background` is offered."""
        text = program[-1]
        self.require_text(text)
        launch = await self.launch(program)
        if background:
            return self._start(text, launch)
        finished = await self._finished(launch)
        if finished.status == 1 and _NOT_STARTED.fullmatch(finished.output):
            launch = await self.launch(program)
            finished = await self._finished(launch)
        used = launch.reach
        late = f"[stopped: the time limit of {self._options.command_seconds:g} s was reached"
        if may_detach and self._options.background is not None:
            late += "; background=true allows a day"
        observation = _observation(finished, hint, f"{late}]")
        if used != "outside" and _DETACHES.search(text):
            observation = replace(observation, text=f"{observation.text}\n{_DETACHED}")
        if finished.created:
            text = f"{observation.text}\n{created_mark(finished.created)}"
            observation = replace(observation, text=text)
        return replace(observation, obstacle=obstacle(finished.status, finished.output, used))

    async def _finished(self, launch: Launch) -> Finished:
        """Run a program; if it is cancelled, return its output and what it created, if there is any."""
        output = OutputWindow(self._options.result.characters - 200)  # reserved for marks
        created: list[str] = []
        try:
            with launch.prepared() as created:
                finished = await self._execute(launch, self._options.command_seconds, output)
            return replace(finished, created=tuple(created))
        except asyncio.CancelledError:
            if not output.total and not created:
                raise
            text, paths = output.text(), tuple(created)
            return Finished(0, text, output.truncated, timed_out=False, created=paths)

    async def _execute(self, launch: Launch, seconds: float, output: Sink) -> Finished:
        """Run a prepared program in the workspace."""
        return await run_process(
            launch.command,
            folder=self._workspace.root,
            environment=launch.environment,
            seconds=seconds,
            window=output,
        )

    def _start(self, text: str, launch: Launch) -> Observation:
        """Start a program in the background."""

        async def run(output: UnreadOutput) -> int:
            created: list[str] = []
            try:
                with launch.prepared() as created:
                    finished = await self._execute(launch, _BACKGROUND_SECONDS, output)
            finally:
                if created:
                    output.feed_line(created_mark(created))
            return finished.status

        output = UnreadOutput(self._options.result.characters - 200)
        command = self._background().start(text, output, run)
        how = f"Read it with command_output(id={command.id}), end it with command_stop(id={command.id})."
        return Observation(f"Started {command.id}. {how}")

    async def launch(self, program: Sequence[str]) -> Launch:
        """Return how to run a program as the sandbox allows; raises ToolError if a required one does not work."""
        environment = safe_environment(environ, self._options.keep_variables)
        used, sandbox = await self._reach(), self._options.sandbox
        if used == "outside" or sandbox is None:
            return Launch(program, environment, used, None)
        readable = self._workspace.also_readable
        command = await asyncio.to_thread(sandbox.wrap, program, used == "network", readable)
        return Launch(command, sandbox.environment(environment), used, sandbox)

    async def _reach(self) -> Reach:
        """Return what the command may reach; raises ToolError if the sandbox is required and does not work."""
        sandbox = self._options.sandbox
        if sandbox is None or sandbox.mode == "off":
            return "outside"
        problem = await asyncio.to_thread(lambda: sandbox.problem)
        if problem and sandbox.mode == "strict":
            raise ToolError(
                f"It was not run, because the sandbox is required ([sandbox] mode = strict). {problem}"
            )
        return "outside" if problem else reach.get()


def created_mark(paths: Sequence[str]) -> str:
    """Return the mark that names new paths that other programs execute later."""
    names = ", ".join(paths)
    return f"[created, and executed by other programs later, so the user should look at it first: {names}]"


def _background_observation(command: BackgroundCommand) -> Observation:
    output = command.output.take().rstrip("\n")
    return Observation("\n".join(filter(None, (output, state_mark(command.id, command.state)))))


def _observation(finished: Finished, hint: str, late: str) -> Observation:
    """Return the output followed by the exit status and similar marks, `late` at the time limit."""
    marks: list[str] = []
    if not finished.output.strip():
        marks.append(f"[no output.{hint}]" if finished.status == 0 else "[no output]")
    if finished.timed_out:
        marks.append(late)
    elif finished.status < 0:
        marks.append(f"[ended by signal {-finished.status}]")
    elif finished.status:
        marks.append(f"[exit status {finished.status}]")
    text = "\n".join([finished.output.rstrip("\n"), *marks] if finished.output.strip() else marks)
    return Observation(
        text, ok=finished.status == 0 and not finished.timed_out, truncated=finished.truncated
    )


async def passes(command: str, text: str, *, folder: Path, options: ToolOptions) -> bool:
    """Run a shell command with this text as standard input, and return whether it exits with 0.

    It has the limits of run_command. Raises ToolError if it cannot be run, takes too long, or is ended by a signal.
    """
    stdin = await asyncio.to_thread(temporary_file, text)
    try:
        finished = await run_process(
            ["/bin/sh", "-c", command],
            folder=folder,
            environment=safe_environment(environ, options.keep_variables),
            seconds=options.command_seconds,
            window=options.result.characters,
            stdin=stdin.fileno(),
        )
    finally:
        stdin.close()
    if finished.timed_out:
        raise ToolError(f"It took longer than {options.command_seconds:g} s.")
    if finished.status < 0:
        raise ToolError(f"It was ended by signal {-finished.status}.")
    if finished.status in _SHELL_FAILURES:
        raise ToolError(
            f"It cannot be run: {finished.output.strip() or f'exit status {finished.status}'}"
        )
    return finished.status == 0


def temporary_file(text: str) -> BinaryIO:
    """Return the text as an unnamed file, which unlike a pipe does not block the writer."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(text.encode("utf-8", "replace"))
    file.seek(0)
    return file
