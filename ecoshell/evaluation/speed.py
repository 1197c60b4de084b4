"""How quick the shell is: each figure a median, beside a baseline measured in the same run (`ecoshell bench speed`)."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from ecoshell.errors import EcoshellError
from ecoshell.evaluation.measurement import Measurement
from ecoshell.evaluation.reserve import measure_reserve_settle

_PLAIN = (sys.executable, "-c", "pass")
_VERSION = (sys.executable, "-c", "import sys; from ecoshell.cli import main; sys.exit(main(['--version']))")
_CORE = (sys.executable, "-c", "import ecoshell.assembly.shell")
_FRAME = (sys.executable, "-m", "ecoshell.tui.first_frame")
_MINIMAL_APP = """
import asyncio, json, os, time
from textual.app import App
from textual.widgets import Input, RichLog

class Minimal(App):
    def compose(self):
        yield RichLog()
        yield Input()

    def on_mount(self):
        self.call_after_refresh(self.seen)

    def seen(self):
        print(json.dumps({"seconds": time.monotonic() - float(os.environ["ECOSHELL_STARTED"])}))
        self.exit()

asyncio.run(Minimal().run_async(headless=True))
"""
"""The least Textual application with a log and an input: what a first frame is measured against."""
_MINIMAL = (sys.executable, "-c", _MINIMAL_APP)


def measure_speed(repeat: int = 15) -> Iterator[Measurement]:
    """The figures, one after the other; seconds are medians of `repeat` runs, value and baseline taken in turn."""
    yield _against("version", _wall(_VERSION), _wall(_PLAIN), repeat)
    yield _against("first_frame", _told(_FRAME), _told(_MINIMAL), max(3, repeat // 3))
    yield _against("import_core", _wall(_CORE), _wall(_PLAIN), max(3, repeat // 3))
    yield measure_reserve_settle()


def _against(what: str, value: Callable[[], float], baseline: Callable[[], float], repeat: int) -> Measurement:
    """Run both in turn, so that a noisy moment meets both, and compare the medians."""
    for warm in (value, baseline):  # the first run of each reads from the disk
        warm()
    pairs = [(value(), baseline()) for _ in range(repeat)]
    ours = statistics.median(pair[0] for pair in pairs)
    theirs = statistics.median(pair[1] for pair in pairs)
    return Measurement(what, ours, "s", theirs, ours / theirs)


def _wall(command: Sequence[str]) -> Callable[[], float]:
    """Seconds a process takes from its start to its end."""

    def run() -> float:
        started = time.perf_counter()
        _completed(command)
        return time.perf_counter() - started

    return run


def _told(command: Sequence[str]) -> Callable[[], float]:
    """Seconds a process says it took, counted from before its start."""

    def run() -> float:
        return float(json.loads(_completed(command))["seconds"])

    return run


def _completed(command: Sequence[str]) -> str:
    environ = {**os.environ, "ECOSHELL_STARTED": str(time.monotonic())}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise EcoshellError(f"{command[-1][:60]!r} failed and cannot be measured: {lines[-1]}")
    return done.stdout
