"""Converts tables of the settings file to the classes of the schema, and back.

Standard library only: pydantic's models of the settings took a sixth of the memory of an idle chat.
"""

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ecoshell.settings.keys import KeyPath, dotted

Converter = Callable[[Any], Any]
"""Returns the value of a setting; raises ValueError, which says what it must be."""
Table = TypeVar("Table")

NOT_A_TABLE = "must be a table"


@dataclass(frozen=True, slots=True)
class Parsed:
    """Annotation of a type whose values this function converts."""

    convert: Converter


@dataclass(frozen=True, slots=True)
class Checked:
    """Annotation of a type: checks or normalises a value of this type."""

    check: Converter


@dataclass(frozen=True, slots=True)
class OtherKeys:
    """Annotation of a mapping: it holds the keys of its table that are not fields. Such a field is declared last."""


@dataclass(frozen=True, slots=True)
class InvalidValue:
    """A key that is not accepted."""

    path: KeyPath
    kind: Literal["unknown", "missing", "invalid"]
    requirement: str = ""
    """What the value must be: a sentence without its subject."""
    value: Any = None


class InvalidTable(ValueError):
    """A table has invalid keys; `problems` has all of them."""

    def __init__(self, problems: Iterable[InvalidValue]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(f"{dotted(first.path)} {first.requirement or f'is {first.kind}'}".strip())


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table."""

    name: str
    type: Any
    """The type as declared, with its annotations."""
    default: Any
    """MISSING if the key is required."""

    @property
    def holds_other_keys(self) -> bool:
        return OtherKeys() in split_annotations(self.type)[1]


@cache
def table_fields(table: type[Any]) -> Mapping[str, Field]:
    """Return the fields of a table by name, in the order of the schema."""
    types_by_name = get_type_hints(table, include_extras=True)
    declared: dict[str, Field] = {}
    for field in fields(cast("Any", table)):
        factory = field.default_factory
        default = field.default if factory is MISSING else factory()
        declared[field.name] = Field(field.name, types_by_name[field.name], default)
    return declared


def split_annotations(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Split `Annotated[T, …]` into T and its annotations."""
    if get_origin(kind) is not Annotated:
        return kind, ()
    bare, *annotations = get_args(kind)
    return bare, tuple(annotations)


def to_settings(table: type[Table], values: Any, path: KeyPath = ()) -> Table:
    """Convert the nested tables of values at this path; raises InvalidTable, which has every problem."""
    problems: list[InvalidValue] = []
    settings = _to_table(table, values, path, problems)
    if problems:
        raise InvalidTable(problems)
    return settings


def to_values(settings: object) -> dict[str, Any]:
    """Convert settings to nested dictionaries, in the order of the schema."""
    values: dict[str, Any] = {}
    for name, field in table_fields(type(settings)).items():
        value = _plain(getattr(settings, name))
        values.update(value if field.holds_other_keys else {name: value})
    return values


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_values(cast("Any", value))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast("Mapping[str, Any]", value).items()}
    return value


def _to_table(table: type[Any], values: Any, path: KeyPath, problems: list[InvalidValue]) -> Any:
    if not isinstance(values, Mapping):
        required = [name for name, field in table_fields(table).items() if field.default is MISSING]
        example = ", ".join(f"{name} = …" for name in required)
        requirement = f"{NOT_A_TABLE}, such as {{{example}}}" if required else NOT_A_TABLE
        problems.append(InvalidValue(path, "invalid", requirement, values))
        return None
    remaining, known_problems = dict(cast("Mapping[str, Any]", values)), len(problems)
    converted: dict[str, Any] = {}
    for name, field in table_fields(table).items():
        if field.holds_other_keys:
            converted[name] = _to_type(field.type, remaining, path, problems)
            remaining = {}
        elif name in remaining:
            converted[name] = _to_type(field.type, remaining.pop(name), (*path, name), problems)
        elif field.default is MISSING:
            problems.append(InvalidValue((*path, name), "missing"))
    problems += [
        InvalidValue((*path, name), "unknown", value=value) for name, value in remaining.items()
    ]
    if len(problems) > known_problems:
        return None
    try:
        return table(**converted)
    except ValueError as error:  # a rule about several fields
        problems.append(InvalidValue(path, "invalid", str(error), values))
        return None


def _to_type(kind: Any, value: Any, path: KeyPath, problems: list[InvalidValue]) -> Any:
    """Convert a value to a type of the schema; the result has no meaning if problems were added."""
    kind, annotations = split_annotations(kind)
    known_problems, converted = len(problems), value
    try:
        for annotation in annotations:
            if isinstance(annotation, Parsed):
                return annotation.convert(value)
        converted = _to_bare_type(kind, value, path, problems)
        for annotation in annotations:
            if isinstance(annotation, Checked) and len(problems) == known_problems:
                converted = annotation.check(converted)
    except ValueError as error:
        problems.append(InvalidValue(path, "invalid", str(error), value))
    return converted


def _to_bare_type(kind: Any, value: Any, path: KeyPath, problems: list[InvalidValue]) -> Any:
    """Convert a value to a type without annotations; raises ValueError if its kind is wrong."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):  # of one type and None
        (kind,) = (part for part in arguments if part is not NoneType)
        return None if value is None else _to_type(kind, value, path, problems)
    if is_dataclass(kind):
        return _to_table(cast("type[Any]", kind), value, path, problems)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise ValueError(NOT_A_TABLE)
        items = cast("Mapping[str, Any]", value).items()
        return {key: _to_type(arguments[1], item, (*path, key), problems) for key, item in items}
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError('must be a list, such as ["one", "two"]')
        texts = cast("Iterable[Any]", value)
        known_problems = len(problems)
        converted = tuple(_to_type(arguments[0], text, path, problems) for text in texts)
        problems[known_problems:] = [
            replace(problem, requirement=f"has an entry that {problem.requirement}")
            for problem in problems[known_problems:]
        ]
        return converted
    if origin is Literal:
        if value not in arguments:
            *others, last = map(repr, arguments)
            raise ValueError(f"must be {', '.join(others)} or {last}")
    elif kind is bool and not isinstance(value, bool):
        raise ValueError("must be true or false")
    elif kind is str and not isinstance(value, str):
        raise ValueError("must be text")
    return value
