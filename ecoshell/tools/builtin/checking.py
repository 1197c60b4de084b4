"""Has a program of the person's own say whether a text is right."""

import asyncio
import tempfile
from pathlib import Path
from typing import BinaryIO

from ecoshell.errors import ToolError
from ecoshell.secrecy import environ
from ecoshell.tools.builtin.options import ToolOptions
from ecoshell.tools.builtin.processes import run_process, safe_environment

_NOT_RUN = (126, 127)
"""With these a shell ends that cannot run, or does not find, what it was told to."""


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
