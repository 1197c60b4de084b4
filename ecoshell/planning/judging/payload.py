"""What a tool itself said: out of the MCP result around it, and read as JSON where it is JSON."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
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
