"""Installs the extra `local` in the background: compiling llama.cpp takes minutes, and a chat need not wait for it.

`python -m ecoshell.models.local_build STAMP COMMAND…` starts the installing command, which outlives the caller. Its log
in the virtual environment is locked while it runs, and deleted at its end unless it failed.
"""

import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

LOG = Path(sys.prefix) / "llama-build.log"
_STEP = re.compile(rb"\[(\d+)/(\d+)\]")  # such as `[12/345] Building CXX object …`
_STARTED = re.compile(rb"Started at (\d+)\n")  # the first line of the log
_TAIL_BYTES = 1 << 16
_SCRIPT = 'log=$1 stamp=$2; shift 2; "$@" && touch "$stamp" && rm "$log"'


@dataclass(frozen=True, slots=True)
class LocalBuild:
    """A running or failed installation; `percent` and `seconds_left` are None before the first compiled file."""

    running: bool
    percent: int | None = None
    seconds_left: float | None = None
    log: Path = LOG

    @property
    def words(self) -> str:
        """The state in a phrase, such as `compiling llama.cpp: 34 %, 6 min 6 s left`."""
        if not self.running:
            return f"llama.cpp could not be installed; the log is {self.log}"
        if self.percent is None:
            return "preparing to compile llama.cpp"
        if self.seconds_left is None:
            return f"compiling llama.cpp: {self.percent} %"
        from ecoshell.events.figures import duration

        return f"compiling llama.cpp: {self.percent} %, {duration(self.seconds_left)} left"

    @property
    def fix(self) -> str:
        return "" if self.running else "Run `make run` again, or pip install 'ecoshell[local]'."


def current_build(log: Path = LOG) -> LocalBuild | None:
    """Return the running or failed installation in this environment, if any."""
    try:
        with log.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _running_build(file, log)
            return LocalBuild(running=False, log=log)
    except OSError:
        return None


def _running_build(file: BinaryIO, log: Path) -> LocalBuild:
    """Read the progress from the log, and expect the remaining files to take as long as those before."""
    started = _STARTED.match(file.readline())
    file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
    steps = _STEP.findall(file.read())
    done, total = map(int, steps[-1]) if steps else (0, 0)
    if not total:
        return LocalBuild(running=True, log=log)
    left = None
    if started and done:
        left = max(0.0, time.time() - int(started[1])) * (total - done) / done
    return LocalBuild(running=True, percent=100 * done // total, seconds_left=left, log=log)


def failed_build() -> LocalBuild | None:
    """Return the failed installation in this environment, unless llama.cpp was installed since."""
    build = current_build()
    if build is None or build.running or find_spec("llama_cpp") is not None:
        return None
    return build


def start(command: Sequence[str], stamp: Path, log: Path = LOG) -> bool:
    """Start the command and touch the stamp when it succeeds; returns False if one is running already."""
    with log.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        file.truncate(0)
        file.write(f"Started at {time.time():.0f}\n".encode())
        file.flush()
        subprocess.Popen(  # it outlives this process, and inherits the lock
            ["/bin/sh", "-c", _SCRIPT, "sh", str(log), str(stamp), *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return True


if __name__ == "__main__":
    if start(sys.argv[2:], Path(sys.argv[1])):
        text = "llama.cpp compiles in the background; `ecoshell doctor` shows the progress."
        sys.stderr.write(f"{text}\n")
