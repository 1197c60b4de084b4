"""Markdown, read line by line: a section is given as soon as nothing that follows can change it.

The sections depend on the text alone and not on the pieces in which it came, so that an answer that was streamed is set
like one that came whole. Where CommonMark would have to look far ahead, the nearest reading that need not is taken: a
nested list may be indented by two, and HTML and references are shown as they are. No character is left out of sight.

It is our own because the transcript is painted in sections: what is finished is never read or set again, however long
the answer grows. Textual's Markdown mounts a widget for each paragraph and parses the last block with every piece.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Self

from rich.cells import cell_len

from ecoshell.tui.transcript.blocks import LONGEST, MOST_LINES, Piece, Row, Section, row
from ecoshell.tui.transcript.inline import Pieces, highlighted, inline
from ecoshell.tui.transcript.painting import breaks, cut

_LONGEST_CODE = 600
"""Characters of a line of code that is still highlighted."""
_LOOK_BACK = 24
"""Lines of code that are read to know in which state the next section of them begins."""
_BETWEEN = " │ "
_NARROWEST = 4
"""Cells of a column of a table."""
_DELIMITER = re.compile(r"\s*:?-+:?\s*")
_BAR = re.compile(r"(?<!\\)\|")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})\s*([^\s`]*)[^`]*$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=\s|$)")
_RULE = re.compile(r" {0,3}([-*_])(?:\s*\1){2,}\s*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_ITEM = re.compile(r"\s*([-*+]|(\d{1,9})[.)])(?:\s+(.*)|$)")
_QUOTE = re.compile(r" {0,3}((?:> ?)+)")
_CODE = "    "
"""The indent of code without a fence."""


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
        if self.gap:
            yield Row(())

    def below(self, *, gap: bool = False, joined: str | None = None) -> "Place":
        """Where what follows in the same part stands."""
        return Place(self.hang, self.hang, gap, joined)


PLAIN = Place()


@dataclass(slots=True)
class Part:
    """Lines that are one section, and the first of several when there are many of them; they may still arrive."""

    lines: list[str]
    place: Place = PLAIN

    @property
    def is_long(self) -> bool:
        """Whether there are more lines than are painted in one go: it is time to close the section."""
        return len(self.lines) >= MOST_LINES or sum(map(len, self.lines)) >= LONGEST

    def take(self, line: str) -> None:
        self.lines.append(line)

    def close(self) -> bool:
        """No line follows; says whether there is anything to show."""
        return bool(self.lines)

    def next(self, glue: str | None) -> Self:
        """The section it goes on in; `glue` is what is between the two, where a line was cut in two."""
        return replace(self, lines=[], place=self.place.below(joined=glue))


@dataclass(slots=True)
class Prose(Part):
    """A paragraph, a list item or a heading."""

    level: int = 0
    """Of a heading, from 1."""

    @property
    def is_long(self) -> bool:
        return sum(map(len, self.lines)) >= LONGEST

    @property
    def measure(self) -> tuple[int, int]:
        return 1 + self.place.gap, sum(map(len, self.lines))

    def rows(self, width: int) -> Iterator[Row]:
        """One row, and one more for each line the writer wanted to begin anew."""
        yield from self.place.before()
        lead, joined = self.place.lead, self.place.joined
        for pieces in inline("\n".join(self.lines), "heading" if self.level else "text"):
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
        return 1 + self.place.gap, 0

    def rows(self, width: int) -> Iterator[Row]:
        yield from self.place.before()
        yield row(Piece("─" * max(3, width - len(self.place.lead)), "muted"), lead=self.place.lead)


@dataclass(slots=True)
class Code(Part):
    """Code between fences or, with no fence, indented by four; `before` tells in which state its lines begin."""

    language: str = ""
    fence: str = ""
    before: tuple[str, ...] = ()

    @property
    def measure(self) -> tuple[int, int]:
        return len(self.lines) + self.place.gap, sum(map(len, self.lines))

    def rows(self, width: int) -> Iterator[Row]:
        yield from self.place.before()
        lead, joined = f"{self.place.hang}│ ", self.place.joined
        plain = any(len(line) > _LONGEST_CODE for line in (*self.before, *self.lines))
        for at, pieces in enumerate(highlighted(self.lines, "" if plain else self.language, self.before)):
            yield Row(pieces, lead, lead, None if at else joined)

    def closed_by(self, line: str) -> bool:
        """Whether the line is the fence that closes it or, without a fence, is not indented."""
        text = line.strip()
        if self.fence:
            return text.startswith(self.fence) and not text.strip(self.fence[0])
        return bool(text) and not line.startswith(_CODE)

    def take(self, line: str) -> None:
        """Add a line, without the indent that code in a list or without a fence has."""
        indent = len(self.place.hang.replace("▌ ", "")) if self.fence else len(_CODE)
        self.lines.append(line[min(indent, len(line) - len(line.lstrip())) :])

    def close(self) -> bool:
        """Empty lines do not end code without a fence."""
        while self.lines and not self.fence and not self.lines[-1].strip():
            self.lines.pop()
        return bool(self.lines)

    def next(self, glue: str | None) -> Self:
        before = (*self.before, *self.lines)[-_LOOK_BACK:]
        return replace(self, lines=[], place=self.place.below(joined=glue), before=before)


@dataclass(slots=True)
class Table(Part):
    """A head, the line under it, and rows; one with many is set in several, each with the head, as on printed pages."""

    again: bool = False
    """Whether the head stood above already."""

    @property
    def measure(self) -> tuple[int, int]:
        return len(self.lines) + self.place.gap, 0

    def rows(self, width: int) -> Iterator[Row]:
        """The table at this width; a column that is too narrow for its text has it on several lines."""
        yield from self.place.before()
        marks = [cell.strip() for cell in _cells(self.lines[1])]
        aligned = ["center" if one[0] == one[-1] == ":" else "right" if one[-1] == ":" else "left" for one in marks]
        table = [self._row(line, len(aligned)) for at, line in enumerate(self.lines) if at != 1]
        room = width - len(self.place.lead) - len(_BETWEEN) * (len(aligned) - 1)
        widths = _shared([max(map(_width, column)) for column in zip(*table, strict=True)], room)
        lead, hang = self.place.lead, self.place.hang
        for at, cells in enumerate(table):
            broken = [list(_broken(cell, wide)) for cell, wide in zip(cells, widths, strict=True)]
            for line in zip_longest(*broken, fillvalue=()):
                yield Row(_beside(line, widths, aligned, head=not at), lead, hang)
                lead = hang
            if not at:
                yield Row((Piece("─┼─".join("─" * wide for wide in widths), "muted"),), hang, hang)

    def close(self) -> bool:
        return not self.again or len(self.lines) > 2

    def next(self, glue: str | None) -> Self:
        return replace(self, lines=self.lines[:2], place=self.place.below(gap=True), again=True)

    def _row(self, line: str, columns: int) -> list[Pieces]:
        cells = [*_cells(line), *[""] * columns][:columns]
        extra = _cells(line)[columns:]
        if extra:  # what has no column is shown in the last one
            cells[-1] = " | ".join([cells[-1], *extra])
        return [inline(cell.strip().replace("\\|", "|"))[0] for cell in cells]


def sections_of_markdown(text: str, *, indent: str = "") -> list[Section]:
    """The sections of a whole text; `indent` stands before each of its lines."""
    reader = MarkdownReader(indent)
    return [*reader.feed(text), *reader.close()]


class MarkdownReader:
    """Takes Markdown in any pieces."""

    def __init__(self, indent: str = "") -> None:
        self._indent = indent
        self._rest = ""
        self._cut: str | None = None
        """What is lost between the bits of the line that is being read, if it was cut off for its length."""
        self._done: list[Section] = []
        self._part: Prose | Code | Table | None = None
        self._quote = 0
        self._items: list[tuple[int, int]] = []
        """The open list items: where their signs stand, and how wide they are."""
        self._blank = False
        """Whether the line before was empty."""
        self._begun = False

    def feed(self, text: str) -> list[Section]:
        """Take a piece, and give the sections it has finished."""
        text = self._rest + text
        start = 0
        while True:
            end = text.find("\n", start, start + LONGEST + 1)
            if end >= 0:
                self._step(text[start:end])
                self._cut = None
                start = end + 1
            elif len(text) - start > LONGEST:
                end = text.rfind(" ", start, start + LONGEST) + 1 or start + LONGEST
                self._step(text[start:end])
                self._cut = " " if text[end - 1] == " " else ""
                start = end
            else:
                break
        self._rest = text[start:]
        return self._taken()

    def close(self) -> list[Section]:
        """Take the text as ended, and give the sections that were open."""
        if self._rest:
            self._step(self._rest)
            self._rest = ""
        self._finish()
        return self._taken()

    def tail(self) -> list[Section]:
        """The open sections as they would be if the text ended here."""
        twin = copy.copy(self)
        twin._done, twin._items, twin._part = [], list(self._items), copy.copy(self._part)
        if twin._part is not None:
            twin._part.lines = [*twin._part.lines]
        return twin.close()

    def _taken(self) -> list[Section]:
        done, self._done = self._done, []
        return done

    def _step(self, line: str) -> None:
        part = self._part
        if self._cut is not None:  # the next bit of a line that was cut off for its length
            if part is None or isinstance(part, Table):
                self._start(Prose([line], self._place(0)))
            else:
                rest = part.next(self._cut)
                rest.lines.append(line)
                self._start(rest)
            return
        line = line.replace("\t", _CODE).rstrip("\r")
        quote, body = _unquoted(line)
        if isinstance(part, Code) and quote >= self._quote:
            inside = _unquoted(line, self._quote)[1]
            if not part.closed_by(inside):
                part.take(inside)
                self._watch(part)
                return
            self._finish()
            if part.fence:
                return
        elif quote != self._quote and not (isinstance(part, Prose) and not quote and not _begins(body)):
            self._finish()
            self._items.clear()
            self._quote = quote
        if body.strip():
            self._read(body)
            self._blank = False
        else:
            self._finish()
            self._blank = True

    def _read(self, line: str) -> None:
        part, indent = self._part, len(line) - len(line.lstrip())
        under = _UNDERLINE.match(line)
        if under and isinstance(part, Prose) and not self._items:
            part.level = 1 if "=" in under[1] else 2
            self._finish()
        elif isinstance(part, Table) and "|" in line:
            part.take(line)
            self._watch(part)
        elif isinstance(part, Prose) and "|" in line and part.lines and _is_delimiter(line, part.lines[-1]):
            self._begin_table(part, line)
        elif self._begin(line, indent):
            pass
        elif isinstance(part, Prose):
            part.take(line.strip() if not line.endswith("  ") else f"{line.strip()}  ")
            self._watch(part)
        elif indent >= len(_CODE) and not self._items:
            self._start(Code([line[len(_CODE) :]], self._place(0)))
        else:
            self._start(Prose([line.lstrip()], self._place(indent)))

    def _begin(self, line: str, indent: int) -> bool:
        """Begin a new part if the line says so."""
        if fence := _FENCE.match(line):
            self._start(_code(fence, self._place(indent)))
        elif _RULE.match(line):
            self._start(None)
            self._done.append(Rule(self._place(indent)))
            self._begun = True
        elif heading := _HEADING.match(line):
            text = line[heading.end() :].strip()
            bare = text.rstrip("#")
            text = bare.strip() if not bare or bare[-1].isspace() else text
            self._start(Prose([text], self._place(0), len(heading[1])))
            self._finish()
        elif item := self._item(line):
            self._begin_item(item, indent)
        else:
            return False
        return True

    def _item(self, line: str) -> re.Match[str] | None:
        """A line that begins a list item; in a paragraph, a number other than 1 is only a number."""
        item = _ITEM.match(line)
        in_paragraph = isinstance(self._part, Prose) and not self._items
        return None if item and in_paragraph and (item[2] not in (None, "1") or not item[3]) else item

    def _begin_item(self, item: re.Match[str], indent: int) -> None:
        gap = self._begun and (self._blank or not self._items)
        while self._items and indent <= self._items[-1][0] + 1:
            self._items.pop()
        sign = f"{item[1]} " if item[2] else "• "
        before = self._before()
        place = Place(before + sign, before + " " * len(sign), gap)
        self._items.append((indent, len(sign)))
        text = item[3] or ""
        if fence := _FENCE.match(text):
            self._start(Prose([""], place))
            self._start(_code(fence, place.below()))
        else:
            self._start(Prose([text], place))

    def _begin_table(self, part: Prose, line: str) -> None:
        head = part.lines.pop()
        place = part.place
        if part.lines:
            self._finish()
            place = place.below(gap=True)
        self._part = Table([head, line], place)

    def _start(self, part: Prose | Code | Table | None) -> None:
        self._finish()
        self._part = part
        self._begun = self._begun or part is not None

    def _place(self, indent: int) -> Place:
        """Where a part with this indent stands; the list items it is not in are closed."""
        while self._items and indent <= self._items[-1][0]:
            self._items.pop()
        before = self._before()
        return Place(before, before, gap=self._begun)

    def _before(self) -> str:
        return self._indent + "▌ " * self._quote + " " * sum(width for _, width in self._items)

    def _watch(self, part: Prose | Code | Table) -> None:
        """Close a part that has become long; it goes on in a section of its own."""
        if part.is_long:
            self._start(part.next(None if isinstance(part, Code) else " "))

    def _finish(self) -> None:
        if self._part is not None and self._part.close():
            self._done.append(self._part)
        self._part = None


def _code(fence: re.Match[str], place: Place) -> Code:
    return Code([], place, fence[2].strip("{}.").lower(), fence[1])


def _unquoted(line: str, most: int = 99) -> tuple[int, str]:
    """How many quote signs a line begins with, and what is behind them; no more than `most` are taken off."""
    quote = _QUOTE.match(line) if most else None
    if quote is None:
        return 0, line
    depth = quote[1].count(">")
    if depth <= most:
        return depth, line[quote.end() :]
    start = [at for at, sign in enumerate(line) if sign == ">"][most - 1] + 1
    return depth, line[start:].removeprefix(" ")


def _begins(line: str) -> bool:
    """Whether a line begins something new wherever it stands."""
    return not line.strip() or any(pattern.match(line) for pattern in (_FENCE, _RULE, _HEADING, _ITEM))


def _is_delimiter(line: str, head: str) -> bool:
    """Whether a line under this head makes a table of it."""
    cells = _cells(line)
    return all(_DELIMITER.fullmatch(cell) for cell in cells) and len(cells) == len(_cells(head)) and "|" in head


def _cells(line: str) -> list[str]:
    return _BAR.split(line.strip().removeprefix("|").removesuffix("|"))


def _width(cell: Pieces) -> int:
    return max(1, sum(cell_len(piece.text) for piece in cell))


def _shared(wanted: Sequence[int], room: int) -> list[int]:
    """The columns' widths: those that want little have it, and the others share the rest."""
    widths = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    for done, at in enumerate(order):
        share = max(_NARROWEST, room // (len(order) - done))
        widths[at] = min(wanted[at], share)
        room -= widths[at]
    return widths


def _broken(cell: Pieces, width: int) -> Iterator[Pieces]:
    """A cell's lines."""
    text = "".join(piece.text for piece in cell)
    places = [0, *breaks(text, width), len(text)]
    for start, end in pairwise(places):
        yield tuple(cut(cell, start, start + len(text[start:end].rstrip())))


def _beside(cells: Sequence[Pieces], widths: Sequence[int], aligned: Sequence[str], *, head: bool) -> Pieces:
    """One line of a row of the table."""
    line: list[Piece] = []
    for at, (cell, width, side) in enumerate(zip(cells, widths, aligned, strict=True)):
        if at:
            line.append(Piece(_BETWEEN, "muted"))
        free = max(0, width - sum(cell_len(piece.text) for piece in cell))
        left = {"left": 0, "right": free, "center": free // 2}[side]
        line.append(Piece(" " * left))
        line += [Piece(piece.text, "heading", piece.stress, piece.link) for piece in cell] if head else cell
        line.append(Piece(" " * (free - left)))
    return tuple(piece for piece in line if piece.text)
