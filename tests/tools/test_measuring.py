"""Memory and time of tool runs, measured in this process and in real programs."""

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from ecoshell.tools import gpu, measuring
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


@pytest.mark.parametrize(("has_gpu", "memory"), [(False, 0.0), (True, None)])
async def test_gpu_memory_of_this_process_is_zero_without_a_gpu_else_unknown(
    has_gpu, memory, monkeypatch
):
    monkeypatch.setattr("ecoshell.tools.measuring.may_have_gpu", lambda: has_gpu)
    result = footprint(await measured(fill, {"megabytes": 1}))
    assert (result.gpu_mb, result.gpu_instant_mb) == (memory, memory)
    assert result.cpu_mb is not None


@pytest.fixture
def nvidia_smi(monkeypatch, tmp_path):
    """Install a program that prints this answer; process 7 has a GPU open."""
    monkeypatch.setattr(gpu, "may_have_gpu", lambda: True)
    monkeypatch.setattr(gpu, "_has_gpu_open", lambda pid: pid == 7)
    monkeypatch.setattr(gpu, "_QUERY_SECONDS", 0.5)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def install(answer, script="exit 0"):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat << END\n{answer}\nEND\n{script}\n")
        program.chmod(0o755)

    return install


@pytest.mark.parametrize(
    ("answer", "megabytes"),
    [
        ("7, 64\n9, 999", 64.0),
        ("7, 64\n7, 16", 80.0),
        ("9, 999", None),
        ("7, [N/A]", None),
        ("No running processes found", None),
    ],
    ids=["its own only", "on two devices", "unknown to the driver", "not reported", "other words"],
)
def test_nvidia_smi_reports_the_memory_of_processes(nvidia_smi, answer, megabytes):
    nvidia_smi(answer)
    assert gpu.gpu_mb([7, 8]) == megabytes
    assert gpu.gpu_mb([8]) == 0.0


@pytest.mark.parametrize("script", ["exit 9", "exec sleep 60"], ids=["fails", "does not end"])
def test_a_failing_nvidia_smi_reports_nothing(nvidia_smi, script):
    nvidia_smi("7, 64", script)
    assert gpu.gpu_mb([7]) is None


def test_gpu_memory_is_unknown_without_nvidia_smi(nvidia_smi, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.gpu_mb([7]) is None
