"""Measure what the sandbox costs: a command that does nothing, compared with the same command outside."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from ecoshell.tools import ToolOptions
from ecoshell.tools.builtin.commands import CommandTools
from ecoshell.tools.sandbox import Sandbox
from ecoshell.tools.workspace import Workspace
from ecoshell_bench.speed.measuring import Measurement, compared


def measure_sandbox(repeat: int) -> Iterator[Measurement]:
    """Yield the seconds of a sandboxed `true`; nothing where no sandbox works."""
    with TemporaryDirectory(prefix="ecoshell-speed-") as folder:
        workspace = Workspace(Path(folder))
        sandbox = Sandbox("strict", workspace.root)
        if sandbox.problem:
            return
        inside = CommandTools(workspace, ToolOptions(sandbox=sandbox))
        outside = CommandTools(workspace, ToolOptions())
        yield asyncio.run(_measure(inside, outside, repeat))


async def _measure(inside: CommandTools, outside: CommandTools, repeat: int) -> Measurement:
    pairs = [(await _seconds(inside), await _seconds(outside)) for _ in range(repeat + 1)]
    return compared(
        "sandboxed_true", [pair[0] for pair in pairs[1:]], [pair[1] for pair in pairs[1:]], "s"
    )


async def _seconds(commands: CommandTools) -> float:
    started = time.perf_counter()
    await commands.run_command("true")
    return time.perf_counter() - started
