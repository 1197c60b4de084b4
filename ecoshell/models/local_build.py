"""Installs the extra `local` in the background: compiling llama.cpp takes minutes, and a chat need not wait for it.

`python -m ecoshell.models.local_build start --stamp FILE -- COMMAND` starts the installing command in a process of its
own, which outlives the caller. Its log and state are in the virtual environment.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(sys.prefix) / "llama-build"
_LOG, _STATE = "log", "state.json"
_STEP = re.compile(rb"\[(\d+)/(\d+)\]")  # such as `[12/345] Building CXX object …`
_TAIL_BYTES = 1 << 16
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class LocalBuild:
    """A running or failed installation; `percent` and `seconds_left` are None before the first compiled file."""

    running: bool
    percent: int | None = None
    seconds_left: float | None = None
    log: Path = FOLDER / _LOG

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
        """What to do about a failed installation."""
        return "" if self.running else "Run `make run` again, or pip install 'ecoshell[local]'."


def current_build(folder: Path = FOLDER, *, now: float | None = None) -> LocalBuild | None:
    """Return the running or failed installation in this environment, if any."""
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        pid, started, failed = int(state["pid"]), float(state["started"]), bool(state.get("failed"))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    if failed or not _is_running(pid):
        return LocalBuild(running=False, log=folder / _LOG)
    done, total = _steps(folder / _LOG)
    if not total:
        return LocalBuild(running=True, log=folder / _LOG)
    elapsed = (time.time() if now is None else now) - started
    left = elapsed * (total - done) / done if done and elapsed > 0 else None
    percent = 100 * done // total
    return LocalBuild(running=True, percent=percent, seconds_left=left, log=folder / _LOG)


def failed_build() -> LocalBuild | None:
    """Return the failed installation in this environment, unless llama.cpp was installed since."""
    build = current_build()
    if build is None or build.running or find_spec("llama_cpp") is not None:
        return None
    return build


def start(command: Sequence[str], stamp: Path, folder: Path = FOLDER) -> bool:
    """Start the command in the background; return whether it was started, and not running already."""
    build = current_build(folder)
    if build is not None and build.running:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _STATE).unlink(missing_ok=True)
    log = (folder / _LOG).open("wb")
    arguments = [sys.executable, "-m", "ecoshell.models.local_build", "run", "--stamp", str(stamp)]
    with log:
        process = subprocess.Popen(  # it outlives this process
            [*arguments, "--folder", str(folder), "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while not (folder / _STATE).exists() and process.poll() is None:  # until it has recorded itself
        time.sleep(_POLL_SECONDS)
    return True


def _run(command: Sequence[str], stamp: Path, folder: Path) -> int:
    """Run the command; afterwards touch the stamp, or record the failure."""
    _write(folder, {"pid": os.getpid(), "started": time.time()})
    status = subprocess.run(command, check=False).returncode
    if status:
        _write(folder, {"pid": os.getpid(), "started": time.time(), "failed": True})
    else:
        stamp.touch()
        (folder / _STATE).unlink(missing_ok=True)
    return status


def _write(folder: Path, state: dict[str, object]) -> None:
    part = folder / f"{_STATE}.part"
    part.write_text(json.dumps(state), encoding="utf-8")
    part.replace(folder / _STATE)


def _steps(log: Path) -> tuple[int, int]:
    """Return the number of compiled files and of all files."""
    with suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        if steps := _STEP.findall(file.read()):
            done, total = map(int, steps[-1])
            return done, total
    return 0, 0


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Start or run an installation, as the command line says."""
    parser = argparse.ArgumentParser(prog="ecoshell.models.local_build")
    parser.add_argument("action", choices=["start", "run"])
    parser.add_argument("--stamp", type=Path, required=True, help="file to touch at the end")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the log and the state")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    if options.action == "run":
        return _run(options.command, options.stamp, options.folder)
    if start(options.command, options.stamp, options.folder):
        text = "llama.cpp compiles in the background; `ecoshell doctor` shows the progress."
        sys.stderr.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
