"""Keys of a TOML file: where each stands, how its path is written, and which known key is nearest to an unknown one."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from ecoshell.errors import nearest as nearest_word

Path = tuple[str, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def key_lines(text: str) -> dict[Path, int]:
    """The line on which each key of a valid TOML text is set, tables included.

    The text is read statement by statement: a statement ends at the first line with which it parses.
    """
    lines: dict[Path, int] = {}
    table: Path = ()
    statement: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        statement.append(line)
        try:
            parsed = tomllib.loads("\n".join(statement))
        except tomllib.TOMLDecodeError:
            continue  # an array or a text over several lines
        first = number - len(statement) + 1
        paths = list(_paths(parsed))
        if statement[0].lstrip().startswith("["):
            table = paths[-1]
            paths = [table[:depth] for depth in range(1, len(table) + 1)]
        else:
            paths = [(*table, *path) for path in paths]
        for path in paths:
            lines.setdefault(path, first)
        statement = []
    return lines


def dotted(path: Sequence[str]) -> str:
    """The path as TOML writes it: `models."gpt-4.1".price`."""
    quoted = (json.dumps(part, ensure_ascii=False).replace("\x7f", r"\u007f") for part in path)  # one more than in JSON
    return ".".join(part if _BARE.fullmatch(part) else text for part, text in zip(path, quoted, strict=True))


def parted(key: str) -> Path:
    """The path that TOML reads in a written key, `dotted` the other way round; raises ValueError for what is no key."""
    parts: list[str] = []
    table: Any = {}
    with suppress(tomllib.TOMLDecodeError):
        table = tomllib.loads(f"{key} = 0")
    if "\n" in key or not table or table == tomllib.loads(f"{key} = 1"):  # it sets a value of its own
        raise ValueError(f"{key!r} is no key")
    while isinstance(table, dict):
        ((part, table),) = cast("dict[str, Any]", table).items()
        parts.append(part)
    return tuple(parts)


def nearest(path: Path, known: Sequence[Path]) -> Path | None:
    """The known key most like this one: by its whole path, else by its last part alone."""
    whole, last = {".".join(key): key for key in known}, {key[-1]: key for key in known}
    close = whole.get(nearest_word(".".join(path), whole) or "")
    return close or last.get(nearest_word(path[-1], last) or "")


def _paths(table: Mapping[str, Any]) -> Iterator[Path]:
    """Every key of a table and of the tables in it, the outer ones first."""
    for key, value in table.items():
        yield (key,)
        if isinstance(value, dict):
            for path in _paths(cast("dict[str, Any]", value)):
                yield (key, *path)
