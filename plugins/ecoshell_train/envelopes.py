"""Unwraps recorded results of MCP servers, in JSON or as printed by Python."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

_MAX_DEPTH = 3
_PRINTED = re.compile(r"meta=\S+ content=\[TextContent\(type='text', text=")
_LITERAL = re.compile(r"""\btext=('(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?)""", re.DOTALL)
_ENCODED = re.compile(
    r'\{\s*(?:"_meta":\s*(?:null|\{\}),\s*)?"content":\s*\[\s*\{\s*"type":\s*"text",\s*"text":\s*"'
)
_MAX_ESCAPE = 12
"""Maximum length of a truncated escape, which is dropped character by character until the rest can be parsed."""


def unwrapped(text: str) -> tuple[str, bool]:
    """Return the text of an MCP result, in JSON or as printed by Python, and whether it is marked as an error.

    Returns other texts unchanged.
    """
    failed = False
    for _ in range(_MAX_DEPTH):
        if _PRINTED.match(text):
            is_error = text.rstrip().endswith("isError=True")
            text = "\n".join(
                _unquoted(literal[1:].removesuffix(literal[0]), literal[0])
                for literal in _LITERAL.findall(text)
            )
        else:
            inner = _json_result(text.lstrip())
            if inner is None:
                break
            text, is_error = inner
        failed = failed or is_error
    return text, failed


def _unquoted(literal: str, quote: str = "") -> str:
    """Decode the inside of a Python literal, or of a JSON string if `quote` is empty; the end may be missing."""
    for dropped in range(_MAX_ESCAPE):
        body = literal[: len(literal) - dropped]
        with suppress(ValueError, SyntaxError):
            return str(
                ast.literal_eval(f"{quote}{body}{quote}")
                if quote
                else json.loads(f'"{body}"', strict=False)
            )
    return literal


def _json_result(text: str) -> tuple[str, bool] | None:
    """Return the text of an MCP result in JSON and whether it is an error; None for other texts."""
    if not text.startswith("{"):
        return None
    try:
        value = cast("Mapping[str, Any]", json.loads(text))
    except (ValueError, RecursionError):
        head = _ENCODED.match(text)
        return (_unquoted(text[head.end() :]), False) if head else None
    content = value.get("content")
    if not isinstance(content, list) or not ("isError" in value or "_meta" in value):
        return None
    parts: list[str] = []
    for item in cast("Sequence[Any]", content):
        fields = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {"text": item}
        parts.append(
            str(fields["text"]) if "text" in fields else f"[{fields.get('type', 'content')}]"
        )
    return "\n".join(parts), value.get("isError") is True
