"""A suite of tasks: requests in workspaces of their own, and what must be true afterwards (docs/benchmarks.md)."""

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
OTHER = "other"
"""The kind of a task that names none."""
CODE = "code"
"""The kind of the packaged programming tasks, which are played only when they are asked for."""
_CHECK_FOLDER = "_check"
"""The folder in the workspace that receives the hidden tests of a programming task."""
_TEST_RUNNER = "run_hidden_tests.py"
_RUN_HIDDEN_TESTS = f"python -P {_CHECK_FOLDER}/{_TEST_RUNNER}"
REGEX = "re:"
"""What the content of a checked file begins with where it is a regular expression."""
_FIX = "docs/benchmarks.md says what a task is."


def _number_as_text(value: object) -> object:
    return json.dumps(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _as_list(value: object) -> object:
    return cast("object", value) if isinstance(value, list) else [value]


def _pattern(text: str) -> str:
    try:
        re.compile(text.removeprefix(REGEX))
    except re.error as error:
        raise ValueError(f"the regular expression {text!r} is none: {error}") from error
    return text


def _inside(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{text!r} is no path inside the workspace")
    return text


Told = Annotated[Filled, BeforeValidator(_number_as_text)]
"""A text that an answer may have; a number is one, too."""
Pattern = Annotated[str, AfterValidator(_pattern)]
Content = Annotated[str, AfterValidator(lambda text: _pattern(text) if text.startswith(REGEX) else text)]
Place = Annotated[str, AfterValidator(_inside)]
_ONE_OR_MORE = BeforeValidator(_as_list)
"""A list; what is none counts as a list of one."""


class Check(BaseModel):
    """What must be true afterwards; what is empty is not asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    answer_contains: Annotated[
        tuple[Annotated[tuple[Told, ...], Field(min_length=1), _ONE_OR_MORE], ...], _ONE_OR_MORE
    ] = ()
    """Texts and numbers, each with what may stand in its place."""
    answer_lacks: Annotated[tuple[Told, ...], _ONE_OR_MORE] = ()
    answer_regex: Pattern = ""
    file: dict[Place, Content] = {}
    """Paths and their content, or a regular expression after REGEX."""
    file_absent: Annotated[tuple[Place, ...], _ONE_OR_MORE] = ()
    command: str = ""
    """Exits with 0 in the workspace when all is right."""
    files: dict[Place, str] = {}
    """Files that are written to the workspace just before the command runs, such as hidden tests."""
    calls_any: Annotated[tuple[str, ...], _ONE_OR_MORE] = ()
    """Tools of which one at least was called with success."""
    no_calls: StrictBool = False

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if not any(getattr(self, name) for name in type(self).model_fields):
            raise ValueError("it asks for nothing")
        if self.files and not self.command:
            raise ValueError("`files` needs a `command` that uses them")
        return self

    @property
    def only_forbids(self) -> bool:
        """Whether doing and saying nothing would pass; then there must be an answer."""
        return not (self.answer_contains or self.answer_regex or self.file or self.command or self.calls_any)


class Task(BaseModel):
    """One request, the files it is about, and its check."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: Filled
    kind: Filled = OTHER
    split: Split
    request: Filled
    files: dict[Place, str] = {}
    """Paths in the workspace and their text; one that ends in a slash is a folder."""
    setup: str = ""
    """A shell command that is run in the workspace once the files are there."""
    check: Check
    digest: str
    """Says whether a result is of this very task."""


def read_suite(path: Path | None) -> tuple[Task, ...]:
    """Return the tasks of a JSON Lines file or of a folder; without a path, those of the packaged file.

    Tasks that name no split take turns within their kind, the first of each for dev. Raises UsageError, which names
    the line or the file.
    """
    if path is None:
        with as_file(files("ecoshell_bench.tasks") / "suite.jsonl") as packaged:
            return read_suite(packaged)
    adapter, tasks, turns = TypeAdapter(Task), dict[str, Task](), Counter[str]()
    for place, record in _read_folder(path) if path.is_dir() else read_objects(path):
        digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]
        split = SPLITS[turns[str(record.get("kind", OTHER))] % 2]
        task = checked(adapter, {"split": split, **record, "digest": digest}, place, _FIX)
        if task.id in tasks:
            raise UsageError(f"{place} has the id {task.id!r}, which an earlier task has.", fix=_FIX)
        turns[task.kind] += "split" not in record
        tasks[task.id] = task
    if not tasks:
        raise UsageError(f"{path} has no tasks.", fix="Give a file with one task a line, or a folder of task folders.")
    return tuple(tasks.values())


def read_code_tasks() -> tuple[Task, ...]:
    """Return the packaged programming tasks."""
    with as_file(files("ecoshell_bench.tasks") / CODE) as packaged:
        return read_suite(packaged)


def _read_folder(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the record of each task folder in `path`, with the path of its `task.toml`."""
    for place in sorted(path.glob("*/task.toml")):
        try:
            record = tomllib.loads(place.read_text(encoding="utf-8"))
            workspace, hidden = _read_contents(path, place.parent, record.pop("base", None))
        except (OSError, ValueError) as failure:
            raise UsageError(f"{place.parent} cannot be read: {failure}.", fix=_FIX) from failure
        record = {"id": place.parent.name, "kind": CODE, "files": workspace, **record}
        if hidden:
            runner = (files("ecoshell_bench.tasks") / _TEST_RUNNER).read_text(encoding="utf-8")
            added = {f"{_CHECK_FOLDER}/{name}": text for name, text in {**hidden, _TEST_RUNNER: runner}.items()}
            check = cast("Mapping[str, Any]", record.get("check", {}))
            record["check"] = {"command": _RUN_HIDDEN_TESTS, "files": added, **check}
        yield str(place), record


def _read_contents(suite: Path, task: Path, base: object) -> tuple[dict[str, str], dict[str, str]]:
    """Return the workspace files and hidden tests of a task folder, laid over those of its base folder."""
    layers = [task]
    if base is not None:
        if not isinstance(base, str) or not (suite / _inside(base)).is_dir():
            raise ValueError(f"its base {base!r} is not a folder of the suite")
        layers.insert(0, suite / base)
    workspace, hidden = (
        {name: text for layer in layers for name, text in _texts(layer / part).items()} for part in ("files", "hidden")
    )
    return dict(sorted(workspace.items(), key=_path_parts)), dict(sorted(hidden.items(), key=_path_parts))


def _path_parts(item: tuple[str, str]) -> tuple[str, ...]:
    return PurePosixPath(item[0]).parts


def _texts(folder: Path) -> dict[str, str]:
    """Return the text of each file in a folder by its path there, without bytecode."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


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
