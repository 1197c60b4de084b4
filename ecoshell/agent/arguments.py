"""Arguments that need no thinking: a tool without any, and one that takes what comes before it as it is (SPEC §3)."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ecoshell.messages import Call, ToolDocument
from ecoshell.models.protocol import call_fault
from ecoshell.planning.catp.types import FILE, JSON, NUMBER, TABLE, TEXT, URL, signature
from ecoshell.strategies import Step

_CONTENT = frozenset({"text", "content", "contents", "body", "document", "passage", "input", "html", "markdown"})
"""Words by which a parameter says that it takes a text whole; any other may want a part of it."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_URL = re.compile(r"https?://\S+")
_FILE = re.compile(r"[^\s:*?\"<>|]{1,255}")


def direct_call(document: ToolDocument, given: Sequence[Step]) -> Call | None:
    """The call that results leave no choice about; None where somebody has to think.

    That is a tool without parameters, and a tool with one, where one result is that parameter's value as it stands.
    """
    properties: Mapping[str, Any] = document.parameters.get("properties") or {}
    if not properties:
        return Call(document.name)
    required = document.parameters.get("required") or ()
    if len(properties) != 1 or len(given) != 1 or not set(properties) <= set(required):
        return None
    if given[0].observation.truncated:
        return None
    (name,) = properties
    value = _value(name, signature(document).takes, given[0].observation.text)
    call = Call(document.name, {name: value})
    return None if value is None or call_fault(call, [document]) else call


def _value(name: str, kinds: frozenset[str], result: str) -> Any:
    """The result as a value of one of these kinds; None where it is none, or not by itself."""
    text = result.strip()
    if NUMBER in kinds and _NUMBER.fullmatch(text):
        whole = _WHOLE.fullmatch(text)  # the schema takes 7.0 for an integer, tools do not
        text = whole[1] if whole else text
    elif not (kinds & {JSON, TABLE} and text[:1] in ("{", "[")):
        if (URL in kinds and _URL.fullmatch(text)) or (FILE in kinds and _FILE.fullmatch(text)):
            return text
        return result if TEXT in kinds and not _CONTENT.isdisjoint(name.lower().split("_")) else None
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):  # also of `007`, NaN, and numbers too large to be held
        return None
    return value
