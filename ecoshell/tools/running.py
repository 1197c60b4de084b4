"""Run tools within their limits of time and result size, and measure time and memory.

Blocking work runs in daemon threads that delay neither other tools nor the end of the program.
"""

import asyncio
import contextlib
import contextvars
import json
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from ecoshell.errors import ToolError
from ecoshell.images import MAX_IMAGES
from ecoshell.messages import Footprint, Image, Observation
from ecoshell.tools import LASTING, Limits, Tool
from ecoshell.tools.gpu import gpu_mb, may_have_gpu
from ecoshell.worker import CancelToken, cancel_token, checkpoint

_KB_PER_MB = 1 << 10
_FIRST_INTERVAL, _MAX_INTERVAL = 0.005, 0.1
"""Seconds between measurements of a program, doubled up to the maximum."""
_GPU_INTERVAL = 0.5
_MAX_PROGRAMS = 64
"""Maximum number of measured descendants of a program."""
_PEAK = re.compile(rb"^VmHWM:\s*(\d+) kB", re.MULTILINE)


@dataclass(slots=True, eq=False)
class Meter:
    """Measurements of one run."""

    is_exclusive: bool = True
    """Whether no other run overlapped."""
    start_mb: float | None = None
    programs: bool = False
    """Whether the tool started a program."""
    program_mb: float | None = None
    """Peak memory of that program and its descendants."""
    worker_mb: tuple[float | None, float | None] | None = None
    """Memory of the worker process before the run and its peak; None without a worker."""
    program_gpu_mb: float | None = None
    gpu_due: float = 0.0
    """The time of the next query, which starts a program."""


_current_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)
_meters: list[Meter] = []
"""All meters of this process, because overlapping runs share its memory figure."""


async def measured(run: Callable[[], Awaitable[Observation]]) -> Observation:
    """Run a tool and add its duration and memory to the observation; raises what the tool raises."""
    meter = Meter(is_exclusive=not _meters)
    for running_meter in _meters:
        running_meter.is_exclusive = False
    _meters.append(meter)
    token = _current_meter.set(meter)
    try:
        if meter.is_exclusive:
            meter.start_mb = forget_peak()
        started = time.monotonic()
        observation = await run()
        seconds = time.monotonic() - started
    finally:
        _current_meter.reset(token)
        _meters.remove(meter)
    return replace(observation, seconds=seconds, footprint=_footprint(meter))


@contextlib.asynccontextmanager
async def following(pid: int) -> AsyncGenerator[None]:
    """Measure a running program for the tool that started it."""
    meter = _current_meter.get()
    if meter is None:
        yield
        return
    meter.programs = True

    # Misses what the program uses between the last measurement and its end.
    async def poll() -> None:
        interval = _FIRST_INTERVAL
        while True:
            await asyncio.sleep(interval)
            await _update_peaks(meter, pid)
            interval = min(2 * interval, _MAX_INTERVAL)

    await _update_peaks(meter, pid)
    polling = asyncio.create_task(poll())
    try:
        yield
    finally:
        polling.cancel()


def record_worker(start_mb: float | None, peak_mb: float | None) -> None:
    """Record the memory of a worker process before the run and at its peak, in MB."""
    meter = _current_meter.get()
    if meter is not None:
        meter.worker_mb = (start_mb, peak_mb)


def _footprint(meter: Meter) -> Footprint:
    """Return the memory of the run; all memory of a program counts as constant.

    GPU memory is measured for programs only: in this process it belongs to the local model.
    """
    gpu = 0.0 if not may_have_gpu() else None
    if meter.programs:
        is_measured = meter.program_mb is not None
        instant, gpu_instant = (0.0, 0.0) if is_measured else (None, gpu)
        return Footprint(meter.program_mb, instant, meter.program_gpu_mb, gpu_instant)
    if meter.worker_mb is not None:
        start, peak = meter.worker_mb
        return Footprint(
            start, None if start is None or peak is None else max(0.0, peak - start), 0.0, 0.0
        )
    if not meter.is_exclusive or meter.start_mb is None:
        return Footprint(gpu_mb=gpu, gpu_instant_mb=gpu)
    peak = peak_mb("self")
    instant = None if peak is None else max(0.0, peak - meter.start_mb)
    return Footprint(meter.start_mb, instant, gpu, gpu)


async def _update_peaks(meter: Meter, pid: int) -> None:
    """Update the peaks of a program and its descendants."""
    pids = _family(pid)
    peaks = [peak for peak in map(peak_mb, pids) if peak is not None]
    if not peaks:
        return
    meter.program_mb = max(meter.program_mb or 0.0, sum(peaks))
    if time.monotonic() >= meter.gpu_due:
        gpu = await asyncio.to_thread(gpu_mb, pids)
        meter.program_gpu_mb = gpu if gpu is None else max(meter.program_gpu_mb or 0.0, gpu)
        meter.gpu_due = time.monotonic() + _GPU_INTERVAL


def _family(pid: int) -> list[int]:
    """Return a process and its descendants, up to a maximum number."""
    pids = [pid]
    for member in pids:
        with contextlib.suppress(OSError):
            pids += map(
                int,
                Path(f"/proc/{member}/task/{member}/children").read_text(encoding="ascii").split(),
            )
        if len(pids) >= _MAX_PROGRAMS:
            break
    return pids


def forget_peak() -> float | None:
    """Reset the memory peak of this process and return its current memory; None if that is not possible."""
    descriptor = keep_measuring()
    if descriptor is None:
        return None
    try:
        os.write(descriptor, b"5")
    except OSError:
        return None
    return peak_mb("self")


@cache
def keep_measuring() -> int | None:
    """Open the file that resets the peak; a process that is not dumpable cannot open it later."""
    try:
        return os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return None


def peak_mb(pid: int | str) -> float | None:
    """Return the peak memory of a process in MB; None if it has ended or is not readable."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:  # noqa: PTH123 - on the path of every call
            status = file.read()
    except OSError:
        return None
    match = _PEAK.search(status)
    return int(match[1]) / _KB_PER_MB if match else None


T = TypeVar("T")

GRACE = 2.0
"""Seconds that a cancelled tool gets to clean up."""

_MARKS = 200
"""Extra characters for the truncation marks of a tool."""
_running_tasks: set[asyncio.Task[Observation]] = set()
"""Strong references, also to tools that outlive their call: asyncio holds tasks weakly."""


async def contained(tool: Tool, arguments: Mapping[str, Any], limits: Limits) -> Observation:
    """Run a tool within its limits of time and result size, and measure it.

    A cancellation is raised after at most `limits.grace` seconds. A tool that does not end within that time after a
    timeout or cancellation continues in the background, and its result is dropped. Raises what the tool raises.
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
    try:
        await asyncio.wait([running], timeout=limits.seconds)
        # Otherwise the deadline ended it.
        in_time = running.done() and time.monotonic() < token.deadline
    finally:
        token.cancelled.set()
        if not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=limits.grace)
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


def truncation_mark(count: int, total: int | None, unit: str = "characters") -> str:
    """Return the mark of a truncated text; `total` is None if unknown."""
    if total is None:
        return f"[truncated: only the first {count} {unit} shown]"
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
        raise ToolError(
            f"{name} failed: it returned {type(result).__name__} instead of an observation."
        )
    for part, kind in (
        ("text", str),
        ("ok", bool),
        ("truncated", bool),
        ("changes", str),
        ("images", tuple),
    ):
        value = getattr(result, part)
        if not isinstance(value, kind):
            raise ToolError(
                f"{name} failed: `{part}` of its result is {type(value).__name__}, not {kind.__name__}."
            )
    text, clipped = clip(
        result.text, limits.result.characters + (_MARKS if result.truncated else 0)
    )
    changes, _ = clip(result.changes, limits.changes)
    images = tuple(
        image for image in cast("tuple[object, ...]", result.images) if isinstance(image, Image)
    )
    is_cut, shown, obstacle = result.truncated or clipped, images[:MAX_IMAGES], result.obstacle
    return Observation(text, result.ok, is_cut, changes=changes, images=shown, obstacle=obstacle)


def to_observation(name: str, outcome: Any, limits: Limits) -> Observation:
    """Convert a function's result to an observation; other types become JSON. May block."""
    if isinstance(outcome, Observation):
        return validated(name, outcome, limits)
    if isinstance(outcome, str):
        return validated(name, Observation(outcome), limits)
    chunks = list[str]()
    limit = limits.result.characters
    length = 0
    encoder = json.JSONEncoder(ensure_ascii=False, default=str)
    for chunk in encoder.iterencode(_head(outcome, limit, iter(range(limit)))):
        checkpoint()
        chunks.append(chunk)
        length += len(chunk)
        if length > limit:
            text = f"{''.join(chunks)[:limit]}\n{truncation_mark(limit, None)}"
            return validated(name, Observation(text, truncated=True), limits)
    return validated(name, Observation("".join(chunks)), limits)


def failed(name: str, error: BaseException, limits: Limits) -> Observation:
    """Return the observation of a failed tool."""
    if isinstance(error, ToolError):
        return validated(name, Observation(str(error), ok=False), limits)
    description = type(error).__name__
    with contextlib.suppress(Exception):  # Formatting a foreign exception may fail too.
        description = f"{description}: {error}"
    return validated(name, Observation(f"{name} failed: {description}", ok=False), limits)


def _head(value: Any, limit: int, room: Iterator[int]) -> Any:
    """Cut a value to the parts that the first `limit` characters of its JSON can show; `room` limits their number."""
    if isinstance(value, str | bytes):
        return value[:limit]
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {
            key[:limit] if isinstance(key, str) else key: _head(inner, limit, room)
            for (key, inner), _ in zip(items, room, strict=False)
        }
    if isinstance(value, list | tuple):
        elements = cast("list[Any] | tuple[Any, ...]", value)
        return [_head(inner, limit, room) for inner, _ in zip(elements, room, strict=False)]
    return value
