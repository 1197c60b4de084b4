"""Whether a task was done: by the answer, the files, a command and the calls, never by wording."""

import json
import os
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path

from ecoshell.errors import ToolError
from ecoshell.tools.builtin.processes import run_process, safe_environment
from ecoshell_bench.tasks.results import Result
from ecoshell_bench.tasks.suite import REGEX, Task

COMMAND_SECONDS = 60.0
_SEPARATORS = re.compile(r"(?<=\d)(?:\\?,|\{,\}|[\u00a0\u202f\u2009'’_])(?=\d{3}(?!\d))")
"""What stands between the thousands of a number."""
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")
_SHOWN = 200


async def wrongs(task: Task, folder: Path, result: Result) -> list[str]:
    """What is not as the task's check wants it; `folder` is the workspace afterwards."""
    found = [*_in_answer(task, result.answer), *_in_calls(task, result), *_in_files(task, folder)]
    if task.check.command and (told := await run_in(folder, task.check.command)):
        found.append(f"the command {told}")
    return found


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
    return bool(re.search(literal, said)) or any(_equal(found, wanted) for found in _NUMBER.findall(said))


def _plain(text: str) -> str:
    """Lower case, one kind of blank, minus and quote, and no separators between thousands."""
    joined = _SEPARATORS.sub("", text)
    same = unicodedata.normalize("NFKC", joined).replace("−", "-").replace("’", "'")
    return " ".join(same.casefold().split())


def _equal(found: str, wanted: str) -> bool:
    try:
        return Decimal(found) == Decimal(wanted)
    except InvalidOperation:
        return False


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


async def run_in(folder: Path, command: str) -> str:
    """Run a shell command in a workspace; how it failed, empty when it exits with 0."""
    try:
        ended = await run_process(
            ["/bin/sh", "-c", command],
            folder=folder,
            environment=safe_environment(os.environ),
            seconds=COMMAND_SECONDS,
            window=4_000,
        )
    except ToolError as failure:
        return str(failure)
    if ended.timed_out:
        return f"did not end within {COMMAND_SECONDS:.0f} seconds"
    return f"exits with {ended.status}: {ended.output.strip()[-_SHOWN:]}" if ended.status else ""
