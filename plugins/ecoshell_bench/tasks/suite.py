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
from ecoshell_bench.reading import Fields, read_objects

Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = ("dev", "test")
OTHER = "other"
"""The kind of a task that names none."""
REGEX = "re:"
"""What the content of a checked file begins with where it is a regular expression."""
_FIX = "docs/bench-tasks.md says what a task is."
_FIELDS = ("id", "kind", "split", "files", "setup", "request", "check")


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
    """The tasks of a file, of the packaged suite without one; raises UsageError that names the line.

    Tasks that name no split take turns within their kind, the first of each for dev.
    """
    if path is None:
        with as_file(files("ecoshell_bench.tasks") / "suite.jsonl") as packaged:
            return read_suite(packaged)
    tasks: dict[str, Task] = {}
    turns: Counter[str] = Counter()
    for place, record in read_objects(path):
        task = _Line(record, place, _FIX).task(SPLITS[turns[str(record.get("kind", OTHER))] % 2])
        if task.id in tasks:
            raise UsageError(f"{place} has the id {task.id!r}, which an earlier task has.", fix=_FIX)
        turns[task.kind] += "split" not in record
        tasks[task.id] = task
    if not tasks:
        raise UsageError(f"{path} has no tasks.", fix="Give a file with one task a line.")
    return tuple(tasks.values())


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


class _Line(Fields):
    """A line of a suite, or the check in it: everything that is there is known, and of its kind."""

    def task(self, split: Split) -> Task:
        self._only(_FIELDS)
        for name in ("id", "request", "kind"):
            if not self._text(name, OTHER if name == "kind" else "").strip():
                raise self.wrong(f"has no {name}")
        given = self.record.get("split", split)
        if given not in SPLITS:
            raise self.wrong(f"has the split {given!r}; there are dev and test")
        check = self.record.get("check")
        if not isinstance(check, dict) or not check:
            raise self.wrong(f"has no check, which is an object of {', '.join(Check.__dataclass_fields__)}")
        return Task(
            self._text("id"),
            self._text("kind", OTHER),
            given,
            self._text("request"),
            self._contents("files"),
            self._text("setup"),
            _Line(cast("object", check), self.place, _FIX).check(),
            hashlib.sha256(json.dumps(self.record, sort_keys=True).encode()).hexdigest()[:16],
        )

    def check(self) -> Check:
        self._only(Check.__dataclass_fields__)
        no_calls = self.record.get("no_calls", False)
        if not isinstance(no_calls, bool):
            raise self.wrong("has a no_calls that is neither true nor false")
        check = Check(
            answer_contains=tuple(self._alternatives(one) for one in self._several("answer_contains")),
            answer_lacks=tuple(self._as_text(one, "answer_lacks") for one in self._several("answer_lacks")),
            answer_regex=self._text("answer_regex"),
            file=self._contents("file"),
            file_absent=tuple(self._path(one, "file_absent") for one in self._several("file_absent")),
            command=self._text("command"),
            calls_any=tuple(self._as_text(one, "calls_any") for one in self._several("calls_any")),
            no_calls=no_calls,
        )
        if check == Check():
            raise self.wrong("has a check that asks for nothing")
        files = (text.removeprefix(REGEX) for text in check.file.values() if text.startswith(REGEX))
        for pattern in (check.answer_regex, *files):
            try:
                re.compile(pattern)
            except re.error as error:
                raise self.wrong(f"has the regular expression {pattern!r}, which is none: {error}") from error
        return check

    def _only(self, known: Sequence[str] | Mapping[str, Any]) -> None:
        for name in self.record:
            if name not in known:
                raise self.wrong(f"has {name!r}, which is none of {', '.join(sorted(known))}")

    def _text(self, name: str, usual: str = "") -> str:
        return self._as_text(self.record.get(name, usual), name)

    def _as_text(self, value: object, name: str) -> str:
        if isinstance(value, int | float) and not isinstance(value, bool) and name.startswith("answer"):
            return json.dumps(value)  # a number that is looked for
        if not isinstance(value, str):
            raise self.wrong(f"has {name} that is not a text")
        return value

    def _several(self, name: str) -> list[object]:
        """A list; a single text counts as a list of one."""
        value = self.record.get(name, [])
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list):
            raise self.wrong(f"has {name} that is not a list")
        return cast("list[object]", value)

    def _alternatives(self, value: object) -> tuple[str, ...]:
        several = cast("list[object]", value) if isinstance(value, list) else [value]
        found = tuple(self._as_text(one, "answer_contains") for one in several)
        if not found or not all(one.strip() for one in found):
            raise self.wrong("has an empty text in answer_contains")
        return found

    def _contents(self, name: str) -> dict[str, str]:
        """Texts by their paths in the workspace."""
        value = self.record.get(name, {})
        if not isinstance(value, dict):
            raise self.wrong(f"has {name} that is not an object of paths and texts")
        items = cast("dict[str, object]", value).items()
        return {self._path(path, name): self._as_text(text, name) for path, text in items}

    def _path(self, value: object, name: str) -> str:
        path = PurePosixPath(text := self._as_text(value, name))
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise self.wrong(f"has {value!r} in {name}, which is no path inside the workspace")
        return text
