"""A part of a Markdown text while its lines still arrive: a paragraph, code, or a table."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from ecoshell.tui.transcript.sections import LONGEST, MOST_LINES, Code, Place, Prose, Section
from ecoshell.tui.transcript.table import Table

_LOOK_BACK = 24
"""Lines of code that are read to know in which state the next section of them begins."""


class Part(Protocol):
    """Lines that will be one section, or several when there are many of them."""

    place: Place
    lines: list[str]

    @property
    def is_long(self) -> bool:
        """Whether it is time to close the section."""
        ...

    def take(self, line: str) -> None:
        """Add a line."""
        ...

    def sections(self) -> Iterator[Section]:
        """What it has come to."""
        ...

    def renew(self, glue: str | None) -> None:
        """Go on in the next section; `glue` is what is between it and the one before, where a line was cut in two."""
        ...


@dataclass(slots=True)
class ProsePart:
    """A paragraph, a list item or a heading."""

    place: Place
    lines: list[str]
    level: int = 0

    @property
    def is_long(self) -> bool:
        """Whether the paragraph is longer than what is painted in one go."""
        return sum(map(len, self.lines)) >= LONGEST

    def take(self, line: str) -> None:
        """Add a line."""
        self.lines.append(line)

    def sections(self) -> Iterator[Section]:
        """One."""
        if self.lines:
            yield Prose("\n".join(self.lines), self.place, self.level)

    def renew(self, glue: str | None) -> None:
        """Go on where this one was cut off."""
        self.lines = []
        self.place = Place(self.place.hang, self.place.hang, joined=glue)


@dataclass(slots=True)
class CodePart:
    """Code between fences or, with no fence, indented by four."""

    place: Place
    lines: list[str] = field(default_factory=list[str])
    fence: str = ""
    language: str = ""
    _before: tuple[str, ...] = ()

    @property
    def is_long(self) -> bool:
        """Whether there are more lines than are painted in one go."""
        return len(self.lines) >= MOST_LINES or sum(map(len, self.lines)) >= LONGEST

    def closed_by(self, line: str) -> bool:
        """Whether the line is the fence that closes it or, without a fence, is not indented."""
        text = line.strip()
        if self.fence:
            return text.startswith(self.fence) and not text.strip(self.fence[0])
        return bool(text) and not line.startswith("    ")

    def take(self, line: str) -> None:
        """Add a line, without the indent that code in a list or without a fence has."""
        indent = len(self.place.hang.replace("▌ ", "")) if self.fence else 4
        self.lines.append(line[min(indent, len(line) - len(line.lstrip())) :])

    def sections(self) -> Iterator[Section]:
        """One, without the empty lines that end code without a fence."""
        lines = self.lines
        while lines and not self.fence and not lines[-1].strip():
            lines = lines[:-1]
        if lines:
            language = self.language.strip("{}.").lower()
            yield Code(tuple(lines), language, self.place, self._before)

    def renew(self, glue: str | None) -> None:
        """Go on in the state in which this one ended."""
        self._before = (*self._before, *self.lines)[-_LOOK_BACK:]
        self.lines = []
        self.place = Place(self.place.hang, self.place.hang, joined=glue)


@dataclass(slots=True)
class TablePart:
    """A table; one with many rows is set in several, each with the head again, as on printed pages."""

    place: Place
    lines: list[str]
    _again: bool = False

    @property
    def is_long(self) -> bool:
        """Whether there are more rows than are painted in one go."""
        return len(self.lines) >= MOST_LINES or sum(map(len, self.lines)) >= LONGEST

    def take(self, line: str) -> None:
        """Add a row."""
        self.lines.append(line)

    def sections(self) -> Iterator[Section]:
        """One, unless there is nothing but the head that stood above."""
        if not self._again or len(self.lines) > 2:
            yield Table(tuple(self.lines), self.place)

    def renew(self, glue: str | None) -> None:
        """Go on under the same head."""
        self.lines, self._again = self.lines[:2], True
        self.place = Place(self.place.hang, self.place.hang, gap=True)
