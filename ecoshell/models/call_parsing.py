"""Tolerant readers of calls that a model has written as JSON, as Python, or in the notations between."""

import ast
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn, cast

from ecoshell.messages import Call

_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*"?)|,(?=\s*[}\]])', re.DOTALL)
"""A JSON string, or a trailing comma outside of strings."""
_CALLER_HEAD = re.compile(r'\{\s*"call"')  # as the prompt of the umi mode's caller asks for
_FENCE = re.compile(r"```[a-zA-Z_]*")
_MAX_STARTS = 40  # opening braces that are tried, so that garbage does not take quadratic time
CALL_NAME = re.compile(
    r"\s*(?:\[TOOL_CALLS\])?\s*([^\s\[{]+)\s*(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?\s*(?=\{)"
)
_PYTHON_START = re.compile(r"\[\s*[A-Za-z_][\w.\-]*\(")
_PYTHON_CALL = re.compile(r"[\s,]*([A-Za-z_][\w.\-]*)(?=\()")
_JSON_WORDS = {"true": True, "false": False, "null": None}
_BRACE_CALL = re.compile(r"call:\s*([^\s{]+)\s*(?=\{)")
_BRACE_KEY = re.compile(r"(?<=[{,])\s*([^{}\[\],:\"]+?)\s*(?=:)")
_BRACE_WORD = re.compile(r"(?<=[:\[,])\s*([^\s{}\[\],:\"][^{}\[\],]*)(?=[,}\]])")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call as written: name and arguments may have wrong types."""

    name: Any
    arguments: Any


@dataclass(frozen=True, slots=True)
class ParsedText:
    """Contents of a reply: the text before the first call, the calls, and whether a call was unreadable."""

    text: str
    attempts: tuple[Attempt, ...] = ()
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The position where a call starts (`sure`) or may start, and then its tool and the start of its arguments.

    `tool` is empty if a marker starts the call. `json` says whether the head is JSON.
    """

    start: int
    sure: bool = False
    end: int = 0
    tool: str = ""
    json: bool = False


def call_json(call: Call) -> str:
    """A call's arguments as JSON."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def decoded(text: str) -> Any:
    """A JSON value; None if the text is not JSON."""
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return None


def refuse_constant(name: str) -> NoReturn:
    """For `json.loads`, which accepts NaN and Infinity by default."""
    raise ValueError(f"{name} is not JSON")


# -- starts of calls


def call_head(
    text: str,
    marker: str = "",
    names: frozenset[str] = frozenset(),
    tags: tuple[str, str] = ("", ""),
    *,
    complete: bool = True,
) -> Head | None:
    """The start of the first call: a marker, a JSON head, or the name of one of these tools between tags.

    If the text is not yet `complete`, its end may be the start of a call.
    """
    match = _beginnings(marker, names, tags).search(text, partial=not complete)
    if match is None or match.partial:
        return match and Head(match.start())
    start, end, name = match.start(), match.end(), match["json"]
    return Head(start, sure=True, end=end, tool=name or match["named"] or "", json=name is not None)


@lru_cache(maxsize=64)
def _beginnings(marker: str, names: frozenset[str], tags: tuple[str, str]) -> Any:
    import regex  # for partial matches; imported here to keep start-up fast

    key = r"(?:arguments|parameters)"
    json_head = rf'(?:```[a-zA-Z_]*\s*)?\{{\{{?\s*"name"\s*:\s*"(?P<json>[^"\\\n]{{1,120}})"\s*,\s*"{key}"\s*:\s*'
    tools = "|".join(map(regex.escape, sorted(names))) or r"(?!)"
    opening, closing = map(regex.escape, tags)
    alternatives = [json_head, rf"{opening}\s*(?P<named>{tools}){closing}"]
    return regex.compile("|".join(([regex.escape(marker)] if marker else []) + alternatives))


# -- JSON


def json_calls(text: str, place: int, marker: int) -> ParsedText:
    """The calls among the outermost JSON objects of a text, after the marker if there is one."""
    attempts: list[Attempt] = []
    lead = text[:place] if place >= 0 else ""
    begin = place + marker if place >= 0 else 0
    for _ in range(_MAX_STARTS):
        start = text.find("{", begin)
        if start < 0:
            break
        value = _decode_from(text, start)
        if value is None:
            begin = start + 1
            continue
        record, begin = value
        call = record.get("call")
        inner = cast("Mapping[str, Any]", call) if isinstance(call, dict) else record
        plainly = "arguments" in record or "parameters" in record or place >= 0
        if inner is record and not ("name" in record and plainly):
            continue
        if not attempts:
            lead = _FENCE.sub("", text[:start] if place < 0 else lead).strip()
            lead = lead.removesuffix("{").strip()
        arguments = inner.get("arguments", inner.get("parameters", {}))
        attempts.append(Attempt(inner.get("name"), arguments))
    if not attempts and place < 0:
        starts_call = _CALLER_HEAD.match(_FENCE.sub("", text, count=1).lstrip())
        return ParsedText(text.strip(), broken=bool(starts_call) or call_head(text) is not None)
    return ParsedText(lead.strip(), tuple(attempts), broken=not attempts)


def _decode_from(text: str, place: int) -> tuple[Mapping[str, Any], int] | None:
    decoder = json.JSONDecoder(parse_constant=refuse_constant, strict=False)
    plain = text[place:]
    # Both have the same length.
    for candidate in (plain, _TRAILING_COMMA.sub(lambda match: match[1] or " ", plain)):
        with suppress(ValueError, RecursionError):  # bad JSON, or an integer with too many digits
            value, length = decoder.raw_decode(candidate)
            if isinstance(value, dict):
                return cast("Mapping[str, Any]", value), place + length
    return None


# -- other notations


def named_calls(text: str) -> tuple[tuple[Attempt, ...], bool]:
    """Calls of a name and its arguments as JSON, and whether one is broken."""
    attempts, place, broken = _calls_before_objects(CALL_NAME.match, text)
    if not attempts and not broken and "{" in text:  # the older form, a list of objects
        parsed = json_calls(text, 0, 0)
        return parsed.attempts, parsed.broken
    return attempts, broken or (bool(text[place:].strip(" \n]")) and not attempts)


def _calls_before_objects(
    find: Callable[[str, int], re.Match[str] | None], text: str
) -> tuple[tuple[Attempt, ...], int, bool]:
    """Calls of a name followed by an object, the end of the last one, and whether one is broken."""
    attempts: list[Attempt] = []
    place = 0
    while match := find(text, place):
        value = _decode_from(text, match.end())
        if value is None:
            return tuple(attempts), place, True
        arguments, place = value
        attempts.append(Attempt(match[1], arguments))
    return tuple(attempts), place, False


def python_calls(text: str) -> tuple[str, tuple[Attempt, ...], bool]:
    """The text before the first call, the calls in a list or a line, and whether one is broken."""
    match = _PYTHON_START.search(text) or _PYTHON_CALL.match(text)
    if match is None:
        return text, (), False
    attempts: list[Attempt] = []
    place = match.start() + (text[match.start()] == "[")
    while call := _PYTHON_CALL.match(text, place):
        place = _closing(text, call.end()) or len(text)
        arguments = _python_arguments(text[call.end() : place])
        if arguments is None:
            return text[: match.start()], tuple(attempts), True
        attempts.append(Attempt(call[1], arguments))
    return text[: match.start()], tuple(attempts), not attempts


def _closing(text: str, place: int) -> int | None:
    """The position after the bracket that closes the one at `place`."""
    depth, quote, skip = 0, "", False
    for index in range(place, len(text)):
        sign = text[index]
        if skip:
            skip = False
        elif quote:
            skip, quote = sign == "\\", "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        else:
            depth += (sign in "([{") - (sign in ")]}")
            if depth == 0:
                return index + 1
    return None


def _python_arguments(text: str) -> dict[str, Any] | None:
    try:
        call = _JsonWords().visit(ast.parse(f"f{text}", mode="eval")).body
        if not isinstance(call, ast.Call) or call.args:
            return None
        return {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


class _JsonWords(ast.NodeTransformer):
    """Replaces JSON's constants by Python's."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_WORDS[node.id]) if node.id in _JSON_WORDS else node


def brace_calls(text: str, quote: str) -> tuple[tuple[Attempt, ...], bool]:
    """Calls with unquoted keys and strings between `quote` marks, converted to JSON first."""

    def quoted(word: re.Match[str]) -> str:
        value = word[1].strip()
        return value if value == "null" or decoded(value) is not None else json.dumps(value)

    written = ""
    for index, piece in enumerate(text.split(quote)):
        if index % 2:
            written += json.dumps(piece)
        else:  # quote the keys and words between strings
            with_keys = _BRACE_KEY.sub(lambda key: json.dumps(key[1]), piece)
            written += _BRACE_WORD.sub(quoted, with_keys)
    attempts, _, broken = _calls_before_objects(_BRACE_CALL.search, written)
    return attempts, broken or not attempts
