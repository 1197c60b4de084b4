"""Runs a tool so that its call ends in time, whatever the tool does, with an observation within its limits.

What blocks runs in a thread of its own that holds up nothing.
"""

import asyncio
import contextlib
import contextvars
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools.base import LASTING, Limits, Tool
from ecoshell.tools.measuring import measured
from ecoshell.worker import CancelToken, cancel_token, checkpoint

T = TypeVar("T")

GRACE = 2.0
"""Seconds a tool gets to put things in order once it is called off."""

_MARKS = 200
"""Characters for the marks of a tool that has cut its result itself."""
_under_way: set[asyncio.Task[Observation]] = set()
"""Also those that run on though nobody waits for them any more: asyncio itself holds tasks weakly."""


async def contained(tool: Tool, arguments: Mapping[str, Any], limits: Limits) -> Observation:
    """Run a tool, measured, within the limits of its time and of what it may say.

    Cancelling is raised after GRACE seconds at most; a tool that has not ended by then, or by then after its time was
    up, runs on, and what comes of it is dropped. Raises what the tool raises.
    """
    name, started = tool.document.name, time.monotonic()
    held = CancelToken(started + limits.seconds)
    # In a task of its own. Nothing waits for it but the call: a loop that is closed would wait for every task that
    # asyncio has registered.
    running = asyncio.create_task(_run(tool, arguments, limits, held))
    _under_way.add(running)
    running.add_done_callback(_forget)
    asyncio._unregister_task(running)  # pyright: ignore[reportPrivateUsage] - asyncio documents it, for other loops
    running._log_destroy_pending = False  # pyright: ignore - as asyncio.gather does
    try:
        await asyncio.wait([running], timeout=limits.seconds)
        in_time = running.done() and time.monotonic() < held.deadline  # what ends at its deadline was ended by it
    finally:
        held.cancelled.set()
        if not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=GRACE)
    if not in_time:
        text = f"{name} was stopped: it took longer than {limits.seconds:g} s."
        if not running.done():
            text += " It does not let itself be ended: it runs on, and what comes of it is dropped."
        if tool.effects & LASTING:
            text += " What it had changed by then stays: look at that before you call it again."
        else:
            text += " Give it less to do, or go on without it."
        return Observation(text, ok=False, seconds=time.monotonic() - started)
    if running.cancelled():
        raise ToolError(f"{name} failed: it called itself off.")
    return running.result()


async def _run(tool: Tool, arguments: Mapping[str, Any], limits: Limits, held: CancelToken) -> Observation:
    name = tool.document.name

    async def bounded() -> Observation:
        return sound(name, await tool.run(arguments), limits)

    cancel_token.set(held)
    try:
        return await measured(bounded)
    except (SystemExit, GeneratorExit) as leaving:  # in a task of its own they would end the loop, or the turn
        raise ToolError(f"{name} failed: it tried to end the program.") from leaving


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


def truncation_mark(shown: int, total: int | None, what: str = "characters") -> str:
    """The words that stand where something was left out; `total` is None where nobody has counted."""
    if total is None:
        return f"[truncated: only the first {shown} {what} shown]"
    return f"[truncated: {shown} of {total} {what} shown]"


def clip(text: str, characters: int) -> tuple[str, bool]:
    """The text, or its beginning and the mark; and whether anything was left out.

    Half a surrogate pair, which cannot be sent or stored, is escaped.
    """
    plain = str.__str__(text)  # of a class of its own, which may do as it likes
    head = plain[: characters + 1]  # cut before it is encoded: it may be a gigabyte
    storable = head.encode("utf-8", "backslashreplace").decode()
    total = len(storable) + len(plain) - len(head)
    if total <= characters:
        return storable, False
    return f"{storable[:characters].rstrip()}\n{truncation_mark(characters, total)}", True


def sound(name: str, found: object, limits: Limits) -> Observation:
    """A tool's observation within the limits, without what only guards say of a call.

    Raises ToolError when it is no observation, or one of wrong parts.
    """
    if not isinstance(found, Observation):
        raise ToolError(f"{name} failed: it gave {type(found).__name__} in place of an observation.")
    for part, kind in (("text", str), ("ok", bool), ("truncated", bool), ("changes", str)):
        value = getattr(found, part)
        if not isinstance(value, kind):
            raise ToolError(f"{name} failed: `{part}` of its result is {type(value).__name__}, not {kind.__name__}.")
    text, clipped = clip(found.text, limits.characters + (_MARKS if found.truncated else 0))
    changes, _ = clip(found.changes, limits.changes)
    return Observation(text, found.ok, found.truncated or clipped, changes=changes)


def told(name: str, outcome: Any, limits: Limits) -> Observation:
    """What a function gave, as an observation; anything but a text or an observation is told as JSON. May block."""
    if isinstance(outcome, Observation):
        return sound(name, outcome, limits)
    if isinstance(outcome, str):
        return sound(name, Observation(outcome), limits)
    pieces, most = list[str](), limits.characters
    length = 0
    encoder = json.JSONEncoder(ensure_ascii=False, default=str)
    for piece in encoder.iterencode(_head(outcome, most, iter(range(most)))):
        checkpoint()
        pieces.append(piece)
        length += len(piece)
        if length > most:
            text = f"{''.join(pieces)[:most]}\n{truncation_mark(most, None)}"
            return sound(name, Observation(text, truncated=True), limits)
    return sound(name, Observation("".join(pieces)), limits)


def failed(name: str, failure: BaseException, limits: Limits) -> Observation:
    """How a tool failed, in words for the model."""
    if isinstance(failure, ToolError):
        return sound(name, Observation(str(failure), ok=False), limits)
    words = type(failure).__name__
    with contextlib.suppress(Exception):  # a fence: even what says how a tool failed may be anybody's code
        words = f"{words}: {failure}"
    return sound(name, Observation(f"{name} failed: {words}", ok=False), limits)


def _head(value: Any, most: int, room: Iterator[int]) -> Any:
    """So much of a value as the first `most` characters of its JSON can show; `room` counts its parts.

    What is left out of a long text or a long list would stand behind those, so it need not be encoded.
    """
    if isinstance(value, str | bytes):
        return value[:most]
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_head(key, most, room): _head(inner, most, room) for (key, inner), _ in zip(items, room, strict=False)}
    if isinstance(value, list | tuple):
        inside = cast("list[Any] | tuple[Any, ...]", value)
        return [_head(inner, most, room) for inner, _ in zip(inside, room, strict=False)]
    return value
