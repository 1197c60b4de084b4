"""Where tasks are played, a workspace and a home made anew for each and tools without a network; and what came of them.

Whether a task was done is seen in the answer, the files, a command and the calls, never in wording.
"""

import fcntl
import json
import os
import re
import shutil
import stat
import string
import sys
import tempfile
import unicodedata
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshell.assembly import tools_of
from ecoshell.errors import ToolError
from ecoshell.messages import Effect, Observation
from ecoshell.paths import Paths
from ecoshell.tools import Tool, limits_of
from ecoshell.tools.builtin.commands import run_process, safe_environment
from ecoshell.tools.workspace import Workspace
from ecoshell_bench.tasks.report import Result
from ecoshell_bench.tasks.suite import REGEX, Task

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import Settings

COMMAND_SECONDS = 60.0
_GIT = """[user]
name = Sam Field
email = sam@example.com
[init]
defaultBranch = main
[advice]
detachedHead = false
"""
_SEPARATORS = re.compile(r"(?<=\d)(?:\\?,|\{,\}|[\u00a0\u202f\u2009'’_])(?=\d{3}(?!\d))")
"""What stands between the thousands of a number."""
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Sandbox:
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
        _write(self.workspace, task.files)
        told = await _run_in(self.workspace, task.setup) if task.setup else ""
        return f"The setup {told}" if told else ""


@contextmanager
def sandbox() -> Generator[Sandbox]:
    """A sandbox, taken away at the end; programs that tasks start find this Python, git with a name, and no home.

    Its place is the same for every run that has the machine to itself, so that prompts are.
    """
    base = Path(tempfile.gettempdir()) / f"ecoshell-bench-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    held, folder = _first_free(base.resolve())
    _remove(folder)  # of a run that was killed
    folder.mkdir(mode=0o700)
    settings = folder / "gitconfig"
    settings.write_text(_GIT, encoding="utf-8")
    changes = {
        "ECOSHELL_HOME": str(folder / "home"),
        "GIT_CONFIG_GLOBAL": str(settings),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(folder),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield Sandbox(folder)
    finally:
        for name in changes:
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]
        _remove(folder)
        os.close(held)


def _first_free(base: Path) -> tuple[int, Path]:
    """The first place that nobody holds: a lock, which ends with the process, and a folder.

    Their names are of one length, so that prompts are, for as many as a machine has as a rule.
    """
    names = chain(string.digits[1:] + string.ascii_letters, map(str, count(100)))
    while True:
        name = next(names)
        lock = os.open(base / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return lock, base / name


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files below a folder; a path that ends in a slash makes a folder."""
    for name, text in files.items():
        place = folder / name
        if name.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", newline="")


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


# What came of a task


async def failures(task: Task, folder: Path, result: Result) -> list[str]:
    """What is not as the task's check wants it; `folder` is the workspace afterwards."""
    found = [*_in_answer(task, result.answer), *_in_calls(task, result), *_in_files(task, folder)]
    if task.check.command and (wrong := await _in_command(task, folder)):
        found.append(wrong)
    return found


async def _in_command(task: Task, folder: Path) -> str:
    """Write the check's own files, then run its command; return what went wrong, empty if nothing did."""
    try:
        _write(folder, task.check.files)
    except OSError as failure:
        return f"the check's files cannot be written: {failure.strerror}"
    failed = await _run_in(folder, task.check.command)
    return f"the command {failed}" if failed else ""


def _in_answer(task: Task, answer: str) -> Iterator[str]:
    check = task.check
    for texts in check.answer_contains:
        if not any(contains(answer, text) for text in texts):
            yield f"the answer has no {' or '.join(map(repr, texts))}"
    for text in check.answer_lacks:
        if contains(answer, text):
            yield f"the answer has {text!r}"
    if check.answer_regex and not re.search(check.answer_regex, answer, re.IGNORECASE):
        yield f"the answer does not match {check.answer_regex!r}"
    if check.only_forbids and not answer.strip():
        yield "there is no answer"


def contains(answer: str, text: str) -> bool:
    """Whether a text is in an answer, in any case; a number, whatever separates its thousands.

    A number stands for itself alone: 4 is not in 42, but 1204 is in "1,204.0", and 3.14 in 3.14159.
    """
    said, wanted = _plain(answer), _plain(text)
    if not _NUMBER.fullmatch(wanted):
        return wanted in said
    literal = rf"(?<![\d.]){re.escape(wanted)}" + ("" if "." in wanted else r"(?!\d|\.\d)")
    number = Decimal(wanted)
    return bool(re.search(literal, said)) or any(Decimal(found) == number for found in _NUMBER.findall(said))


def _plain(text: str) -> str:
    """Lower case, one kind of blank, minus and quote, and no separators between thousands."""
    joined = _SEPARATORS.sub("", text)
    same = unicodedata.normalize("NFKC", joined).replace("−", "-").replace("’", "'")
    return " ".join(same.casefold().split())


def _in_calls(task: Task, result: Result) -> Iterator[str]:
    wanted = task.check.calls_any
    if wanted and not any(call["ok"] and call["name"] in wanted for call in result.called):
        yield f"no call of {' or '.join(wanted)} succeeded"
    if task.check.no_calls and result.calls:
        yield f"{result.calls} tools were called"


def _in_files(task: Task, folder: Path) -> Iterator[str]:
    for name, wanted in task.check.file.items():
        try:
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError as failure:
            yield f"{name} cannot be read: {failure.strerror}"
            continue
        if not _has(text, wanted):
            yield f"{name} is {json.dumps(text[:_SHOWN], ensure_ascii=False)}"
    for name in task.check.file_absent:
        if os.path.lexists(folder / name):
            yield f"{name} is there"


def _has(text: str, wanted: str) -> bool:
    """Whether a file's text is what is wanted: found, where that is marked as a regular expression, else all of it.

    A single line may be a regular expression that all of it matches, too.
    """
    if wanted.startswith(REGEX):
        return bool(re.search(wanted.removeprefix(REGEX), text, re.MULTILINE))
    if text.strip() == wanted.strip() or "\n" in wanted.strip():
        return text.strip() == wanted.strip()
    try:
        return bool(re.fullmatch(wanted.strip(), text.strip()))
    except re.error:
        return False


async def _run_in(folder: Path, command: str) -> str:
    """Run a shell command in a workspace; how it failed, empty when it exits with 0."""
    shell, environment = ["/bin/sh", "-c", command], safe_environment(os.environ)
    try:
        ended = await run_process(shell, folder=folder, environment=environment, seconds=COMMAND_SECONDS, window=4_000)
    except ToolError as failure:
        return str(failure)
    if ended.timed_out:
        return f"did not end within {COMMAND_SECONDS:.0f} seconds"
    return f"exits with {ended.status}: {ended.output.strip()[-_SHOWN:]}" if ended.status else ""
