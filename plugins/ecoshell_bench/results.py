"""Results in a file that grows as they come, so that an interrupted run goes on where it was.

The file is JSON Lines: a heading that says what was measured of whom, then a line for each result. A line that was
being written when the process died is dropped, and what it was about is measured again.
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
    """A dataclass that says which result it is."""

    @property
    def key(self) -> Hashable: ...


Kept = TypeVar("Kept", bound=Keyed)


class ResultsFile(Generic[Kept]):
    """The results in a file; those that stand there when it is opened are `known`, by their keys. Raises UsageError."""

    def __init__(self, path: Path, heading: Mapping[str, Any], kind: type[Kept], *, goes_on: bool = True) -> None:
        """A file with results is gone on with, if it has the same heading, or refused; as `goes_on` says."""
        self.path = path
        self.known: dict[Hashable, Kept] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes() if path.exists() else b""
            self._file = path.open("ab")
        except OSError as failure:
            raise UsageError(f"{path} cannot be written: {failure.strerror}.", fix="Name another file.") from failure
        with ExitStack() as closing:
            closing.callback(self.close)
            self._file.truncate(whole := content.rfind(b"\n") + 1)
            if whole and not goes_on:
                raise UsageError(
                    f"{path} has results already.", kept="It stays.", fix=f"--resume {path} goes on there."
                )
            if whole:
                found, kept = read_results(path, kind)
                for key, value in heading.items():
                    if found.get(key) != value:
                        told = f"{path}:1: these are results with another {key}: {found.get(key)!r}, not {value!r}."
                        raise UsageError(told, kept="They stay.", fix=_FIX)
                self.known = {one.key: one for one in kept}
            else:
                self._write(heading)
            closing.pop_all()

    def close(self) -> None:
        """Close the file; what could not be written was told of then."""
        with suppress(OSError):
            self._file.close()

    def add(self, result: Kept) -> None:
        """Write a result down before anything else is measured."""
        self.known[result.key] = result
        self._write(asdict(cast("Any", result)))

    def _write(self, record: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(record, default=str).encode() + b"\n")
            self._file.flush()
        except OSError as failure:
            raise StoreError(
                f"{self.path} cannot be written: {failure.strerror}.",
                kept="What stands there is kept, and a further run can go on there.",
                fix=remedy(failure, "Name another file."),
            ) from failure


def read_results(path: Path, kind: type[Kept]) -> tuple[Mapping[str, Any], list[Kept]]:
    """The heading of a file and its results; raises UsageError."""
    lines = read_objects(path)
    _, heading = next(lines, ("", dict[str, Any]()))
    adapter = TypeAdapter(kind)
    return heading, [checked(adapter, record, place, _FIX) for place, record in lines]


def known_sum(amounts: Iterable[int | None]) -> int | None:
    """The sum of what was spent; None where something is not known."""
    found = [*amounts]
    return None if None in found else sum(nano or 0 for nano in found)
