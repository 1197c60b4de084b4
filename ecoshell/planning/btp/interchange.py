"""Experience as JSON Lines: one use or attempt a line, written whole and read strictly."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, cast

from ecoshell.errors import UsageError
from ecoshell.planning.btp.experience import Attempt, Experienced, Use

FORMAT = "ecoshell-experience/1"
_MOST = 2**63 - 1
_HIGHEST_LEVEL = 3
_JUDGES = ("", "rules", "classifier", "model", "plugin", "you")
_OUTCOMES = ("answered", "gave_up", "limit")

_KINDS: Mapping[str, tuple[type[Experienced], str, tuple[str, ...]]] = {
    "use": (Use, "a use of a tool", ("query", "tool", "helpful", "judged_by")),
    "attempt": (Attempt, "an attempt at a question", ("query", "mode", "models", "outcome", "tokens")),
}
"""What a line may hold, as messages call it, and what must be there."""
_FILLED = frozenset({"query", "tool", "mode", "models"})
"""Texts that must not be empty."""


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
    found = _KINDS.get(str(given.get("kind", "use")))
    if found is None:
        raise _refused(place, "its `kind` is neither use nor attempt")
    made, name, required = found
    for key in required:
        if key not in given:
            raise _refused(place, f"`{key}` is missing", name)
    values: dict[str, Any] = {}
    for spec in fields(made):
        kind: Any = spec.type
        # a field that is left out is unknown, or else empty; a result that nobody says failed is taken to be fine
        unsaid = None if isinstance(None, kind) else True if kind is bool else kind()
        values[spec.name] = value = given.get(spec.name, unsaid)
        if fault := _fault(spec.name, kind, value):
            raise _refused(place, f"`{spec.name}` {fault}", name)
    values |= {"seconds": float(values["seconds"]), "at": _utc(values["at"])}
    return made(**values)


def _fault(key: str, kind: Any, value: Any) -> str:
    """What is wrong with a field's value; empty when nothing is."""
    if value is None and isinstance(None, kind):
        return ""
    if kind is str:
        return _text_fault(key, value)
    if kind in (bool, bool | None):
        return "" if isinstance(value, bool) else "must be true or false"
    whole = kind is not float
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return "must be a whole number" if whole else "must be a number"
    if not 0 <= value <= _MOST:
        return "must be at least 0, and within 64 bits"
    return f"must be 0 to {_HIGHEST_LEVEL}" if key == "size_level" and value > _HIGHEST_LEVEL else ""


def _text_fault(key: str, value: Any) -> str:
    if not isinstance(value, str):
        return "must be a text"
    if key in _FILLED and not value.strip():
        return "must not be empty"
    words = {"judged_by": _JUDGES, "outcome": _OUTCOMES}.get(key)
    if words is not None and value not in words:
        return f"must be one of {', '.join(filter(None, words))}{', or empty' if '' in words else ''}"
    if key == "at":
        try:
            _utc(value)
        except (ValueError, OverflowError):
            return "must be a time such as 2026-11-21T09:30:00+00:00"
    return ""


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
