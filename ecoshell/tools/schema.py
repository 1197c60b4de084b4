"""The JSON schema of a function's arguments, kept small because every word of it costs tokens.

Plain types are translated here, so that listing tools needs no pydantic; any other annotation is left to pydantic.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ecoshell.tools.base import Subject

_PLAIN: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}
_NOISE = frozenset({"title", "$defs"})
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function as a JSON schema.

    An argument's description is the string in its `Annotated[type, "description"]`. Raises TypeError for a function
    with arguments that cannot be given by name.
    """
    hints = get_type_hints(function, include_extras=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _NAMED:
            raise TypeError(f"{function.__name__}: a tool takes arguments by name, so not {parameter}")
        properties[name] = _property(hints.get(name, str), parameter.default)
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema


def split_annotation(annotation: Any) -> tuple[Any, str]:
    """The type and the description in `Annotated[type, "description"]`."""
    if get_origin(annotation) is not Annotated:
        return annotation, ""
    inner, *extras = get_args(annotation)
    return inner, next((extra for extra in extras if isinstance(extra, str)), "")


def subjects_in(function: Callable[..., Any]) -> dict[str, Subject]:
    """The parameters that say what they stand for, with a Subject in their `Annotated`."""
    hints = get_type_hints(function, include_extras=True)
    found = {name: _subject(hints[name]) for name in inspect.signature(function).parameters if name in hints}
    return {name: subject for name, subject in found.items() if subject is not None}


def _subject(annotation: Any) -> Subject | None:
    """What is said anywhere in an annotation, such as of the items of a list."""
    within = (part if isinstance(part, Subject) else _subject(part) for part in get_args(annotation))
    return next((subject for subject in within if subject is not None), None)


def _property(annotation: Any, default: Any) -> dict[str, Any]:
    inner, description = split_annotation(annotation)
    found = _type_schema(inner)
    if description:
        found["description"] = description
    if default is not inspect.Parameter.empty and default is not None:
        found["default"] = default
    return found


def _type_schema(annotation: Any) -> dict[str, Any]:
    if annotation in _PLAIN:
        return {"type": _PLAIN[annotation]}
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal and all(isinstance(choice, str) for choice in arguments):
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        if len(members) == 1:  # "or None" is said by the argument not being required
            return _type_schema(members[0])
    if origin is list:
        return {"type": "array", "items": _type_schema(arguments[0])}
    return _pydantic_schema(annotation)


def _pydantic_schema(annotation: Any) -> dict[str, Any]:
    from pydantic import TypeAdapter  # heavy, and seldom needed

    schema = TypeAdapter(annotation).json_schema()
    return _clean(schema, schema.get("$defs", {}), ())


def _clean(node: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """The schema without titles, its definitions put in place; a type that contains itself ends as any object."""
    if isinstance(node, list):
        return [_clean(item, definitions, inside) for item in node]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    found: dict[str, Any] = node  # pyright: ignore[reportUnknownVariableType]
    if "$ref" in found:
        name = str(found["$ref"]).rpartition("/")[2]
        return {"type": "object"} if name in inside else _clean(definitions[name], definitions, (*inside, name))
    cleaned = {key: _clean(value, definitions, inside) for key, value in found.items() if key not in _NOISE}
    if isinstance(found.get("properties"), dict):  # here "title" may be the name of an argument
        cleaned["properties"] = {key: _clean(value, definitions, inside) for key, value in found["properties"].items()}
    return cleaned
