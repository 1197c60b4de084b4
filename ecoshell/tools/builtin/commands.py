"""Run programs in the workspace: run_command, run_python, and a program that checks a text."""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, BinaryIO

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.secrecy import environ
from ecoshell.tools.base import Subject, ToolOptions
from ecoshell.tools.builtin.processes import Finished, run_process, safe_environment
from ecoshell.tools.workspace import Workspace

_RUN = "import os, sys; sys.path.append(os.getcwd()); exec(compile(sys.argv.pop(), '<code>', 'exec'))"
"""What is in the workspace can be imported, and hides no module of Python's own."""
_LONGEST = 100_000
"""Characters of a command; the system takes 128 KiB in one argument."""
_NOT_RUN = (126, 127)
"""With these a shell ends that cannot run, or does not find, what it was told to."""


class CommandTools:
    """The program runners of one workspace; each public method is a tool."""

    def __init__(self, workspace: Workspace, options: ToolOptions) -> None:
        self._workspace = workspace
        self._options = options

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
            window=self._options.output_characters - 200,  # room for the marks
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
            window=options.output_characters,
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
