"""JSON Lines, read into records. What is wrong is named with its line and field."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError

from ecoshell.errors import UsageError

T = TypeVar("T")


def _says_something(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text


def as_text(value: object) -> str:
    """A text as it is, nothing as none, and what is not a text as the JSON it is."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


Filled = Annotated[str, AfterValidator(_says_something)]
"""A text that says something."""
Text = Annotated[str, BeforeValidator(as_text)]
"""A text that may be empty or null; what is not a text is taken as the JSON it is."""


def read_objects(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each line's object with its place, `file:line`. Raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"{path} cannot be read: {failure}.", fix="Give a JSON Lines file.") from failure
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as failure:
            raise UsageError(f"{place} is not JSON: {failure}.", fix="Give a JSON Lines file.") from failure
        if not isinstance(record, Mapping):
            raise UsageError(f"{place} is not a JSON object.", fix="Give a JSON Lines file.")
        yield place, cast("Mapping[str, Any]", record)


def read_records(path: Path, kind: type[T], fix: str) -> Iterator[tuple[str, T]]:
    """Each line as a dataclass, with its place. Raises UsageError, which names line and field."""
    adapter = TypeAdapter(kind)
    for place, record in read_objects(path):
        yield place, checked(adapter, record, place, fix)


def checked(adapter: TypeAdapter[T], record: object, place: str, fix: str) -> T:
    """What a record says; raises UsageError, which names the field of the first fault, entries of lists from 1 on."""
    try:
        return adapter.validate_python(record)
    except ValidationError as failure:
        first = failure.errors(include_url=False)[0]
        field = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
        no_object = first["type"] in ("model_type", "dataclass_type")  # whose message has a name of ours
        message = "it is not an object" if no_object else first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{place}: {f'`{field}`: ' if field else ''}{message}.", fix=fix) from failure
