"""Memory and time of tool runs, measured in this process and in real programs."""

import asyncio
import ctypes
import os
import sys
from functools import partial
from pathlib import Path

import pynvml
import pytest

from ecoshell.messages import Footprint
from ecoshell.tools import running as measuring
from ecoshell.tools.builtin.commands import run_process
from ecoshell.tools.function import FunctionTool

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc"
)

_MB = 1 << 20


def fill(megabytes: int) -> str:
    """Allocate memory and release it."""
    block = bytearray(megabytes * _MB)
    block[::4096] = b"x" * len(block[::4096])
    return "filled"


async def python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return (
        await run_process(command, folder=Path.cwd(), environment=os.environ, seconds=20, window=99)
    ).output


async def program(megabytes: int) -> str:
    """Run a program that allocates memory."""
    code = f"held = b'x' * ({megabytes} << 20); import time; time.sleep(1)"
    finished = await run_process(
        [sys.executable, "-c", code],
        folder=Path.cwd(),
        environment=os.environ,
        seconds=20,
        window=99,
    )
    return finished.output


async def family(megabytes: int) -> str:
    """Run a program whose child allocates memory."""
    child = f"held = b'x' * ({megabytes} << 20); import time; time.sleep(1)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    finished = await run_process(
        [sys.executable, "-c", code],
        folder=Path.cwd(),
        environment=os.environ,
        seconds=20,
        window=99,
    )
    return finished.output


async def measured(function, arguments):
    return await measuring.measured(partial(FunctionTool(function, effects=()).run, arguments))


def footprint(observation):
    assert observation.footprint is not None
    return observation.footprint


async def test_the_peak_is_measured_relative_to_the_memory_before_the_run():
    await measured(fill, {"megabytes": 1})
    observation = await measured(fill, {"megabytes": 96})
    assert 90 < footprint(observation).cpu_instant_mb < 130
    assert footprint(observation).cpu_mb > 5
    assert observation.text == "filled"
    assert observation.seconds > 0


async def test_an_earlier_peak_does_not_count_for_a_later_run():
    await measured(fill, {"megabytes": 96})
    assert footprint(await measured(fill, {"megabytes": 1})).cpu_instant_mb < 40


@pytest.mark.parametrize("function", [program, family])
async def test_a_program_counts_with_its_descendants_instead_of_this_process(function):
    memory = footprint(await measured(function, {"megabytes": 80}))
    assert 80 < memory.cpu_mb < 150
    assert memory.cpu_instant_mb == 0.0


async def test_overlapping_runs_are_measured_only_for_programs():
    first, second, third = await asyncio.gather(
        measured(fill, {"megabytes": 8}),
        measured(program, {"megabytes": 20}),
        measured(program, {"megabytes": 80}),
    )
    assert footprint(first).cpu_mb is None
    assert footprint(first).cpu_instant_mb is None
    assert 20 < footprint(second).cpu_mb < 80 < footprint(third).cpu_mb < 150


async def test_a_run_after_a_cancelled_one_is_measured():
    async def wait() -> str:
        """Wait without end."""
        await asyncio.Event().wait()
        return ""

    waiting = asyncio.create_task(measured(wait, {}))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert footprint(await measured(fill, {"megabytes": 1})).cpu_mb is not None


async def test_without_a_gpu_its_memory_is_zero(monkeypatch):
    monkeypatch.setattr("ecoshell.tools.running.may_have_gpu", lambda: False)
    memory = footprint(await measured(fill, {"megabytes": 1}))
    assert (memory.gpu_mb, memory.gpu_instant_mb) == (0.0, 0.0)


async def test_gpu_memory_that_the_driver_does_not_report_is_unknown(monkeypatch):
    monkeypatch.setattr("ecoshell.tools.running.may_have_gpu", lambda: True)
    monkeypatch.setattr("ecoshell.tools.running.gpu_mb", lambda pids: None)
    memory = footprint(await measured(fill, {"megabytes": 1}))
    assert memory == Footprint(memory.cpu_mb, memory.cpu_instant_mb, None, None)
    assert memory.cpu_mb is not None


class Driver:
    """Imitates the driver's library: one GPU with the memory of these processes."""

    def __init__(self, processes):
        self._processes = processes

    def nvmlInitWithFlags(self, flags):  # noqa: N802
        return 0

    def nvmlDeviceGetCount_v2(self, count):  # noqa: N802
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, device):  # noqa: N802
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device, room, infos):  # noqa: N802
        room._obj.value = len(self._processes)
        if infos is None:
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        for info, (pid, used) in zip(infos, self._processes, strict=False):
            info.pid, info.usedGpuMemory = pid, used
        return 0


@pytest.fixture
def driver(monkeypatch):
    monkeypatch.setattr(measuring, "may_have_gpu", lambda: True)
    monkeypatch.setattr(measuring, "_has_gpu_open", lambda pid: pid == 7)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return lambda library: monkeypatch.setattr(pynvml, "nvmlLib", library)


@pytest.mark.parametrize(
    ("processes", "megabytes"),
    [
        ([(7, 64 * _MB), (9, 999 * _MB)], 64.0),
        ([(7, 64 * _MB), (7, 16 * _MB)], 80.0),
        ([(9, 999 * _MB)], None),
        ([(7, ctypes.c_ulonglong(-1).value)], None),
    ],
    ids=["its own only", "on two devices", "unknown to the driver", "not reported"],
)
def test_the_driver_reports_the_memory_of_processes(driver, processes, megabytes):
    driver(Driver(processes))
    assert measuring.gpu_mb([7, 8]) == megabytes
    assert measuring.gpu_mb([8]) == 0.0


def test_a_failing_driver_reports_nothing(driver):
    driver(object())
    assert measuring.gpu_mb([7]) is None
    driver(None)
    assert measuring.gpu_mb([7]) is None
