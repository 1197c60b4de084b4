"""What a run of a tool takes: measured on this process and on real programs."""

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

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc")

_MB = 1 << 20


def fill(megabytes: int) -> str:
    """Take memory and let it go."""
    held = bytearray(megabytes * _MB)
    held[::4096] = b"x" * len(held[::4096])
    return "filled"


async def python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return (await run_process(command, folder=Path.cwd(), environment=os.environ, seconds=20, window=99)).output


async def program(megabytes: int) -> str:
    """Run a program that takes memory until it may end."""
    code = f"held = b'x' * ({megabytes} << 20); import time; time.sleep(1)"
    seen = await run_process(
        [sys.executable, "-c", code], folder=Path.cwd(), environment=os.environ, seconds=20, window=99
    )
    return seen.output


async def family(megabytes: int) -> str:
    """Run a program whose child takes memory."""
    child = f"held = b'x' * ({megabytes} << 20); import time; time.sleep(1)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    seen = await run_process(
        [sys.executable, "-c", code], folder=Path.cwd(), environment=os.environ, seconds=20, window=99
    )
    return seen.output


async def measured(function, arguments):
    return await measuring.measured(partial(FunctionTool(function, effects=()).run, arguments))


def held(observation):
    assert observation.footprint is not None
    return observation.footprint


async def test_the_peak_of_a_run_is_measured_above_what_the_process_held_before():
    await measured(fill, {"megabytes": 1})
    seen = await measured(fill, {"megabytes": 96})
    assert 90 < held(seen).cpu_instant_mb < 130
    assert held(seen).cpu_mb > 5
    assert seen.text == "filled"
    assert seen.seconds > 0


async def test_an_earlier_peak_is_not_taken_for_that_of_a_later_run():
    await measured(fill, {"megabytes": 96})
    assert held(await measured(fill, {"megabytes": 1})).cpu_instant_mb < 40


@pytest.mark.parametrize("function", [program, family])
async def test_a_program_counts_with_all_it_starts_and_in_the_place_of_this_process(function):
    seen = held(await measured(function, {"megabytes": 80}))
    assert 80 < seen.cpu_mb < 150
    assert seen.cpu_instant_mb == 0.0


async def test_runs_at_the_same_time_in_one_process_cannot_be_told_apart_and_programs_can():
    first, second, third = await asyncio.gather(
        measured(fill, {"megabytes": 8}),
        measured(program, {"megabytes": 20}),
        measured(program, {"megabytes": 80}),
    )
    assert held(first).cpu_mb is None
    assert held(first).cpu_instant_mb is None
    assert 20 < held(second).cpu_mb < 80 < held(third).cpu_mb < 150


async def test_a_run_after_one_that_was_cancelled_is_alone_again():
    async def wait() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return ""

    waiting = asyncio.create_task(measured(wait, {}))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert held(await measured(fill, {"megabytes": 1})).cpu_mb is not None


async def test_where_there_is_no_gpu_its_memory_is_none_taken(monkeypatch):
    monkeypatch.setattr("ecoshell.tools.running.may_have_gpu", lambda: False)
    seen = held(await measured(fill, {"megabytes": 1}))
    assert (seen.gpu_mb, seen.gpu_instant_mb) == (0.0, 0.0)


async def test_where_a_gpu_is_in_use_and_nobody_can_tell_its_memory_is_unknown(monkeypatch):
    monkeypatch.setattr("ecoshell.tools.running.may_have_gpu", lambda: True)
    monkeypatch.setattr("ecoshell.tools.running.gpu_mb", lambda pids: None)
    seen = held(await measured(fill, {"megabytes": 1}))
    assert seen == Footprint(seen.cpu_mb, seen.cpu_instant_mb, None, None)
    assert seen.cpu_mb is not None


class Driver:
    """Speaks as the driver's library does: one GPU, on which these processes hold this much."""

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
    ids=["its own only", "on two devices", "not known to the driver", "not told"],
)
def test_the_driver_is_asked_for_what_a_process_holds(driver, processes, megabytes):
    driver(Driver(processes))
    assert measuring.gpu_mb([7, 8]) == megabytes
    assert measuring.gpu_mb([8]) == 0.0


def test_of_a_driver_that_does_not_answer_nothing_is_known(driver):
    driver(object())
    assert measuring.gpu_mb([7]) is None
    driver(None)
    assert measuring.gpu_mb([7]) is None
