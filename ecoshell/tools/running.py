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
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

from ecoshell.errors import ToolError
from ecoshell.images import MAX_IMAGES
from ecoshell.messages import Footprint, Image, Observation
from ecoshell.tools import LASTING, Limits, Tool
from ecoshell.worker import CancelToken, cancel_token, checkpoint

_KB_PER_MB, _BYTES_PER_MB = 1 << 10, 1 << 20
_FIRST_LOOK, _LAST_LOOK = 0.005, 0.1
"""First and longest interval in seconds between measurements of a program."""
_MAX_PROGRAMS = 64
"""Maximum number of measured descendants of a program."""
_PEAK = re.compile(rb"^VmHWM:\s*(\d+) kB", re.MULTILINE)
_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dxg")
"""Path prefixes of GPU devices: NVIDIA, AMD, and WSL."""
_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
"""Devices that exist on every machine with a GPU."""


@dataclass(slots=True, eq=False)
class Meter:
    """Measurements of one run."""

    alone: bool = True
    """Whether no other run overlapped."""
    start_mb: float | None = None
    gpu_start_mb: float | None = None
    programs: bool = False
    """Whether the tool started a program."""
    program_mb: float | None = None
    """Peak memory of that program and its descendants."""
    worker_mb: tuple[float | None, float | None] | None = None
    """Memory of the worker process before the run and its peak; None without a worker."""
    program_gpu_mb: float | None = None


_present: ContextVar[Meter | None] = ContextVar("meter", default=None)
_meters: list[Meter] = []
"""All meters of this process, because overlapping runs share its memory figure."""


async def measured(run: Callable[[], Awaitable[Observation]]) -> Observation:
    """Run a tool and add its duration and memory to the observation; raises what the tool raises."""
    meter = Meter(alone=not _meters)
    for other in _meters:
        other.alone = False
    _meters.append(meter)
    token = _present.set(meter)
    try:
        if meter.alone:
            if gpu_there():
                meter.gpu_start_mb = await asyncio.to_thread(gpu_mb, (os.getpid(),))
            meter.start_mb = forget_peak()
        started = time.monotonic()
        observation = await run()
        seconds = time.monotonic() - started
    finally:
        _present.reset(token)
        _meters.remove(meter)
    return replace(observation, seconds=seconds, footprint=await _footprint(meter))


@contextlib.asynccontextmanager
async def following(pid: int) -> AsyncGenerator[None]:
    """Measure a running program for the tool that started it."""
    meter = _present.get()
    if meter is None:
        yield
        return
    meter.programs = True

    async def keep_looking() -> None:  # what it took between the last look and its end is not seen
        pause = _FIRST_LOOK
        while True:
            await asyncio.sleep(pause)
            await _look(meter, pid)
            pause = min(2 * pause, _LAST_LOOK)

    await _look(meter, pid)
    looking = asyncio.create_task(keep_looking())
    try:
        yield
    finally:
        looking.cancel()


def worked(start_mb: float | None, peak_mb: float | None) -> None:
    """Record the memory of a worker process before the run and at its peak, in MB."""
    meter = _present.get()
    if meter is not None:
        meter.worker_mb = (start_mb, peak_mb)


async def _footprint(meter: Meter) -> Footprint:
    """Return the memory of the run; all memory of a program counts as constant."""
    gpu = 0.0 if not gpu_there() else None
    if meter.programs:
        known = meter.program_mb is not None
        return Footprint(meter.program_mb, 0.0 if known else None, meter.program_gpu_mb, 0.0 if known else gpu)
    if meter.worker_mb is not None:
        start, peak = meter.worker_mb
        return Footprint(start, None if start is None or peak is None else max(0.0, peak - start), 0.0, 0.0)
    if not meter.alone or meter.start_mb is None:
        return Footprint(gpu_mb=gpu, gpu_instant_mb=gpu)
    peak = peak_mb("self")
    instant = None if peak is None else max(0.0, peak - meter.start_mb)
    if gpu is not None:
        return Footprint(meter.start_mb, instant, gpu, gpu)
    ended = await asyncio.to_thread(gpu_mb, (os.getpid(),))
    started = meter.gpu_start_mb
    grown = None if ended is None or started is None else max(0.0, ended - started)
    return Footprint(meter.start_mb, instant, started, grown)


async def _look(meter: Meter, pid: int) -> None:
    """Update the peaks of a program and its descendants."""
    pids = _family(pid)
    peaks = [peak for peak in map(peak_mb, pids) if peak is not None]
    if not peaks:
        return
    meter.program_mb = max(meter.program_mb or 0.0, sum(peaks))
    held = await asyncio.to_thread(gpu_mb, pids) if gpu_there() else 0.0
    meter.program_gpu_mb = held if held is None else max(meter.program_gpu_mb or 0.0, held)


def _family(pid: int) -> list[int]:
    """Return a process and its known descendants."""
    pids = [pid]
    for member in pids:
        with contextlib.suppress(OSError):
            pids += map(int, Path(f"/proc/{member}/task/{member}/children").read_text(encoding="ascii").split())
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
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:  # noqa: PTH123 - this is on the way of every call
            status = file.read()
    except OSError:
        return None
    match = _PEAK.search(status)
    return int(match[1]) / _KB_PER_MB if match else None


# -- GPUs


@cache
def gpu_there() -> bool:
    """Return whether this machine may have a GPU."""
    return not Path("/proc/self/fd").is_dir() or any(device.exists() for device in _DEVICES)


def gpu_mb(pids: Collection[int]) -> float | None:
    """Return the GPU memory of these processes in MB (2^20); 0 if none has a GPU open, None if unknown.

    Queries the NVIDIA driver, which does not report processes inside a container. May block.
    """
    using = {pid for pid in pids if _has_gpu_open(pid)} if gpu_there() else set[int]()
    if not using:
        return 0.0
    nvml: Any = import_module("pynvml")
    listed: set[int] = set()
    used = 0
    try:
        nvml.nvmlInit()  # counted by the driver: it begins once
        for index in range(nvml.nvmlDeviceGetCount()):
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(index)):
                if process.pid in using and process.usedGpuMemory is not None:
                    listed.add(process.pid)
                    used += process.usedGpuMemory
    except nvml.NVMLError:
        return None
    return used / _BYTES_PER_MB if listed == using else None


def _has_gpu_open(pid: int) -> bool:
    """Return whether a process has a GPU open; assumed if its files are not readable."""
    try:
        opened = list(Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return True
    for entry in opened:
        with contextlib.suppress(OSError):  # closed in the meantime
            if str(entry.readlink()).startswith(_GPUS):
                return True
    return False


T = TypeVar("T")

GRACE = 2.0
"""Seconds that a cancelled tool gets to clean up."""

_MARKS = 200
"""Extra characters for the truncation marks of a tool."""
_running_tasks: set[asyncio.Task[Observation]] = set()
"""Strong references, also to tools that outlive their call: asyncio holds tasks weakly."""


async def contained(tool: Tool, arguments: Mapping[str, Any], limits: Limits) -> Observation:
    """Run a tool within its limits of time and result size, and measure it.

    A cancellation is raised after at most GRACE seconds. A tool that does not end within that time after a timeout or
    cancellation continues in the background, and its result is dropped. Raises what the tool raises.
    """
    name, started = tool.schema.name, time.monotonic()
    token = CancelToken(started + limits.seconds)
    # In a task of its own. Nothing waits for it but the call: a loop that is closed would wait for every task that
    # asyncio has registered.
    running = asyncio.create_task(_run(tool, arguments, limits, token))
    _running_tasks.add(running)
    running.add_done_callback(_forget)
    asyncio._unregister_task(running)  # pyright: ignore[reportPrivateUsage] - asyncio documents it, for other loops
    running._log_destroy_pending = False  # pyright: ignore - as asyncio.gather does
    try:
        await asyncio.wait([running], timeout=limits.seconds)
        in_time = running.done() and time.monotonic() < token.deadline  # what ends at its deadline was ended by it
    finally:
        token.cancelled.set()
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
    name = tool.schema.name

    async def bounded() -> Observation:
        return sound(name, await tool.run(arguments), limits)

    cancel_token.set(held)
    try:
        return await measured(bounded)
    except (SystemExit, GeneratorExit) as leaving:  # in a task of its own they would end the loop, or the turn
        raise ToolError(f"{name} failed: it tried to end the program.") from leaving


def _forget(ended: asyncio.Task[Observation]) -> None:
    _running_tasks.discard(ended)
    if not ended.cancelled():
        ended.exception()  # Retrieve it so that asyncio does not log it.


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
        except BaseException as failure:  # noqa: BLE001 - whatever it is, it is raised where it is awaited
            outcome.set_exception(failure)
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(finished.set)

    threading.Thread(target=run, name="tool", daemon=True).start()
    await finished.wait()
    return outcome.result()


def truncation_mark(shown: int, total: int | None, unit: str = "characters") -> str:
    """Return the mark of a truncated text; `total` is None if unknown."""
    if total is None:
        return f"[truncated: only the first {shown} {unit} shown]"
    return f"[truncated: {shown} of {total} {unit} shown]"


def clip(text: str, characters: int) -> tuple[str, bool]:
    """Truncate a text and return it with whether it was cut; escapes unpaired surrogates."""
    plain = str.__str__(text)  # A subclass may override methods.
    head = plain[: characters + 1]  # Cut before encoding, because the text may be huge.
    storable = head.encode("utf-8", "backslashreplace").decode()
    total = len(storable) + len(plain) - len(head)
    if total <= characters:
        return storable, False
    return f"{storable[:characters].rstrip()}\n{truncation_mark(characters, total)}", True


def sound(name: str, result: object, limits: Limits) -> Observation:
    """Return a tool's observation within the limits, without fields reserved for guards.

    Raises ToolError for other types and for wrong field types.
    """
    if not isinstance(result, Observation):
        raise ToolError(f"{name} failed: it gave {type(result).__name__} in place of an observation.")
    for part, kind in (("text", str), ("ok", bool), ("truncated", bool), ("changes", str), ("images", tuple)):
        value = getattr(result, part)
        if not isinstance(value, kind):
            raise ToolError(f"{name} failed: `{part}` of its result is {type(value).__name__}, not {kind.__name__}.")
    text, clipped = clip(result.text, limits.result.characters + (_MARKS if result.truncated else 0))
    changes, _ = clip(result.changes, limits.changes)
    images = tuple(image for image in cast("tuple[object, ...]", result.images) if isinstance(image, Image))
    return Observation(text, result.ok, result.truncated or clipped, changes=changes, images=images[:MAX_IMAGES])


def told(name: str, outcome: Any, limits: Limits) -> Observation:
    """Convert a function's result to an observation; other types become JSON. May block."""
    if isinstance(outcome, Observation):
        return sound(name, outcome, limits)
    if isinstance(outcome, str):
        return sound(name, Observation(outcome), limits)
    pieces = list[str]()
    limit = limits.result.characters
    length = 0
    encoder = json.JSONEncoder(ensure_ascii=False, default=str)
    for piece in encoder.iterencode(_head(outcome, limit, iter(range(limit)))):
        checkpoint()
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            text = f"{''.join(pieces)[:limit]}\n{truncation_mark(limit, None)}"
            return sound(name, Observation(text, truncated=True), limits)
    return sound(name, Observation("".join(pieces)), limits)


def failed(name: str, failure: BaseException, limits: Limits) -> Observation:
    """Return the observation of a failed tool."""
    if isinstance(failure, ToolError):
        return sound(name, Observation(str(failure), ok=False), limits)
    words = type(failure).__name__
    with contextlib.suppress(Exception):  # Formatting a foreign exception may fail too.
        words = f"{words}: {failure}"
    return sound(name, Observation(f"{name} failed: {words}", ok=False), limits)


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
