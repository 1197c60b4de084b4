"""Taking figures fairly: a value and its baseline in turn, medians, and what a process takes and holds."""

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ecoshell.errors import EcoshellError
from ecoshell_bench.measurement import Measurement

Take = Callable[[], float]
"""Takes one figure."""
_TICKS = 13
"""Where /proc/PID/stat has the ticks spent in the program, after the process id; those spent for it follow."""


def against(what: str, value: Take, baseline: Take, repeat: int, unit: str = "s") -> Measurement:
    """Take both in turn, so that a noisy moment meets both, and compare the medians."""
    for warm in (value, baseline):  # the first run of each reads from the disk
        warm()
    pairs = [(value(), baseline()) for _ in range(repeat)]
    return compared(what, [pair[0] for pair in pairs], [pair[1] for pair in pairs], unit)


def compared(what: str, values: Sequence[float], baselines: Sequence[float], unit: str) -> Measurement:
    """The medians of what was taken in turn."""
    ours, theirs = statistics.median(values), statistics.median(baselines)
    return Measurement(what, ours, unit, theirs, ours / theirs if theirs else None)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def wall(command: Sequence[str]) -> Take:
    """Seconds a process takes from its start to its end."""

    def run() -> float:
        started = time.perf_counter()
        _completed(command, os.environ)
        return time.perf_counter() - started

    return run


def told(command: Sequence[str], environ: Mapping[str, str], figure: str = "seconds") -> Take:
    """What a process says of itself in JSON; seconds it took are counted from before its start."""

    def run() -> float:
        said = _completed(command, {**environ, "ECOSHELL_STARTED": str(time.monotonic())})
        return float(json.loads(said)[figure])

    return run


def resident_mb(pid: int) -> float:
    """Memory of a process that is in RAM now, in megabytes (10⁶ bytes); from /proc."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    """Processor time a process has taken so far; from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").split()
    return (int(fields[_TICKS]) + int(fields[_TICKS + 1])) / os.sysconf("SC_CLK_TCK")


def _completed(command: Sequence[str], environ: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=dict(environ), stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise EcoshellError(f"{command[-1][:60]!r} failed and cannot be measured: {lines[-1]}")
    return done.stdout
