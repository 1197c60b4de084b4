"""Where tasks are played: a workspace and a home that are made anew for each, and tools that reach no network."""

import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.assembly.parts import tools_of
from ecoshell.errors import ToolError
from ecoshell.messages import Effect, Observation
from ecoshell.paths import Paths
from ecoshell.tools.base import Tool, limits_of
from ecoshell.tools.workspace import Workspace
from ecoshell_bench.tasks.checks import run_in
from ecoshell_bench.tasks.suite import Task

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import Settings

_GIT = """[user]
name = Sam Field
email = sam@example.com
[init]
defaultBranch = main
[advice]
detachedHead = false
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """A folder in which one task after another is played, always under the same names: they stand in prompts."""

    folder: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "project"

    @property
    def paths(self) -> Paths:
        """A home without settings, ledger and experience."""
        home = self.folder / "home"
        return Paths(home / "config", home / "data", home / "cache")

    async def prepare(self, task: Task) -> str:
        """Make the task's workspace, and a home, of nothing; how its setup failed, empty when it did not."""
        for folder in (self.workspace, self.folder / "home"):
            _remove(folder)
            folder.mkdir()
        for name, text in task.files.items():
            place = self.workspace / name
            if name.endswith("/"):
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8", newline="")
        told = await run_in(self.workspace, task.setup) if task.setup else ""
        return f"The setup {told}" if told else ""


@contextmanager
def ground() -> Generator[Ground]:
    """A ground, taken away at the end; programs that tasks start find this Python, git with a name, and no home.

    Its place is the same for every run that has the machine to itself, so that prompts are.
    """
    base = Path(tempfile.gettempdir()) / f"ecoshell-bench-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    held, folder = _first_free(base.resolve())
    _remove(folder)  # of a run that was killed
    folder.mkdir(mode=0o700)
    made = Ground(folder)
    settings = made.folder / "gitconfig"
    settings.write_text(_GIT, encoding="utf-8")
    changes = {
        "ECOSHELL_HOME": str(made.folder / "home"),
        "GIT_CONFIG_GLOBAL": str(settings),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(made.folder),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield made
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _remove(made.folder)
        os.close(held)


def _first_free(base: Path) -> tuple[int, Path]:
    """The first place that no run holds: a lock, which ends with the process, and a folder."""
    number = 1
    while True:
        lock = os.open(base / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            number += 1
        else:
            return lock, base / str(number)


def _remove(folder: Path) -> None:
    """Remove a folder and all in it, also what a task has closed."""
    if not os.path.lexists(folder):
        return
    for place, _, _ in os.walk(folder):
        Path(place).chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def offline_tools(settings: "Settings", workspace: Workspace) -> list[Tool]:
    """The tools of a session, of which those that only reach the network do not reach it."""
    alone: frozenset[Effect] = frozenset({"network"})
    return [Offline(tool) if tool.effects == alone else tool for tool in tools_of(settings, workspace)]


class Offline:
    """A tool as it is where there is no network."""

    def __init__(self, tool: Tool) -> None:
        self.document = tool.document
        self.effects = tool.effects
        self.price_nano = tool.price_nano
        self.limits = limits_of(tool)

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Fail at once, as it does there."""
        where = next((value for value in arguments.values() if isinstance(value, str)), self.document.name)
        raise ToolError(f"{where} could not be fetched: there is no network.")
