"""Measures the time and the memory of tools."""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ecoshell.messages import Footprint, Observation
from ecoshell.tools.gpu import gpu_mb, may_have_gpu

_KB_PER_MB = 1 << 10
_FIRST_INTERVAL, _MAX_INTERVAL = 0.005, 0.1  # seconds, doubled up to the maximum
_GPU_INTERVAL = 0.5
_MAX_PROGRAMS = 64  # maximum number of measured descendants of a program
_PEAK = re.compile(rb"^VmHWM:\s*(\d+) kB", re.MULTILINE)


@dataclass(slots=True, eq=False)
class Meter:
    """Measurements of one run."""

    is_exclusive: bool = True  # whether no other run overlapped
    start_mb: float | None = None
    programs: bool = False  # whether the tool started a program
    program_mb: float | None = None  # peak memory of that program and its descendants
    worker_mb: tuple[float | None, float | None] | None = None  # before the run, and the peak
    program_gpu_mb: float | None = None
    gpu_due: float = 0.0  # the time of the next query, which starts a program


_current_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)
_meters: list[Meter] = []  # overlapping runs share this process's memory figure


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
        growth = None if start is None or peak is None else max(0.0, peak - start)
        return Footprint(start, growth, 0.0, 0.0)
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
            children = Path(f"/proc/{member}/task/{member}/children")
            pids += map(int, children.read_text(encoding="ascii").split())
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
