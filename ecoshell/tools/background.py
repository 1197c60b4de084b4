"""Commands that run while the agent does other work: started, read and stopped by tools, ended with the session."""

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from ecoshell.errors import ToolError
from ecoshell.events import BackgroundEnded, BackgroundStarted, Event
from ecoshell.tools.output import UnreadOutput

MAX_RUNNING = 8
MAX_KEPT = 32  # ended commands whose output is kept
COMMAND_OUTPUT = "command_output"
"""The tool that reads the output of a background command."""


def end_text(status: int | None) -> str:
    """`exit status 0`, or `stopped` without an exit status."""
    return "stopped" if status is None else f"exit status {status}"


def state_mark(command: str, state: str) -> str:
    """The last line of what the model reads of a command, such as `[b1: exit status 0]`."""
    return f"[{command}: {state}]"


@dataclass(eq=False)
class BackgroundCommand:
    """One command and what it printed since it was last read."""

    id: str
    command: str
    output: UnreadOutput
    started: float = field(default_factory=time.monotonic)
    task: "asyncio.Task[int] | None" = None
    ended: float | None = None
    status: int | None = None  # the exit status; None while it runs, and if it was stopped

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.started

    @property
    def state(self) -> str:
        """`running for 12 s`, `exit status 0` or `stopped`."""
        if self.ended is None:
            return f"running for {self.seconds:.0f} s"
        return end_text(self.status)


Run = Callable[
    [UnreadOutput], Coroutine[Any, Any, int]
]  # runs a program and returns its exit status


@dataclass(eq=False)
class BackgroundCommands:
    """The background commands of a session."""

    report: Callable[[Event], None] = lambda event: None  # receives starts and ends
    count: int = 0
    """The number of commands that the session has started, also before it was resumed."""
    _commands: dict[str, BackgroundCommand] = field(default_factory=dict[str, BackgroundCommand])

    def __reduce__(self) -> "tuple[type[BackgroundCommands], tuple[()]]":
        """Pickle as empty: tools in a worker process neither start nor read commands."""
        return BackgroundCommands, ()

    @property
    def running(self) -> tuple[BackgroundCommand, ...]:
        """The commands that run, oldest first."""
        return tuple(command for command in self._commands.values() if command.ended is None)

    def start(self, text: str, output: UnreadOutput, run: Run) -> BackgroundCommand:
        """Start a command and return it at once; raises ToolError if too many run."""
        if len(self.running) >= MAX_RUNNING:
            names = ", ".join(command.id for command in self.running)
            text = f"{MAX_RUNNING} commands run in the background ({names})"
            raise ToolError(f"{text}: end one with command_stop first.")
        self.count += 1
        command = BackgroundCommand(f"b{self.count}", text, output)
        self._commands[command.id] = command
        while len(self._commands) > MAX_RUNNING + MAX_KEPT:
            oldest = next(each for each in self._commands.values() if each.ended is not None)
            del self._commands[oldest.id]
        self.report(BackgroundStarted(command.id, text))
        # A context of its own, so that the measurement of the tool that started it ends with that tool.
        command.task = asyncio.create_task(run(output), context=contextvars.Context())
        command.task.add_done_callback(lambda task: self._end(command, task))
        return command

    def get(self, id_: str) -> BackgroundCommand:
        """Return a command; raises ToolError for an unknown ID."""
        if id_ not in self._commands:
            names = ", ".join(self._commands) or "none was started"
            raise ToolError(f"No background command has the ID {id_!r}; there are: {names}.")
        return self._commands[id_]

    async def wait(self, command: BackgroundCommand, seconds: float) -> None:
        """Wait for the end of a command, but not longer than this."""
        if command.task is not None:
            await asyncio.wait([command.task], timeout=seconds)

    async def stop(self, command: BackgroundCommand) -> None:
        """End a command with all its processes."""
        if command.task is not None:
            command.task.cancel()
            await asyncio.wait([command.task])

    async def aclose(self) -> None:
        """End all commands and forget them."""
        running = [command.task for command in self.running if command.task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        self._commands.clear()

    def _end(self, command: BackgroundCommand, task: "asyncio.Task[int]") -> None:
        command.ended = time.monotonic()
        if not task.cancelled():
            failure = task.exception()
            if failure is None:
                command.status = task.result()
            else:
                command.output.feed_line(str(failure))
        seconds = round(command.seconds, 3)
        self.report(BackgroundEnded(command.id, command.command, command.status, seconds))
