"""The outermost fence of every command: signals, what may end it, how that is told, and with which exit status."""

import asyncio
import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import NoReturn

from ecoshell.errors import EcoshellError
from ecoshell.paths import NO_ROOM
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


HANGUPS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What ends a program from outside; a closed terminal sends SIGHUP."""

Handler = Callable[[int, FrameType | None], object]
_PATIENCE = 3
"""So many interrupts end the program even when it does not stop by itself."""


class Interrupted(Exception):
    """Ctrl-C was typed where a line was expected.

    A KeyboardInterrupt would end the event loop before anybody could catch it.
    """


def hangups_interrupt() -> AbstractContextManager[None]:
    """While it lasts, termination and a closed terminal raise KeyboardInterrupt, so that files are closed."""
    return handling(dict.fromkeys(HANGUPS, interrupt))


@contextmanager
def stopping(stop: Callable[[], object]) -> Generator[None]:
    """While it lasts, the first Ctrl-C or hang-up calls `stop` in the loop, the third raises KeyboardInterrupt."""
    loop = asyncio.get_running_loop()
    count = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count == 1:
            loop.call_soon_threadsafe(stop)
        elif count >= _PATIENCE:
            interrupt(number, frame)

    with handling(dict.fromkeys((signal.SIGINT, *HANGUPS), handle)):
        yield


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """The handler that does what Ctrl-C does by default."""
    raise KeyboardInterrupt


@contextmanager
def handling(handlers: Mapping[int, Handler]) -> Generator[None]:
    """Install signal handlers for a while, save for signals that are ignored on purpose (nohup, a background job)."""
    known = {number: signal.getsignal(number) for number in handlers}
    before = {number: handler for number, handler in known.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
