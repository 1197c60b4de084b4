"""What each setting is: its words, its default, and what may be given for it. All of it is read from the schema."""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ecoshell.settings import keys, schema
from ecoshell.settings.schema import NAMED, Settings, general

Kind = Literal["choice", "switch", "list", "text", "value"]
"""One of a few words, true or false, several texts, any text, or a number (which may be a word such as "auto" too)."""


@dataclass(frozen=True, slots=True)
class Description:
    """One setting; in the path of one that belongs to a single model or preset, NAMED stands for its name."""

    path: keys.Path
    text: str
    kind: Kind
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key as it is written, `models.NAME.context` for one of a single model."""
        return ".".join("NAME" if part == NAMED else part for part in self.path)


@cache
def descriptions() -> Mapping[keys.Path, Description]:
    """Every setting that holds a value, in the order of the schema."""
    return {one.path: one for one in _described(Settings, (), _words())}


def description_of(path: keys.Path) -> Description | None:
    """The description of a key, also of a single model's or preset's; None for a table and for what is no setting."""
    return descriptions().get(general(path))


def section_words() -> Mapping[str, str]:
    """What each table of the file is about, by its name."""
    found: dict[str, str] = {}
    for name, field in Settings.model_fields.items():
        table = _table(field)
        if table is not None:
            found[name] = inspect.getdoc(table) or ""
    return found


def _described(table: type[BaseModel], above: keys.Path, words: Mapping[tuple[str, str], str]) -> list[Description]:
    found: list[Description] = []
    for name, field in table.model_fields.items():
        path, below = (*above, name), _table(field)
        if below is not None:
            found += _described(below, (*path, NAMED) if get_origin(field.annotation) is Mapping else path, words)
            continue
        kind, choices = _kind(field)
        default = None if field.is_required() else field.default
        found.append(Description(path, _words_of(table, name, words), kind, default, choices))
    return found


def _words_of(table: type[BaseModel], name: str, words: Mapping[tuple[str, str], str]) -> str:
    """What is said of a field where it is declared, which may be a table this one extends."""
    return next((words[one.__name__, name] for one in table.__mro__ if (one.__name__, name) in words), "")


def _table(field: FieldInfo) -> type[BaseModel] | None:
    parts = (field.annotation, *get_args(field.annotation))
    return next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)


def _kind(field: FieldInfo) -> tuple[Kind, tuple[str, ...]]:
    annotation, inner = field.annotation, [part for part in get_args(field.annotation) if part is not type(None)]
    if get_origin(annotation) is Literal:
        return "choice", tuple(map(str, get_args(annotation)))
    if annotation is tuple or get_origin(annotation) is tuple:
        return "list", ()
    bare = [get_args(part)[0] if get_origin(part) not in (None, Literal) else part for part in inner or [annotation]]
    if bare == [bool]:
        return "switch", ("true", "false")
    return ("text" if bare == [str] else "value"), ()


def _words() -> Mapping[tuple[str, str], str]:
    """The text below each field of the schema, by class and field; nothing where there is no source to read."""
    try:
        tree = ast.parse(inspect.getsource(schema))
    except OSError:
        return {}
    found: dict[tuple[str, str], str] = {}
    for table in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for field, below in zip(table.body, table.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[table.name, name] = inspect.cleandoc(text)
                case _:
                    pass
    return found
