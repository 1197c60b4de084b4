"""Measurements: medians of alternating runs of a value and its baseline, and programs on pseudo-terminals."""

import fcntl
import json
import os
import pty
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from ecoshell.errors import EcoshellError

Take = Callable[[], float]
"""Measures one figure."""
SIZE = (120, 36)
"""Columns and lines of the terminals."""
MINIMAL = """
import asyncio, json, os, sys, time
from textual.app import App
from textual.widgets import Input, RichLog

class Minimal(App):
    def compose(self):
        yield RichLog()
        yield Input()

    def on_mount(self):
        self.query_one(Input).focus()
        if "ECOSHELL_STARTED" in os.environ:
            self.call_after_refresh(self.seen)

    def seen(self):
        print(json.dumps({"seconds": time.monotonic() - float(os.environ["ECOSHELL_STARTED"])}))
        self.exit()

asyncio.run(Minimal().run_async(headless=not sys.__stderr__.isatty()))
"""
"""A minimal Textual application with a log and an input; with ECOSHELL_STARTED, it exits after its first frame."""
MINIMAL_COMMAND = (sys.executable, "-c", MINIMAL)
ALTERNATE_SCREEN = "\x1b[?1049h"
"""The escape sequence with which a program takes over the screen."""
READY = "one model"
"""The mode in the chat's title, shown once the shell is open."""
_REMOVED_VARIABLES = ("ECOSHELL_", "TEXTUAL", "NO_COLOR", "COLUMNS", "LINES", "TERM", "COLORTERM")
_OUTPUT_SECONDS = 60.0
"""Time limit for a program to show an expected text."""
_EXIT_SECONDS = 10.0
_KEY_INTERVAL_SECONDS = 0.02
_UTIME_FIELD = 13
"""The index of the user time in /proc/PID/stat; the system time follows."""
_LFLAG_FIELD = 3
"""The index of the local modes in terminal attributes."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value with its unit, and the baseline and the ratio to it if there is one."""

    what: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None


def against(what: str, value: Take, baseline: Take, repeat: int, unit: str = "s") -> Measurement:
    """Measure both alternately, so that disturbances affect both, and compare the medians."""
    for warm_up in (value, baseline):  # the first run of each reads from the disk
        warm_up()
    pairs = [(value(), baseline()) for _ in range(repeat)]
    return compared(what, [pair[0] for pair in pairs], [pair[1] for pair in pairs], unit)


def compared(
    what: str, values: Sequence[float], baselines: Sequence[float], unit: str
) -> Measurement:
    """Compare the medians of values and baselines."""
    ours, theirs = statistics.median(values), statistics.median(baselines)
    return Measurement(what, ours, unit, theirs, ours / theirs if theirs else None)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that this percentage of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def wall(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> Take:
    """Measure the seconds from the start of a process to its end."""

    def run() -> float:
        started = time.perf_counter()
        completed(command, environ)
        return time.perf_counter() - started

    return run


def reported(command: Sequence[str], environ: Mapping[str, str], figure: str = "seconds") -> Take:
    """Read a figure from the JSON a process prints; ECOSHELL_STARTED is the time before its start."""

    def run() -> float:
        output = completed(command, {**environ, "ECOSHELL_STARTED": str(time.monotonic())})
        return float(json.loads(output)[figure])

    return run


def completed(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run a program to its end and return its standard output; raises EcoshellError if it fails."""
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if process.returncode != 0:
        lines = process.stderr.strip().splitlines() or ["it printed no error"]
        raise EcoshellError(f"{command[-1][:60]!r} failed and cannot be measured: {lines[-1]}")
    return process.stdout


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in megabytes (10⁶ bytes), from /proc."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").split()
    return (int(fields[_UTIME_FIELD]) + int(fields[_UTIME_FIELD + 1])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Home:
    """A temporary home for the chat, isolated from the user's files."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """The environment of programs that use this home."""
        columns, lines = SIZE
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_REMOVED_VARIABLES)
        }
        terminal = {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "COLUMNS": str(columns),
            "LINES": str(lines),
        }
        return {**inherited, **terminal, "ECOSHELL_HOME": str(self.folder)}

    def script(self, *texts: str) -> str:
        """Return the name of a scripted model that answers with these texts."""
        return self.scripted(*({"text": text} for text in texts))

    def scripted(self, *replies: Mapping[str, Any]) -> str:
        """Return the name of a scripted model that gives these replies."""
        file = self.folder / f"script-{len(list(self.folder.glob('script-*')))}.jsonl"
        file.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
        return f"script:{file}"

    def chat(self, *options: str) -> Sequence[str]:
        """Return the command that opens the chat in this home."""
        return (sys.executable, "-m", "ecoshell", "--workspace", str(self.folder), *options)

    def terminal(self, command: Sequence[str], *, reports: bool = False) -> "closing[Terminal]":
        """Start a program with this home on a new terminal."""
        return closing(Terminal(command, environ=self.environ, reports=reports))


@contextmanager
def new_home() -> Generator[Home]:
    """Yield a home in a temporary folder."""
    with TemporaryDirectory(prefix="ecoshell-speed-") as folder:
        home = Home(Path(folder))
        settings = home.folder / "config" / "config.toml"
        settings.parent.mkdir()
        settings.write_text("\n[agent]\nmax_output_tokens = 100000\n", encoding="utf-8")
        yield home


class Terminal:
    """Starts a program on a pseudo-terminal and collects its output until closed.

    With `reports`, standard output is a pipe that `report` reads, and the program draws on standard error.
    """

    def __init__(
        self, command: Sequence[str], *, environ: Mapping[str, str], reports: bool = False
    ) -> None:
        self._command = command
        self._master, slave = pty.openpty()
        columns, lines = SIZE
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        attributes = termios.tcgetattr(slave)
        attributes[
            _LFLAG_FIELD
        ] &= ~termios.ECHO  # keys typed before the program is ready do not appear
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=slave,
            stdout=subprocess.PIPE if reports else slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.pid = self._process.pid
        self._written = bytearray()
        self._chunks: list[tuple[int, float]] = []
        """Output lengths with the times they were reached."""
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def length(self) -> int:
        """Bytes written so far."""
        return len(self._written)

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str, since: int = 0) -> float:
        """Return when a text appeared after this many bytes; raises EcoshellError if it does not appear."""
        time_shown = self._time_shown(text.encode(), since, _OUTPUT_SECONDS)
        if time_shown is None:
            raise self._missing(text)
        return time_shown

    def type_until_shown(self, key: str) -> float:
        """Type a key repeatedly and return when it first appeared; raises EcoshellError if it never does."""
        for _ in range(round(_OUTPUT_SECONDS / _KEY_INTERVAL_SECONDS)):
            self.type(key)
            time_shown = self._time_shown(key.encode(), 0, _KEY_INTERVAL_SECONDS)
            if time_shown is not None:
                return time_shown
        raise self._missing(key)

    def report(self) -> str:
        """Return the next line of the program's report; raises EcoshellError if it ends first."""
        output: IO[bytes] | None = self._process.stdout
        line = output.readline() if output else b""
        if not line:
            raise self._missing("its report")
        return line.decode()

    def close(self) -> None:
        """End the program."""
        self._process.terminate()
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        os.close(self._master)
        if self._process.stdout:
            self._process.stdout.close()

    def _time_shown(self, text: bytes, since: int, seconds: float) -> float | None:
        """Return when a text appeared; None after the time limit or the end of the program."""
        start, deadline = since, time.monotonic() + seconds
        with self._changed:
            while (position := self._written.find(text, start)) < 0:
                start = max(since, len(self._written) - len(text))
                if self._ended or not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return None
            return next(
                reached for length, reached in self._chunks if length >= position + len(text)
            )

    def _read(self) -> None:
        with suppress(OSError):  # reading fails once the program has ended
            while data := os.read(self._master, 1 << 16):
                with self._changed:
                    self._written += data
                    self._chunks.append((len(self._written), time.monotonic()))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _missing(self, text: str) -> EcoshellError:
        output = bytes(self._written[-200:])
        return EcoshellError(
            f"{' '.join(self._command)[-80:]!r} did not show {text!r} and cannot be measured; its last output was "
            f"{output!r}."
        )
