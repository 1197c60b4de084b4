"""Records from JSON Lines; errors name the line and the field."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError

from ecoshell.errors import UsageError

T = TypeVar("T")


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text


def as_text(value: object) -> str:
    """Return a string unchanged, None as an empty string, and other values as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


Filled = Annotated[str, AfterValidator(_not_empty)]
Text = Annotated[str, BeforeValidator(as_text)]
"""A string that may be empty or null; other values become JSON."""


def read_objects(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the object of each line and its place, `file:line`; raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(
            f"{path} cannot be read: {failure}.", fix="Use a JSON Lines file."
        ) from failure
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as failure:
            raise UsageError(
                f"{place} is not JSON: {failure}.", fix="Use a JSON Lines file."
            ) from failure
        if not isinstance(record, Mapping):
            raise UsageError(f"{place} is not a JSON object.", fix="Use a JSON Lines file.")
        yield place, cast("Mapping[str, Any]", record)


def read_records(path: Path, kind: type[T], fix: str) -> Iterator[tuple[str, T]]:
    """Yield each line as a dataclass, with its place; raises UsageError."""
    adapter = TypeAdapter(kind)
    for place, record in read_objects(path):
        yield place, checked(adapter, record, place, fix)


def checked(adapter: TypeAdapter[T], record: object, place: str, fix: str) -> T:
    """Return the validated record; raises UsageError with the first invalid field, list entries counted from 1."""
    try:
        return adapter.validate_python(record)
    except ValidationError as failure:
        first = failure.errors(include_url=False)[0]
        field = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
        is_no_object = first["type"] in (
            "model_type",
            "dataclass_type",
        )  # pydantic would name our class.
        message = (
            "it is not an object" if is_no_object else first["msg"].removeprefix("Value error, ")
        )
        raise UsageError(
            f"{place}: {f'`{field}`: ' if field else ''}{message}.", fix=fix
        ) from failure
