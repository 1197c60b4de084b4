"""Run programs in the workspace: run_command, run_python."""

import sys
from collections.abc import Sequence
from typing import Annotated

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.secrecy import environ
from ecoshell.tools.base import Subject
from ecoshell.tools.builtin.options import ToolOptions
from ecoshell.tools.builtin.processes import Finished, run_process, safe_environment
from ecoshell.tools.workspace import Workspace

_RUN = "import os, sys; sys.path.append(os.getcwd()); exec(compile(sys.argv.pop(), '<code>', 'exec'))"
"""What is in the workspace can be imported, and hides no module of Python's own."""
_LONGEST = 100_000
"""Characters of a command; the system takes 128 KiB in one argument."""


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
