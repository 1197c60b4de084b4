"""search_text and count_text: where a text occurs, how often, and how long a file or a text is."""

import codecs
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools.base import Subject, ToolOptions
from ecoshell.tools.workspace import Workspace, walk
from ecoshell.worker import checkpoint

_SHOWN = 100
_LINE = 240
_PATTERN = 1_000
_REGEX_SECONDS = 2.0
"""For one file; only a pattern that backtracks without end takes longer."""
_CHUNK = 1 << 16
"""Bytes or characters that are looked at before others get their turn."""
_SHORT = 1_500
"""Characters of a file that is shown whole where a search in it finds nothing."""
_REPEATED = 60


class SearchTools:
    """Searching and counting in one workspace; each public method is a tool."""

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
        import regex as regexes  # it keeps a time limit, if not with every pattern

        flags = regexes.MULTILINE | (0 if any(map(str.isupper, text)) else regexes.IGNORECASE)
        try:
            pattern = regexes.compile(text if regex else regexes.escape(text), flags)
        except (regexes.error, RecursionError) as error:
            raise ToolError(
                f"{text!r} is not a regular expression: {error}. Leave `regex` out to search for plain text."
            ) from error
        lines = list(itertools.islice(self._found(path, pattern), _SHOWN + 1))
        if not lines:
            instead = "; list_files shows what is there."
            if not self._workspace.resolve(path).is_dir():
                held = self._workspace.read_text(path, self._options.file_bytes).text
                instead = f", which holds:\n{held}" if len(held) <= _SHORT else "; read_file shows it."
            return Observation(f"No match for {text!r} in {path}{instead}")
        if len(lines) <= _SHOWN:
            return Observation("\n".join(lines))
        mark = f"[truncated: the first {_SHOWN} matching lines shown; search a folder or a rarer text]"
        return Observation("\n".join([*lines[:_SHOWN], mark]), truncated=True)

    def count_text(
        self,
        path: Annotated[str | None, "File to count, relative to the workspace.", Subject.PATH] = None,
        text: Annotated[str | None, "What to count in the file; without `path`, the text itself is counted."] = None,
    ) -> str:
        """Count the lines, words, characters and bytes of a file or a text: how many, how long, how often."""
        if path:
            count = _Count(text or "")
            decoder = codecs.getincrementaldecoder("utf-8")()
            with self._workspace.reading(path) as (file, name):
                try:
                    while data := file.read(_CHUNK):  # so that a file of any size takes little memory
                        checkpoint()
                        if b"\0" in data:
                            raise ToolError(f"{name} is a binary file (it contains NUL bytes), not text.")
                        count.size += len(data)
                        count.add(decoder.decode(data))
                    count.add(decoder.decode(b"", final=True))
                except UnicodeDecodeError as error:
                    raise ToolError(f"{name} is not UTF-8 text.") from error
            return f"{name}: {count}"
        if text is None:
            raise ToolError("Give `path` (a file) or `text`.")
        count = _Count(size=len(text.encode("utf-8", "surrogatepass")))
        for at in range(0, len(text), _CHUNK):
            checkpoint()
            count.add(text[at : at + _CHUNK])
        return str(count)

    def _found(self, path: str, pattern: Any) -> Iterator[str]:
        """The lines of a file, or of all files below a folder, that have a match, each once, with its place."""
        if not self._workspace.resolve(path).is_dir():
            file = self._workspace.read_text(path, self._options.file_bytes)
            yield from _shown(file.name, file.text, pattern)
            return
        with self._workspace.folder(path) as (descriptor, folder):
            for entry in walk(descriptor):
                if not entry.is_file:
                    continue
                try:
                    with entry.open() as opened:
                        data = opened.read(self._options.file_bytes + 1)
                except OSError:  # unreadable, or gone
                    continue
                if b"\0" not in data and len(data) <= self._options.file_bytes:  # else it is binary, or too large
                    name = entry.path if folder == "." else f"{folder}/{entry.path}"
                    yield from _shown(name, data.decode(errors="replace"), pattern)


def _shown(name: str, text: str, pattern: Any) -> Iterator[str]:
    line, counted, last_end = 0, 0, -1
    try:
        for match in pattern.finditer(text, timeout=_REGEX_SECONDS):
            checkpoint()
            start = match.start()
            if start <= last_end:  # a line is shown once, however often it matches
                continue
            line += text.count("\n", counted, start)
            counted = start
            begin = text.rfind("\n", 0, start) + 1
            end = text.find("\n", start)
            last_end = len(text) if end < 0 else end
            yield f"{name}:{line + 1}: {text[begin:last_end].strip()[:_LINE]}"
    except TimeoutError as error:
        raise ToolError(f"The pattern {pattern.pattern!r} takes too long to match; use a simpler one.") from error


@dataclass
class _Count:
    """Running totals over the pieces of a text, which may be cut anywhere."""

    sought: str = ""
    """A text whose occurrences are counted too; empty for none."""
    occurrences: int = 0
    line_ends: int = 0
    words: int = 0
    characters: int = 0
    size: int = 0
    last: str = ""
    _rest: str = ""
    """The end of the last piece, in which an occurrence may begin."""

    def add(self, piece: str) -> None:
        if not piece:
            return
        self.line_ends += piece.count("\n")
        self.words += len(piece.split())
        if self.last and not self.last.isspace() and not piece[0].isspace():
            self.words -= 1  # one word, cut in two
        self.characters += len(piece)
        self.last = piece[-1]
        if self.sought:
            *found, rest = (self._rest + piece).split(self.sought)
            self.occurrences += len(found)
            self._rest = rest[max(0, len(rest) - len(self.sought) + 1) :]

    def __str__(self) -> str:
        lines = self.line_ends + (self.last not in ("", "\n"))
        counts = {"line": lines, "word": self.words, "character": self.characters, "byte": self.size}
        told = ", ".join(f"{number} {unit}{'' if number == 1 else 's'}" for unit, number in counts.items())
        if not self.sought:
            return told
        shown = self.sought if len(self.sought) <= _REPEATED else f"{self.sought[:_REPEATED]}…"
        return f"{told}; {shown!r} occurs {self.occurrences} time{'' if self.occurrences == 1 else 's'}"
