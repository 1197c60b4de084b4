"""Run tools within their limits of time and result size.

Blocking work runs in daemon threads that delay neither other tools nor the end of the program.
"""

import asyncio
import contextlib
import contextvars
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from ecoshell.errors import ToolError
from ecoshell.images import MAX_IMAGES
from ecoshell.messages import Image, Observation
from ecoshell.tools import LASTING, Limits, Tool
from ecoshell.tools.measuring import measured
from ecoshell.worker import CancelToken, cancel_token

T = TypeVar("T")

_MARKS = 200  # extra characters for the truncation marks of a tool
_FIELD_TYPES = {"text": str, "ok": bool, "truncated": bool, "changes": str, "images": tuple}
_running_tasks: set[asyncio.Task[Observation]] = set()  # asyncio holds tasks weakly


async def contained(
    tool: Tool,
    arguments: Mapping[str, Any],
    limits: Limits,
    keep: Callable[[Observation], None] = lambda result: None,
) -> Observation:
    """Run a tool within its limits of time and result size, and measure it.

    A cancellation is raised after at most `limits.grace` seconds; `keep` receives what the tool returned in that time.
    A tool that does not end within that time after a timeout or cancellation continues in the background, and its
    result is dropped. Raises what the tool raises.
    """
    name, started = tool.schema.name, time.monotonic()
    token = CancelToken(started + limits.seconds)
    # A closing loop waits for all registered tasks, so this one is unregistered: a tool that never ends must not
    # delay the end of the program.
    running = asyncio.create_task(_run(tool, arguments, limits, token))
    _running_tasks.add(running)
    running.add_done_callback(_forget)
    asyncio._unregister_task(running)  # pyright: ignore[reportPrivateUsage] - asyncio documents it, for other loops
    running._log_destroy_pending = False  # pyright: ignore - as asyncio.gather does
    is_stopped = True
    try:
        await asyncio.wait([running], timeout=limits.seconds)
        # Otherwise the deadline ended it.
        in_time, is_stopped = running.done() and time.monotonic() < token.deadline, False
    finally:
        token.cancelled.set()
        if not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=limits.grace)
        if is_stopped and running.done() and not (running.cancelled() or running.exception()):
            keep(running.result())
    if not in_time:
        text = f"{name} was stopped: it took longer than {limits.seconds:g} s."
        if not running.done():
            text += " It could not be ended and continues in the background; its result is dropped."
        if tool.effects & LASTING:
            text += " Its changes up to that point remain: check them before you call it again."
        else:
            text += " Give it less to do, or continue without it."
        return Observation(text, ok=False, seconds=time.monotonic() - started)
    if running.cancelled():
        raise ToolError(f"{name} failed: it cancelled itself.")
    return running.result()


async def _run(
    tool: Tool, arguments: Mapping[str, Any], limits: Limits, token: CancelToken
) -> Observation:
    name = tool.schema.name

    async def run() -> Observation:
        return validated(name, await tool.run(arguments), limits)

    cancel_token.set(token)
    try:
        return await measured(run)
    except (SystemExit, GeneratorExit) as error:  # They would end the event loop or the turn.
        raise ToolError(f"{name} failed: it tried to end the program.") from error


def _forget(task: asyncio.Task[Observation]) -> None:
    _running_tasks.discard(task)
    if not task.cancelled():
        task.exception()  # Retrieve it so that asyncio does not log it.


async def in_thread(work: Callable[[], T]) -> T:
    """Call a blocking function in a daemon thread with this context; a cancelled caller does not wait for it.

    Unlike threads of a pool, one that never ends delays neither other tools nor the end of the program.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    outcome: Future[T] = Future()
    finished = asyncio.Event()

    def run() -> None:
        try:
            outcome.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised to the awaiting caller
            outcome.set_exception(error)
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(finished.set)

    threading.Thread(target=run, name="tool", daemon=True).start()
    await finished.wait()
    return outcome.result()


def truncation_mark(count: int, total: int, unit: str = "characters") -> str:
    """Return the mark of a truncated text."""
    return f"[truncated: {count} of {total} {unit} shown]"


def clip(text: str, characters: int) -> tuple[str, bool]:
    """Truncate a text and return it with whether it was cut; escapes unpaired surrogates."""
    plain = str.__str__(text)  # A subclass may override methods.
    head = plain[: characters + 1]  # Cut before encoding, because the text may be huge.
    storable = head.encode("utf-8", "backslashreplace").decode()
    total = len(storable) + len(plain) - len(head)
    if total <= characters:
        return storable, False
    return f"{storable[:characters].rstrip()}\n{truncation_mark(characters, total)}", True


def validated(name: str, result: object, limits: Limits) -> Observation:
    """Return a tool's observation within the limits, without fields reserved for guards.

    Raises ToolError for other types and for wrong field types.
    """
    if not isinstance(result, Observation):
        wrong = type(result).__name__
        raise ToolError(f"{name} failed: it returned {wrong} instead of an observation.")
    for part, kind in _FIELD_TYPES.items():
        value = getattr(result, part)
        if not isinstance(value, kind):
            problem = f"`{part}` of its result is {type(value).__name__}, not {kind.__name__}"
            raise ToolError(f"{name} failed: {problem}.")
    limit = limits.result.characters + (_MARKS if result.truncated else 0)
    text, clipped = clip(result.text, limit)
    changes, _ = clip(result.changes, limits.changes)
    candidates = cast("tuple[object, ...]", result.images)
    images = tuple(image for image in candidates if isinstance(image, Image))[:MAX_IMAGES]
    is_cut, obstacle = result.truncated or clipped, result.obstacle
    return Observation(text, result.ok, is_cut, changes=changes, images=images, obstacle=obstacle)


def to_observation(name: str, outcome: Any, limits: Limits) -> Observation:
    """Convert a function's result to an observation; other types become JSON. May block."""
    if isinstance(outcome, Observation):
        return validated(name, outcome, limits)
    if not isinstance(outcome, str):  # in pieces, which do not keep other threads waiting
        encoder = json.JSONEncoder(ensure_ascii=False, default=str)
        outcome = "".join(encoder.iterencode(outcome))
    return validated(name, Observation(outcome), limits)


def failed(name: str, error: BaseException, limits: Limits) -> Observation:
    """Return the observation of a failed tool."""
    if isinstance(error, ToolError):
        return validated(name, Observation(str(error), ok=False), limits)
    description = type(error).__name__
    with contextlib.suppress(Exception):  # Formatting a foreign exception may fail too.
        description = f"{description}: {error}"
    return validated(name, Observation(f"{name} failed: {description}", ok=False), limits)
