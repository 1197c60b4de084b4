"""search_text and count_text: where a text occurs, how often, and how long a file or a text is."""

import codecs
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools.base import Subject, ToolOptions
from ecoshell.tools.workspace import Entry, Workspace, walk
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

Lines = Callable[[str], Iterator[int]]
"""Where in a text the matches start."""


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
        found = self._found(path, _matcher(text, regex=regex))
        lines = list(itertools.islice(found, _SHOWN + 1))
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
            return self._count_file(path, text or "")
        if text is None:
            raise ToolError("Give `path` (a file) or `text`.")
        count = _Count(size=len(text.encode("utf-8", "surrogatepass")))
        for at in range(0, len(text), _CHUNK):
            checkpoint()
            count.add(text[at : at + _CHUNK])
        return str(count)

    def _found(self, path: str, matches: Lines) -> Iterator[str]:
        if not self._workspace.resolve(path).is_dir():
            file = self._workspace.read_text(path, self._options.file_bytes)
            yield from _shown(file.name, file.text, matches)
            return
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

    def _count_file(self, path: str, text: str) -> str:
        """Count piece by piece, so that a file of any size takes little memory."""
        count, occurrences = _Count(), _Occurrences(text)
        decoder = codecs.getincrementaldecoder("utf-8")()
        with self._workspace.reading(path) as (file, name):
            try:
                while data := file.read(_CHUNK):
                    checkpoint()
                    if b"\0" in data:
                        raise ToolError(f"{name} is a binary file (it contains NUL bytes), not text.")
                    count.size += len(data)
                    count.add(piece := decoder.decode(data))
                    occurrences.add(piece)
                count.add(decoder.decode(b"", final=True))
            except UnicodeDecodeError as error:
                raise ToolError(f"{name} is not UTF-8 text.") from error
        return f"{name}: {count}{occurrences}"


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


@dataclass
class _Count:
    """Running totals over the pieces of a text, which may be cut anywhere."""

    line_ends: int = 0
    words: int = 0
    characters: int = 0
    size: int = 0
    last: str = ""

    def add(self, piece: str) -> None:
        if not piece:
            return
        self.line_ends += piece.count("\n")
        self.words += len(piece.split())
        if self.last and not self.last.isspace() and not piece[0].isspace():
            self.words -= 1  # one word, cut in two
        self.characters += len(piece)
        self.last = piece[-1]

    def __str__(self) -> str:
        lines = self.line_ends + (self.last not in ("", "\n"))
        counts = {"line": lines, "word": self.words, "character": self.characters, "byte": self.size}
        return ", ".join(f"{number} {unit}{'' if number == 1 else 's'}" for unit, number in counts.items())


@dataclass
class _Occurrences:
    """How often a text occurs in a longer one, over the pieces of that."""

    text: str
    number: int = 0
    _rest: str = ""
    """The end of the last piece, which an occurrence may begin in."""

    def add(self, piece: str) -> None:
        if self.text:
            *found, rest = (self._rest + piece).split(self.text)
            self.number += len(found)
            self._rest = rest[max(0, len(rest) - len(self.text) + 1) :]

    def __str__(self) -> str:
        if not self.text:
            return ""
        shown = self.text if len(self.text) <= _REPEATED else f"{self.text[:_REPEATED]}…"
        return f"; {shown!r} occurs {self.number} time{'' if self.number == 1 else 's'}"
