"""Experience as JSON Lines: one use or attempt per line, validated when read."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, cast

from ecoshell.errors import UsageError
from ecoshell.planning.btp.experience import Attempt, ExperienceRecord, Use

FORMAT = "ecoshell-experience/1"
_MAX_INTEGER = 2**63 - 1
_MAX_SIZE_LEVEL = 3
_JUDGES = ("", "rules", "classifier", "model", "plugin", "you")
_OUTCOMES = ("answered", "gave_up", "limit")

_KINDS: Mapping[str, tuple[type[ExperienceRecord], str, tuple[str, ...]]] = {
    "use": (Use, "a use of a tool", ("query", "tool", "helpful", "judged_by")),
    "attempt": (Attempt, "an attempt at a question", ("query", "mode", "models", "outcome", "tokens")),
}
"""Class, name in messages and required fields of each kind of line."""
_NON_EMPTY = frozenset({"query", "tool", "mode", "models"})


def to_line(item: ExperienceRecord) -> str:
    """Return the use or attempt as one line of ASCII."""
    kind = "use" if isinstance(item, Use) else "attempt"
    return json.dumps({"format": FORMAT, "kind": kind, **asdict(item)})


def from_lines(lines: Iterable[str | bytes], name: str) -> Iterator[ExperienceRecord]:
    """Yield the uses and attempts of a file; raises UsageError for the first invalid line."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _item(line, f"{name}:{number}")


def _item(line: str | bytes, place: str) -> ExperienceRecord:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _invalid(place, f"it is not JSON ({error})") from error
    if not isinstance(record, Mapping):
        raise _invalid(place, "it is not a JSON object")
    entry = cast("Mapping[str, Any]", record)
    if entry.get("format") != FORMAT:
        raise _invalid(place, f"its `format` is not {FORMAT!r}")
    kind = _KINDS.get(str(entry.get("kind", "use")))
    if kind is None:
        raise _invalid(place, "its `kind` is neither use nor attempt")
    item_class, name, required = kind
    for key in required:
        if key not in entry:
            raise _invalid(place, f"`{key}` is missing", name)
    values: dict[str, Any] = {}
    for spec in fields(item_class):
        field_type: Any = spec.type
        # A missing field is None or empty; a missing `ok` is true.
        default = None if isinstance(None, field_type) else True if field_type is bool else field_type()
        values[spec.name] = value = entry.get(spec.name, default)
        if fault := _fault(spec.name, field_type, value):
            raise _invalid(place, f"`{spec.name}` {fault}", name)
    values |= {"seconds": float(values["seconds"]), "at": _utc(values["at"])}
    return item_class(**values)


def _fault(key: str, field_type: Any, value: Any) -> str:
    """Describe what is wrong with a field's value; empty if it is valid."""
    if value is None and isinstance(None, field_type):
        return ""
    if field_type is str:
        return _text_fault(key, value)
    if field_type in (bool, bool | None):
        return "" if isinstance(value, bool) else "must be true or false"
    is_integer = field_type is not float
    if isinstance(value, bool) or not isinstance(value, int if is_integer else (int, float)):
        return "must be a whole number" if is_integer else "must be a number"
    if not 0 <= value <= _MAX_INTEGER:
        return "must be at least 0, and within 64 bits"
    return f"must be 0 to {_MAX_SIZE_LEVEL}" if key == "size_level" and value > _MAX_SIZE_LEVEL else ""


def _text_fault(key: str, value: Any) -> str:
    if not isinstance(value, str):
        return "must be a text"
    if key in _NON_EMPTY and not value.strip():
        return "must not be empty"
    choices = {"judged_by": _JUDGES, "outcome": _OUTCOMES}.get(key)
    if choices is not None and value not in choices:
        return f"must be one of {', '.join(filter(None, choices))}{', or empty' if '' in choices else ''}"
    if key == "at":
        try:
            _utc(value)
        except (ValueError, OverflowError):
            return "must be a time such as 2026-11-21T09:30:00+00:00"
    return ""


def _utc(text: str) -> str:
    """Normalize a time to UTC, which is also the default zone; empty if unknown."""
    if not text:
        return ""
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec="seconds")


def _invalid(place: str, reason: str, name: str = "a use of a tool") -> UsageError:
    return UsageError(
        f"{place} is not {name}: {reason}.",
        kept="Nothing was imported.",
        fix="Import a file written by `ecoshell experience export`.",
    )
