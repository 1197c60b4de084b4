"""A file of results that grows as they arrive, so that an interrupted run can be resumed.

The file is JSON Lines: a heading with the conditions of the run, then one line per result. A line that was cut when
the process died is dropped, and its result is measured again.
"""

import json
from collections.abc import Hashable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic import TypeAdapter

from ecoshell.errors import StoreError, UsageError
from ecoshell.paths import remedy
from ecoshell_train.records import checked, read_objects

_FIX = "Give another file with --out, or remove this one."


class Keyed(Protocol):
    """A dataclass with a unique key."""

    @property
    def key(self) -> Hashable: ...


ResultType = TypeVar("ResultType", bound=Keyed)


class ResultsFile(Generic[ResultType]):
    """The results of a file `by_key`, including those it had when it was opened."""

    def __init__(
        self, path: Path, heading: Mapping[str, Any], kind: type[ResultType], *, resume: bool = True
    ) -> None:
        """Open or create the file; raises UsageError for a different heading, or for any results without `resume`."""
        self.path = path
        self.by_key: dict[Hashable, ResultType] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes() if path.exists() else b""
            self._file = path.open("ab")
        except OSError as failure:
            raise UsageError(
                f"{path} cannot be written: {failure.strerror}.", fix="Name another file."
            ) from failure
        with ExitStack() as closing:
            closing.callback(self.close)
            self._file.truncate(size := content.rfind(b"\n") + 1)
            if size and not resume:
                raise UsageError(
                    f"{path} already has results.",
                    kept="They are kept.",
                    fix=f"Add --resume {path}.",
                )
            if size:
                stored_heading, results = read_results(path, kind)
                for key, value in heading.items():
                    if stored_heading.get(key) != value:
                        message = f"{path}:1 has results with {key} {stored_heading.get(key)!r}, not {value!r}."
                        raise UsageError(message, kept="They are kept.", fix=_FIX)
                self.by_key = {result.key: result for result in results}
            else:
                self._write(heading)
            closing.pop_all()

    def close(self) -> None:
        with suppress(OSError):  # every write was flushed, and its errors were raised
            self._file.close()

    def add(self, result: ResultType) -> None:
        """Write a result to the file at once."""
        self.by_key[result.key] = result
        self._write(asdict(cast("Any", result)))

    def _write(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(record, default=str).encode() + b"\n")
            self._file.flush()
        except OSError as failure:
            raise StoreError(
                f"{self.path} cannot be written: {failure.strerror}.",
                kept="The results in the file are kept, and the run can be resumed.",
                fix=remedy(failure, "Name another file."),
            ) from failure


def read_results(path: Path, kind: type[ResultType]) -> tuple[Mapping[str, Any], list[ResultType]]:
    """Return the heading of a file and its results; raises UsageError."""
    lines = read_objects(path)
    _, heading = next(lines, ("", dict[str, Any]()))
    adapter = TypeAdapter(kind)
    return heading, [checked(adapter, record, place, _FIX) for place, record in lines]


def known_sum(amounts: Iterable[int | None]) -> int | None:
    """Return the sum of the amounts, or None if one of them is unknown."""
    values = [*amounts]
    return None if None in values else sum(nano or 0 for nano in values)
