"""The tools search_text, count_text and json_query."""

import itertools
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, cast

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools import Subject, ToolOptions
from ecoshell.tools.diffs import line_count
from ecoshell.tools.protection import Omissions
from ecoshell.tools.running import clip
from ecoshell.tools.workspace import Workspace, walk
from ecoshell.worker import checkpoint

_MAX_MATCHES = 100
_MAX_LINE_CHARS = 240
"""Maximum characters shown of a matching line."""
_CONTEXT_CHARS = 80
"""Characters before the match, in a long line."""
_MAX_PATTERN_CHARS = 1_000
_REGEX_SECONDS = 2.0
"""Time limit for one file, which only catastrophic patterns exceed."""
_SHORT_FILE = 1_500
"""Maximum characters of a file that is shown if a search in it has no match."""
_QUOTE_CHARS = 60
_WORD = re.compile(r"\S+")
_MAX_NAMED = 5
"""Maximum number of large files that are named."""


@dataclass(eq=False)
class SearchTools:
    """Searching, counting and querying in one workspace; each public method is a tool."""

    _workspace: Workspace
    _options: ToolOptions

    def search_text(
        self,
        text: Annotated[str, "What to find; case is ignored unless it has a capital letter."],
        path: Annotated[
            str, "File or folder to search, relative to the workspace.", Subject.TREE
        ] = ".",
        regex: Annotated[bool, "Whether `text` is a regular expression."] = False,
    ) -> Observation:
        """Search files for a word, text or pattern (find, grep) and show where it occurs."""
        if not 0 < len(text) <= _MAX_PATTERN_CHARS:
            raise ToolError(
                f"`text` must have 1 to {_MAX_PATTERN_CHARS} characters, not {len(text)}."
            )
        import regex as regexes  # supports a time limit, unlike re

        flags = regexes.MULTILINE | (0 if any(map(str.isupper, text)) else regexes.IGNORECASE)
        source = text.replace("\r\n", "\n")  # as in the searched texts
        try:
            pattern = regexes.compile(source if regex else regexes.escape(source), flags)
        except (regexes.error, RecursionError) as error:
            raise ToolError(
                f"{text!r} is not a regular expression: {error}. Omit `regex` to search for plain text."
            ) from error
        large_files: list[str] = []
        omissions = Omissions(self._workspace.name(self._workspace.resolve(path)))
        matches = self._matches(path, pattern, text, large_files, omissions)
        lines = list(itertools.islice(matches, _MAX_MATCHES + 1))
        skipped = omissions.note()
        if len(lines) > _MAX_MATCHES:
            mark = f"[truncated: the first {_MAX_MATCHES} matching lines shown; search a folder or a rarer text]"
            shown = "\n".join([*lines[:_MAX_MATCHES], mark])
            return Observation(shown + skipped, truncated=True)
        if large_files:
            others = " and others" if len(large_files) > _MAX_NAMED else ""
            names = ", ".join(large_files[:_MAX_NAMED]) + others
            limit = f"larger than {self._options.file_bytes:,} bytes"
            skipped = f"\n[not searched, {limit}: {names}]{skipped}"
        if not lines:
            hint = self._no_match_hint(path)
            return Observation(f"No match for {text!r} in {path}{hint}{skipped}")
        return Observation("\n".join(lines) + skipped)

    def _no_match_hint(self, path: str) -> str:
        if self._workspace.resolve(path).is_dir():
            return "; use list_files to see the files."
        text = self._workspace.read_text(path, self._options.file_bytes).text
        if len(text) > _SHORT_FILE:
            return "; use read_file to see its text."
        return f", which contains:\n{text}"

    def count_text(
        self,
        path: Annotated[
            str | None, "File to count, relative to the workspace.", Subject.PATH
        ] = None,
        text: Annotated[
            str | None, "What to count in the file; without `path`, the text itself is counted."
        ] = None,
    ) -> str:
        """Count the lines, words, characters and bytes of a file or a text: how many, how long, how often."""
        if path:
            file = self._workspace.read_text(path, self._options.file_bytes)
            return f"{file.name}: {_counts(file.text, text or '')}"
        if text is None:
            raise ToolError("Give `path` (a file) or `text`.")
        return _counts(text)

    def _matches(
        self, path: str, pattern: Any, source: str, large_files: list[str], omissions: Omissions
    ) -> Iterator[str]:
        """Yield the matching lines of a file, or of all files below a folder, with their positions.

        `source` is the pattern's text. Adds files that are too large to `large_files`.
        """
        if not self._workspace.resolve(path).is_dir():
            file = self._workspace.read_text(path, self._options.file_bytes)
            yield from _matching_lines(file.name, file.text, pattern, source)
            return
        with self._workspace.folder(path) as (descriptor, folder):
            for entry in walk(descriptor, omits=omissions):
                if not entry.is_file:
                    continue
                try:
                    with entry.open() as file:
                        data = file.read(self._options.file_bytes + 1)
                except OSError:  # unreadable or deleted
                    continue
                name = entry.path if folder == "." else f"{folder}/{entry.path}"
                if b"\0" in data:  # binary
                    continue
                if len(data) > self._options.file_bytes:
                    large_files.append(name)
                    continue
                yield from _matching_lines(name, data.decode(errors="replace"), pattern, source)

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
            raise ToolError(
                f"{name} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
            ) from error
        except (RecursionError, ValueError) as error:
            # It is nested too deeply, or has a number with too many digits.
            raise ToolError(f"{name} cannot be read as JSON: {error}.") from error
        if (value := _search(query, data)) is not None:
            return json.dumps(value, ensure_ascii=False)
        return f"Nothing was found. {_outline(name, query, data)}."


def _outline(name: str, query: str, data: Any) -> str:
    """Return the value of the only path that ends with the query, or else the paths of the data."""
    searched = itertools.islice(_paths(data), _MAX_SEARCHED_PATHS)
    candidates = [path for path in searched if path.rpartition(".")[2] == query.strip()]
    if len(candidates) == 1 and len(candidates[0]) <= _MAX_QUERY_CHARS:
        value = json.dumps(_search(candidates[0], data), ensure_ascii=False)
        return f"But {candidates[0]} is {value}"
    paths = list(itertools.islice(_paths(data), _MAX_PATHS + 1))
    outline = [*paths[:_MAX_PATHS], *(["…"] if len(paths) > _MAX_PATHS else [])]
    return f"{name} contains {clip(', '.join(outline), _MAX_OUTLINE_CHARS)[0]}"


def _matching_lines(name: str, text: str, pattern: Any, source: str) -> Iterator[str]:
    line, counted, last_end = 0, 0, -1
    text = text.replace("\r\n", "\n")
    try:
        for match in pattern.finditer(text, timeout=_REGEX_SECONDS):
            checkpoint()
            start = match.start()
            if start <= last_end:  # another match in the same line
                continue
            if start == len(text) and text[-1:] in ("", "\n"):  # after the last line
                return
            line += text.count("\n", counted, start)
            counted = start
            begin = text.rfind("\n", 0, start) + 1
            end = text.find("\n", start)
            last_end = len(text) if end < 0 else end
            if min(match.end(), last_end) - begin > _MAX_LINE_CHARS:
                begin = max(begin, start - _CONTEXT_CHARS)
            yield f"{name}:{line + 1}: {text[begin:last_end].rstrip()[:_MAX_LINE_CHARS]}"
    except TimeoutError as error:
        raise ToolError(
            f"The pattern {source!r} takes too long to match; use a simpler one."
        ) from error


def _counts(text: str, target: str = "") -> str:
    """Return the size of a text, and how often it contains the target, if there is one."""
    counts = {
        "line": line_count(text),
        "word": sum(1 for _ in _WORD.finditer(text)),
        "character": len(text),
        "byte": len(text.encode("utf-8", "surrogatepass")),
    }
    size = ", ".join(_quantity(number, unit) for unit, number in counts.items())
    if not target:
        return size
    quote = target if len(target) <= _QUOTE_CHARS else f"{target[:_QUOTE_CHARS]}…"
    return f"{size}; {quote!r} occurs {_quantity(text.count(target), 'time')}"


def _quantity(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


_MAX_QUERY_CHARS = 1_000
_MAX_PATHS = 20
"""Maximum number of paths that are listed if a query has no result."""
_MAX_OUTLINE_CHARS = 500
_MAX_SEARCHED_PATHS = 10_000
"""Maximum number of paths that are compared with the query."""
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _paths(data: Any) -> Iterator[str]:
    """Yield the paths to all scalars, shallow ones first; the first item of a list represents all items."""
    queue = deque([("@", data)])
    while queue:
        path, data = queue.popleft()
        if isinstance(data, dict) and data:
            for key, value in cast("dict[str, Any]", data).items():
                name = key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
                queue.append((name if path == "@" else f"{path}.{name}", value))
        elif isinstance(data, list) and data:
            items = cast("list[Any]", data)
            queue.append(("[*]" if path == "@" else f"{path}[*]", items[0]))
        else:
            yield path


def _search(query: str, data: Any) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError

    if len(query) > _MAX_QUERY_CHARS:
        raise ToolError(f"`query` is too long: at most {_MAX_QUERY_CHARS} characters.")
    expression = query.strip()
    if expression.startswith("$"):  # the root in JSONPath, which is "@" in JMESPath
        expression = expression[1:].removeprefix(".") or "@"
    try:
        return jmespath.search(expression, data)  # pyright: ignore[reportUnknownMemberType]
    except JMESPathError as error:
        raise ToolError(f"{query!r} is not a JMESPath query: {error}") from error
    except (TypeError, RecursionError) as error:
        raise ToolError(f"{query!r} cannot be applied to this data: {error}") from error
