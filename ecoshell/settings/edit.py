"""Writes settings into the person's own file: comments, order and formatting stay as they are.

What would not be valid afterwards is refused and the file left alone. A file that somebody else saves meanwhile is read
again and the change made to what it holds then.
"""

import os
import stat
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from ecoshell.errors import SettingsError
from ecoshell.files import remedy, replacement
from ecoshell.paths import make_private
from ecoshell.settings import keys
from ecoshell.settings.describe import description_of
from ecoshell.settings.edit_text import changed_text
from ecoshell.settings.problems import path_of, problem, summed_up
from ecoshell.settings.schema import Settings
from ecoshell.settings.source import Source, value_of

REMOVED = None
"""In the place of a value: the key is taken out, and its default holds again."""
Changes = Mapping[keys.Path, str | None]
"""Values as a person types them, by key."""
_TRIES = 5


def write_settings(file: Path, changes: Changes) -> Settings:
    """Set or take out keys of the settings file, all or none; gives what the file says then.

    Folders and the file are made where they are missing; a link keeps pointing where it did, and the file keeps its
    mode. Raises SettingsError, which names the key that cannot be taken, or what was wrong with the file before.
    """
    target = Path(os.path.realpath(file))
    for _ in range(_TRIES):
        before = _bytes(target)
        text, settings = changed(file, before, changes)
        if _replace(target, before, text):
            return settings
    raise SettingsError(f"{file} is being changed by something else.", kept="Nothing was written.", fix="Try it again.")


def changed(file: Path, before: bytes, changes: Changes) -> tuple[str, Settings]:
    """The file's text with the changes made, and the settings it then gives; raises SettingsError."""
    source = Source.of_bytes(file, before)
    values, settings = checked(file, source, changes)
    given = {path: REMOVED if value is None else _written(path, value, settings) for path, value in values.items()}
    text = changed_text(before.decode("utf-8"), given)
    if Source.of_bytes(file, text.encode()).data != _overlaid(source.data, _exact(given)):
        raise SettingsError(
            f"{file} is laid out in a way that cannot be changed here.", kept="It is as it was.", fix="Edit it by hand."
        )
    return text, settings


def checked(file: Path, source: Source, changes: Changes) -> tuple[dict[keys.Path, Any], Settings]:
    """The values as they are understood, and the settings they give; raises SettingsError for what cannot be taken."""
    values = {path: REMOVED if typed is None else _read(path, typed) for path, typed in changes.items()}
    return values, _validated(file, source, _overlaid(source.data, values), changes)


def _read(path: keys.Path, typed: str) -> Any:
    """What was typed, as the kind of its key has it; one text stands for a list of one. Raises SettingsError."""
    try:
        typed.encode()
    except UnicodeEncodeError:
        raise SettingsError(
            f"What was given for {keys.dotted(path)} is not UTF-8 text.", kept="Nothing was written."
        ) from None
    known = description_of(path)
    if known is not None and known.kind == "text":
        return typed
    value = value_of(typed)
    return [value] if known is not None and known.kind == "list" and isinstance(value, str) else value


def _exact(values: Mapping[keys.Path, Any]) -> dict[keys.Path, Any]:
    """The values as they are read from a file, where no number is rounded."""
    return {path: Decimal(repr(value)) if isinstance(value, float) else value for path, value in values.items()}


def _overlaid(data: Mapping[str, Any], values: Mapping[keys.Path, Any]) -> dict[str, Any]:
    """A copy of nested tables with values set and taken out; a value where a table should be is replaced."""
    copy = _copied(data)
    for path, value in values.items():
        table = copy
        for part in path[:-1]:
            below = table.get(part)
            if not isinstance(below, dict):
                if value is REMOVED:
                    break
                below = table[part] = {}
            table = cast("dict[str, Any]", below)
        else:
            if value is REMOVED:
                table.pop(path[-1], None)
            else:
                table[path[-1]] = value
    return copy


def _copied(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _copied(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        for key, value in table.items()
    }


def _validated(file: Path, source: Source, wanted: Mapping[str, Any], changes: Changes) -> Settings:
    """What the changed tables give; raises for a change that cannot be taken, else for what was wrong before."""
    try:
        return Settings.model_validate(wanted)
    except ValidationError as error:
        details = error.errors()
        for detail in details:
            if any(_touches(path_of(detail), path) for path in changes):
                wrong = problem(detail, str(file))
                raise SettingsError(wrong.message, kept="Nothing was written.", fix=wrong.fix) from error
        raise summed_up([problem(detail, source.place(path_of(detail))) for detail in details]) from error


def _touches(one: keys.Path, other: keys.Path) -> bool:
    """Whether one path is the other, or lies below or beside it in the same innermost table."""
    return one[: len(other)] == other or other[: len(one)] == one or (len(one) > 1 and one[:-1] == other[:-1])


def _written(path: keys.Path, value: Any, settings: Settings) -> Any:
    """The value as the file should hold it: as the schema has understood it, money and rates as texts."""
    found: Any = settings.model_dump()
    for part in path:
        found = found[part]
    if isinstance(found, tuple):
        return list(cast("tuple[Any, ...]", found))
    if isinstance(found, float):
        return int(found) if found.is_integer() else found
    return found if isinstance(found, (bool, int, str)) else str(value)


def _bytes(target: Path) -> bytes:
    try:
        return target.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise SettingsError(
            f"{target}: it cannot be read ({error.strerror}).", fix="Make it a readable file, or move it away."
        ) from error


class _Overtaken(Exception):
    """Somebody else wrote the file meanwhile."""


def _replace(target: Path, before: bytes, text: str) -> bool:
    """Put the whole text in the file's place, unless the file has changed since; says whether it did."""
    try:
        make_private(target.parent)
        with replacement(target, _mode(target)) as fresh:
            fresh.write(text.encode())
            if _bytes(target) != before:
                raise _Overtaken
    except _Overtaken:
        return False
    except OSError as error:
        raise SettingsError(
            f"{target} cannot be written ({error.strerror}).",
            kept="It is as it was.",
            fix=remedy(error, "Make the file and its folder writable."),
        ) from error
    return True


def _mode(target: Path) -> int:
    """The file's mode; a new file is for its owner alone."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return 0o600
