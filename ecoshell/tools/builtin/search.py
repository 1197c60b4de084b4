"""search_text: find the lines that contain a text or match a pattern."""

import itertools
from collections.abc import Callable, Iterator
from typing import Annotated

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools.base import Subject
from ecoshell.tools.builtin.options import ToolOptions
from ecoshell.tools.builtin.walk import Entry, walk
from ecoshell.tools.workspace import Workspace
from ecoshell.worker import checkpoint

_SHOWN = 100
_LINE = 240
_PATTERN = 1_000
_REGEX_SECONDS = 2.0
"""For one file; only a pattern that backtracks without end takes longer."""

Lines = Callable[[str], Iterator[int]]
"""Where in a text the matches start."""


class SearchTool:
    """The search of one workspace."""

    def __init__(self, workspace: Workspace, options: ToolOptions) -> None:
        self._workspace = workspace
        self._options = options

    def search_text(
        self,
        text: Annotated[str, "What to find; case is ignored unless it has a capital letter."],
        path: Annotated[str, "File or folder to search, relative to the workspace.", Subject.PATH] = ".",
        regex: Annotated[bool, "Whether `text` is a regular expression."] = False,
    ) -> Observation:
        """Search files for a word, text or pattern (find, grep) and show where it occurs."""
        if not 0 < len(text) <= _PATTERN:
            raise ToolError(f"`text` must have 1 to {_PATTERN} characters, not {len(text)}.")
        found = self._found(path, _matcher(text, regex=regex))
        lines = list(itertools.islice(found, _SHOWN + 1))
        if not lines:
            there = "list_files shows what is there" if self._workspace.resolve(path).is_dir() else "read_file shows it"
            return Observation(f"No match for {text!r} in {path}; {there}.")
        if len(lines) <= _SHOWN:
            return Observation("\n".join(lines))
        mark = f"[truncated: the first {_SHOWN} matching lines shown; search a folder or a rarer text]"
        return Observation("\n".join([*lines[:_SHOWN], mark]), truncated=True)

    def _found(self, path: str, matches: Lines) -> Iterator[str]:
        if self._workspace.resolve(path).is_dir():
            yield from self._found_below(path, matches)
        else:
            file = self._workspace.read_text(path, self._options.file_bytes)
            yield from _shown(file.name, file.text, matches)

    def _found_below(self, path: str, matches: Lines) -> Iterator[str]:
        with self._workspace.folder(path) as (descriptor, folder):
            for entry in walk(descriptor):
                if entry.is_file and (text := self._text_of(entry)) is not None:
                    name = entry.path if folder == "." else f"{folder}/{entry.path}"
                    yield from _shown(name, text, matches)

    def _text_of(self, entry: Entry) -> str | None:
        """The text of a file; None for those that are not searched: binary, too large, unreadable, gone."""
        try:
            with entry.open() as file:
                data = file.read(self._options.file_bytes + 1)
        except OSError:
            return None
        return None if b"\0" in data or len(data) > self._options.file_bytes else data.decode(errors="replace")


def _shown(name: str, text: str, matches: Lines) -> Iterator[str]:
    line, counted, last_end = 0, 0, -1
    for start in matches(text):
        checkpoint()
        if start <= last_end:  # a line is shown once, however often it matches
            continue
        line += text.count("\n", counted, start)
        counted = start
        begin = text.rfind("\n", 0, start) + 1
        end = text.find("\n", start)
        last_end = len(text) if end < 0 else end
        yield f"{name}:{line + 1}: {text[begin:last_end].strip()[:_LINE]}"


def _matcher(text: str, *, regex: bool) -> Lines:
    """A search by the `regex` library, which keeps a time limit, if not with every pattern."""
    import regex as regexes

    flags = regexes.MULTILINE | (0 if any(map(str.isupper, text)) else regexes.IGNORECASE)
    try:
        pattern = regexes.compile(text if regex else regexes.escape(text), flags)
    except (regexes.error, RecursionError) as error:
        raise ToolError(
            f"{text!r} is not a regular expression: {error}. Leave `regex` out to search for plain text."
        ) from error

    def starts(searched: str) -> Iterator[int]:
        try:
            for match in pattern.finditer(searched, timeout=_REGEX_SECONDS):
                yield match.start()
        except TimeoutError as error:
            raise ToolError(f"The pattern {text!r} takes too long to match; use a simpler one.") from error

    return starts
