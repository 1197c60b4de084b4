"""The boundary of the program: errors, Ctrl-C and closed pipes become a message and an exit status."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable
from typing import TextIO, cast

from ecoshell.errors import EcoshellError
from ecoshell.messages import visible
from ecoshell.paths import NO_ROOM
from ecoshell.secrecy import mask_secrets

INTERRUPTED = 130
PIPE_CLOSED = 141
"""The status a shell reports for a program that SIGPIPE ended."""


def fenced(command: Callable[[], int]) -> int:
    """Run a command; return its exit status, also after an expected error, Ctrl-C or a closed pipe."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # closed by the caller: the next file, such as a database, would get its number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - open until the exit
    try:
        sys.stdout, sys.stderr = _lossless(sys.stdout), _lossless(sys.stderr)
        status = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return PIPE_CLOSED
    except OSError as error:
        if error.errno not in NO_ROOM | {errno.EIO}:
            raise
        _discard_output()
        target = error.filename or "The output"
        warn(f"{target} could not be written: {error.strerror}.", fix="Free some space.")
        return 1
    except EcoshellError as error:
        with contextlib.suppress(BrokenPipeError):
            print(error_text(error), file=sys.stderr)
        return error.exit_status
    return status


def _lossless(stream: TextIO) -> TextIO:
    """The stream such that everything is printed: also on a terminal without UTF-8, and despite signals.

    Without a buffer (PYTHONUNBUFFERED), Python loses the rest of a long text if a signal interrupts its write. This
    flushes, which may fail on a full disk.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    wrapper, errors = cast("io.TextIOWrapper", stream), "backslashreplace"
    wrapper.reconfigure(errors=errors)
    is_own = stream in (sys.__stdout__, sys.__stderr__)
    if not (is_own and isinstance(cast("object", wrapper.buffer), io.RawIOBase)):
        return wrapper
    encoding = wrapper.encoding
    return open(wrapper.fileno(), "w", 1, encoding, errors, closefd=False)


def warn(message: str, *, fix: str = "") -> None:
    """Print a message on standard error; the command continues."""
    print(error_text(EcoshellError(message, fix=fix)), file=sys.stderr)


def error_text(error: EcoshellError) -> str:
    """Format an error: what happened, what was kept and what to do, each on its own line."""
    parts = (f"ecoshell: {error.message}", error.kept, error.fix)
    return visible(mask_secrets("\n".join(part for part in parts if part)))


def _discard_output() -> None:
    """Redirect standard output to the null device; otherwise the interpreter's last flush reports an error."""
    with contextlib.suppress(OSError, ValueError):
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, sys.stdout.fileno())
        os.close(null_device)
