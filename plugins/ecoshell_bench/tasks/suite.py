"""A suite of tasks: requests in workspaces of their own, and what must be true afterwards (docs/bench-tasks.md)."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

from ecoshell.errors import UsageError
from ecoshell_bench.trajectories import read_objects

Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = ("dev", "test")
OTHER = "other"
"""The kind of a task that names none."""
REGEX = "re:"
"""What the content of a checked file begins with where it is a regular expression."""
_FIELDS = frozenset({"id", "kind", "split", "files", "setup", "request", "check"})
_CHECKS = (
    "answer_contains",
    "answer_lacks",
    "answer_regex",
    "file",
    "file_absent",
    "command",
    "calls_any",
    "no_calls",
)


@dataclass(frozen=True, slots=True)
class Check:
    """What must be true afterwards; what is empty is not asked for."""

    answer_contains: tuple[tuple[str, ...], ...] = ()
    """Texts and numbers, each with what may stand in its place."""
    answer_lacks: tuple[str, ...] = ()
    answer_regex: str = ""
    file: Mapping[str, str] = field(default_factory=dict[str, str])
    """Paths and their content, or a regular expression after REGEX."""
    file_absent: tuple[str, ...] = ()
    command: str = ""
    """Exits with 0 in the workspace when all is right."""
    calls_any: tuple[str, ...] = ()
    """Tools of which one at least was called with success."""
    no_calls: bool = False

    @property
    def only_forbids(self) -> bool:
        """Whether doing and saying nothing would pass; then there must be an answer."""
        return not (self.answer_contains or self.answer_regex or self.file or self.command or self.calls_any)


@dataclass(frozen=True, slots=True)
class Task:
    """One request, the files it is about, and its check; `digest` says whether a result is of this very task."""

    id: str
    kind: str
    split: Split
    request: str
    files: Mapping[str, str]
    """Paths in the workspace and their text; one that ends in a slash is a folder."""
    setup: str
    """A shell command that is run in the workspace once the files are there."""
    check: Check
    digest: str


def read_suite(path: Path | None) -> tuple[Task, ...]:
    """The tasks of a file, of the packaged suite without one; raises UsageError that names the line."""
    if path is not None:
        return _read(path)
    with as_file(files("ecoshell_bench.tasks") / "suite.jsonl") as packaged:
        return _read(packaged)


def _read(path: Path) -> tuple[Task, ...]:
    """Tasks that name no split take turns within their kind, the first of each for dev."""
    tasks: list[Task] = []
    turns: Counter[str] = Counter()
    for place, record in read_objects(path):
        task = _task(record, place, SPLITS[turns[str(record.get("kind", OTHER))] % 2])
        if any(task.id == other.id for other in tasks):
            raise _wrong(place, f"has the id {task.id!r}, which an earlier task has")
        turns[task.kind] += "split" not in record
        tasks.append(task)
    if not tasks:
        raise UsageError(f"{path} has no tasks.", fix="Give a file with one task a line.")
    return tuple(tasks)


def chosen(
    tasks: Sequence[Task], *, split: str | None, kinds: Sequence[str], only: Sequence[str], limit: int | None
) -> tuple[Task, ...]:
    """The tasks of a split, of these kinds and with these ids, where any are named; the first `limit` of them."""
    for name, wanted, known in (("kind", kinds, {task.kind for task in tasks}), ("id", only, {t.id for t in tasks})):
        for one in wanted:
            if one not in known:
                raise UsageError(f"No task has the {name} {one!r}.", fix=f"There are {', '.join(sorted(known)[:40])}.")
    found = [
        task
        for task in tasks
        if split in (None, task.split) and (not kinds or task.kind in kinds) and (not only or task.id in only)
    ]
    if not found:
        raise UsageError("No task is left.", fix="Ask for another --split, --kind or --only.")
    return tuple(found[:limit])


def _task(record: Mapping[str, Any], place: str, split: Split) -> Task:
    _only(record, _FIELDS, place)
    texts = {name: _text(record.get(name, usual), name, place) for name, usual in _TEXTS.items()}
    for name in ("id", "request", "kind"):
        if not texts[name].strip():
            raise _wrong(place, f"has no {name}")
    given = record.get("split", split)
    if given not in SPLITS:
        raise _wrong(place, f"has the split {given!r}; there are dev and test")
    contents = _texts_by_path(record.get("files", {}), "files", place)
    check = _check(record.get("check"), place)
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]
    return Task(texts["id"], texts["kind"], given, texts["request"], contents, texts["setup"], check, digest)


_TEXTS = {"id": "", "kind": OTHER, "request": "", "setup": ""}
"""The fields of a task that are texts, and what stands for one that is left out."""


def _check(value: object, place: str) -> Check:
    if not isinstance(value, dict) or not value:
        raise _wrong(place, f"has no check, which is an object of {', '.join(_CHECKS)}")
    record = cast("Mapping[str, Any]", value)
    _only(record, frozenset(_CHECKS), place)
    check = Check(
        tuple(_alternatives(one, place) for one in _list(record, "answer_contains", place)),
        tuple(_text(one, "answer_lacks", place) for one in _list(record, "answer_lacks", place)),
        _text(record.get("answer_regex", ""), "answer_regex", place),
        _texts_by_path(record.get("file", {}), "file", place),
        tuple(_path(one, "file_absent", place) for one in _list(record, "file_absent", place)),
        _text(record.get("command", ""), "command", place),
        tuple(_text(one, "calls_any", place) for one in _list(record, "calls_any", place)),
        record.get("no_calls", False),
    )
    if not isinstance(record.get("no_calls", False), bool):
        raise _wrong(place, "has a no_calls that is neither true nor false")
    if check == Check():
        raise _wrong(place, "has a check that asks for nothing")
    for pattern in (check.answer_regex, *(text.removeprefix(REGEX) for text in check.file.values() if _is_regex(text))):
        try:
            re.compile(pattern)
        except re.error as error:
            raise _wrong(place, f"has the regular expression {pattern!r}, which is none: {error}") from error
    return check


def _is_regex(text: str) -> bool:
    return text.startswith(REGEX)


def _alternatives(value: object, place: str) -> tuple[str, ...]:
    several = cast("list[object]", value) if isinstance(value, list) else [value]
    found = tuple(_text(one, "answer_contains", place) for one in several)
    if not found or not all(one.strip() for one in found):
        raise _wrong(place, "has an empty text in answer_contains")
    return found


def _list(record: Mapping[str, Any], name: str, place: str) -> list[object]:
    """A list; a single text counts as a list of one."""
    value = record.get(name, [])
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise _wrong(place, f"has {name} that is not a list")
    return cast("list[object]", value)


def _texts_by_path(value: object, name: str, place: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong(place, f"has {name} that is not an object of paths and texts")
    items = cast("dict[str, object]", value).items()
    return {_path(path, name, place): _text(text, name, place) for path, text in items}


def _path(value: object, name: str, place: str) -> str:
    path = PurePosixPath(_text(value, name, place))
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise _wrong(place, f"has {value!r} in {name}, which is no path inside the workspace")
    return str(value)


def _text(value: object, name: str, place: str) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and name.startswith("answer"):
        return json.dumps(value)  # a number that is looked for
    if not isinstance(value, str):
        raise _wrong(place, f"has {name} that is not a text")
    return value


def _only(record: Mapping[str, Any], known: frozenset[str], place: str) -> None:
    for name in record:
        if name not in known:
            raise _wrong(place, f"has {name!r}, which is none of {', '.join(sorted(known))}")


def _wrong(place: str, what: str) -> UsageError:
    return UsageError(f"{place} {what}.", fix="docs/bench-tasks.md says what a task is.")
