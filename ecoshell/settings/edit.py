"""Writes settings into the user's file, keeping comments, order and formatting.

A change that would make the settings invalid is refused, and so is one while another program saves the file; the file
then stays unchanged.
"""

import fcntl
import os
import stat
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Any, cast

from ecoshell.errors import SettingsError
from ecoshell.paths import make_private, remedy, replacement
from ecoshell.settings.convert import InvalidTable, to_settings, to_values
from ecoshell.settings.descriptions import descriptions, generic_path
from ecoshell.settings.keys import KeyPath, dotted
from ecoshell.settings.problems import problem, summarize
from ecoshell.settings.schema import Settings
from ecoshell.settings.source import Source, parse_value, read_bytes

REMOVED = None
"""Instead of a value: removes the key, so that its default applies."""
Changes = Mapping[KeyPath, str | None]
"""Typed values by key."""
_NOT_WRITTEN = "Nothing was written."
_BYTE_ORDER_MARK = "\ufeff"


def write_settings(file: Path, changes: Changes) -> Settings:
    """Apply all changes to the settings file, or none; return the resulting settings.

    Creates the file and its folders if missing; a symbolic link keeps its target, and the file keeps its mode. Raises
    SettingsError, which names the invalid key or the problem the file already had.
    """
    target = Path(os.path.realpath(file))
    try:
        make_private(target.parent)
        with _locked(target.parent):
            content = read_bytes(target)
            text, settings = edited(file, content, changes)
            mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
            with replacement(target, mode) as temporary:
                temporary.write(text.encode())
                if read_bytes(target) != content:
                    message = f"{file} is being changed by another program."
                    raise SettingsError(message, kept=_NOT_WRITTEN, fix="Try again.")
    except OSError as error:
        raise SettingsError(
            f"{target} cannot be written ({error.strerror}).",
            kept="The file is unchanged.",
            fix=remedy(error, "Make the file and its folder writable."),
        ) from error
    return settings


def edited(file: Path, content: bytes, changes: Changes) -> tuple[str, Settings]:
    """Return the file's text after the changes, and the resulting settings; raises SettingsError."""
    source = Source(file, content)
    values, settings = validated(file, source, changes)
    validated_table = to_values(settings)
    toml_values = {
        path: REMOVED if value is REMOVED else _toml_value(_value_at(validated_table, path))
        for path, value in values.items()
    }
    text = edited_text(content.decode("utf-8"), toml_values)
    plain_values = {path: _without_floats(value) for path, value in toml_values.items()}
    expected = _with_values(source.data, plain_values)
    if _without_empty_tables(Source(file, text.encode()).data) != _without_empty_tables(expected):
        message = f"The layout of {file} does not allow this change."
        raise SettingsError(message, kept="The file is unchanged.", fix="Edit it by hand.")
    return text, settings


def validated(file: Path, source: Source, changes: Changes) -> tuple[dict[KeyPath, Any], Settings]:
    """Parse the typed values and validate the resulting settings.

    Raises SettingsError for an invalid change, or for a problem the file already had.
    """
    values = {path: _parsed(path, typed) for path, typed in changes.items()}
    try:
        return values, to_settings(Settings, _with_values(source.data, values))
    except InvalidTable as error:
        for value in error.problems:
            if any(_concerns(value.path, path) for path in changes):
                invalid = problem(value, str(file))
                raise SettingsError(invalid.message, kept=_NOT_WRITTEN, fix=invalid.fix) from error
        problems = [problem(value, source.place(value.path)) for value in error.problems]
        raise summarize(problems) from error


def edited_text(text: str, changes: Mapping[KeyPath, Any]) -> str:
    """Return valid TOML text with keys set; None removes a key."""
    import tomlkit  # only needed to write
    from tomlkit.items import InlineTable

    mark, body = (_BYTE_ORDER_MARK, text[1:]) if text.startswith(_BYTE_ORDER_MARK) else ("", text)
    uses_crlf = "\r\n" in body
    body = body.replace("\r\n", "\n")
    if body.strip():
        existing = tomllib.loads(body)
        if any(
            len(path) > 1 and path[0] not in existing and value is not None
            for path, value in changes.items()
        ):
            body = body.rstrip("\n") + "\n\n"  # an empty line before the new table
    document = tomlkit.parse(body)
    for path, value in changes.items():
        if value is None:
            _remove(document, path)
            continue
        table: Any = document
        for depth, part in enumerate(path[:-1], start=1):
            if not isinstance(table.get(part), dict):
                subtable: Any = tomlkit.table(is_super_table=depth < len(path) - 1)
                if isinstance(table, InlineTable):  # it can only hold inline tables
                    subtable = tomlkit.inline_table()
                table[part] = subtable
            table = table[part]
        _set_in(table, path[-1], value)
    result = tomlkit.dumps(document)
    return mark + (result.replace("\n", "\r\n") if uses_crlf else result)


def _set_in(table: Any, key: str, value: Any) -> None:
    """Set a key of a tomlkit table; a new key follows the last key.

    Comments after an empty line at the end of a table belong to the next table and stay below the new key.
    """
    from tomlkit.items import Comment, Table, Whitespace

    if key in table or not isinstance(table, Table):
        table[key] = value
        return
    items = cast("list[Any]", table.value.body)
    end = len(items)
    while (
        end and items[end - 1][0] is None and isinstance(items[end - 1][1], (Comment, Whitespace))
    ):
        end -= 1
    gap = next(
        (index for index in range(end, len(items)) if isinstance(items[index][1], Whitespace)), end
    )
    trailing = items[gap:]
    del items[gap:]
    table.append(key, value)
    items.extend(trailing)


def _parsed(path: KeyPath, typed: str | None) -> Any:
    """Parse a typed value by the kind of its setting; raises SettingsError if it is not UTF-8."""
    if typed is None:
        return REMOVED
    try:
        "".join((*path, typed)).encode()
    except UnicodeEncodeError:
        message = f"The value of {dotted(path)} is not UTF-8 text."
        raise SettingsError(message, kept=_NOT_WRITTEN, fix="Type it in UTF-8.") from None
    setting, table_of_texts = (descriptions().get(generic_path(key)) for key in (path, path[:-1]))
    if table_of_texts is not None or (setting is not None and setting.kind == "text"):
        return typed
    value = parse_value(typed)
    is_single_item = setting is not None and setting.kind == "list" and isinstance(value, str)
    return [value] if is_single_item else value


def _concerns(invalid: KeyPath, changed: KeyPath) -> bool:
    """Whether an invalid key contains a changed key, lies below it, or is in the same table."""
    same_table = len(invalid) > 1 and invalid[:-1] == changed[:-1]
    return same_table or invalid[: len(changed)] == changed or changed[: len(invalid)] == invalid


def _value_at(table: Any, path: KeyPath) -> Any:
    for part in path:
        table = table[part]
    return table


def _toml_value(value: Any) -> Any:
    """Convert a validated value to what is written; amounts and rates become text."""
    if isinstance(value, tuple):
        return list(cast("tuple[Any, ...]", value))
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    is_toml = isinstance(value, (bool, int, str, list, NoneType))
    return cast("Any", value) if is_toml else str(value)


def _without_floats(value: Any) -> Any:
    """Convert floats to Decimal, as Source reads them."""
    if isinstance(value, list):
        return [*map(_without_floats, cast("list[Any]", value))]
    return Decimal(repr(value)) if isinstance(value, float) else value


def _with_values(data: Mapping[str, Any], values: Mapping[KeyPath, Any]) -> dict[str, Any]:
    """Copy nested tables with values set and removed; a value where a table belongs is replaced."""
    copy = deepcopy(dict(data))
    for path, value in values.items():
        if value is REMOVED:
            _remove(copy, path)
            continue
        table: dict[str, Any] = copy
        for part in path[:-1]:
            if not isinstance(table.get(part), dict):
                table[part] = {}
            table = table[part]
        table[path[-1]] = value
    return copy


def _without_empty_tables(table: Mapping[str, Any]) -> dict[str, Any]:
    """Copy nested tables without empty subtables, which have no effect."""
    copy: dict[str, Any] = {}
    for key, value in table.items():
        copy[key] = value
        if isinstance(value, dict):
            copy[key] = _without_empty_tables(cast("dict[str, Any]", value))
    return {key: value for key, value in copy.items() if value != {}}


def _remove(document: Mapping[str, Any], path: KeyPath) -> None:
    table: Any = document
    for part in path[:-1]:
        table = cast("dict[str, Any]", table).get(part)
        if not isinstance(table, dict):
            return
    cast("dict[str, Any]", table).pop(path[-1], None)


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Let processes write settings one after another, so that each sees the previous change."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
