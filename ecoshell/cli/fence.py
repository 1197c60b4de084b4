"""The outermost fence of every command: what may end it, how that is told, and with which exit status."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable

from ecoshell.errors import EcoshellError
from ecoshell.files import NO_ROOM
from ecoshell.secrecy import masked
from ecoshell.untrusted import visible

INTERRUPTED = 130
PIPE_CLOSED = 141
"""What a shell reports of a program that SIGPIPE ended."""


def fenced(command: Callable[[], int]) -> int:
    """Run a command; expected errors are told on standard error, and Ctrl-C and a closed pipe become a status."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed before the start: else a database would get its number
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as it runs
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # what was printed before is written now, and may find no room
                stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 still shows everything
        status = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return PIPE_CLOSED
    except OSError as error:
        if error.errno not in NO_ROOM | {errno.EIO}:
            raise
        _drop_output()
        what = error.filename or "The output"
        print(
            told(EcoshellError(f"{what} could not be written: {error.strerror}.", fix="Free some space.")),
            file=sys.stderr,
        )
        return 1
    except EcoshellError as error:
        with contextlib.suppress(BrokenPipeError):
            print(told(error), file=sys.stderr)
        return error.exit_status
    return status


def told(error: EcoshellError) -> str:
    """The error for a person: what happened, what was kept, what to do, each on a line of its own."""
    parts = (f"ecoshell: {error.message}", error.kept, error.fix)
    return visible(masked("\n".join(part for part in parts if part)))


def _drop_output() -> None:
    """Point standard output at nothing, or the interpreter complains when it flushes on its way out."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
