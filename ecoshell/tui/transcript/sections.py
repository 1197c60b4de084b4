"""What is painted in one go: some rows, or a part of a Markdown text, never more than a screen or so."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from ecoshell.tui.transcript.blocks import Picture, Piece, Row, row
from ecoshell.tui.transcript.code import highlighted
from ecoshell.tui.transcript.inline import inline

LONGEST = 2_000
"""Characters of one section, and of a line that is kept in one piece."""
MOST_LINES = 40
"""Rows of one section."""
_LONGEST_CODE = 600
"""Characters of a line of code that is still highlighted."""


class Section(Protocol):
    """A part of a block."""

    @property
    def measure(self) -> tuple[int, int]:
        """Its lines if none had to be wrapped, and its characters."""
        ...

    def rows(self, width: int) -> Iterable[Row]:
        """Its rows; only a table and a picture ask for the width."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as they are."""

    content: tuple[Row, ...]

    @property
    def measure(self) -> tuple[int, int]:
        """One line for each row."""
        return len(self.content), sum(len(piece.text) for line in self.content for piece in line.pieces)

    def rows(self, width: int) -> Iterable[Row]:
        """The rows."""
        return self.content


@dataclass(frozen=True, slots=True)
class Drawn:
    """Some lines of a picture."""

    picture: Picture
    start: int
    stop: int

    @property
    def measure(self) -> tuple[int, int]:
        """One line for each; none is ever wrapped."""
        return self.stop - self.start, 0

    def rows(self, width: int) -> Iterator[Row]:
        """The lines at this width."""
        return self.picture.rows(width, self.start, self.stop)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part of a Markdown text stands."""

    lead: str = ""
    """What stands before its first line: quote bars, indent, bullet."""
    hang: str = ""
    """What stands before its other lines."""
    gap: bool = False
    """Whether an empty line goes before it."""
    joined: str | None = None
    """What is between it and the part before it, where one was cut in two for its length."""

    def before(self) -> Iterator[Row]:
        """The gap, if there is one."""
        if self.gap:
            yield Row(())


PLAIN = Place()


@dataclass(frozen=True, slots=True)
class Prose:
    """A paragraph, a list item or a heading."""

    text: str
    place: Place = PLAIN
    level: int = 0
    """Of a heading, from 1."""

    @property
    def measure(self) -> tuple[int, int]:
        """One line and its gap."""
        return 1 + self.place.gap, len(self.text)

    def rows(self, width: int) -> Iterator[Row]:
        """One row, and one more for each line the writer wanted to begin anew."""
        yield from self.place.before()
        lead, joined = self.place.lead, self.place.joined
        for pieces in inline(self.text, "heading" if self.level else "text"):
            stress = "u" if self.level in (1, 2) else ""
            stressed = (replace(piece, stress=piece.stress + stress) for piece in pieces)
            yield Row(tuple(stressed) if stress else pieces, lead, self.place.hang, joined)
            lead, joined = self.place.hang, None


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across."""

    place: Place = PLAIN

    @property
    def measure(self) -> tuple[int, int]:
        """One line and its gap."""
        return 1 + self.place.gap, 0

    def rows(self, width: int) -> Iterator[Row]:
        """The line."""
        yield from self.place.before()
        yield row(Piece("─" * max(3, width - len(self.place.lead)), "muted"), lead=self.place.lead)


@dataclass(frozen=True, slots=True)
class Code:
    """Some lines of code; `before` are those that tell in which state they begin."""

    lines: tuple[str, ...]
    language: str = ""
    place: Place = PLAIN
    before: tuple[str, ...] = ()

    @property
    def measure(self) -> tuple[int, int]:
        """One line for each and the gap."""
        return len(self.lines) + self.place.gap, sum(map(len, self.lines))

    def rows(self, width: int) -> Iterator[Row]:
        """One row for each line."""
        yield from self.place.before()
        lead, joined = f"{self.place.hang}│ ", self.place.joined
        plain = any(len(line) > _LONGEST_CODE for line in (*self.before, *self.lines))
        for at, pieces in enumerate(highlighted(self.lines, "" if plain else self.language, self.before)):
            yield Row(pieces, lead, lead, None if at else joined)
