"""Experience as JSON Lines: one use a line, written whole and read strictly."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, cast

from ecoshell.errors import UsageError
from ecoshell.planning.btp.base import Use

FORMAT = "ecoshell-experience/1"
_NAMES = tuple(spec.name for spec in fields(Use))
_REQUIRED = ("query", "tool", "helpful", "judged_by")
_TEXTS = frozenset(
    {
        *("query", "tool", "document_hash", "arguments", "result", "result_hash"),
        *("judged_by", "model", "session", "call", "at"),
    }
)
_COUNTS = frozenset({"price_nano", "step_nano", "step_tokens", "size_level", "turn"})
_NULLABLE = frozenset({"step_nano", "helpful"})
_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(_TEXTS, ""),
    **dict.fromkeys(_COUNTS, 0),
    "ok": True,
    "seconds": 0.0,
    "step_nano": None,
}
_MOST = 2**63 - 1
_HIGHEST_LEVEL = 3
_JUDGES = ("", "rules", "classifier", "model", "you")


def to_line(use: Use) -> str:
    """The use as one line, in ASCII."""
    return json.dumps({"format": FORMAT, **asdict(use)})


def from_lines(lines: Iterable[str | bytes], name: str) -> Iterator[Use]:
    """The uses of a file; raises UsageError naming the first line that is none, and why."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _use(line, f"{name}:{number}")


def _use(line: str | bytes, place: str) -> Use:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as failure:
        raise _refused(place, f"it is not JSON ({failure})") from failure
    if not isinstance(record, Mapping):
        raise _refused(place, "it is not a JSON object")
    given = cast("Mapping[str, Any]", record)
    if given.get("format") != FORMAT:  # also one that only a later version knows
        raise _refused(place, f"its `format` is not {FORMAT!r}")
    for key in _REQUIRED:
        if key not in given:
            raise _refused(place, f"`{key}` is missing")
    values: dict[str, Any] = {key: given.get(key, _DEFAULTS.get(key)) for key in _NAMES}
    for key, value in values.items():
        fault = _fault(key, value)
        if fault:
            raise _refused(place, f"`{key}` {fault}")
    values["seconds"] = float(values["seconds"])
    values["at"] = _utc(values["at"])
    return Use(**values)


def _fault(key: str, value: Any) -> str:
    """What is wrong with a field's value; empty when nothing is."""
    if value is None and key in _NULLABLE:
        return ""
    if key in _TEXTS:
        return _text_fault(key, value)
    if key in ("ok", "helpful"):
        return "" if isinstance(value, bool) else "must be true or false"
    if isinstance(value, bool) or not isinstance(value, int if key in _COUNTS else (int, float)):
        return "must be a whole number" if key in _COUNTS else "must be a number"
    if not 0 <= value <= _MOST:
        return "must be at least 0, and within 64 bits"
    return f"must be 0 to {_HIGHEST_LEVEL}" if key == "size_level" and value > _HIGHEST_LEVEL else ""


def _text_fault(key: str, value: Any) -> str:
    if not isinstance(value, str):
        return "must be a text"
    if key in ("query", "tool") and not value.strip():
        return "must not be empty"
    if key == "judged_by" and value not in _JUDGES:
        return f"must be one of {', '.join(filter(None, _JUDGES))}, or empty"
    if key == "at" and value:
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


def _refused(place: str, why: str) -> UsageError:
    return UsageError(
        f"{place} is not a use of a tool: {why}.",
        kept="Nothing was imported.",
        fix="Import what `ecoshell experience export` wrote.",
    )
