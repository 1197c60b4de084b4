"""Experience as JSON Lines: one use or attempt a line, written whole and read strictly."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast

from ecoshell.errors import UsageError
from ecoshell.planning.btp.experience import Attempt, Experienced, Use

FORMAT = "ecoshell-experience/1"
_MOST = 2**63 - 1
_HIGHEST_LEVEL = 3
_JUDGES = ("", "rules", "classifier", "model", "you")
_OUTCOMES = ("answered", "gave_up", "limit")

T = TypeVar("T", Use, Attempt)


@dataclass(frozen=True, slots=True)
class _Kind(Generic[T]):
    """What a line of one kind holds."""

    made: type[T]
    name: str
    required: tuple[str, ...]
    filled: tuple[str, ...]
    """Texts that must not be empty."""
    words: Mapping[str, tuple[str, ...]]
    """Texts that must be one of these."""

    def read(self, given: Mapping[str, Any], place: str) -> T:
        """The use or attempt of a line; raises UsageError for one that is none."""
        for key in self.required:
            if key not in given:
                raise _refused(place, f"`{key}` is missing", self.name)
        values = {spec.name: given.get(spec.name, _unsaid(spec.type)) for spec in fields(self.made)}
        for spec in fields(self.made):
            fault = self._fault(spec.name, spec.type, values[spec.name])
            if fault:
                raise _refused(place, f"`{spec.name}` {fault}", self.name)
        values["seconds"] = float(values["seconds"])
        values["at"] = _utc(values["at"])
        return self.made(**values)

    def _fault(self, key: str, kind: Any, value: Any) -> str:
        """What is wrong with a field's value; empty when nothing is."""
        if value is None and isinstance(None, kind):
            return ""
        if kind is str:
            return self._text_fault(key, value)
        if kind in (bool, bool | None):
            return "" if isinstance(value, bool) else "must be true or false"
        whole = kind is not float
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            return "must be a whole number" if whole else "must be a number"
        if not 0 <= value <= _MOST:
            return "must be at least 0, and within 64 bits"
        return f"must be 0 to {_HIGHEST_LEVEL}" if key == "size_level" and value > _HIGHEST_LEVEL else ""

    def _text_fault(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            return "must be a text"
        if key in self.filled and not value.strip():
            return "must not be empty"
        words = self.words.get(key)
        if words is not None and value not in words:
            return f"must be one of {', '.join(filter(None, words))}{', or empty' if '' in words else ''}"
        if key == "at" and value:
            try:
                _utc(value)
            except (ValueError, OverflowError):
                return "must be a time such as 2026-11-21T09:30:00+00:00"
        return ""


_USE = _Kind(
    Use,
    "a use of a tool",
    required=("query", "tool", "helpful", "judged_by"),
    filled=("query", "tool"),
    words={"judged_by": _JUDGES},
)
_ATTEMPT = _Kind(
    Attempt,
    "an attempt at a question",
    required=("query", "mode", "models", "outcome", "tokens"),
    filled=("query", "mode", "models"),
    words={"outcome": _OUTCOMES},
)


def to_line(item: Experienced) -> str:
    """The use or attempt as one line, in ASCII."""
    kind = "use" if isinstance(item, Use) else "attempt"
    return json.dumps({"format": FORMAT, "kind": kind, **asdict(item)})


def from_lines(lines: Iterable[str | bytes], name: str) -> Iterator[Experienced]:
    """What a file holds; raises UsageError naming the first line that is nothing of the kind, and why."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _item(line, f"{name}:{number}")


def _item(line: str | bytes, place: str) -> Experienced:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as failure:
        raise _refused(place, f"it is not JSON ({failure})") from failure
    if not isinstance(record, Mapping):
        raise _refused(place, "it is not a JSON object")
    given = cast("Mapping[str, Any]", record)
    if given.get("format") != FORMAT:  # also one that only a later version knows
        raise _refused(place, f"its `format` is not {FORMAT!r}")
    match given.get("kind", "use"):
        case "use":
            return _USE.read(given, place)
        case "attempt":
            return _ATTEMPT.read(given, place)
        case _:
            raise _refused(place, "its `kind` is neither use nor attempt")


def _unsaid(kind: Any) -> Any:
    """What stands for a field that a line leaves out; a result that nobody says failed is taken to be fine."""
    if isinstance(None, kind):
        return None
    return True if kind is bool else kind()


def _utc(text: str) -> str:
    """A time as the store compares it, UTC where it names no zone; empty when it is not known."""
    if not text:
        return ""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec="seconds")


def _refused(place: str, why: str, name: str = "a use of a tool") -> UsageError:
    return UsageError(
        f"{place} is not {name}: {why}.",
        kept="Nothing was imported.",
        fix="Import what `ecoshell experience export` wrote.",
    )
