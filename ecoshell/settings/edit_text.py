"""The text of a TOML file with keys set or taken out, and every other sign of it as it was."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ecoshell.settings import keys

if TYPE_CHECKING:
    from tomlkit.container import Container
    from tomlkit.items import Table

_MARK = "\ufeff"


def changed_text(text: str, changes: Mapping[keys.Path, Any]) -> str:
    """The text with the changes made; None takes a key out. The text must be valid TOML."""
    import tomlkit  # only whoever writes needs it

    mark, body = (_MARK, text[1:]) if text.startswith(_MARK) else ("", text)
    windows = "\r\n" in body
    body = body.replace("\r\n", "\n")
    if body.strip() and any(len(path) > 1 for path in changes):
        body = _apart(body, changes)
    document = tomlkit.parse(body)
    for path, value in changes.items():
        if value is None:
            _take_out(document, path)
        else:
            _set(document, path, value)
    done = tomlkit.dumps(document)
    return mark + (done.replace("\n", "\r\n") if windows else done)


def _apart(body: str, changes: Mapping[keys.Path, Any]) -> str:
    """The text with an empty line at its end when a first table of some name will follow it."""
    import tomllib

    known = tomllib.loads(body)
    if all(path[0] in known or value is None or len(path) == 1 for path, value in changes.items()):
        return body
    return body.rstrip("\n") + "\n\n"


def _set(document: "Container", path: keys.Path, value: Any) -> None:
    """Set a key, in tables that are made where they are missing; a new key goes below the last one of its table."""
    import tomlkit
    from tomlkit.items import Table

    table: Any = document
    for depth, part in enumerate(path[:-1], start=1):
        if not isinstance(table.get(part), dict):
            table[part] = tomlkit.table(is_super_table=depth < len(path) - 1)
        table = table[part]
    if path[-1] in table or not isinstance(table, Table):
        table[path[-1]] = value
        return
    below = _end_of(table)
    table.append(path[-1], value)
    table.value.body.extend(below)


def _end_of(table: "Table") -> list[Any]:
    """Takes out, and gives, the empty lines and comments at a table's end that belong to what comes after it."""
    from tomlkit.items import Comment, Whitespace

    body = cast("list[Any]", table.value.body)
    start = len(body)
    while start and body[start - 1][0] is None and isinstance(body[start - 1][1], (Comment, Whitespace)):
        start -= 1
    gap = next((at for at in range(start, len(body)) if isinstance(body[at][1], Whitespace)), start)
    below = body[gap:]
    del body[gap:]
    return below


def _take_out(document: "Container", path: keys.Path) -> None:
    table: Any = document
    for part in path[:-1]:
        table = cast("dict[str, Any]", table).get(part)
        if not isinstance(table, dict):
            return
    cast("dict[str, Any]", table).pop(path[-1], None)
