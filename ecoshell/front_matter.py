"""Text files with a front matter: settings between two lines of `---`, then a text, as other agents write them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ecoshell.errors import UsageError

Field = str | tuple[str, ...]
"""A text or a list of texts; numbers and booleans stay as written."""
MAX_CHARACTERS = 16_384
"""Characters of a front matter."""
_MARK = re.compile(r"---[ \t]*\n")
_END = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)
_UNQUOTED = re.compile(r"^([\w-]+):[ \t]+(?![\"'|>]|\[[^\[\]]*\][ \t]*$)(.*)$", re.MULTILINE)
"""A text on one line; other agents accept any sign in it, which YAML does not."""
_SEPARATOR = re.compile(r"[,\s]+")
_FIX = "Write one `name: value` per line between two lines of ---."


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The fields of a file's front matter, and the text after it; without nested tables."""

    fields: Mapping[str, Field]
    body: str

    def text(self, name: str) -> str:
        """Return a field as one text; empty if it is missing."""
        field = self.fields.get(name, "")
        return field if isinstance(field, str) else ", ".join(field)

    def words(self, name: str) -> tuple[str, ...]:
        """Return a field as a list, which may be written as one text with commas or blanks."""
        field = self.fields.get(name, ())
        return tuple(filter(None, _SEPARATOR.split(field))) if isinstance(field, str) else field


def parse_front_matter(text: str, file: str) -> FrontMatter:
    """Split a file's text into front matter and body; raises UsageError that names the file and the faulty line.

    A text that does not begin with `---` has no fields.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    start = _MARK.match(text)
    if start is None:
        return FrontMatter({}, text.strip())
    end = _END.search(text, start.end(), start.end() + MAX_CHARACTERS)
    if end is None:
        message = f"The front matter of {file} has no end within {MAX_CHARACTERS:,} characters."
        raise UsageError(message, fix="End it with a line of ---.")
    return FrontMatter(_fields(text[start.end() : end.start()], file), text[end.end() :].strip())


def _fields(source: str, file: str) -> dict[str, Field]:
    """Parse the lines of a front matter as YAML or, failing that, with one text per line."""
    try:
        try:
            table = _load(source)
        except ValueError:
            table = _load(
                _UNQUOTED.sub(lambda field: f"{field[1]}: {json.dumps(field[2].strip())}", source)
            )
    except ValueError as error:
        raise UsageError(
            f"The front matter of {file} cannot be read: {error}.", fix=_FIX
        ) from error
    if table in (None, ""):
        return {}
    if not isinstance(table, dict):
        raise UsageError(f"The front matter of {file} is not a list of fields.", fix=_FIX)
    fields: dict[str, Field] = {}
    for name, value in cast("dict[Any, Any]", table).items():
        match value:
            case str():
                fields[str(name)] = value.strip()
            case list():
                items = cast("list[Any]", value)
                fields[str(name)] = tuple(item for item in items if isinstance(item, str))
            case _:
                pass
    return fields


def _load(source: str) -> object:
    """Load YAML in which every scalar is a text; raises ValueError with line and reason."""
    import yaml  # few sessions have such files

    try:
        return yaml.load(source, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 2}: " if error.problem_mark is not None else ""
        raise ValueError(f"{line}{error.problem}") from error
    # TypeError: a list as the name of a field
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        raise ValueError(str(error).partition("\n")[0]) from error
