"""Functions that block, each in a thread of its own that holds up nothing."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What a function gives or raises, called in this context; once this is cancelled, nobody waits for it any more.

    A function that never ends keeps neither another from running nor the program from ending, as it would in a pool:
    the interpreter waits at its end for every thread of those.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    outcome: Future[T] = Future()
    told = asyncio.Event()

    def run() -> None:
        try:
            outcome.set_result(context.run(work))
        except BaseException as failure:  # noqa: BLE001 - whatever it is, it is raised where it is awaited
            outcome.set_exception(failure)
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(told.set)

    threading.Thread(target=run, name="tool", daemon=True).start()
    await told.wait()
    return outcome.result()
