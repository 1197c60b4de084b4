"""Blocks, the content of a transcript, and the sections in which they are painted.

They know nothing of colours or widths. Sections are generated lazily and are about one screen high at most, so that
only the visible part of a long block is laid out and painted.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from ecoshell.budget import counted
from ecoshell.messages import visible

if TYPE_CHECKING:
    from ecoshell.tui.graph_drawing import Drawing
    from ecoshell.tui.transcript.markdown import Part

Tone = Literal[
    "text", "muted", "question", "thought", "tool", "good", "warning", "error",
    "heading", "link", "code", "keyword", "name", "string", "number", "comment", "added", "removed", "hunk",
]  # fmt: skip
TONES: tuple[Tone, ...] = get_args(Tone)
Kind = Literal["plain", "markdown", "diff"]
Ground = Literal["", "added", "removed"]
GROUNDS: tuple[Ground, ...] = ("added", "removed")
_FOLDED_DRAWING_LINES = 24
_MIN_CROPPED_LENGTH = 40
"""Characters up to which a row with a tail is wrapped, not cropped."""
_PLAIN_TEXT_WIDTH = 120
"""Width of a drawing in plain text, where no screen determines it."""
COLUMN_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
"""What separates the columns of a printed table."""
MAX_SECTION_LENGTH = 2_000
"""Characters of a section, and of a line that is kept in one piece."""
MAX_SECTION_ROWS = 40


@dataclass(frozen=True, slots=True)
class Piece:
    """Text in one tone, shown literally without interpreting markup."""

    text: str
    tone: Tone = "text"
    stress: str = ""
    """Any of b (bold), i (italic), u (underline), s (strikethrough)."""
    link: str = ""
    """An address that is safe to open."""


@dataclass(frozen=True, slots=True)
class Row:
    """Pieces that are wrapped together; `lead` precedes the first line only."""

    pieces: tuple[Piece, ...]
    lead: str = ""
    hang: str = ""
    """Prefix of the other lines, padded to the lead's width."""
    glue: str | None = None
    """What separates it from the previous row if a long line was split; None if it starts a line."""
    folds: bool = False
    """Whether a click on it toggles the fold."""
    tail: tuple[Piece, ...] = ()
    """Pieces at the right edge of the first line."""
    crops: bool = False
    """Whether the pieces are cropped to one line, not wrapped."""
    ground: Ground = ""
    """A background over the full width."""

    @property
    def text(self) -> str:
        text = "".join(piece.text for piece in self.pieces)
        return "  ".join((text, "".join(piece.text for piece in self.tail))) if self.tail else text


def row(*pieces: Piece, lead: str = "") -> Row:
    """A row of these pieces."""
    return Row(pieces, lead)


@dataclass(frozen=True, slots=True)
class Body:
    """A text below a block's rows, folded to its first lines until it is opened."""

    text: str
    """Already escaped by `visible`."""
    lines: int
    """Lines shown while folded; 0 to show only the head."""
    shows_end: bool = False
    """Whether the lines shown while folded are the last ones."""
    kind: Kind = "plain"
    tone: Tone = "text"
    corner: str = ""
    """Prefix of the first line, instead of the indent."""
    indent: str = "  "
    head: Row | None = None
    """A row above the text."""

    @property
    def preview(self) -> tuple[str, str]:
        """The text shown while folded, and a note about the rest (empty if nothing is hidden)."""
        characters = 200 * self.lines
        if not self.shows_end:
            return preview(self.text, lines=self.lines, characters=characters)
        end = "\n".join(self.text[-characters:].split("\n")[-self.lines :])
        earlier = self.text[: len(self.text) - len(end)]
        count = max(1, earlier.count("\n"))  # a very long line may be cut
        return end, f"… {counted(count, 'earlier line')}" if earlier else ""


@dataclass(frozen=True, slots=True)
class CallRef:
    """A call's identity in its session."""

    turn: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Block:
    """A sign in the margin, next to rows, Markdown, a drawing and long texts."""

    sign: str = ""
    tone: Tone = "text"
    """The tone of the sign."""
    rows: tuple[Row, ...] = ()
    markdown: str = ""
    drawing: "Drawing | None" = None
    """A tool graph; its height does not depend on the width."""
    bodies: tuple[Body, ...] = ()
    name: str = ""
    """Key for a later redraw; empty if the block never changes."""
    gap: bool = False
    """Whether a blank line precedes it."""
    turn: bool = False
    call: CallRef | None = None
    """The call whose result it shows, once it was judged: the user can override the verdict then."""
    session: tuple[str, str] = ("", "")
    """The session and the name of the subagent that it shows, whose transcript enter opens; empty for others."""
    verdict: tuple[Piece, ...] = ()
    """The verdict on the result, at the start of the first row's tail."""

    @property
    def head(self) -> tuple[Row, ...]:
        if not self.verdict or not self.rows:
            return self.rows
        first, *more = self.rows
        tail = (*self.verdict, Piece("  "), *first.tail) if first.tail else self.verdict
        return (replace(first, tail=tail), *more)

    @property
    def foldable(self) -> bool:
        """Whether part of it is hidden until it is opened."""
        is_cropped = any(line.crops for line in self.rows)
        return is_cropped or bool(self.drawn[1]) or any(body.preview[1] for body in self.bodies)

    @property
    def drawn(self) -> tuple[int, str]:
        """The number of drawing lines shown while folded, and a note about the rest (empty if nothing is hidden)."""
        height = self.drawing.height if self.drawing else 0
        more = height - _FOLDED_DRAWING_LINES
        if more <= 0:
            return height, ""
        return _FOLDED_DRAWING_LINES, f"… {counted(more, 'more line')}"

    def text(self, *, opened: bool = False) -> str:
        """The block as plain text, Markdown unchanged; `opened` includes the folded parts."""
        lines = [line.lead + line.text for line in self.head]
        if self.markdown:
            lines.append(self.markdown)
        if self.drawing:
            line_count, more = self.drawn
            drawn = self.drawing.lines(_PLAIN_TEXT_WIDTH, 0, None if opened else line_count)
            lines += ["".join(text for text, _ in line).rstrip() for line in drawn]
            if more and not opened:
                lines.append(more)
        for body in self.bodies:
            if body.head is not None:
                lines.append(body.head.lead + body.head.text)
            text, more = (body.text, "") if opened else body.preview
            texts = [text, more if body.lines else ""]
            shown = [*filter(None, reversed(texts) if body.shows_end else texts)]
            if shown:
                lines += [f"{body.corner}{shown[0]}", *shown[1:]]
        return "\n".join(lines)


def call_row(pieces: tuple[Piece, ...], *tail: Piece) -> Row:
    """A row with its outcome at the right edge, cropped to one line until its block is opened."""
    return Row(
        pieces, tail=tail, crops=sum(len(piece.text) for piece in pieces) > _MIN_CROPPED_LENGTH
    )


def rows_of(text: str, tone: Tone = "text") -> tuple[Row, ...]:
    """A row for each line of untrusted text."""
    return tuple(row(Piece(line, tone)) for line in visible(text).split("\n"))


def preview(text: str, *, lines: int, characters: int) -> tuple[str, str]:
    """The start of a text, and a note about what was cut (empty if nothing was)."""
    head = text[:characters].split("\n")
    start = "\n".join(head[:lines])
    if len(start) == len(text):
        return text, ""
    more = text.count("\n", len(start) + 1 if start else 0)
    if more or not start:
        return start, f"… {counted(more + 1, 'more line' if start else 'line')}"
    return start, f"… {counted(len(text) - len(start), 'more character')}"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that do not depend on the width."""

    content: tuple[Row, ...]

    def height(self, width: int) -> int:
        """An estimate: one line per row, and more for long rows."""
        characters = sum(len(piece.text) for line in self.content for piece in line.pieces)
        return len(self.content) + characters // width

    def rows(self, width: int) -> Iterable[Row]:
        return self.content


@dataclass(frozen=True, slots=True)
class DrawnLines:
    """Some lines of a drawing."""

    drawing: "Drawing"
    start: int
    stop: int

    def height(self, width: int) -> int:
        """One per line; drawings are never wrapped."""
        return self.stop - self.start

    def rows(self, width: int) -> Iterator[Row]:
        for line in self.drawing.lines(width, self.start, self.stop):
            yield Row(tuple(Piece(*piece) for piece in line))


Section: TypeAlias = "Rows | DrawnLines | Part"
"""What is painted at once: some rows, lines of a drawing, or a part of a Markdown text.

It estimates its height before it is painted, and yields its rows, both at a width in cells.
"""
BLANK_LINE = Rows((Row(()),))


def sections_of(block: Block, *, opened: bool) -> Iterator[Section]:
    """All sections of a block, with or without its folded parts."""
    yield from head_of(block, opened=opened)
    if block.markdown:
        yield from _sections_of_markdown(block.markdown)
    if block.drawing:
        folded_lines, more = block.drawn
        lines = block.drawing.height if opened else folded_lines
        for start in range(0, lines, MAX_SECTION_ROWS):
            yield DrawnLines(block.drawing, start, min(start + MAX_SECTION_ROWS, lines))
        if more:
            yield _fold_line("▲ fold" if opened else more)
    for body in block.bodies:
        begins, more = body.preview
        text = body.text if opened else begins
        if body.head is not None:
            yield Rows((replace(body.head, folds=bool(more) and not body.lines),))
        if text and body.kind == "markdown":
            yield from _sections_of_markdown(text, body.indent)
        elif text and body.kind == "diff":
            from ecoshell.tui.transcript.diff import diff_rows  # not needed for the first frame

            yield from in_sections(diff_rows(text, body.indent))
        elif text:
            leads = chain((body.corner or body.indent,), repeat(body.indent))
            if more and body.shows_end and not opened:
                yield _fold_line(more, next(leads))
            lines = zip(text.split("\n"), leads, strict=False)
            yield from in_sections(row(Piece(line, body.tone), lead=lead) for line, lead in lines)
        if more and opened:
            yield _fold_line("▲ fold")
        elif more and body.lines and not body.shows_end:
            yield _fold_line(more, body.indent)


def head_of(block: Block, *, opened: bool = False) -> Iterator[Section]:
    """The sections above a block's Markdown; `opened` shows cropped rows in full."""
    if block.gap:
        yield BLANK_LINE
    yield from in_sections(
        replace(line, crops=False) if opened and line.crops else line for line in block.head
    )


def _fold_line(text: str, lead: str = "  ") -> Rows:
    """A line that toggles the fold when it is clicked."""
    return Rows((Row((Piece(text, "muted"),), lead=lead, folds=True),))


def _sections_of_markdown(text: str, indent: str = "") -> Iterator[Section]:
    from ecoshell.tui.transcript.markdown import MarkdownReader  # not needed for the first frame

    yield from MarkdownReader(indent).feed(text, last=True)


def in_sections(rows: Iterable[Row]) -> Iterator[Section]:
    """Group rows into sections; very long rows are split, between words if possible."""
    part: list[Row] = []
    size = 0
    for line in rows:
        bits = [line]
        if sum(len(piece.text) for piece in line.pieces) > MAX_SECTION_LENGTH:
            bits.clear()
            glue, hang = line.glue, line.hang or " " * len(line.lead)
            for piece in line.pieces:
                start = 0
                while start < len(piece.text):
                    end = start + MAX_SECTION_LENGTH
                    if end < len(piece.text):
                        end = piece.text.rfind(" ", start, end) + 1 or end
                    bit = replace(piece, text=piece.text[start:end])
                    bits.append(replace(line, pieces=(bit,), glue=glue))
                    glue, start = " " if bit.text.endswith(" ") else "", end
            bits[1:] = [replace(bit, lead=hang, hang=hang, tail=()) for bit in bits[1:]]
        for bit in bits:
            part.append(bit)
            size += sum(len(piece.text) for piece in bit.pieces)
            if size >= MAX_SECTION_LENGTH or len(part) >= MAX_SECTION_ROWS:
                yield Rows(tuple(part))
                part, size = [], 0
    if part:
        yield Rows(tuple(part))
