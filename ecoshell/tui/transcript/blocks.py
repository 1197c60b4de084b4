"""Blocks, which a transcript is made of, and the sections in which they are laid out.

They know their meaning and nothing of colours or widths. Sections are made one by one and are never more than a screen
or so, so that of a long block only what is looked at is ever laid out and painted.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from ecoshell.budget import counted
from ecoshell.messages import visible

if TYPE_CHECKING:
    from ecoshell.tui.branches import Drawing
    from ecoshell.tui.transcript.markdown import Part

Tone = Literal[
    "text", "muted", "question", "thought", "tool", "good", "warning", "error",
    "heading", "link", "code", "keyword", "name", "string", "number", "comment", "added", "removed", "hunk",
]  # fmt: skip
TONES: tuple[Tone, ...] = get_args(Tone)
Kind = Literal["plain", "markdown", "diff"]
_CHANGES: Mapping[str, Tone] = {
    "+++ ": "heading", "--- ": "heading", "diff ": "heading", "index ": "heading",
    "+": "added", "-": "removed", "@": "hunk", "": "muted",
}  # fmt: skip
"""The tones of a diff's lines by what they begin with."""
_DRAWN_LINES = 24
"""Lines of a drawing that are shown until it is opened."""
_DRAWN_WIDTH = 120
"""Cells that a drawing has where there is no screen to ask for its width."""
LONGEST = 2_000
"""Characters of one section, and of a line that is kept in one piece."""
MOST_LINES = 40
"""Rows of one section."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text in one tone, shown as it is: no markup in it means anything."""

    text: str
    tone: Tone = "text"
    stress: str = ""
    """Any of b (bold), i (italic), u (underlined), s (struck through)."""
    link: str = ""
    """An address that has been found safe to open."""


@dataclass(frozen=True, slots=True)
class Row:
    """Pieces that are wrapped together beside a lead, which stands before the first line only."""

    pieces: tuple[Piece, ...]
    lead: str = ""
    hang: str = ""
    """What stands before the other lines, padded to the lead's width."""
    joined: str | None = None
    """What is between it and the row before it, where one long line was cut in two; None for a line of its own."""
    folds: bool = False
    """Whether a click on it opens or closes what is folded."""

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def row(*pieces: Piece, lead: str = "") -> Row:
    """A row of these pieces."""
    return Row(pieces, lead)


@dataclass(frozen=True, slots=True)
class Body:
    """A text of any length below a block's rows, of which the first lines are shown until it is opened."""

    text: str
    """Already made visible."""
    lines: int
    """Lines shown while it is folded; none where its head is all there is to see."""
    kind: Kind = "plain"
    tone: Tone = "text"
    corner: str = ""
    """What stands before its first line, in the place of the indent."""
    indent: str = "  "
    head: Row | None = None
    """What it is, above it."""

    @property
    def folded(self) -> tuple[str, str]:
        """As much as is shown while it is folded, and words for the rest (empty when there is none)."""
        return folded(self.text, lines=self.lines, characters=200 * self.lines)


@dataclass(frozen=True, slots=True)
class CallRef:
    """Which call of a session it is."""

    turn: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Block:
    """A sign in the margin and beside it rows, Markdown and long texts, each wrapped to the width."""

    sign: str = ""
    tone: Tone = "text"
    """The sign's."""
    rows: tuple[Row, ...] = ()
    markdown: str = ""
    drawing: "Drawing | None" = None
    """A parallel plan, whose number of lines does not depend on the width."""
    bodies: tuple[Body, ...] = ()
    name: str = ""
    """By what it is found when it is to be shown otherwise; empty for one that stays as it is."""
    gap: bool = False
    """Whether an empty line goes before it."""
    turn: bool = False
    call: CallRef | None = None
    """The call whose result it shows."""
    judged: bool = False
    """Whether a judge has had the result, so that the person can say otherwise."""
    verdict: tuple[Piece, ...] = ()
    """What is thought of the result, at the end of the first row."""

    @property
    def head(self) -> tuple[Row, ...]:
        if not self.verdict or not self.rows:
            return self.rows
        first, *others = self.rows
        return (replace(first, pieces=(*first.pieces, *self.verdict)), *others)

    @property
    def foldable(self) -> bool:
        """Whether a part of it is folded away until it is opened."""
        return bool(self.drawn[1]) or any(body.folded[1] for body in self.bodies)

    @property
    def drawn(self) -> tuple[int, str]:
        """The lines of its drawing that are shown while it is folded, and words for the rest (empty without any)."""
        height = self.drawing.height if self.drawing else 0
        more = height - _DRAWN_LINES
        return min(_DRAWN_LINES, height), f"… {counted(more, 'more line')}" if more > 0 else ""

    def text(self, *, opened: bool = False) -> str:
        """The block without its looks; opened, everything in it, as for copying: Markdown as it was written."""
        lines = [line.lead + line.text for line in self.head]
        if self.markdown:
            lines.append(self.markdown)
        if self.drawing:
            shown, more = self.drawn
            drawn = self.drawing.lines(_DRAWN_WIDTH, 0, None if opened else shown)
            lines += ["".join(text for text, _ in line).rstrip() for line in drawn]
            if more and not opened:
                lines.append(more)
        for body in self.bodies:
            if body.head is not None:
                lines.append(body.head.lead + body.head.text)
            text, more = (body.text, "") if opened else body.folded
            if text:
                lines.append(f"{body.corner}{text}")
            if more and body.lines:
                lines.append(more)
        return "\n".join(lines)


def rows_of(text: str, tone: Tone = "text") -> tuple[Row, ...]:
    """One row for each line of a text that somebody else wrote."""
    return tuple(row(Piece(line, tone)) for line in visible(text).split("\n"))


def folded(text: str, *, lines: int, characters: int) -> tuple[str, str]:
    """The beginning of a text, and words for what was left out (empty when nothing was)."""
    head = text[:characters].split("\n")
    shown = "\n".join(head[:lines])
    if len(shown) == len(text):
        return text, ""
    more = text.count("\n", len(shown) + 1 if shown else 0)
    if more or not shown:
        return shown, f"… {counted(more + 1, 'more line' if shown else 'line')}"
    return shown, f"… {counted(len(text) - len(shown), 'more character')}"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as they are."""

    content: tuple[Row, ...]

    def height(self, width: int) -> int:
        """As many lines as rows, and more for those that are long."""
        return len(self.content) + sum(len(piece.text) for line in self.content for piece in line.pieces) // width

    def rows(self, width: int) -> Iterable[Row]:
        return self.content


@dataclass(frozen=True, slots=True)
class DrawnLines:
    """Some lines of a drawing."""

    drawing: "Drawing"
    start: int
    stop: int

    def height(self, width: int) -> int:
        """One line for each; none is ever wrapped."""
        return self.stop - self.start

    def rows(self, width: int) -> Iterator[Row]:
        for line in self.drawing.lines(width, self.start, self.stop):
            yield Row(tuple(Piece(*piece) for piece in line))


Section: TypeAlias = "Rows | DrawnLines | Part"
"""What is painted in one go: some rows, some lines of a drawing, a part of a Markdown text.

Each says about how many lines it takes before it is painted, and gives its rows, at a width in cells.
"""
GAP = Rows((Row(()),))
FOLDING = Rows((Row((Piece("▲ fold", "muted"),), lead="  ", folds=True),))


def sections_of(block: Block, *, opened: bool) -> Iterator[Section]:
    """All sections of a block; one that is opened has nothing folded away."""
    yield from head_of(block)
    if block.markdown:
        yield from _sections_of_markdown(block.markdown)
    if block.drawing:
        shown, more = block.drawn
        lines = block.drawing.height if opened else shown
        for start in range(0, lines, MOST_LINES):
            yield DrawnLines(block.drawing, start, min(start + MOST_LINES, lines))
        if more:
            yield FOLDING if opened else Rows((Row((Piece(more, "muted"),), lead="  ", folds=True),))
    for body in block.bodies:
        begins, more = body.folded
        text = body.text if opened else begins
        if body.head is not None:
            yield Rows((replace(body.head, folds=bool(more) and not body.lines),))
        if text and body.kind == "markdown":
            yield from _sections_of_markdown(text, body.indent)
        elif text:
            tones: Mapping[str, Tone] = _CHANGES if body.kind == "diff" else {"": body.tone}
            leads = chain((body.corner or body.indent,), repeat(body.indent))
            yield from in_sections(
                row(Piece(line, next(tone for start, tone in tones.items() if line.startswith(start))), lead=lead)
                for line, lead in zip(text.split("\n"), leads, strict=False)
            )
        if more and opened:
            yield FOLDING
        elif more and body.lines:
            yield Rows((Row((Piece(more, "muted"),), lead=body.indent, folds=True),))


def head_of(block: Block) -> Iterator[Section]:
    """The sections above a block's Markdown."""
    if block.gap:
        yield GAP
    yield from in_sections(block.head)


def _sections_of_markdown(text: str, indent: str = "") -> Iterator[Section]:
    from ecoshell.tui.transcript.markdown import MarkdownReader  # no first frame waits for it

    yield from MarkdownReader(indent).feed(text, last=True)


def in_sections(rows: Iterable[Row]) -> Iterator[Section]:
    """Rows put together to sections; one that is very long is cut into bits, between words where there are any."""
    part: list[Row] = []
    size = 0
    for line in rows:
        bits = [line]
        if sum(len(piece.text) for piece in line.pieces) > LONGEST:
            bits.clear()
            joined, hang = line.joined, line.hang or " " * len(line.lead)
            for piece in line.pieces:
                start = 0
                while start < len(piece.text):
                    end = start + LONGEST
                    if end < len(piece.text):
                        end = piece.text.rfind(" ", start, end) + 1 or end
                    bit = replace(piece, text=piece.text[start:end])
                    bits.append(replace(line, pieces=(bit,), joined=joined))
                    joined, start = " " if bit.text.endswith(" ") else "", end
            bits[1:] = [replace(bit, lead=hang, hang=hang) for bit in bits[1:]]
        for bit in bits:
            part.append(bit)
            size += sum(len(piece.text) for piece in bit.pieces)
            if size >= LONGEST or len(part) >= MOST_LINES:
                yield Rows(tuple(part))
                part, size = [], 0
    if part:
        yield Rows(tuple(part))
