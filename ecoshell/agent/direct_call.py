"""Calls of a tool graph whose arguments follow from the results before them, without a model call."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ecoshell.messages import Call, ToolSchema
from ecoshell.models.protocol import call_fault
from ecoshell.planning.catp.types import FILE, JSON, NUMBER, TABLE, TEXT, URL, signature
from ecoshell.strategies import Step

_CONTENT = frozenset(
    {"text", "content", "contents", "body", "document", "passage", "input", "html", "markdown"}
)
"""Words in the names of parameters that take a complete text; other parameters may need a part of it."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_WHOLE_NUMBER = re.compile(r"(-?[0-9]+)\.0+")
_URL = re.compile(r"https?://\S+")
_FILE = re.compile(r"[^\s:*?\"<>|]{1,255}")


def direct_call(schema: ToolSchema, inputs: Sequence[Step]) -> Call | None:
    """The call if the results before it determine its arguments, otherwise None.

    They do for a tool without parameters, and for a tool with one required parameter whose value is the only result.
    """
    properties: Mapping[str, Any] = schema.parameters.get("properties") or {}
    if not properties:
        return Call(schema.name)
    required = schema.parameters.get("required") or ()
    if len(properties) != 1 or len(inputs) != 1 or not set(properties) <= set(required):
        return None
    if inputs[0].observation.truncated:
        return None
    (name,) = properties
    value = _value(name, signature(schema).takes, inputs[0].observation.text)
    call = Call(schema.name, {name: value})
    return None if value is None or call_fault(call, [schema]) else call


def _value(name: str, kinds: frozenset[str], result: str) -> Any:
    """The complete result as a value of one of these kinds, otherwise None."""
    text = result.strip()
    if NUMBER in kinds and _NUMBER.fullmatch(text):
        # schemas accept 7.0 as an integer, tools do not
        whole_number = _WHOLE_NUMBER.fullmatch(text)
        text = whole_number[1] if whole_number else text
    elif not (kinds & {JSON, TABLE} and text[:1] in ("{", "[")):
        if (URL in kinds and _URL.fullmatch(text)) or (FILE in kinds and _FILE.fullmatch(text)):
            return text
        return (
            result if TEXT in kinds and not _CONTENT.isdisjoint(name.lower().split("_")) else None
        )
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):  # includes `007`, NaN and numbers that are too large
        return None
    return value
