"""A block in sections: they are made one by one, so that of a long block only what is looked at is ever laid out."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from ecoshell.tui.transcript.blocks import Block, Body, Picture, Piece, Row, Tone
from ecoshell.tui.transcript.sections import LONGEST, MOST_LINES, Drawn, Rows, Section

GAP = Rows((Row(()),))
FOLDING = Rows((Row((Piece("▲ fold", "muted"),), lead="  ", folds=True),))


def sections_of(block: Block, *, opened: bool) -> Iterator[Section]:
    """All sections of a block; one that is opened has nothing folded away."""
    yield from head_of(block)
    if block.markdown:
        yield from _sections_of_markdown(block.markdown)
    if block.picture:
        yield from _sections_of_picture(block.picture, block.pictured(opened=opened))
        if rest := block.picture_rest:
            yield FOLDING if opened else Rows((Row((Piece(rest, "muted"),), lead="  ", folds=True),))
    for body in block.bodies:
        yield from _sections_of_body(body, opened=opened)


def head_of(block: Block) -> Iterator[Section]:
    """The sections above a block's Markdown."""
    if block.gap:
        yield GAP
    yield from in_sections(block.head)


def _sections_of_picture(picture: Picture, lines: int) -> Iterator[Section]:
    for start in range(0, lines, MOST_LINES):
        yield Drawn(picture, start, min(start + MOST_LINES, lines))


def _sections_of_body(body: Body, *, opened: bool) -> Iterator[Section]:
    text, more = body.folded
    whole = opened or not more
    shown = body.text if whole else text
    if body.head is not None:
        yield Rows((replace(body.head, folds=body.is_headed and bool(more)),))
    if shown and body.kind == "markdown":
        yield from _sections_of_markdown(shown, body.indent)
    elif shown:
        yield from in_sections(_rows_of_body(shown, body))
    if not whole and not body.is_headed:
        yield Rows((Row((Piece(more, "muted"),), lead=body.indent, folds=True),))
    elif whole and more:
        yield FOLDING


def _sections_of_markdown(text: str, indent: str = "") -> Iterator[Section]:
    from ecoshell.tui.transcript.reader import sections_of_markdown  # no first frame waits for it

    yield from sections_of_markdown(text, indent=indent)


def _rows_of_body(text: str, body: Body) -> Iterator[Row]:
    corner = body.corner
    for line in _lines_of(text):
        tone = _tone_of_change(line) if body.kind == "diff" else body.tone
        yield Row((Piece(line, tone),), lead=corner or body.indent)
        corner = ""


def _lines_of(text: str) -> Iterator[str]:
    """The lines of a text, one at a time, so that the beginning of a long one costs little."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _tone_of_change(line: str) -> Tone:
    if line.startswith(("+++ ", "--- ", "diff ", "index ")):
        return "heading"
    return {"+": "added", "-": "removed", "@": "hunk"}.get(line[:1], "muted")  # pyright: ignore[reportReturnType]


def in_sections(rows: Iterable[Row]) -> Iterator[Rows]:
    """Rows put together to sections; one that is very long is cut."""
    part: list[Row] = []
    size = 0
    for line in rows:
        for bit in _cut(line):
            part.append(bit)
            size += sum(len(piece.text) for piece in bit.pieces)
            if size >= LONGEST or len(part) >= MOST_LINES:
                yield Rows(tuple(part))
                part, size = [], 0
    if part:
        yield Rows(tuple(part))


def _cut(line: Row) -> Iterator[Row]:
    """A row in bits of a bounded length."""
    if sum(len(piece.text) for piece in line.pieces) <= LONGEST:
        yield line
        return
    bits = [replace(piece, text=bit) for piece in line.pieces for bit in cut(piece.text)]
    hang = line.hang or " " * len(line.lead)
    yield replace(line, pieces=tuple(bits[:1]))
    for before, bit in pairwise(bits):
        yield replace(line, pieces=(bit,), lead=hang, hang=hang, joined=" " if before.text.endswith(" ") else "")


def cut(text: str) -> list[str]:
    """A text in bits of a bounded length, cut between words where there are any."""
    bits: list[str] = []
    start = 0
    while len(text) - start > LONGEST:
        end = text.rfind(" ", start, start + LONGEST) + 1 or start + LONGEST
        bits.append(text[start:end])
        start = end
    return [*bits, text[start:]]
