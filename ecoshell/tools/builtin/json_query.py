"""json_query: pick values out of JSON."""

import itertools
import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any, cast

from ecoshell.errors import ToolError
from ecoshell.tools.base import Subject, ToolOptions
from ecoshell.tools.running import clip
from ecoshell.tools.workspace import Workspace

_LONGEST_QUERY = 1_000
_OUTLINED = 20
"""Paths that are told, and _OUTLINE characters of them, where a query finds nothing."""
_OUTLINE = 500
_LOOKED_AT = 10_000
"""Paths among which one is looked for that ends as the query does."""
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class JsonTool:
    """The JSON reader of one workspace."""

    def __init__(self, workspace: Workspace, options: ToolOptions) -> None:
        self._workspace = workspace
        self._options = options

    def json_query(
        self,
        query: Annotated[str, "A JMESPath expression over the data."],
        path: Annotated[str | None, "JSON file, relative to the workspace.", Subject.PATH] = None,
        text: Annotated[str | None, "JSON text, if not a file."] = None,
    ) -> str:
        """Query JSON data: get a field, key or value out of a JSON file or text."""
        if not path and not text:
            raise ToolError("Give either `path` (a JSON file) or `text`.")
        name, source = "The text", text or ""
        if path:
            file = self._workspace.read_text(path, self._options.file_bytes)
            name, source = file.name, file.text
        try:
            data = json.loads(source.removeprefix("\ufeff"))
        except json.JSONDecodeError as error:
            raise ToolError(f"{name} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from error
        except (RecursionError, ValueError) as error:  # nested too deeply, or a number of too many digits
            raise ToolError(f"{name} cannot be read as JSON: {error}.") from error
        if (found := _search(query, data)) is not None:
            return json.dumps(found, ensure_ascii=False)
        # the value of the only path that ends so, where it was asked for as if it stood at the top; else what there is
        named = [
            path for path in itertools.islice(_paths(data), _LOOKED_AT) if path.rpartition(".")[2] == query.strip()
        ]
        if len(named) == 1 and len(named[0]) <= _LONGEST_QUERY:
            told = f"But {named[0]} is {json.dumps(_search(named[0], data), ensure_ascii=False)}"
        else:
            paths = list(itertools.islice(_paths(data), _OUTLINED + 1))
            outline = [*paths[:_OUTLINED], *(["…"] if len(paths) > _OUTLINED else [])]
            told = f"{name} holds {clip(', '.join(outline), _OUTLINE)[0]}"
        return f"Nothing was found. {told}."


def _paths(data: Any) -> Iterator[str]:
    """The paths to all that is no object and no list, nearest first; of a list's items the first speaks for all."""
    waiting = deque([("@", data)])
    while waiting:
        path, data = waiting.popleft()
        if isinstance(data, dict) and data:
            for key, value in cast("dict[str, Any]", data).items():
                name = key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
                waiting.append((name if path == "@" else f"{path}.{name}", value))
        elif isinstance(data, list) and data:
            items = cast("list[Any]", data)
            waiting.append(("[*]" if path == "@" else f"{path}[*]", items[0]))
        else:
            yield path


def _search(query: str, data: Any) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError

    if len(query) > _LONGEST_QUERY:
        raise ToolError(f"`query` is too long: at most {_LONGEST_QUERY} characters.")
    expression = query.strip()
    if expression.startswith("$"):  # JSONPath's root, which is "@" here
        expression = expression[1:].removeprefix(".") or "@"
    try:
        return jmespath.search(expression, data)  # pyright: ignore[reportUnknownMemberType]
    except JMESPathError as error:
        raise ToolError(f"{query!r} is not a JMESPath query: {error}") from error
    except (TypeError, RecursionError) as error:
        raise ToolError(f"{query!r} cannot be applied to this data: {error}") from error
