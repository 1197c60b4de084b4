"""json_query: pick values out of JSON."""

import json
from typing import Annotated, Any

from ecoshell.errors import ToolError
from ecoshell.tools.builtin.options import ToolOptions
from ecoshell.tools.workspace import Workspace

_LONGEST_QUERY = 1_000


class JsonTool:
    """The JSON reader of one workspace."""

    def __init__(self, workspace: Workspace, options: ToolOptions) -> None:
        self._workspace = workspace
        self._options = options

    def json_query(
        self,
        query: Annotated[str, "A JMESPath expression over the data."],
        path: Annotated[str | None, "JSON file, relative to the workspace."] = None,
        text: Annotated[str | None, "JSON text, if not a file."] = None,
    ) -> str:
        """Query JSON data: get a field, key or value out of a JSON file or text."""
        if not path and not text:
            raise ToolError("Give either `path` (a JSON file) or `text`.")
        name, source = "The text", text or ""
        if path:
            file = self._workspace.read_text(path, self._options.file_bytes)
            name, source = file.name, file.text
        return json.dumps(_search(query, _parsed(source, name)), ensure_ascii=False)


def _parsed(source: str, name: str) -> Any:
    try:
        return json.loads(source.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise ToolError(f"{name} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from error
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of too many digits
        raise ToolError(f"{name} cannot be read as JSON: {error}.") from error


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
