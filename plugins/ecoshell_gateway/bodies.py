"""JSON request bodies whose top-level values can be replaced while every other byte stays as it was sent."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ecoshell_gateway.errors import invalid

_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON object with the positions of its values in the text."""

    text: str
    fields: Mapping[str, Any]
    spans: Mapping[str, tuple[int, int]]

    def with_values(self, values: Mapping[str, Any]) -> "Body":
        """Replace or add top-level values; the object must not be empty."""
        text = self.text
        for name in sorted(
            (name for name in values if name in self.spans), key=lambda name: -self.spans[name][0]
        ):
            start, end = self.spans[name]
            text = text[:start] + json.dumps(values[name]) + text[end:]
        added = {name: value for name, value in values.items() if name not in self.spans}
        if added:
            brace = text.index("{") + 1
            text = f"{text[:brace]}{json.dumps(added)[1:-1]},{text[brace:]}"
        return parse_text(text) if values else self

    def encoded(self) -> bytes:
        """Return the bytes to send."""
        return self.text.encode()


def parse_body(data: bytes) -> Body:
    """Parse a request's body; raises Refused for anything but a JSON object without repeated names."""
    try:
        return parse_text(data.decode())
    except UnicodeDecodeError:
        raise invalid("The body is not UTF-8.") from None


def parse_text(text: str) -> Body:
    """Parse the text of a body."""
    fields: dict[str, Any] = {}
    spans: dict[str, tuple[int, int]] = {}
    try:
        at = _after_space(text, 0)
        at = _after_space(text, _expect(text, at, "{"))
        while text[at] != "}":
            name, at = _decoder.raw_decode(text, at)
            if not isinstance(name, str) or name in fields:
                raise ValueError
            start = _after_space(text, _expect(text, _after_space(text, at), ":"))
            fields[name], end = _decoder.raw_decode(text, start)
            spans[name] = (start, end)
            at = _after_space(text, end)
            if text[at] == ",":
                at = _after_space(text, at + 1)
                if text[at] == "}":
                    raise ValueError
            elif text[at] != "}":
                raise ValueError
        if _after_space(text, at + 1) != len(text):
            raise ValueError
    except (ValueError, IndexError, RecursionError):
        raise invalid("The body is not a JSON object, or it repeats a name.") from None
    return Body(text, fields, spans)


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _expect(text: str, at: int, sign: str) -> int:
    if text[at] != sign:
        raise ValueError
    return at + 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; providers disagree on which of two equal names counts."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def whole_number(
    body: Body, name: str, *, smallest: int = 1, largest: int = 10_000_000
) -> int | None:
    """Return a whole number of a body; None without it. Raises Refused."""
    value = body.fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not smallest <= value <= largest:
        raise invalid(f"{name} must be a whole number from {smallest} to {largest:,}.")
    return value


def flag(body: Body, name: str) -> bool:
    """Return a boolean of a body; False without it. Raises Refused."""
    value = body.fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(f"{name} must be true or false.")
    return bool(value)


def entries(body: Body, name: str) -> list[dict[str, Any]]:
    """Return a list of objects of a body; empty without it. Raises Refused."""
    value: Any = body.fields.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):  # pyright: ignore[reportUnknownVariableType]
        raise invalid(f"{name} must be a list of objects.")
    return value  # pyright: ignore[reportUnknownVariableType]


def mapping(body: Body, name: str) -> Mapping[str, Any]:
    """Return an object of a body; empty without it. Raises Refused."""
    value: Any = body.fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"{name} must be an object.")
    return value  # pyright: ignore[reportUnknownVariableType]
