"""Suites of tasks: requests, workspace files and checks (docs/benchmarks.md)."""

import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    TypeAdapter,
    model_validator,
)

from ecoshell.errors import UsageError
from ecoshell_bench.reading import Filled
from ecoshell_train.records import checked, read_objects

Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = ("dev", "test")
DEFAULT_KIND = "other"
CODE = "code"
"""The kind of the packaged programming tasks, which run only when requested."""
_CHECK_FOLDER = "_check"
"""The folder in the workspace that receives the hidden tests of a programming task."""
_TEST_RUNNER = "run_hidden_tests.py"
_RUN_HIDDEN_TESTS = f"python -P {_CHECK_FOLDER}/{_TEST_RUNNER}"
REGEX_PREFIX = "re:"
"""Marks the expected content of a file as a regular expression."""
_FIX = "The task format is described in docs/benchmarks.md."


def _number_as_text(value: object) -> object:
    return (
        json.dumps(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else value
    )


def _as_list(value: object) -> object:
    return cast("object", value) if isinstance(value, list) else [value]


def _pattern(text: str) -> str:
    try:
        re.compile(text.removeprefix(REGEX_PREFIX))
    except re.error as error:
        raise ValueError(f"{text!r} is not a valid regular expression: {error}") from error
    return text


def _inside(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{text!r} is not a path inside the workspace")
    return text


AnswerText = Annotated[Filled, BeforeValidator(_number_as_text)]
"""A text or number expected in an answer."""
Pattern = Annotated[str, AfterValidator(_pattern)]
Content = Annotated[
    str, AfterValidator(lambda text: _pattern(text) if text.startswith(REGEX_PREFIX) else text)
]
InnerPath = Annotated[str, AfterValidator(_inside)]
_LIST_OR_ITEM = BeforeValidator(_as_list)
"""Accepts a list, or a single item as a list of length 1."""


class Check(BaseModel):
    """Conditions that must hold after the task; empty fields impose none."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    answer_contains: Annotated[
        tuple[Annotated[tuple[AnswerText, ...], Field(min_length=1), _LIST_OR_ITEM], ...],
        _LIST_OR_ITEM,
    ] = ()
    """Required texts and numbers, each as a list of accepted alternatives."""
    answer_lacks: Annotated[tuple[AnswerText, ...], _LIST_OR_ITEM] = ()
    answer_regex: Pattern = ""
    file: dict[InnerPath, Content] = {}
    """Expected content by path: literal text, or a regular expression after REGEX_PREFIX."""
    file_absent: Annotated[tuple[InnerPath, ...], _LIST_OR_ITEM] = ()
    command: str = ""
    """A shell command that must exit with status 0 in the workspace."""
    files: dict[InnerPath, str] = {}
    """Files written to the workspace just before the command runs, such as hidden tests."""
    calls_any: Annotated[tuple[str, ...], _LIST_OR_ITEM] = ()
    """Tool names; at least one of them must have been called successfully."""
    no_calls: StrictBool = False

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if not any(getattr(self, name) for name in type(self).model_fields):
            raise ValueError("the check has no condition")
        if self.files and not self.command:
            raise ValueError("`files` needs a `command` that uses them")
        return self

    @property
    def only_forbids(self) -> bool:
        """Whether an empty answer without any action would pass; an answer is then required."""
        return not (
            self.answer_contains or self.answer_regex or self.file or self.command or self.calls_any
        )


class Task(BaseModel):
    """A request, its workspace files and its check."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: Filled
    kind: Filled = DEFAULT_KIND
    split: Split
    request: Filled
    files: dict[InnerPath, str] = {}
    """Text by path in the workspace; a path that ends in a slash is a folder."""
    setup: str = ""
    """A shell command that runs in the workspace after the files are written."""
    check: Check
    digest: str
    """Identifies the task's content, so that results of an edited task are not reused."""


def read_suite(path: Path | None) -> tuple[Task, ...]:
    """Return the tasks of a JSON Lines file or of a folder; without a path, those of the packaged file.

    Tasks without a split alternate within their kind, starting with dev. Raises UsageError, which names the line or
    the file.
    """
    if path is None:
        with as_file(files("ecoshell_bench.tasks") / "suite.jsonl") as packaged:
            return read_suite(packaged)
    adapter, tasks, turns = TypeAdapter(Task), dict[str, Task](), Counter[str]()
    for place, record in _read_folder(path) if path.is_dir() else read_objects(path):
        digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]
        split = SPLITS[turns[str(record.get("kind", DEFAULT_KIND))] % 2]
        task = checked(adapter, {"split": split, **record, "digest": digest}, place, _FIX)
        if task.id in tasks:
            raise UsageError(f"{place} repeats the id {task.id!r}.", fix=_FIX)
        turns[task.kind] += "split" not in record
        tasks[task.id] = task
    if not tasks:
        raise UsageError(
            f"{path} has no tasks.",
            fix="Give a file with one task per line, or a folder of task folders.",
        )
    return tuple(tasks.values())


def read_code_tasks() -> tuple[Task, ...]:
    """Return the packaged programming tasks."""
    with as_file(files("ecoshell_bench.tasks") / CODE) as packaged:
        return read_suite(packaged)


def _read_folder(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the record of each task folder in `path`, with the path of its `task.toml`."""
    for toml in sorted(path.glob("*/task.toml")):
        try:
            record = tomllib.loads(toml.read_text(encoding="utf-8"))
            workspace, hidden = _read_contents(path, toml.parent, record.pop("base", None))
        except (OSError, ValueError) as failure:
            raise UsageError(f"{toml.parent} cannot be read: {failure}.", fix=_FIX) from failure
        record = {"id": toml.parent.name, "kind": CODE, "files": workspace, **record}
        if hidden:
            runner = (files("ecoshell_bench.tasks") / _TEST_RUNNER).read_text(encoding="utf-8")
            added = {
                f"{_CHECK_FOLDER}/{name}": text
                for name, text in {**hidden, _TEST_RUNNER: runner}.items()
            }
            check = cast("Mapping[str, Any]", record.get("check", {}))
            record["check"] = {"command": _RUN_HIDDEN_TESTS, "files": added, **check}
        yield str(toml), record


def _read_contents(suite: Path, task: Path, base: object) -> tuple[dict[str, str], dict[str, str]]:
    """Return the workspace files and hidden tests of a task folder, merged over those of its base folder."""
    layers = [task]
    if base is not None:
        if not isinstance(base, str) or not (suite / _inside(base)).is_dir():
            raise ValueError(f"the base {base!r} is not a folder of the suite")
        layers.insert(0, suite / base)
    workspace, hidden = (
        {name: text for layer in layers for name, text in _texts(layer / part).items()}
        for part in ("files", "hidden")
    )
    return dict(sorted(workspace.items(), key=_path_parts)), dict(
        sorted(hidden.items(), key=_path_parts)
    )


def _path_parts(item: tuple[str, str]) -> tuple[str, ...]:
    return PurePosixPath(item[0]).parts


def _texts(folder: Path) -> dict[str, str]:
    """Return the text of each file in a folder by relative path, skipping bytecode."""
    paths = (
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def select_tasks(
    tasks: Sequence[Task],
    *,
    split: str | None,
    kinds: Sequence[str],
    only: Sequence[str],
    limit: int | None,
) -> tuple[Task, ...]:
    """Return the first `limit` tasks that match the split, kinds and ids; an empty filter matches every task."""
    filters = (
        ("kind", kinds, {task.kind for task in tasks}),
        ("id", only, {task.id for task in tasks}),
    )
    for name, requested, available in filters:
        for value in requested:
            if value not in available:
                names = ", ".join(sorted(available)[:40])
                raise UsageError(f"No task has the {name} {value!r}.", fix=f"Available: {names}.")
    selected = [
        task
        for task in tasks
        if split in (None, task.split)
        and (not kinds or task.kind in kinds)
        and (not only or task.id in only)
    ]
    if not selected:
        raise UsageError("No task matches.", fix="Change --split, --kind or --only.")
    return tuple(selected[:limit])
