"""Markdown, read line by line: a section is given as soon as nothing that follows can change it.

The sections depend on the text alone and not on the pieces in which it came, so that an answer that was streamed is set
like one that came whole. Where CommonMark would have to look far ahead, the nearest reading that need not is taken: a
nested list may be indented by two, and HTML and references are shown as they are. No character is left out of sight.

It is our own because the transcript is painted in sections: what is finished is never read or set again, however long
the answer grows. Textual's Markdown mounts a widget for each paragraph and parses the last block with every piece.
"""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest

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

    def below(self, *, gap: bool = False, joined: str | None = None) -> "Place":
        """Where what follows in the same part stands."""
        return Place(self.hang, self.hang, gap, joined)


@dataclass(slots=True)
class Part:
    """Lines that are one section, and the first of several when there are many of them; they may still arrive."""

    lines: list[str]
    place: Place

    def height(self, width: int) -> int:
        """Its lines as they were written, and more for those that are long."""
        return len(self.lines) + self.place.gap + sum(map(len, self.lines)) // width

    def rows(self, width: int) -> Iterator[Row]:
        """The empty line before it, where there is one."""
        if self.place.gap:
            yield Row(())


@dataclass(slots=True)
class Prose(Part):
    """A paragraph, a list item or a heading."""

    level: int = 0
    """Of a heading, from 1."""

    def rows(self, width: int) -> Iterator[Row]:
        """One row, and one more for each line the writer wanted to begin anew."""
        yield from Part.rows(self, width)
        lead, joined = self.place.lead, self.place.joined
        for pieces in inline("\n".join(self.lines), "heading" if self.level else "text"):
            stress = "u" if self.level in (1, 2) else ""
            stressed = (replace(piece, stress=piece.stress + stress) for piece in pieces)
            yield Row(tuple(stressed) if stress else pieces, lead, self.place.hang, joined)
            lead, joined = self.place.hang, None


@dataclass(slots=True)
class Rule(Part):
    """A line across."""

    def rows(self, width: int) -> Iterator[Row]:
        yield from Part.rows(self, width)
        yield row(Piece("─" * max(3, width - len(self.place.lead)), "muted"), lead=self.place.lead)


@dataclass(slots=True)
class Code(Part):
    """Code between fences or, with no fence, indented by four; `before` tells in which state its lines begin."""

    language: str = ""
    fence: str = ""
    before: tuple[str, ...] = ()

    def rows(self, width: int) -> Iterator[Row]:
        yield from Part.rows(self, width)
        lead, joined = f"{self.place.hang}│ ", self.place.joined
        plain = any(len(line) > _LONGEST_CODE for line in (*self.before, *self.lines))
        for at, pieces in enumerate(highlighted(self.lines, "" if plain else self.language, self.before)):
            yield Row(pieces, lead, lead, None if at else joined)


@dataclass(slots=True)
class Table(Part):
    """A head, the line under it, and rows; one with many is set in several, each with the head, as on printed pages."""

    again: bool = False
    """Whether the head stood above already."""

    def rows(self, width: int) -> Iterator[Row]:
        """The table at this width; a column that is too narrow for its text has it on several lines."""
        yield from Part.rows(self, width)
        marks = [cell.strip() for cell in _cells(self.lines[1])]
        aligned = ["center" if one[0] == one[-1] == ":" else "right" if one[-1] == ":" else "left" for one in marks]
        table: list[list[Pieces]] = []
        for line in (self.lines[0], *self.lines[2:]):
            found = _cells(line)
            cells, extra = [*found, *[""] * len(aligned)][: len(aligned)], found[len(aligned) :]
            if extra:  # what has no column is shown in the last one
                cells[-1] = " | ".join([cells[-1], *extra])
            table.append([inline(cell.strip().replace("\\|", "|"))[0] for cell in cells])
        room = width - len(self.place.lead) - len(_BETWEEN) * (len(aligned) - 1)
        wanted = [max(1, *map(_width, column)) for column in zip(*table, strict=True)]
        widths, order = [0] * len(wanted), sorted(range(len(wanted)), key=wanted.__getitem__)
        for done, at in enumerate(order):  # those that want little have it, and the others share the rest
            widths[at] = min(wanted[at], max(_NARROWEST, room // (len(order) - done)))
            room -= widths[at]
        lead, hang = self.place.lead, self.place.hang
        for at, cells in enumerate(table):
            broken: list[list[Pieces]] = []
            for cell, wide in zip(cells, widths, strict=True):
                text = "".join(piece.text for piece in cell)
                places = pairwise([0, *breaks(text, wide), len(text)])
                ends = ((start, start + len(text[start:end].rstrip())) for start, end in places)
                broken.append([tuple(cut(cell, start, end)) for start, end in ends])
            for line in zip_longest(*broken, fillvalue=()):
                beside: list[Piece] = []
                for cell, wide, side in zip(line, widths, aligned, strict=True):
                    free = max(0, wide - _width(cell))
                    left = {"left": 0, "right": free, "center": free // 2}[side]
                    between = [Piece(_BETWEEN, "muted")] if beside else []
                    shown = cell if at else (replace(piece, tone="heading") for piece in cell)
                    beside += [*between, Piece(" " * left), *shown, Piece(" " * (free - left))]
                yield Row(tuple(piece for piece in beside if piece.text), lead, hang)
                lead = hang
            if not at:
                yield Row((Piece("─┼─".join("─" * wide for wide in widths), "muted"),), hang, hang)


@dataclass(slots=True, eq=False, repr=False)
class MarkdownReader:
    """Takes Markdown in any pieces; `indent` stands before each line of what it gives."""

    indent: str = ""
    _rest: str = ""
    _cut: str | None = None
    """What is lost between the bits of the line that is being read, if it was cut off for its length."""
    _done: list[Section] = field(default_factory=list[Section])
    _part: Part | None = None
    _quote: int = 0
    _items: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """The open list items: where their signs stand, and how wide they are."""
    _blank: bool = False
    """Whether the line before was empty."""
    _begun: bool = False

    def feed(self, text: str, *, last: bool = False) -> list[Section]:
        """Take a piece, and give the sections it has finished; after the last one, all that were open."""
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
        if last:
            if self._rest:
                self._step(self._rest)
                self._rest = ""
            self._finish()
        done, self._done = self._done, []
        return done

    def tail(self) -> list[Section]:
        """The open sections as they would be if the text ended here."""
        twin = copy.copy(self)
        twin._done, twin._items, twin._part = [], list(self._items), copy.copy(self._part)
        if twin._part is not None:
            twin._part.lines = [*twin._part.lines]
        return twin.feed("", last=True)

    def _step(self, line: str) -> None:
        """Read a line, or a bit of one."""
        part = self._part
        if self._cut is not None:  # the next bit of a line that was cut off for its length
            if part is None or isinstance(part, Table):
                self._start(Prose([line], self._place(0)))
            else:
                self._go_on(part, self._cut, line)
            return
        line = line.replace("\t", _CODE).rstrip("\r")
        quote, body = _unquoted(line)
        if isinstance(part, Code) and quote >= self._quote:
            inside = _unquoted(line, self._quote)[1]
            text = inside.strip()
            if part.fence:
                closed = text.startswith(part.fence) and not text.strip(part.fence[0])
                indent = len(part.place.hang.replace("▌ ", ""))
            else:
                closed = bool(text) and not inside.startswith(_CODE)
                indent = len(_CODE)
            if not closed:
                self._add(part, inside[min(indent, len(inside) - len(inside.lstrip())) :])
                return
            self._finish()
            if part.fence:
                return
        elif quote != self._quote:
            begins = not body.strip() or any(one.match(body) for one in (_FENCE, _RULE, _HEADING, _ITEM))
            if begins or quote or not isinstance(part, Prose):  # else it goes on with the quoted paragraph
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
        """Read a line that is not empty, without its quote signs: it begins a new part, or belongs to the open one."""
        part, indent = self._part, len(line) - len(line.lstrip())
        in_paragraph = isinstance(part, Prose) and not self._items
        under, item = _UNDERLINE.match(line), _ITEM.match(line)
        above = _cells(part.lines[-1]) if isinstance(part, Prose) and part.lines and "|" in part.lines[-1] else []
        marks = _cells(line) if above and "|" in line else []
        is_table = marks and len(marks) == len(above) and all(map(_DELIMITER.fullmatch, marks))
        if item and in_paragraph and (item[2] not in (None, "1") or not item[3]):
            item = None  # a number other than 1 is only a number there
        if under and isinstance(part, Prose) and in_paragraph:
            part.level = 1 if "=" in under[1] else 2
            self._finish()
        elif isinstance(part, Table) and "|" in line:
            self._add(part, line)
        elif isinstance(part, Prose) and is_table:
            head, place = part.lines.pop(), part.place
            if part.lines:
                place = place.below(gap=True)
                self._finish()
            self._part = Table([head, line], place)
        elif fence := _FENCE.match(line):
            self._start(_code(fence, self._place(indent)))
        elif _RULE.match(line):
            self._start(Rule([""], self._place(indent)))
            self._finish()
        elif heading := _HEADING.match(line):
            text = line[heading.end() :].strip()
            bare = text.rstrip("#")
            text = bare.strip() if not bare or bare[-1].isspace() else text
            self._start(Prose([text], self._place(0), len(heading[1])))
            self._finish()
        elif item:
            gap = self._begun and (self._blank or not self._items)
            before = self._place(indent - 1).lead  # one at the same indent or the next stands beside it
            sign = f"{item[1]} " if item[2] else "• "
            place = Place(before + sign, before + " " * len(sign), gap)
            self._items.append((indent, len(sign)))
            fence = _FENCE.match(item[3] or "")
            self._start(Prose(["" if fence else item[3] or ""], place))
            if fence:
                self._start(_code(fence, place.below()))
        elif isinstance(part, Prose):
            self._add(part, line.strip() if not line.endswith("  ") else f"{line.strip()}  ")
        elif indent >= len(_CODE) and not self._items:
            self._start(Code([line[len(_CODE) :]], self._place(0)))
        else:
            self._start(Prose([line.lstrip()], self._place(indent)))

    def _place(self, indent: int) -> Place:
        """Where a part with this indent stands; the list items it is not in are closed."""
        while self._items and indent <= self._items[-1][0]:
            self._items.pop()
        before = self.indent + "▌ " * self._quote + " " * sum(width for _, width in self._items)
        return Place(before, before, gap=self._begun)

    def _start(self, part: Part) -> None:
        self._finish()
        self._part, self._begun = part, True

    def _add(self, part: Part, line: str) -> None:
        """Add a line; a part that has become longer than what is painted in one go goes on in another section."""
        part.lines.append(line)
        many = len(part.lines) >= MOST_LINES and not isinstance(part, Prose)
        if many or sum(map(len, part.lines)) >= LONGEST:
            self._go_on(part, None if isinstance(part, Code) else " ")

    def _go_on(self, part: Part, glue: str | None, *lines: str) -> None:
        """Begin the next section of a part; `glue` is what is between the two, where a line was cut in two."""
        rest = replace(part, lines=[*lines], place=part.place.below(joined=glue))
        if isinstance(part, Code) and isinstance(rest, Code):
            rest.before = (*part.before, *part.lines)[-_LOOK_BACK:]
        elif isinstance(rest, Table):
            rest.lines, rest.place, rest.again = part.lines[:2], part.place.below(gap=True), True
        self._start(rest)

    def _finish(self) -> None:
        """Close the open part, unless there is nothing of it to show."""
        part, self._part = self._part, None
        if isinstance(part, Code) and not part.fence:  # empty lines do not end it, nor belong to it
            while part.lines and not part.lines[-1].strip():
                part.lines.pop()
        only_head = isinstance(part, Table) and part.again and len(part.lines) == 2
        if part is not None and part.lines and not only_head:
            self._done.append(part)


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


def _cells(line: str) -> list[str]:
    return _BAR.split(line.strip().removeprefix("|").removesuffix("|"))


def _width(cell: Pieces) -> int:
    return sum(cell_len(piece.text) for piece in cell)
