"""What a tool gave or how it failed, as an observation within its limits that can be sent, stored and read."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any, cast

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools.base import Limits
from ecoshell.worker import checkpoint

_MARKS = 200
"""Characters for the marks of a tool that has cut its result itself."""


def stopped(name: str, seconds: float, *, lasting: bool, runs_on: bool = False) -> str:
    """What the model reads of a tool that took too long; `lasting` says that it may have changed something."""
    ended = " It does not let itself be ended: it runs on, and what comes of it is dropped." if runs_on else ""
    left = "What it had changed by then stays: look at that before you call it again."
    advice = left if lasting else "Give it less to do, or go on without it."
    return f"{name} was stopped: it took longer than {seconds:g} s.{ended} {advice}"


def truncation_mark(shown: int, total: int | None, what: str = "characters") -> str:
    """The words that stand where something was left out; `total` is None where nobody has counted."""
    if total is None:
        return f"[truncated: only the first {shown} {what} shown]"
    return f"[truncated: {shown} of {total} {what} shown]"


def clip(text: str, characters: int) -> tuple[str, bool]:
    """The text, or its beginning and the mark; and whether anything was left out."""
    if len(text) <= characters:
        return text, False
    return f"{text[:characters].rstrip()}\n{truncation_mark(characters, len(text))}", True


def sound(name: str, found: object, limits: Limits) -> Observation:
    """A tool's observation within the limits, without what only guards say of a call.

    Raises ToolError when it is no observation, or one of wrong parts.
    """
    if not isinstance(found, Observation):
        raise ToolError(f"{name} failed: it gave {type(found).__name__} in place of an observation.")
    for part, kind in (("text", str), ("ok", bool), ("truncated", bool), ("changes", str)):
        value = getattr(found, part)
        if not isinstance(value, kind):
            raise ToolError(f"{name} failed: `{part}` of its result is {type(value).__name__}, not {kind.__name__}.")
    text, clipped = _bounded(found.text, limits.characters + (_MARKS if found.truncated else 0))
    changes, _ = _bounded(found.changes, limits.changes)
    return Observation(text, found.ok, found.truncated or clipped, changes=changes)


def told(name: str, outcome: Any, limits: Limits) -> Observation:
    """What a function gave, as an observation; anything but a text or an observation is told as JSON. May block."""
    if isinstance(outcome, Observation):
        return sound(name, outcome, limits)
    if isinstance(outcome, str):
        return sound(name, Observation(outcome), limits)
    text, whole = _json(outcome, limits.characters)
    if whole:
        return sound(name, Observation(text), limits)
    mark = truncation_mark(limits.characters, None)
    return sound(name, Observation(f"{text[: limits.characters]}\n{mark}", truncated=True), limits)


def failed(name: str, failure: BaseException, limits: Limits) -> Observation:
    """How a tool failed, in words for the model."""
    if isinstance(failure, ToolError):
        return sound(name, Observation(str(failure), ok=False), limits)
    words = type(failure).__name__
    with contextlib.suppress(Exception):  # a fence: even what says how a tool failed may be anybody's code
        words = f"{words}: {failure}"
    return sound(name, Observation(f"{name} failed: {words}", ok=False), limits)


def _bounded(text: str, most: int) -> tuple[str, bool]:
    """The text, or its beginning and the mark; and whether anything was left out.

    Half a surrogate pair, which cannot be sent or stored, is escaped.
    """
    plain = str.__str__(text)  # of a class of its own, which may do as it likes
    head = plain[: most + 1]  # cut before it is encoded: it may be a gigabyte
    storable = head.encode("utf-8", "backslashreplace").decode()
    total = len(storable) + len(plain) - len(head)
    if total <= most:
        return storable, False
    return f"{storable[:most].rstrip()}\n{truncation_mark(most, total)}", True


def _json(value: Any, most: int) -> tuple[str, bool]:
    """The value as JSON as far as `most` characters and a little more; and whether that is all of it."""
    pieces: list[str] = []
    length = 0
    for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(_head(value, most, iter(range(most)))):
        checkpoint()
        pieces.append(piece)
        length += len(piece)
        if length > most:
            return "".join(pieces), False
    return "".join(pieces), True


def _head(value: Any, most: int, room: Iterator[int]) -> Any:
    """So much of a value as the first `most` characters of its JSON can show; `room` counts its parts.

    What is left out of a long text or a long list would stand behind those, so it need not be encoded.
    """
    if isinstance(value, str | bytes):
        return value[:most]
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_head(key, most, room): _head(inner, most, room) for (key, inner), _ in zip(items, room, strict=False)}
    if isinstance(value, list | tuple):
        inside = cast("list[Any] | tuple[Any, ...]", value)
        return [_head(inner, most, room) for inner, _ in zip(inside, room, strict=False)]
    return value
