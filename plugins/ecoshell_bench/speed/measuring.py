"""Taking figures fairly: medians of a value and its baseline in turn, of programs on pseudo-terminals of their own."""

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
from typing import IO

from ecoshell.errors import EcoshellError

Take = Callable[[], float]
"""Takes one figure."""
SIZE = (120, 36)
"""Columns and lines of every terminal that is measured on."""
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
"""The least Textual application with a log and an input; with ECOSHELL_STARTED, it is over after its first frame."""
MINIMAL_COMMAND = (sys.executable, "-c", MINIMAL)
TAKES_OVER = "\x1b[?1049h"
"""What a program writes when it takes the whole screen."""
READY = "step by step"
"""What the chat shows once the shell is open: the strategy, in its title."""
_UNWANTED = ("ECOSHELL_", "TEXTUAL", "NO_COLOR", "COLUMNS", "LINES", "TERM", "COLORTERM")
_PATIENCE = 60.0
"""Seconds after which a program that has not shown something is given up."""
_GOODBYE = 10.0
_BETWEEN_TRIES = 0.02
_TICKS = 13
"""Where /proc/PID/stat has the ticks spent in the program, after the process id; those spent for it follow."""
_LFLAG = 3
"""The place of the local modes in the attributes of a terminal."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured and in which unit; beside it, where there is one, the baseline and value over baseline."""

    what: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None


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


def wall(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> Take:
    """Seconds a process takes from its start to its end."""

    def run() -> float:
        started = time.perf_counter()
        _completed(command, environ)
        return time.perf_counter() - started

    return run


def told(command: Sequence[str], environ: Mapping[str, str], figure: str = "seconds") -> Take:
    """What a process says of itself in JSON; seconds it took are counted from before its start."""

    def run() -> float:
        said = _completed(command, {**environ, "ECOSHELL_STARTED": str(time.monotonic())})
        return float(json.loads(said)[figure])

    return run


def _completed(command: Sequence[str], environ: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=dict(environ), stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise EcoshellError(f"{command[-1][:60]!r} failed and cannot be measured: {lines[-1]}")
    return done.stdout


def resident_mb(pid: int) -> float:
    """Memory of a process that is in RAM now, in megabytes (10⁶ bytes); from /proc."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    """Processor time a process has taken so far; from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").split()
    return (int(fields[_TICKS]) + int(fields[_TICKS + 1])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Home:
    """An empty home for the chat; nothing of the person's own is read, and nothing is left behind."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a program that lives there."""
        columns, lines = SIZE
        own = {name: value for name, value in os.environ.items() if not name.startswith(_UNWANTED)}
        terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(columns), "LINES": str(lines)}
        return {**own, **terminal, "ECOSHELL_HOME": str(self.folder)}

    def script(self, *texts: str) -> str:
        """The name of a model that answers with these texts."""
        file = self.folder / f"script-{len(list(self.folder.glob('script-*')))}.jsonl"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        return f"script:{file}"

    def chat(self, *options: str) -> Sequence[str]:
        """The command that opens the chat there."""
        return (sys.executable, "-m", "ecoshell", "--workspace", str(self.folder), *options)

    def terminal(self, command: Sequence[str], *, reports: bool = False) -> "closing[Terminal]":
        """A program that lives there, on a terminal of its own."""
        return closing(Terminal(command, environ=self.environ, reports=reports))


@contextmanager
def new_home() -> Generator[Home]:
    """A home in a temporary folder."""
    with TemporaryDirectory(prefix="ecoshell-speed-") as folder:
        home = Home(Path(folder))
        settings = home.folder / "config" / "config.toml"
        settings.parent.mkdir()
        settings.write_text("\n[agent]\nmax_output_tokens = 100000\n", encoding="utf-8")
        yield home


class Terminal:
    """A program that was started this moment, and everything it has written since; close it in the end.

    With `reports`, its standard output is a pipe that `report` reads, and it draws on standard error alone.
    """

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str], reports: bool = False) -> None:
        self._command = command
        self._master, slave = pty.openpty()
        columns, lines = SIZE
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        attributes = termios.tcgetattr(slave)
        attributes[_LFLAG] &= ~termios.ECHO  # what is typed before the program has taken over is not shown
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
        """How much had been written at which time."""
        self._news = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def length(self) -> int:
        """Bytes written so far: a place to wait from."""
        return len(self._written)

    def type(self, text: str) -> None:
        """Type some text."""
        os.write(self._master, text.encode())

    def wait_for(self, shown: str, since: int = 0) -> float:
        """When a text was shown that came after this many bytes; raises EcoshellError when it does not come."""
        when = self._shown(shown.encode(), since, _PATIENCE)
        if when is None:
            raise self._disappointed(shown)
        return when

    def type_until_shown(self, key: str) -> float:
        """Type a key again and again, and say when it was first shown; raises EcoshellError when it never is."""
        for _ in range(round(_PATIENCE / _BETWEEN_TRIES)):
            self.type(key)
            when = self._shown(key.encode(), 0, _BETWEEN_TRIES)
            if when is not None:
                return when
        raise self._disappointed(key)

    def report(self) -> str:
        """The next line of a program that reports; raises EcoshellError when it ends instead."""
        output: IO[bytes] | None = self._process.stdout
        line = output.readline() if output else b""
        if not line:
            raise self._disappointed("its report")
        return line.decode()

    def close(self) -> None:
        """End the program."""
        self._process.terminate()
        try:
            self._process.wait(_GOODBYE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        os.close(self._master)
        if self._process.stdout:
            self._process.stdout.close()

    def _shown(self, wanted: bytes, since: int, patience: float) -> float | None:
        """When it was shown; None when it was not for so long, or cannot be any more."""
        at, give_up = since, time.monotonic() + patience
        with self._news:
            while (found := self._written.find(wanted, at)) < 0:
                at = max(since, len(self._written) - len(wanted))
                if self._over or not self._news.wait(max(0.0, give_up - time.monotonic())):
                    return None
            return next(when for length, when in self._chunks if length >= found + len(wanted))

    def _read(self) -> None:
        with suppress(OSError):  # what reading the terminal of a program that has ended comes to
            while data := os.read(self._master, 1 << 16):
                with self._news:
                    self._written += data
                    self._chunks.append((len(self._written), time.monotonic()))
                    self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def _disappointed(self, what: str) -> EcoshellError:
        last = bytes(self._written[-200:])
        return EcoshellError(
            f"{' '.join(self._command)[-80:]!r} did not show {what!r} and cannot be measured; it last wrote {last!r}."
        )
