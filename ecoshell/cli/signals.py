"""Signals: Ctrl-C and termination stop a turn in an orderly way; impatient users still get out."""

import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import NoReturn

HANGUPS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a program from outside; a closed terminal sends SIGHUP."""
_INTERRUPTS_TO_KILL = 3

Handler = Callable[[int, FrameType | None], object]


class Interrupted(Exception):
    """The user typed Ctrl-C at a prompt.

    A KeyboardInterrupt would end the event loop before it could be caught.
    """


def hangups_interrupt() -> AbstractContextManager[None]:
    """Treat termination and a closed terminal like Ctrl-C, so that an event loop shuts down in an orderly way."""
    return handling(dict.fromkeys(HANGUPS, _like_ctrl_c))


@contextmanager
def stopping(stop: Callable[[], object]) -> Generator[None]:
    """Call `stop` in the running loop at the first Ctrl-C or hang-up; raise KeyboardInterrupt at the third."""
    import asyncio  # most commands need no event loop

    loop = asyncio.get_running_loop()
    count = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count == 1:
            loop.call_soon_threadsafe(stop)
        elif count >= _INTERRUPTS_TO_KILL:
            interrupt(number, frame)

    with handling(dict.fromkeys((signal.SIGINT, *HANGUPS), handle)):
        yield


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal as Python handles Ctrl-C."""
    raise KeyboardInterrupt


@contextmanager
def handling(handlers: Mapping[int, Handler]) -> Generator[None]:
    """Install signal handlers, except for signals that are ignored on purpose (nohup, a background job)."""
    current = {number: signal.getsignal(number) for number in handlers}
    replaced = {
        number: handler for number, handler in current.items() if handler is not signal.SIG_IGN
    }
    for number in replaced:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def _like_ctrl_c(number: int, frame: FrameType | None) -> None:
    """Call the handler of Ctrl-C: asyncio's cancels the main task, where an exception would be raised anywhere."""
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else interrupt)(number, frame)
