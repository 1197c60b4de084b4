"""Writes settings into the person's own file: comments, order and formatting stay as they are.

What would not be valid afterwards is refused and the file left alone. A file that somebody else saves meanwhile is read
again and the change made to what it holds then.
"""

import fcntl
import os
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Any, cast

from pydantic import ValidationError

from ecoshell.errors import SettingsError
from ecoshell.paths import make_private, remedy, replacement
from ecoshell.settings import KeyPath, Source, dotted, path_of, problem, read_bytes, summed_up, value_of
from ecoshell.settings.schema import Settings, descriptions, general

REMOVED = None
"""In the place of a value: the key is taken out, and its default holds again."""
Changes = Mapping[KeyPath, str | None]
"""Values as a person types them, by key."""
_TRIES = 5
_MARK = "\ufeff"


def write_settings(file: Path, changes: Changes) -> Settings:
    """Set or take out keys of the settings file, all or none; gives what the file says then.

    Folders and the file are made where they are missing; a link keeps pointing where it did, and the file keeps its
    mode. Raises SettingsError, which names the key that cannot be taken, or what was wrong with the file before.
    """
    target = Path(os.path.realpath(file))
    for _ in range(_TRIES):
        before = read_bytes(target)
        text, settings = changed(file, before, changes)
        try:
            make_private(target.parent)
            mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
            with _locked(target.parent), replacement(target, mode) as fresh:
                fresh.write(text.encode())
                if read_bytes(target) != before:
                    raise _Overtaken
        except _Overtaken:
            continue
        except OSError as error:
            raise SettingsError(
                f"{target} cannot be written ({error.strerror}).",
                kept="It is as it was.",
                fix=remedy(error, "Make the file and its folder writable."),
            ) from error
        return settings
    raise SettingsError(f"{file} is being changed by something else.", kept="Nothing was written.", fix="Try it again.")


def changed(file: Path, before: bytes, changes: Changes) -> tuple[str, Settings]:
    """The file's text with the changes made, and the settings it then gives; raises SettingsError."""
    source = Source(file, before)
    values, settings = checked(file, source, changes)
    given, dumped = dict[KeyPath, Any](), settings.model_dump()
    for path, value in values.items():  # as the schema has understood it, money and rates as texts
        if value is REMOVED:
            given[path] = REMOVED
            continue
        understood: Any = dumped
        for part in path:
            understood = understood[part]
        if isinstance(understood, tuple):
            understood = list(cast("tuple[Any, ...]", understood))
        elif isinstance(understood, float):
            understood = int(understood) if understood.is_integer() else understood
        elif not isinstance(understood, (bool, int, str, list, NoneType)):
            understood = str(understood)
        given[path] = understood
    text = changed_text(before.decode("utf-8"), given)
    read = {path: _as_read(value) for path, value in given.items()}
    if _filled(Source(file, text.encode()).data) != _filled(_overlaid(source.data, read)):
        raise SettingsError(
            f"{file} is laid out in a way that cannot be changed here.", kept="It is as it was.", fix="Edit it by hand."
        )
    return text, settings


def _as_read(value: Any) -> Any:
    """The value as a file says it that holds it: no number in it is a float."""
    if isinstance(value, list):
        return [*map(_as_read, cast("list[Any]", value))]
    return Decimal(repr(value)) if isinstance(value, float) else value


def checked(file: Path, source: Source, changes: Changes) -> tuple[dict[KeyPath, Any], Settings]:
    """The values as they are understood, and the settings they give.

    Raises SettingsError for a change that cannot be taken, else for what was wrong before.
    """
    values: dict[KeyPath, Any] = {}
    for path, typed in changes.items():
        if typed is None:
            values[path] = REMOVED
            continue
        try:
            "".join((*path, typed)).encode()
        except UnicodeEncodeError:
            raise SettingsError(
                f"What was given for {dotted(path)} is not UTF-8 text.",
                kept="Nothing was written.",
                fix="Type it in UTF-8.",
            ) from None
        known, around = (descriptions().get(general(key)) for key in (path, path[:-1]))
        as_typed = around is not None or (known is not None and known.kind == "text")  # in a table of texts, or one
        value = typed if as_typed else value_of(typed)
        one_of_list = known is not None and known.kind == "list" and isinstance(value, str)
        values[path] = [value] if one_of_list else value
    try:
        return values, Settings.model_validate(_overlaid(source.data, values))
    except ValidationError as error:
        details = error.errors()
        for detail in details:
            at = path_of(detail)
            for path in changes:  # it is that, or lies below or beside it in the same innermost table
                beside = len(at) > 1 and at[:-1] == path[:-1]
                if beside or at[: len(path)] == path or path[: len(at)] == at:
                    wrong = problem(detail, str(file))
                    raise SettingsError(wrong.message, kept="Nothing was written.", fix=wrong.fix) from error
        raise summed_up([problem(detail, source.place(path_of(detail))) for detail in details]) from error


def _overlaid(data: Mapping[str, Any], values: Mapping[KeyPath, Any]) -> dict[str, Any]:
    """A copy of nested tables with values set and taken out; a value where a table should be is replaced."""
    copy = deepcopy(dict(data))
    for path, value in values.items():
        if value is REMOVED:
            _take_out(copy, path)
            continue
        table: dict[str, Any] = copy
        for part in path[:-1]:
            if not isinstance(table.get(part), dict):
                table[part] = {}
            table = table[part]
        table[path[-1]] = value
    return copy


def _filled(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without tables in it that hold nothing: whether those are written down makes no difference."""
    inside = {
        key: _filled(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        for key, value in table.items()
    }
    return {key: value for key, value in inside.items() if value != {}}


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Let the processes that write settings there come one after another: each then sees what the last one wrote."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class _Overtaken(Exception):
    """Somebody else wrote the file meanwhile."""


def changed_text(text: str, changes: Mapping[KeyPath, Any]) -> str:
    """The text with the changes made; None takes a key out. The text must be valid TOML."""
    import tomllib

    import tomlkit  # only whoever writes needs it
    from tomlkit.items import Comment, InlineTable, Table, Whitespace

    mark, body = (_MARK, text[1:]) if text.startswith(_MARK) else ("", text)
    windows = "\r\n" in body
    body = body.replace("\r\n", "\n")
    if body.strip():
        known = tomllib.loads(body)
        if any(len(path) > 1 and path[0] not in known and value is not None for path, value in changes.items()):
            body = body.rstrip("\n") + "\n\n"  # a first table of some name will follow
    document = tomlkit.parse(body)
    for path, value in changes.items():
        if value is None:
            _take_out(document, path)
            continue
        table: Any = document
        for depth, part in enumerate(path[:-1], start=1):
            if not isinstance(table.get(part), dict):
                inline = isinstance(table, InlineTable)  # which holds no other kind
                table[part] = tomlkit.inline_table() if inline else tomlkit.table(is_super_table=depth < len(path) - 1)
            table = table[part]
        if path[-1] in table or not isinstance(table, Table):
            table[path[-1]] = value
            continue
        # a new key goes below the last one; empty lines and comments at the end belong to what comes after the table
        items = cast("list[Any]", table.value.body)
        start = len(items)
        while start and items[start - 1][0] is None and isinstance(items[start - 1][1], (Comment, Whitespace)):
            start -= 1
        gap = next((at for at in range(start, len(items)) if isinstance(items[at][1], Whitespace)), start)
        below = items[gap:]
        del items[gap:]
        table.append(path[-1], value)
        items.extend(below)
    done = tomlkit.dumps(document)
    return mark + (done.replace("\n", "\r\n") if windows else done)


def _take_out(document: Mapping[str, Any], path: KeyPath) -> None:
    table: Any = document
    for part in path[:-1]:
        table = cast("dict[str, Any]", table).get(part)
        if not isinstance(table, dict):
            return
    cast("dict[str, Any]", table).pop(path[-1], None)
