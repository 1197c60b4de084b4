"""The settings as data: path, kind, default, choices and description, derived from the schema."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, is_dataclass
from functools import cache
from typing import Any, Literal, cast, get_args, get_origin

from ecoshell.settings import schema
from ecoshell.settings.convert import Field, split_annotations, table_fields
from ecoshell.settings.keys import KeyPath
from ecoshell.settings.schema import Settings

NAMED = "*"
"""A name chosen by the user in a key's path: `("models", "*", "price", "input")`."""

_TABLES_OF_NAMES: tuple[KeyPath, ...] = (
    ("models",),
    ("modes", "umi", "presets"),
    ("mcp", "servers"),
    ("hooks", "commands"),
)
"""Tables whose keys are names chosen by the user, each with its own table."""

Kind = Literal["choice", "switch", "list", "text", "value"]
"""One of a few words, true or false, several texts, any text, or a number (or a word such as "auto")."""


@dataclass(frozen=True, slots=True)
class Description:
    """One setting; NAMED in the path replaces the name of a model, preset or server."""

    path: KeyPath
    text: str
    kind: Kind
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The dotted key; a name chosen by the user is written as NAME: `models.NAME.context`."""
        return ".".join("NAME" if part == NAMED else part for part in self.path)


def generic_path(path: KeyPath) -> KeyPath:
    """Replace a name chosen by the user with NAMED."""
    for table in _TABLES_OF_NAMES:
        if path[: len(table)] == table and len(path) > len(table) + 1:
            return (*table, NAMED, *path[len(table) + 1 :])
    return path


def setting_fields(
    table: type[Any] = Settings, prefix: KeyPath = ()
) -> Iterator[tuple[KeyPath, type[Any], Field]]:
    """Yield the path, the table and the field of every setting that holds a value, in schema order."""
    for name, field in table_fields(table).items():
        path = prefix if field.holds_other_keys else (*prefix, name)
        subtable, is_named = _table_of(field.type)
        if subtable is not None:
            yield from setting_fields(subtable, (*path, NAMED) if is_named else path)
        elif not field.holds_other_keys:
            yield path, table, field


@cache
def descriptions() -> Mapping[KeyPath, Description]:
    """Describe every setting that holds a value, in schema order."""
    docstrings = _field_docstrings()
    described: dict[KeyPath, Description] = {}
    for path, table, field in setting_fields():
        kind, choices = kind_of(field.type)
        default = None if field.default is MISSING else field.default
        # a base class may declare the field
        declarations = ((base.__name__, path[-1]) for base in table.__mro__)
        text = next((docstrings[name] for name in declarations if name in docstrings), "")
        described[path] = Description(path, text, kind, default, choices)
    return described


def section_descriptions() -> Mapping[str, str]:
    """Describe every top-level table of the file."""
    import inspect

    tables = {name: _table_of(field.type)[0] for name, field in table_fields(Settings).items()}
    return {
        name: inspect.getdoc(table) or "" for name, table in tables.items() if table is not None
    }


def kind_of(annotated: Any) -> tuple[Kind, tuple[str, ...]]:
    """Return the kind of a type's values, and the words they may be."""
    bare, _ = split_annotations(annotated)
    members = [part for part in get_args(bare) if part is not type(None)]
    if get_origin(bare) is Literal:
        return "choice", tuple(map(str, get_args(bare)))
    if get_origin(bare) is tuple:
        return "list", ()
    words = next((part for part in members if get_origin(part) is Literal), None)
    if str in members and words is not None:  # plugins may add words
        return "choice", tuple(map(str, get_args(words)))
    types = [split_annotations(part)[0] for part in members or [bare]]
    if types == [bool]:
        return "switch", ("true", "false")
    return ("text" if types == [str] else "value"), ()


def _table_of(annotated: Any) -> tuple[type[Any] | None, bool]:
    """Return the table that a type holds, if any, and whether it holds several by name."""
    bare, _ = split_annotations(annotated)
    table = next((part for part in (bare, *get_args(bare)) if is_dataclass(part)), None)
    return cast("type[Any] | None", table), get_origin(bare) is Mapping


def _field_docstrings() -> Mapping[tuple[str, str], str]:
    """Read the docstring below each field of the schema, by class and field name."""
    import ast
    import inspect

    body: list[ast.stmt] = []
    with suppress(OSError):  # an installation without sources
        body = ast.parse(inspect.getsource(schema)).body
    docstrings: dict[tuple[str, str], str] = {}
    for table in (node for node in body if isinstance(node, ast.ClassDef)):
        for field, following in zip(table.body, table.body[1:], strict=False):
            match field, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(text))
                ):
                    docstrings[table.name, name] = inspect.cleandoc(text)
                case _:
                    pass
    return docstrings
