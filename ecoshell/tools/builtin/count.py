"""count_text: how long a file or a text is, and how often a text occurs."""

import codecs
from dataclasses import dataclass
from typing import Annotated

from ecoshell.errors import ToolError
from ecoshell.tools.base import Subject
from ecoshell.tools.workspace import Workspace
from ecoshell.worker import checkpoint

_CHUNK = 1 << 16
"""Bytes or characters that are looked at before others get their turn."""
_SHOWN = 60


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
        shown = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…"
        return f"; {shown!r} occurs {self.number} time{'' if self.number == 1 else 's'}"


class CountTool:
    """The counter of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

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
