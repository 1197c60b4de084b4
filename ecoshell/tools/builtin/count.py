"""count_text: how long a file or a text is."""

import codecs
from dataclasses import dataclass
from typing import Annotated

from ecoshell.errors import ToolError
from ecoshell.tools.limits import checkpoint
from ecoshell.tools.workspace import Workspace

_CHUNK = 1 << 18


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


class CountTool:
    """The counter of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def count_text(
        self,
        path: Annotated[str | None, "File to count, relative to the workspace."] = None,
        text: Annotated[str | None, "Text to count, if not a file."] = None,
    ) -> str:
        """Count the lines, words, characters and bytes of a file or a text: how many, how long."""
        if path:  # small models fill in both
            return self._count_file(path)
        if text is None:
            raise ToolError("Give `path` (a file) or `text`.")
        count = _Count(size=len(text.encode("utf-8", "surrogatepass")))
        count.add(text)
        return str(count)

    def _count_file(self, path: str) -> str:
        """Count piece by piece, so that a file of any size takes little memory."""
        count = _Count()
        decoder = codecs.getincrementaldecoder("utf-8")()
        with self._workspace.reading(path) as (file, name):
            try:
                while data := file.read(_CHUNK):
                    checkpoint()
                    if b"\0" in data:
                        raise ToolError(f"{name} is a binary file (it contains NUL bytes), not text.")
                    count.size += len(data)
                    count.add(decoder.decode(data))
                count.add(decoder.decode(b"", final=True))
            except UnicodeDecodeError as error:
                raise ToolError(f"{name} is not UTF-8 text.") from error
        return f"{name}: {count}"
