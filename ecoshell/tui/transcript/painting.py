"""Painting sections: rows are wrapped next to their sign, and every tone has a style.

Painted lines are strips, not widgets: lines off screen cost nothing, so that a long session types and streams as fast
as a new one (`bench speed` compares the two).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size, split_graphemes
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ecoshell.tui.text import fit
from ecoshell.tui.transcript.blocks import COLUMN_GAP, Ground, Piece, Section, Tone

MARGIN = 3
"""Cells reserved for the sign."""
CURSOR = "┃"
"""Marks the block under the cursor in the margin."""
_MIN_WRAP_WIDTH = 8
"""Lower limit of the wrapping width; on narrower screens lines are cropped."""
_MIN_COLUMN_CELLS = 14
"""Width after the first columns of a table whose other ones are wrapped."""
_TAIL_GAP = 2
_MIN_CELLS_BESIDE_TAIL = 20
"""Width left of a row's tail below which the tail follows the text."""
_TAB = "    "
_WORD = re.compile(r"\s*\S+\s*|\s+")


def split_lead(lead: str, width: int) -> tuple[str, str]:
    """The columns of a lead that leave room to wrap the others, and the others.

    A lead that fits, or that is only an indent, is not split.
    """
    if cell_len(lead) <= width or not lead.strip():
        return lead, ""
    ends = (gap.end() for gap in COLUMN_GAP.finditer(lead))
    width -= _MIN_COLUMN_CELLS - _MIN_WRAP_WIDTH
    at = max((end for end in ends if cell_len(lead[:end]) <= width), default=0)
    return lead[:at], lead[at:]


class PaintedLine(NamedTuple):
    """A painted line, with what is needed to extract its text again."""

    strip: Strip
    lead: int = 0
    """Characters before the text: margin, indent, bullet."""
    glue: str | None = None
    """What separated it from the line above; None after a line break in the source."""
    folds: bool = False

    @property
    def text(self) -> str:
        return self.strip.text[self.lead :].rstrip()


class Painter:
    """Paints at one width with one set of styles."""

    def __init__(
        self,
        styles: Mapping[Tone, Style],
        width: int,
        grounds: Mapping[Ground, Style] | None = None,
    ) -> None:
        self.width = width
        self.styles = styles
        self.grounds = grounds or {}
        self.inside = max(_MIN_WRAP_WIDTH, width - MARGIN)
        """Width next to the margin."""
        self._style = lru_cache(maxsize=1_024)(self._styled)

    def paint(self, section: Section, sign: str = "", tone: Tone = "text") -> list[PaintedLine]:
        """The lines of a section, the first with the sign in its margin."""
        blank = Segment(" " * (MARGIN - min(MARGIN, cell_len(sign))))
        margin = [Segment(sign, self.styles[tone]), blank] if sign else [blank]
        lines: list[PaintedLine] = []
        for row in section.rows(self.inside):
            pieces = [
                replace(piece, text=piece.text.replace("\t", _TAB)) if "\t" in piece.text else piece
                for piece in row.pieces
            ]
            first, columns = split_lead(row.lead, self.inside - _MIN_WRAP_WIDTH)
            if columns:
                pieces.insert(0, Piece(columns, "muted"))
            width = max(0, min(cell_len(first), self.inside - _MIN_WRAP_WIDTH))
            leads = [
                Segment(set_cell_size(lead, width), self.styles["muted"])
                for lead in (first, row.hang)
                if width
            ]
            room = self.inside - width
            tail_cells = sum(cell_len(piece.text) for piece in row.tail) + _TAIL_GAP
            is_beside = bool(row.tail) and room - tail_cells >= _MIN_CELLS_BESIDE_TAIL
            if is_beside:
                room -= tail_cells
                pieces = cropped(pieces, room) if row.crops else pieces
            elif row.tail:
                pieces += [Piece(" " * _TAIL_GAP), *row.tail]
            text = "".join(piece.text for piece in pieces)
            ground = self.grounds.get(row.ground)
            head, glue = [*margin, *leads[:1]], row.glue
            for start, end in pairwise([0, *breaks(text, room), len(text)]):
                source = text[start:end]
                trimmed = source.rstrip()
                segments = list(head)
                for piece in cut(pieces, start, start + len(trimmed)):
                    style = self._style(piece.tone, piece.stress, piece.link)
                    segments.append(Segment(piece.text, style))
                if is_beside and not start:
                    used = sum(segment.cell_length for segment in segments)
                    gap = MARGIN + width + room - used + _TAIL_GAP - 1
                    segments.append(Segment(" " * gap))
                    segments += (Segment(piece.text, self.styles[piece.tone]) for piece in row.tail)
                strip = Strip(segments)
                if ground is not None:
                    strip = self._grounded(strip, len(margin), ground)
                lead = sum(len(segment.text) for segment in head)
                lines.append(PaintedLine(strip, lead, glue, row.folds))
                margin = [Segment(" " * MARGIN)]
                head, glue = [*margin, *leads[1:]], source[len(trimmed) :]
        return lines

    def _grounded(self, strip: Strip, margin: int, ground: Style) -> Strip:
        """The line with a background from the margin to the right edge."""
        segments = list(strip)
        missing = MARGIN + self.inside - strip.cell_length
        text = [*segments[margin:], Segment(" " * max(0, missing))]
        return Strip([*segments[:margin], *Segment.apply_style(text, ground)])

    def _styled(self, tone: Tone, stress: str, link: str) -> Style:
        style = self.styles[tone]
        if not stress and not link:
            return style
        bold, italic, underline, strike = (True if sign in stress else None for sign in "bius")
        return style + Style(
            bold=bold, italic=italic, underline=underline, strike=strike, link=link or None
        )


def finished(
    painted: Strip,
    at: int,
    width: int,
    base: Style,
    spans: Sequence[tuple[int, int, Style]] = (),
    cursor: Style | None = None,
) -> Strip:
    """Line `at` with background and padding; `width` is without padding.

    Each span has its own style; an end of -1 is the end of the line. `cursor` styles the cursor in the margin.
    """
    strip = painted.crop_extend(0, width, base).apply_style(base)
    for first, last, style in spans:
        start = cell_len(strip.text[:first])  # an old selection may reach past the end of the line
        end = strip.cell_length if last == -1 else max(start, cell_len(strip.text[:last]))
        chosen = Strip(Segment.apply_style(strip.crop(start, end), post_style=style))
        strip = Strip.join([strip.crop(0, start), chosen, strip.crop(end)])
    if cursor is not None:
        sign = Strip([Segment(CURSOR, base + cursor)], 1)
        strip = Strip.join([strip.crop(0, MARGIN - 1), sign, strip.crop(MARGIN)])
    edge = Strip([Segment(" ", base)], 1)
    return Strip.join([edge, strip.apply_offsets(0, at), edge])  # selections use the offsets


def cropped(pieces: Sequence[Piece], width: int) -> list[Piece]:
    """The pieces in at most `width` cells, with an ellipsis if they are cut."""
    text = "".join(piece.text for piece in pieces)
    if cell_len(text) <= width:
        return list(pieces)
    return [*cut(pieces, 0, len(fit(text, width)) - 1), Piece("…", "muted")]


def cut(pieces: Iterable[Piece], start: int, end: int) -> Iterator[Piece]:
    """The characters of the pieces from `start` up to `end`."""
    at = 0
    for piece in pieces:
        text = piece.text[max(0, start - at) : max(0, end - at)]
        if text:
            yield Piece(text, piece.tone, piece.stress, piece.link)
        at += len(piece.text)


def breaks(text: str, width: int) -> list[int]:
    """Where wrapped lines start, except the first; blanks at a break stay on the line before it."""
    if len(text) <= width and text.isascii():
        return []
    starts: list[int] = []
    used = 0
    for match in _WORD.finditer(text):
        start, word = match.start(), match.group()
        solid = cell_len(word.rstrip())
        if used and used + solid > width:
            starts.append(start)
            used = 0
        if solid > width:  # split the word itself, but no grapheme
            cuts = list(range(width, solid, width)) if word.isascii() else []
            line_cells = 0
            for at, _, cells in [] if word.isascii() else split_graphemes(word.rstrip())[0]:
                if line_cells and line_cells + cells > width:
                    cuts.append(at)
                    line_cells = 0
                line_cells += cells
            starts += [start + at for at in cuts]
            word = word[cuts[-1] if cuts else 0 :]
        used += cell_len(word)
    return starts
