"""The sandbox of a task (a fresh workspace and home, tools without a network) and the checks of its result.

Checks examine the answer, the files, a command's exit status and the calls, never the exact wording.
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
from typing import Any

from ecoshell.assembly import tools_of
from ecoshell.assembly.tools import tool_options
from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.paths import Paths
from ecoshell.settings.schema import Settings
from ecoshell.tools import Tool, limits_of
from ecoshell.tools.builtin.commands import run_process, safe_environment
from ecoshell.tools.workspace import Workspace
from ecoshell_bench.tasks.report import Result
from ecoshell_bench.tasks.suite import REGEX_PREFIX, Task
from ecoshell_web import tools as web_tools

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
"""Separators between the thousands of a number."""
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")
_EXCERPT_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A folder that runs one task at a time; its paths stay the same because they appear in prompts."""

    folder: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "project"

    @property
    def paths(self) -> Paths:
        """The paths of an empty home: no settings, ledger or experience."""
        home = self.folder / "home"
        return Paths(home / "config", home / "data", home / "cache")

    async def prepare(self, task: Task) -> str:
        """Create an empty home and the task's workspace; return why its setup failed, or an empty text."""
        for folder in (self.workspace, self.folder / "home"):
            _remove(folder)
            folder.mkdir()
        _write(self.workspace, task.files)
        failure = await _run_in(self.workspace, task.setup) if task.setup else ""
        return f"The setup {failure}" if failure else ""


@contextmanager
def sandbox() -> Generator[Sandbox]:
    """Yield a sandbox and remove it afterwards; programs started by tasks get this Python, a git identity and no home.

    The path is the same in every run that has the machine to itself, so that prompts are identical.
    """
    base = Path(tempfile.gettempdir()) / f"ecoshell-bench-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    lock, folder = _lock_free_folder(base.resolve())
    _remove(folder)  # may be left from a run that was killed
    folder.mkdir(mode=0o700)
    settings = folder / "gitconfig"
    settings.write_text(_GIT, encoding="utf-8")
    changes = {
        "ECOSHELL_HOME": str(folder / "home"),
        "GIT_CONFIG_GLOBAL": str(settings),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(folder),
        "PATH": os.pathsep.join(
            (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
        ),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    original = dict(os.environ)
    os.environ.update(changes)
    try:
        yield Sandbox(folder)
    finally:
        for name in changes:
            os.environ.pop(name, None)
            if name in original:
                os.environ[name] = original[name]
        _remove(folder)
        os.close(lock)


def _lock_free_folder(base: Path) -> tuple[int, Path]:
    """Return the first folder no other process uses, and the lock that reserves it until this process ends.

    Names have one character as long as these suffice, so that prompts have the same length.
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
    """Write files below a folder; a path that ends in a slash creates a folder."""
    for name, text in files.items():
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")


def _remove(folder: Path) -> None:
    """Remove a folder tree, including folders whose permissions a task removed."""
    if not os.path.lexists(folder):
        return
    for subfolder, _, _ in os.walk(folder):
        Path(subfolder).chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def offline_tools(settings: Settings, workspace: Workspace) -> list[Tool]:
    """Return the built-in tools and a `fetch_url` that finds no network."""
    web = web_tools(tool_options(settings, workspace), {})
    return [
        *tools_of(settings, workspace),
        *(Offline(tool) for tool in web if tool.name == "fetch_url"),
    ]


class Offline:
    """A network tool whose calls all fail."""

    def __init__(self, tool: Tool) -> None:
        self.schema = tool.schema
        self.effects = tool.effects
        self.price_nano = tool.price_nano
        self.limits = limits_of(tool)

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Raise the error of an unreachable network."""
        target = next(
            (value for value in arguments.values() if isinstance(value, str)), self.schema.name
        )
        raise ToolError(f"{target} could not be fetched: there is no network.")


async def failures(task: Task, folder: Path, result: Result) -> list[str]:
    """Return the conditions of the task's check that do not hold; `folder` is the final workspace."""
    messages = [
        *_answer_failures(task, result.answer),
        *_call_failures(task, result),
        *_file_failures(task, folder),
    ]
    if task.check.command and (failure := await _command_failure(task, folder)):
        messages.append(failure)
    return messages


async def _command_failure(task: Task, folder: Path) -> str:
    """Write the check's own files, then run its command; return the failure, or an empty text."""
    try:
        _write(folder, task.check.files)
    except OSError as failure:
        return f"the check's files cannot be written: {failure.strerror}"
    failure = await _run_in(folder, task.check.command)
    return f"the command {failure}" if failure else ""


def _answer_failures(task: Task, answer: str) -> Iterator[str]:
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
    """Whether an answer contains a text, ignoring case, or a number, ignoring thousands separators.

    Numbers match whole: 4 is not in 42, but 1204 is in "1,204.0". Further decimals may follow: 3.14 is in 3.14159.
    """
    answer, text = _normalized(answer), _normalized(text)
    if not _NUMBER.fullmatch(text):
        return text in answer
    literal = rf"(?<![\d.]){re.escape(text)}" + ("" if "." in text else r"(?!\d|\.\d)")
    number = Decimal(text)
    return bool(re.search(literal, answer)) or any(
        Decimal(match) == number for match in _NUMBER.findall(answer)
    )


def _normalized(text: str) -> str:
    """Fold case, white space, minus signs and quotes, and remove thousands separators."""
    joined = _SEPARATORS.sub("", text)
    same = unicodedata.normalize("NFKC", joined).replace("−", "-").replace("’", "'")
    return " ".join(same.casefold().split())


def _call_failures(task: Task, result: Result) -> Iterator[str]:
    names = task.check.calls_any
    if names and not any(call["ok"] and call["name"] in names for call in result.called):
        yield f"no call of {' or '.join(names)} succeeded"
    if task.check.no_calls and result.calls:
        yield f"{result.calls} tools were called"


def _file_failures(task: Task, folder: Path) -> Iterator[str]:
    for name, expected in task.check.file.items():
        try:
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError as failure:
            yield f"{name} cannot be read: {failure.strerror}"
            continue
        if not _matches(text, expected):
            yield f"{name} is {json.dumps(text[:_EXCERPT_CHARACTERS], ensure_ascii=False)}"
    for name in task.check.file_absent:
        if os.path.lexists(folder / name):
            yield f"{name} exists"


def _matches(text: str, expected: str) -> bool:
    """Whether a file's text is as expected, ignoring surrounding white space.

    After REGEX_PREFIX, the expression must match somewhere. Otherwise the text must be equal, or the expected single
    line must match all of it as a regular expression.
    """
    if expected.startswith(REGEX_PREFIX):
        return bool(re.search(expected.removeprefix(REGEX_PREFIX), text, re.MULTILINE))
    text, expected = text.strip(), expected.strip()
    if text == expected or "\n" in expected:
        return text == expected
    try:
        return bool(re.fullmatch(expected, text))
    except re.error:
        return False


async def _run_in(folder: Path, command: str) -> str:
    """Run a shell command in a workspace; return how it failed, or an empty text for exit status 0."""
    try:
        process = await run_process(
            ["/bin/sh", "-c", command],
            folder=folder,
            environment=safe_environment(os.environ),
            seconds=COMMAND_SECONDS,
            window=4_000,
        )
    except ToolError as failure:
        return str(failure)
    if process.timed_out:
        return f"did not end within {COMMAND_SECONDS:.0f} seconds"
    return (
        f"exits with {process.status}: {process.output.strip()[-_EXCERPT_CHARACTERS:]}"
        if process.status
        else ""
    )
