"""Keys of the settings file: dotted form, line numbers, and the closest valid key."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from ecoshell.errors import closest_word

KeyPath = tuple[str, ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_CLOSING_BRACKET = re.compile(r"""]|\"{3}|'{3}""")
"""Present in the last line of every value that spans lines."""


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line on which each key of a valid TOML text is set, tables included.

    The text is read statement by statement: a statement ends at the first line with which it parses.
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    statement: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        statement.append(line)
        if len(statement) > 1 and not _CLOSING_BRACKET.search(line):
            continue
        try:
            parsed = tomllib.loads("\n".join(statement))
        except tomllib.TOMLDecodeError:
            continue  # an array or a text over several lines
        first_line = number - len(statement) + 1
        paths = list(_paths(parsed))
        if statement[0].lstrip().startswith("["):
            table = paths[-1]
            paths = [table[:depth] for depth in range(1, len(table) + 1)]
        else:
            paths = [(*table, *path) for path in paths]
        for path in paths:
            lines.setdefault(path, first_line)
        statement = []
    return lines


def dotted(path: Sequence[str]) -> str:
    """Write a path as a TOML key: `models."gpt-4.1".price`."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else _quoted(part) for part in path)


def parse_key(key: str) -> KeyPath:
    """Parse a TOML key, the inverse of `dotted`; raises ValueError."""
    parts: list[str] = []
    table: Any = {}
    with suppress(tomllib.TOMLDecodeError):
        table = tomllib.loads(f"{key} = 0")
    # in the third case, the text sets a value itself
    if "\n" in key or not table or table == tomllib.loads(f"{key} = 1"):
        raise ValueError(f"{key!r} is not a key")
    while isinstance(table, dict):
        ((part, table),) = cast("dict[str, Any]", table).items()
        parts.append(part)
    return tuple(parts)


def closest_key(path: KeyPath, keys: Sequence[KeyPath]) -> KeyPath | None:
    """Return the most similar key, compared by whole path, then by last part."""
    by_path, by_last_part = {".".join(key): key for key in keys}, {key[-1]: key for key in keys}
    match = by_path.get(closest_word(".".join(path), by_path) or "")
    return match or by_last_part.get(closest_word(path[-1], by_last_part) or "")


def _quoted(part: str) -> str:
    # TOML escapes DEL, JSON does not
    return json.dumps(part, ensure_ascii=False).replace("\x7f", r"\u007f")


def _paths(table: Mapping[str, Any]) -> Iterator[KeyPath]:
    """Yield every key of a table and of its subtables, outer keys first."""
    for key, value in table.items():
        yield (key,)
        if isinstance(value, dict):
            for path in _paths(cast("dict[str, Any]", value)):
                yield (key, *path)
