"""What each side did at each task, in a file that grows as they finish, so that an interrupted run goes on.

The file is JSON Lines: a heading that says what was measured of whom, then one line for each task and side. A line that
was being written when the process died is dropped; a result of a task that was changed since is not used.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from ecoshell.errors import StoreError, UsageError
from ecoshell.files import remedy
from ecoshell.messages import FINISH, META_TOOLS, Usage
from ecoshell_bench.tasks.suite import Task
from ecoshell_bench.trajectories import read_objects

Side = Literal["ecoshell", "baseline"]
_SHOWN = 300
"""Characters of a call's result that are kept."""
_FIX = "Give another file with --out, or remove this one."


@dataclass(slots=True)
class Result:
    """One side at one task: filled in while it runs, so that it says what was done also when that is cut short."""

    id: str
    kind: str
    side: Side
    task: str
    """The digest of the task."""
    ok: bool = False
    wrong: list[str] = field(default_factory=list[str])
    """What the check found wrong; empty when all is right."""
    answer: str = ""
    status: str = "error"
    """How it ended: answered, gave_up, limit (of steps), timeout, error, or setup (the task could not be prepared)."""
    error: str = ""
    steps: int = 0
    registered: list[str] = field(default_factory=list[str])
    called: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Calls in order: name, arguments, ok, which guard refused it (refused), and how the result begins (result)."""
    prompt: int = 0
    cached: int = 0
    output: int = 0
    seconds: float = 0.0
    spent_nano: int | None = 0

    @property
    def calls(self) -> int:
        """How many tools were called, also in vain; registering and searching are no use of a tool."""
        return sum(call["name"] not in META_TOOLS for call in self.called)

    @property
    def repeats(self) -> int:
        """How often the call that was made most was made; one that a guard refused was not made."""
        made = Counter(
            json.dumps([call["name"], call["arguments"]], sort_keys=True, default=str)
            for call in self.called
            if call["name"] != FINISH and not call["refused"]
        )
        return max(made.values(), default=0)

    @property
    def stuck(self) -> bool:
        """Whether it ended without an answer of its own, its last two calls having failed in the same words."""
        last = [call["result"] for call in self.called[-2:] if not call["ok"]]
        return self.status != "answered" and len(last) == 2 and last[0] == last[1]

    def begin_call(self, name: str, arguments: Mapping[str, Any]) -> Callable[..., None]:
        """Note a call; what is given back is called when it has ended, with `ok`, its `text` and who `refused` it."""
        noted = {"name": name, "arguments": dict(arguments), "ok": False, "refused": "", "result": ""}
        self.called.append(noted)

        def end(*, ok: bool, text: str, refused: str = "") -> None:
            noted.update(ok=ok, refused=refused, result=text[:_SHOWN])

        return end

    def count(self, usage: Usage) -> None:
        """Add the tokens of a model call."""
        self.prompt += usage.input
        self.cached += usage.cached
        self.output += usage.output


class ResultsFile:
    """The results in a file; those that stand there when it is opened are `known`. Raises UsageError."""

    def __init__(self, path: Path, heading: Mapping[str, Any], *, goes_on: bool) -> None:
        """A file with results is gone on with, if it has the same heading, or refused; as `goes_on` says."""
        self.path = path
        self.known: dict[tuple[str, Side], Result] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as failure:
            raise UsageError(f"{path} cannot be written: {failure.strerror}.", fix="Name another file.") from failure
        try:
            self._drop_torn_line()
            if self._file.tell() and not goes_on:
                raise UsageError(
                    f"{path} has results already.", kept="It stays.", fix=f"--resume {path} goes on there."
                )
            self._read(heading)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # of what could not be written, as was said then
            self._file.close()

    def add(self, result: Result) -> None:
        """Write a result down before anything else is asked."""
        self.known[result.id, result.side] = result
        self._write(asdict(result))

    def of(self, side: Side, tasks: Iterable[Task]) -> list[Result]:
        """The results of a side at these tasks, as they are now, in the order of the tasks."""
        found = [(task, self.known.get((task.id, side))) for task in tasks]
        return [result for task, result in found if result is not None and result.task == task.digest]

    def _write(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(record, default=str).encode() + b"\n")
            self._file.flush()
        except OSError as failure:
            fix = remedy(failure, "Name another file.")
            message = f"{self.path} cannot be written: {failure.strerror}."
            raise StoreError(
                message, kept="What stands there is kept, and a further run can go on there.", fix=fix
            ) from failure

    def _drop_torn_line(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        if not content.endswith(b"\n"):
            self._file.truncate(content.rfind(b"\n") + 1)
            self._file.seek(0, 2)

    def _read(self, heading: Mapping[str, Any]) -> None:
        lines = read_objects(self.path)
        first = next(lines, None)
        if first is None:
            self._write(heading)
            return
        place, found = first
        for key, value in heading.items():
            if found.get(key) != value:
                told = f"{place}: these are results with another {key}: {found.get(key)!r}, not {value!r}."
                raise UsageError(told, kept="They stay.", fix=_FIX)
        for place, record in lines:
            result = _result(record, place)
            self.known[result.id, result.side] = result


def read_baseline(path: Path, model: str) -> list[Result]:
    """What the plain loop did in an earlier run with this model; raises UsageError."""
    lines = read_objects(path)
    heading = next(lines, None)
    whose = None if heading is None else heading[1].get("baseline_model")
    if whose != model:
        raise UsageError(f"{path}: the plain loop there has the model {whose!r}, not {model!r}.", fix="Name another.")
    results = [_result(record, place) for place, record in lines]
    return [result for result in results if result.side == "baseline"]


def _result(record: Mapping[str, Any], place: str) -> Result:
    try:
        return Result(**record)
    except TypeError as failure:
        raise UsageError(f"{place} is not a result: {failure}.", kept="It stays.", fix=_FIX) from failure
