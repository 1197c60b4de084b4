"""What one run of a tool takes: its time, and the memory of the process that runs it (CATP-LLM B.3).

A tool that starts a program takes that program's memory, with all it starts in turn; one that runs in a worker takes
that worker's, any other this process's.
Runs at the same time within this process cannot be told apart, so that their memory is unknown (None), as it is where
the system has no /proc.

Memory is read from /proc and not with psutil, which knows what a process holds at the moment it is asked, and not the
peak, which is what a run took; it would also read every process of the machine to find a program's children.
"""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ecoshell.messages import Footprint, Observation

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
_under_way: list[Meter] = []
"""All meters of this process: its memory is one figure, whoever takes of it."""


async def measured(run: Callable[[], Awaitable[Observation]]) -> Observation:
    """Run a tool; the observation has the seconds and the memory the run took. Raises what the tool raises."""
    meter = Meter(alone=not _under_way)
    for other in _under_way:
        other.alone = False
    _under_way.append(meter)
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
        _under_way.remove(meter)
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
