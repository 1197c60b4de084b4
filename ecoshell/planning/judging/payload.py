"""What a tool itself said, out of the MCP result around it, and what a JSON result says of itself."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ecoshell.messages import Observation

_DEEPEST = 3
_READ = 32_000
"""Characters of a result that are looked at."""
_PRINTED = re.compile(r"meta=\S+ content=\[TextContent\(type='text', text=")
_LITERAL = re.compile(r"""\btext=('(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?)""", re.DOTALL)
_ENCODED = re.compile(r'\{\s*(?:"_meta":\s*(?:null|\{\}),\s*)?"content":\s*\[\s*\{\s*"type":\s*"text",\s*"text":\s*"')
_TAIL = 12
"""Characters an escape takes that was cut in the middle: dropped one by one until the rest can be read."""
_BLANK: tuple[object, ...] = (None, "", [], {})
_ERRORS = ("error", "errors", "exception", "error_message")
_NO_ERROR = frozenset({"", "false", "no", "none", "null", "ok"})
_SUCCESSES = ("success", "succeeded", "ok")
_STATES = ("status", "result", "state", "outcome")
_FAILED = frozenset({"error", "fail", "failed", "failure"})
_CODES = ("status", "statuscode", "status_code")
_MESSAGES = ("message", "reason", "detail", "msg")
_RESULT_NAMES = "data documents entries hits items list matches objects records result results rows"
_RESULTS = frozenset(_RESULT_NAMES.split())
_COUNT_NAMES = "count num_results total total_count total_results totalcount totalresults"
_COUNTS = frozenset(_COUNT_NAMES.split())


@dataclass(frozen=True, slots=True)
class Payload:
    """What a tool said; `value` is the JSON object, list or null that the text is, when `is_json`."""

    text: str
    failed: bool
    is_json: bool = False
    value: Any = None

    @classmethod
    def of(cls, observation: Observation) -> "Payload":
        """What is inside an observation; a result that was cut is read as far as it goes."""
        text, marked = unwrapped(observation.text[:_READ])
        text, failed = text.strip(), marked or not observation.ok
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            return cls(text, failed)
        if isinstance(value, str):
            return cls(value.strip(), failed)
        if value is None or isinstance(value, (dict, list)):
            return cls(text, failed, is_json=True, value=cast("Any", value))
        return cls(text, failed)


def unwrapped(text: str) -> tuple[str, bool]:
    """The text inside an MCP result, as JSON or as Python prints it, and whether the result is marked as an error.

    Other texts are given back as they are.
    """
    failed = False
    for _ in range(_DEEPEST):
        inner = _printed(text) if _PRINTED.match(text) else _encoded(text.lstrip())
        if inner is None:
            break
        text, marked = inner
        failed = failed or marked
    return text, failed


def _printed(text: str) -> tuple[str, bool]:
    """A result as Python prints it."""
    said = [_evaluated(literal) for literal in _LITERAL.findall(text)]
    return "\n".join(said), text.rstrip().endswith("isError=True")


def _evaluated(literal: str) -> str:
    """What a Python literal says, also one whose end is missing."""
    quote = literal[0]
    body = literal[1:].removesuffix(quote)
    for dropped in range(_TAIL):
        try:
            value: object = ast.literal_eval(f"{quote}{body[: len(body) - dropped]}{quote}")
        except (ValueError, SyntaxError):
            continue
        return str(value)
    return body


def _encoded(text: str) -> tuple[str, bool] | None:
    """A result as JSON; None when the text is anything else."""
    if not text.startswith("{"):
        return None
    try:
        value = cast("Mapping[str, Any]", json.loads(text))
    except (ValueError, RecursionError):
        cut = _ENCODED.match(text)
        return (_decoded(text[cut.end() :]), False) if cut else None
    content = value.get("content")
    if not isinstance(content, list) or not ("isError" in value or "_meta" in value):
        return None
    parts = [_part(item) for item in cast("Sequence[Any]", content)]
    return "\n".join(parts), value.get("isError") is True


def _part(item: Any) -> str:
    """One piece of content: its text, or what kind it is."""
    if not isinstance(item, Mapping):
        return str(item)
    known = cast("Mapping[str, Any]", item)
    return str(known["text"]) if "text" in known else f"[{known.get('type', 'content')}]"


def _decoded(cut: str) -> str:
    """What a JSON string says whose end is missing."""
    for dropped in range(_TAIL):
        try:
            return str(json.loads(f'"{cut[: len(cut) - dropped]}"', strict=False))
        except ValueError:
            continue
    return cut


def failing(value: Any, depth: int = 0) -> str:
    """What went wrong, when a JSON value says so of itself or of every single thing it reports on; else empty."""
    if isinstance(value, Mapping) and (told := _flagged(_lowered(value))):
        return told
    parts = children(value)
    if depth == _DEEPEST or not parts or not all(_is_nested(part) and part for part in parts):
        return ""
    told = [failing(part, depth + 1) for part in parts]
    return told[0] if all(told) else ""


def empty(value: Any) -> bool:
    """Whether a JSON value holds nothing: it, its results, or the list it counts 0 entries of, are empty."""
    if value is None or all(part in _BLANK for part in children(value)):
        return True
    if not isinstance(value, Mapping):
        return False
    known = _lowered(value)
    lengths = [len(children(part)) for part in known.values() if isinstance(part, list)]
    if any(lengths):
        return False
    results = [known[name] for name in _RESULTS if name in known]
    if results and all(part in _BLANK for part in results):
        return True
    return bool(lengths) and any(type(known.get(name)) is int and known[name] == 0 for name in _COUNTS)


def texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Every text and number inside a JSON value, as text."""
    if isinstance(value, (str, int, float)):
        yield str(value)
    elif depth <= _DEEPEST:
        for part in children(value):
            yield from texts(part, depth + 1)


def children(value: Any) -> list[Any]:
    """What is directly inside a JSON object or list."""
    if isinstance(value, Mapping):
        return list(cast("Mapping[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def _flagged(known: Mapping[str, Any]) -> str:
    """What went wrong by an object's flags: an `error`, `"success": false`, a `status` that is a failure."""
    for error in (known[name] for name in _ERRORS if name in known):
        if _is_error(error) and not (_is_nested(error) and _has_results(known)):
            return _message(known, "" if error is True else str(error))
    refused = any(known.get(name) is False for name in _SUCCESSES)
    states = {str(known.get(name, "")).lower() for name in _STATES}
    codes = [known[name] for name in _CODES if type(known.get(name)) is int]
    if refused or known.get("iserror") is True or states & _FAILED or any(400 <= code < 600 for code in codes):
        return _message(known, "")
    return ""


def _is_error(value: Any) -> bool:
    """Whether the value of an `error` tells of one; a number there is a measurement."""
    if isinstance(value, str):
        return value.strip().lower() not in _NO_ERROR
    return value is True or (_is_nested(value) and bool(value))


def _is_nested(value: Any) -> bool:
    return isinstance(value, (Mapping, list))


def _message(known: Mapping[str, Any], told: str) -> str:
    """The words an object has for its failure."""
    more = (known[name] for name in _MESSAGES if isinstance(known.get(name), str))
    return " ".join(part for part in (told, next(more, "")) if part) or "it says so itself"


def _has_results(known: Mapping[str, Any]) -> bool:
    return any(known.get(name) for name in _RESULTS)


def _lowered(value: Any) -> dict[str, Any]:
    return {str(name).lower(): part for name, part in cast("Mapping[str, Any]", value).items()}
