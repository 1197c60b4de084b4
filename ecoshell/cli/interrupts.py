"""Ctrl-C, termination and a closed terminal: what each of them stops, and when."""

import asyncio
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import NoReturn

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
