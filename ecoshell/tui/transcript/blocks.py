"""What a transcript is made of: blocks of pieces that know their meaning and nothing of colours or widths."""

from dataclasses import dataclass
from typing import Literal

from ecoshell.untrusted import visible

Tone = Literal["text", "muted", "question", "thought", "tool", "good", "warning", "error"]
TONES: tuple[Tone, ...] = ("text", "muted", "question", "thought", "tool", "good", "warning", "error")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text in one tone, shown as it is: no markup in it means anything."""

    text: str
    tone: Tone = "text"


@dataclass(frozen=True, slots=True)
class Row:
    """Pieces that are wrapped together beside a lead, which stands before the first line only."""

    pieces: tuple[Piece, ...]
    lead: str = ""

    @property
    def plain(self) -> str:
        """The row without its looks."""
        return self.lead + "".join(piece.text for piece in self.pieces)


def row(*pieces: Piece, lead: str = "") -> Row:
    """A row of these pieces."""
    return Row(pieces, lead)


@dataclass(frozen=True, slots=True)
class Block:
    """A sign in the margin and rows beside it, each wrapped to the width; `markdown` is set below the rows."""

    sign: str = ""
    tone: Tone = "text"
    """The sign's."""
    rows: tuple[Row, ...] = ()
    markdown: str = ""
    gap: bool = False
    """Whether an empty line goes before it."""

    @property
    def plain(self) -> str:
        """The block without its looks, for tests and for copying."""
        rows = [line.plain for line in self.rows]
        return "\n".join([*rows, self.markdown] if self.markdown else rows)


def rows_of(text: str, tone: Tone = "text") -> tuple[Row, ...]:
    """One row for each line of a text that somebody else wrote."""
    return tuple(row(Piece(line, tone)) for line in visible(text).split("\n"))


def folded(text: str, *, lines: int, characters: int) -> tuple[str, str]:
    """The beginning of a text, and words for what was left out (empty when nothing was)."""
    head = text[:characters].split("\n")
    shown = "\n".join(head[:lines])
    if len(shown) == len(text):
        return text, ""
    more = text.count("\n", len(shown) + 1)
    return shown, f"… {more + 1:,} more lines" if more else f"… {len(text) - len(shown):,} more characters"
