"""Runs a tool so that its call ends in time, whatever the tool does, within its limits; and what the run takes.

What blocks runs in a thread of its own that holds up nothing.
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
"""Seconds between two looks at a program, growing from the one to the other."""
_MOST_PROGRAMS = 64
"""Descendants of a program that are looked at."""
_PEAK = re.compile(rb"^VmHWM:\s*(\d+) kB", re.MULTILINE)
_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dxg")
"""How the devices begin through which a program computes on a GPU: NVIDIA's, AMD's, and either under Windows."""
_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
"""What of them there is wherever there is a GPU."""


@dataclass(slots=True, eq=False)
class Meter:
    """Watches one run."""

    alone: bool = True
    """Whether no other run was under way meanwhile."""
    start_mb: float | None = None
    gpu_start_mb: float | None = None
    programs: bool = False
    """Whether it has started a program."""
    program_mb: float | None = None
    """The peak of that program, with all that this has started."""
    worker_mb: tuple[float | None, float | None] | None = None
    """What the worker process held before the run, and its peak; None where none was at work."""
    program_gpu_mb: float | None = None


_present: ContextVar[Meter | None] = ContextVar("meter", default=None)
_meters: list[Meter] = []
"""All meters of this process: its memory is one figure, whoever takes of it."""


async def measured(run: Callable[[], Awaitable[Observation]]) -> Observation:
    """Run a tool; the observation has the seconds and the memory the run took. Raises what the tool raises."""
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
        seen = await run()
        seconds = time.monotonic() - started
    finally:
        _present.reset(token)
        _meters.remove(meter)
    return replace(seen, seconds=seconds, footprint=await _footprint(meter))


@contextlib.asynccontextmanager
async def following(pid: int) -> AsyncGenerator[None]:
    """Count what a program holds, while it runs, for the run of the tool that has started it."""
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
    """Count what a worker process held before the run and at its peak, in MB, in the place of this process."""
    meter = _present.get()
    if meter is not None:
        meter.worker_mb = (start_mb, peak_mb)


async def _footprint(meter: Meter) -> Footprint:
    """What the run took; a program's memory is all constant: it is held for the run and for nothing else."""
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
    """Take the peaks of a program and of all it has started."""
    pids = _family(pid)
    peaks = [peak for peak in map(peak_mb, pids) if peak is not None]
    if not peaks:
        return
    meter.program_mb = max(meter.program_mb or 0.0, sum(peaks))
    held = await asyncio.to_thread(gpu_mb, pids) if gpu_there() else 0.0
    meter.program_gpu_mb = held if held is None else max(meter.program_gpu_mb or 0.0, held)


def _family(pid: int) -> list[int]:
    """A process and its descendants, as far as the system tells."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text(encoding="ascii").split())
        if len(found) >= _MOST_PROGRAMS:
            break
    return found


def forget_peak() -> float | None:
    """Let the peak of this process be counted from now on; gives what it holds now, None where that cannot be done."""
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
    """Open what the peak is forgotten through, for good: a process that no other may look into cannot open it later."""
    try:
        return os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return None


def peak_mb(pid: int | str) -> float | None:
    """The most memory that a process has held at one time, in MB; None when it is gone or cannot be read."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:  # noqa: PTH123 - this is on the way of every call
            status = file.read()
    except OSError:
        return None
    found = _PEAK.search(status)
    return int(found[1]) / _KB_PER_MB if found else None


# -- GPUs


@cache
def gpu_there() -> bool:
    """Whether a program could hold memory on a GPU here."""
    return not Path("/proc/self/fd").is_dir() or any(device.exists() for device in _DEVICES)


def gpu_mb(pids: Collection[int]) -> float | None:
    """MB (2^20) that these processes hold together; 0 where none of them has a GPU open, None where nobody can tell.

    Asks NVIDIA's driver, which does not know the processes of a container from within it. May block.
    """
    using = {pid for pid in pids if _has_gpu_open(pid)} if gpu_there() else set[int]()
    if not using:
        return 0.0
    nvml: Any = import_module("pynvml")
    found: set[int] = set()
    used = 0
    try:
        nvml.nvmlInit()  # counted by the driver: it begins once
        for index in range(nvml.nvmlDeviceGetCount()):
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(index)):
                if process.pid in using and process.usedGpuMemory is not None:
                    found.add(process.pid)
                    used += process.usedGpuMemory
    except nvml.NVMLError:
        return None
    return used / _BYTES_PER_MB if found == using else None


def _has_gpu_open(pid: int) -> bool:
    """Whether a process has a GPU open; taken for granted where its files cannot be read."""
    try:
        opened = list(Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return True
    for entry in opened:
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if str(entry.readlink()).startswith(_GPUS):
                return True
    return False


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
    for part, kind in (("text", str), ("ok", bool), ("truncated", bool), ("changes", str), ("images", tuple)):
        value = getattr(found, part)
        if not isinstance(value, kind):
            raise ToolError(f"{name} failed: `{part}` of its result is {type(value).__name__}, not {kind.__name__}.")
    text, clipped = clip(found.text, limits.result.characters + (_MARKS if found.truncated else 0))
    changes, _ = clip(found.changes, limits.changes)
    images = tuple(one for one in cast("tuple[object, ...]", found.images) if isinstance(one, Image))
    return Observation(text, found.ok, found.truncated or clipped, changes=changes, images=images[:MAX_IMAGES])


def told(name: str, outcome: Any, limits: Limits) -> Observation:
    """What a function gave, as an observation; anything but a text or an observation is told as JSON. May block."""
    if isinstance(outcome, Observation):
        return sound(name, outcome, limits)
    if isinstance(outcome, str):
        return sound(name, Observation(outcome), limits)
    pieces, most = list[str](), limits.result.characters
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
        return {
            key[:most] if isinstance(key, str) else key: _head(inner, most, room)
            for (key, inner), _ in zip(items, room, strict=False)
        }
    if isinstance(value, list | tuple):
        inside = cast("list[Any] | tuple[Any, ...]", value)
        return [_head(inner, most, room) for inner, _ in zip(inside, room, strict=False)]
    return value
