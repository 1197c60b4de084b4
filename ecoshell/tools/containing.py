"""Runs a tool so that its call ends in time, and soon after it is called off, whatever the tool does.

What blocks runs in a thread of its own that holds up nothing.
"""

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools.base import LASTING, Limited, Limits, Tool
from ecoshell.tools.measuring import measured
from ecoshell.tools.results import sound, stopped
from ecoshell.worker import Leash, leash

T = TypeVar("T")

GRACE = 2.0
"""Seconds a tool gets to put things in order once it is called off, and to say itself that its own time is up."""

_under_way: set[asyncio.Task[Observation]] = set()
"""Also those that run on though nobody waits for them any more: asyncio itself holds tasks weakly."""


@dataclass(frozen=True, slots=True)
class _Bounded:
    """A tool whose observations are within its limits."""

    tool: Tool
    limits: Limits

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        return sound(self.tool.document.name, await self.tool.run(arguments), self.limits)


async def contained(tool: Tool, arguments: Mapping[str, Any], limits: Limits) -> Observation:
    """Run a tool, measured, within the limits of its time and of what it may say.

    Cancelling is raised after GRACE seconds at most; a tool that has not ended by then, or by then after its time was
    up, runs on, and what comes of it is dropped. Raises what the tool raises.
    """
    name, started = tool.document.name, time.monotonic()
    held = Leash(started + limits.seconds)
    running = _begin(_Bounded(tool, limits), arguments, held)
    try:
        await asyncio.wait([running], timeout=limits.seconds + (GRACE if isinstance(tool, Limited) else 0))
        in_time = running.done()
    finally:
        held.let_go.set()
        await _call_off(running)
    if not in_time:
        lasting, runs_on = bool(tool.effects & LASTING), not running.done()
        text = stopped(name, limits.seconds, lasting=lasting, runs_on=runs_on)
        return Observation(text, ok=False, seconds=time.monotonic() - started)
    if running.cancelled():
        raise ToolError(f"{name} failed: it called itself off.")
    return running.result()


def _begin(tool: _Bounded, arguments: Mapping[str, Any], held: Leash) -> asyncio.Task[Observation]:
    """The tool at work in a task of its own.

    Nothing waits for it but the call: a loop that is closed would wait for every task that asyncio has registered.
    """
    running = asyncio.create_task(_run(tool, arguments, held))
    _under_way.add(running)
    running.add_done_callback(_forget)
    asyncio._unregister_task(running)  # pyright: ignore[reportPrivateUsage] - asyncio documents it, for other loops
    running._log_destroy_pending = False  # pyright: ignore - as asyncio.gather does
    return running


async def _run(tool: _Bounded, arguments: Mapping[str, Any], held: Leash) -> Observation:
    leash.set(held)
    try:
        return await measured(tool, arguments)
    except (SystemExit, GeneratorExit) as leaving:  # in a task of its own they would end the loop, or the turn
        raise ToolError(f"{tool.tool.document.name} failed: it tried to end the program.") from leaving


async def _call_off(running: asyncio.Task[Observation]) -> None:
    if not running.done():
        running.cancel()
        await asyncio.wait([running], timeout=GRACE)


def _forget(ended: asyncio.Task[Observation]) -> None:
    _under_way.discard(ended)
    if not ended.cancelled():
        ended.exception()  # seen, so that nobody complains of one that nobody waited for


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
