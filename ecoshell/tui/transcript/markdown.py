"""An incremental Markdown reader: it yields a section as soon as no later text can change it.

The sections depend only on the text, not on how it was divided, so a streamed answer looks like a complete one. Where
CommonMark needs a long look-ahead, a simpler reading is used: nested lists may be indented by two, and HTML and
reference definitions are shown literally. No character is dropped.

Textual's Markdown mounts a widget per paragraph and parses the last block again with every piece; here finished
sections are never read or laid out again.
"""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest

from rich.cells import cell_len

from ecoshell.tui.transcript.blocks import (
    MAX_SECTION_LENGTH,
    MAX_SECTION_ROWS,
    Piece,
    Row,
    Section,
    row,
)
from ecoshell.tui.transcript.inline import MAX_HIGHLIGHTED_LENGTH, Pieces, highlighted, inline
from ecoshell.tui.transcript.painting import breaks, cut

_CONTEXT_LINES = 24
"""Preceding lines of code that determine the lexer state of the next section."""
_COLUMN_SEPARATOR = " │ "
_MIN_COLUMN_CELLS = 4
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
class Prefix:
    """The prefixes of a part of a Markdown text."""

    lead: str = ""
    """Prefix of its first line: quote bars, indent, bullet."""
    hang: str = ""
    """Prefix of its other lines."""
    gap: bool = False
    """Whether a blank line precedes it."""
    glue: str | None = None
    """What separates it from the previous part if a long line was split."""

    def below(self, *, gap: bool = False, glue: str | None = None) -> "Prefix":
        """The prefixes of a continuation."""
        return Prefix(self.hang, self.hang, gap, glue)


@dataclass(slots=True)
class Part:
    """Lines of one section, possibly still growing."""

    lines: list[str]
    prefix: Prefix

    def height(self, width: int) -> int:
        """An estimate: the source lines, and more for long ones."""
        return len(self.lines) + self.prefix.gap + sum(map(len, self.lines)) // width

    def rows(self, width: int) -> Iterator[Row]:
        """The blank line before it, if any."""
        if self.prefix.gap:
            yield Row(())


@dataclass(slots=True)
class Prose(Part):
    """A paragraph, a list item or a heading."""

    level: int = 0
    """Heading level from 1; 0 for text."""

    def rows(self, width: int) -> Iterator[Row]:
        """A row, and one more for each hard line break."""
        yield from Part.rows(self, width)
        lead, glue = self.prefix.lead, self.prefix.glue
        for pieces in inline("\n".join(self.lines), "heading" if self.level else "text"):
            stress = "u" if self.level in (1, 2) else ""
            stressed = (replace(piece, stress=piece.stress + stress) for piece in pieces)
            yield Row(tuple(stressed) if stress else pieces, lead, self.prefix.hang, glue)
            lead, glue = self.prefix.hang, None


@dataclass(slots=True)
class Rule(Part):
    """A line across."""

    def rows(self, width: int) -> Iterator[Row]:
        yield from Part.rows(self, width)
        lead = self.prefix.lead
        yield row(Piece("─" * max(3, width - len(lead)), "muted"), lead=lead)


@dataclass(slots=True)
class Code(Part):
    """Fenced or indented code; the lines in `context` determine its initial lexer state."""

    language: str = ""
    fence: str = ""
    context: tuple[str, ...] = ()

    def rows(self, width: int) -> Iterator[Row]:
        yield from Part.rows(self, width)
        lead, glue = f"{self.prefix.hang}│ ", self.prefix.glue
        plain = any(len(line) > MAX_HIGHLIGHTED_LENGTH for line in (*self.context, *self.lines))
        language = "" if plain else self.language
        for at, pieces in enumerate(highlighted(self.lines, language, self.context)):
            yield Row(pieces, lead, lead, None if at else glue)


@dataclass(slots=True)
class Table(Part):
    """A header, its delimiter line, and rows; long tables repeat the header in each section."""

    repeats_header: bool = False

    def rows(self, width: int) -> Iterator[Row]:
        """The table at this width; cells that are too wide are wrapped."""
        yield from Part.rows(self, width)
        marks = [cell.strip() for cell in _cells(self.lines[1])]
        aligned = [
            "center" if mark[0] == mark[-1] == ":" else "right" if mark[-1] == ":" else "left"
            for mark in marks
        ]
        table: list[list[Pieces]] = []
        for line in (self.lines[0], *self.lines[2:]):
            source = _cells(line)
            cells, extra = [*source, *[""] * len(aligned)][: len(aligned)], source[len(aligned) :]
            if extra:  # cells without a column go into the last one
                cells[-1] = " | ".join([cells[-1], *extra])
            table.append([inline(cell.strip().replace("\\|", "|"))[0] for cell in cells])
        room = width - len(self.prefix.lead) - len(_COLUMN_SEPARATOR) * (len(aligned) - 1)
        needed = [max(1, *map(_width, column)) for column in zip(*table, strict=True)]
        widths, order = [0] * len(needed), sorted(range(len(needed)), key=needed.__getitem__)
        # narrow columns get what they need, wide ones share the remainder
        for done, at in enumerate(order):
            widths[at] = min(needed[at], max(_MIN_COLUMN_CELLS, room // (len(order) - done)))
            room -= widths[at]
        lead, hang = self.prefix.lead, self.prefix.hang
        for at, cells in enumerate(table):
            broken: list[list[Pieces]] = []
            for cell, wide in zip(cells, widths, strict=True):
                text = "".join(piece.text for piece in cell)
                places = pairwise([0, *breaks(text, wide), len(text)])
                ends = ((start, start + len(text[start:end].rstrip())) for start, end in places)
                broken.append([tuple(cut(cell, start, end)) for start, end in ends])
            for line in zip_longest(*broken, fillvalue=()):
                pieces: list[Piece] = []
                for cell, wide, side in zip(line, widths, aligned, strict=True):
                    free = max(0, wide - _width(cell))
                    pad = {"left": 0, "right": free, "center": free // 2}[side]
                    if pieces:
                        pieces.append(Piece(_COLUMN_SEPARATOR, "muted"))
                    text_pieces = cell if at else (replace(piece, tone="heading") for piece in cell)
                    pieces += (Piece(" " * pad), *text_pieces, Piece(" " * (free - pad)))
                yield Row(tuple(piece for piece in pieces if piece.text), lead, hang)
                lead = hang
            if not at:
                yield Row((Piece("─┼─".join("─" * wide for wide in widths), "muted"),), hang, hang)


@dataclass(slots=True, eq=False, repr=False)
class MarkdownReader:
    """Reads Markdown in pieces of any size; `indent` prefixes each resulting line."""

    indent: str = ""
    _unread: str = ""
    _split: str | None = None
    """The separator lost where the current line was split for its length; None otherwise."""
    _done: list[Section] = field(default_factory=list[Section])
    _part: Part | None = None
    _quote: int = 0
    _items: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Indent and marker width of the open list items."""
    _blank: bool = False
    """Whether the previous line was blank."""
    _started: bool = False

    def feed(self, text: str, *, last: bool = False) -> list[Section]:
        """Read a piece and return the sections it finished; with `last`, all remaining ones."""
        text = self._unread + text
        start = 0
        while True:
            end = text.find("\n", start, start + MAX_SECTION_LENGTH + 1)
            if end >= 0:
                self._step(text[start:end])
                self._split = None
                start = end + 1
            elif len(text) - start > MAX_SECTION_LENGTH:
                limit = start + MAX_SECTION_LENGTH
                end = text.rfind(" ", start, limit) + 1 or limit
                self._step(text[start:end])
                self._split = " " if text[end - 1] == " " else ""
                start = end
            else:
                break
        self._unread = text[start:]
        if last:
            if self._unread:
                self._step(self._unread)
                self._unread = ""
            self._finish()
        done, self._done = self._done, []
        return done

    def tail(self) -> list[Section]:
        """The open sections, as if the text ended here."""
        twin = copy.copy(self)
        twin._done, twin._items, twin._part = [], list(self._items), copy.copy(self._part)
        if twin._part is not None:
            twin._part.lines = [*twin._part.lines]
        return twin.feed("", last=True)

    def _step(self, line: str) -> None:
        """Read a line, or a part of a split line."""
        part = self._part
        if self._split is not None:
            if part is None or isinstance(part, Table):
                self._start(Prose([line], self._prefix(0)))
            else:
                self._continue(part, self._split, line)
            return
        line = line.replace("\t", _CODE).rstrip("\r")
        quote, body = _unquoted(line)
        if isinstance(part, Code) and quote >= self._quote:
            inside = _unquoted(line, self._quote)[1]
            text = inside.strip()
            if part.fence:
                closed = text.startswith(part.fence) and not text.strip(part.fence[0])
                indent = len(part.prefix.hang.replace("▌ ", ""))
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
            starts = (pattern.match(body) for pattern in (_FENCE, _RULE, _HEADING, _ITEM))
            # otherwise the quoted paragraph continues
            if quote or not isinstance(part, Prose) or not body.strip() or any(starts):
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
        """Read a non-blank line without quote markers: start a part or extend the open one."""
        part, indent = self._part, len(line) - len(line.lstrip())
        in_paragraph = isinstance(part, Prose) and not self._items
        under, item = _UNDERLINE.match(line), _ITEM.match(line)
        above: list[str] = []
        if isinstance(part, Prose) and part.lines and "|" in part.lines[-1]:
            above = _cells(part.lines[-1])
        marks = _cells(line) if above and "|" in line else []
        is_table = marks and len(marks) == len(above) and all(map(_DELIMITER.fullmatch, marks))
        if item and in_paragraph and (item[2] not in (None, "1") or not item[3]):
            item = None  # inside a paragraph only 1 starts a numbered list
        if under and isinstance(part, Prose) and in_paragraph:
            part.level = 1 if "=" in under[1] else 2
            self._finish()
        elif isinstance(part, Table) and "|" in line:
            self._add(part, line)
        elif isinstance(part, Prose) and is_table:
            head, prefix = part.lines.pop(), part.prefix
            if part.lines:
                prefix = prefix.below(gap=True)
                self._finish()
            self._part = Table([head, line], prefix)
        elif fence := _FENCE.match(line):
            self._start(_code(fence, self._prefix(indent)))
        elif _RULE.match(line):
            self._start(Rule([""], self._prefix(indent)))
            self._finish()
        elif heading := _HEADING.match(line):
            text = line[heading.end() :].strip()
            bare = text.rstrip("#")
            text = bare.strip() if not bare or bare[-1].isspace() else text
            self._start(Prose([text], self._prefix(0), len(heading[1])))
            self._finish()
        elif item:
            gap = self._started and (self._blank or not self._items)
            lead = self._prefix(indent - 1).lead  # siblings may differ in indent by one
            sign = f"{item[1]} " if item[2] else "• "
            prefix = Prefix(lead + sign, lead + " " * len(sign), gap)
            self._items.append((indent, len(sign)))
            fence = _FENCE.match(item[3] or "")
            self._start(Prose(["" if fence else item[3] or ""], prefix))
            if fence:
                self._start(_code(fence, prefix.below()))
        elif isinstance(part, Prose):
            self._add(part, line.strip() if not line.endswith("  ") else f"{line.strip()}  ")
        elif indent >= len(_CODE) and not self._items:
            self._start(Code([line[len(_CODE) :]], self._prefix(0)))
        else:
            self._start(Prose([line.lstrip()], self._prefix(indent)))

    def _prefix(self, indent: int) -> Prefix:
        """The prefixes of a part with this indent; closes the list items it is not in."""
        while self._items and indent <= self._items[-1][0]:
            self._items.pop()
        prefix = self.indent + "▌ " * self._quote + " " * sum(width for _, width in self._items)
        return Prefix(prefix, prefix, gap=self._started)

    def _start(self, part: Part) -> None:
        self._finish()
        self._part, self._started = part, True

    def _add(self, part: Part, line: str) -> None:
        """Add a line; a part that reaches the maximum size continues in another section."""
        part.lines.append(line)
        many = len(part.lines) >= MAX_SECTION_ROWS and not isinstance(part, Prose)
        if many or sum(map(len, part.lines)) >= MAX_SECTION_LENGTH:
            self._continue(part, None if isinstance(part, Code) else " ")

    def _continue(self, part: Part, glue: str | None, *lines: str) -> None:
        """Start the next section of a part; `glue` separates the two if a line was split."""
        following = replace(part, lines=[*lines], prefix=part.prefix.below(glue=glue))
        if isinstance(part, Code) and isinstance(following, Code):
            following.context = (*part.context, *part.lines)[-_CONTEXT_LINES:]
        elif isinstance(following, Table):
            following.lines, following.prefix = part.lines[:2], part.prefix.below(gap=True)
            following.repeats_header = True
        self._start(following)

    def _finish(self) -> None:
        """Close the open part; an empty one is dropped."""
        part, self._part = self._part, None
        if isinstance(part, Code) and not part.fence:  # drop trailing blank lines
            while part.lines and not part.lines[-1].strip():
                part.lines.pop()
        header_only = isinstance(part, Table) and part.repeats_header and len(part.lines) == 2
        if part is not None and part.lines and not header_only:
            self._done.append(part)


def _code(fence: re.Match[str], prefix: Prefix) -> Code:
    return Code([], prefix, fence[2].strip("{}.").lower(), fence[1])


def _unquoted(line: str, limit: int = 99) -> tuple[int, str]:
    """The quote depth of a line, and the line without up to `limit` quote markers."""
    quote = _QUOTE.match(line) if limit else None
    if quote is None:
        return 0, line
    depth = quote[1].count(">")
    if depth <= limit:
        return depth, line[quote.end() :]
    start = [at for at, sign in enumerate(line) if sign == ">"][limit - 1] + 1
    return depth, line[start:].removeprefix(" ")


def _cells(line: str) -> list[str]:
    return _BAR.split(line.strip().removeprefix("|").removesuffix("|"))


def _width(cell: Pieces) -> int:
    return sum(cell_len(piece.text) for piece in cell)
