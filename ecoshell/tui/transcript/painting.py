"""Painting sections: rows are wrapped next to their sign, and every tone has a style.

Painted lines are strips, not widgets: lines off screen cost nothing, so that a long session types and streams as fast
as a new one (`bench speed` compares the two).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size, split_graphemes
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

from ecoshell.tui.text import fit
from ecoshell.tui.transcript.blocks import Ground, Piece, Section, Tone

MARGIN = 3
"""Cells reserved for the sign."""
CURSOR = "┃"
"""Marks the block under the cursor in the margin."""
_MIN_WRAP_WIDTH = 8
"""Lower limit of the wrapping width; on narrower screens lines are cropped."""
_TAIL_GAP = 2
_MIN_CELLS_BESIDE_TAIL = 20
"""Width left of a row's tail below which the tail follows the text."""
_TAB = "    "
_MAX_CACHED_LINES = 1_000
_WORD = re.compile(r"\s*\S+\s*|\s+")


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
            width = max(0, min(cell_len(row.lead), self.inside - _MIN_WRAP_WIDTH))
            leads = [
                Segment(set_cell_size(lead, width), self.styles["muted"])
                for lead in (row.lead, row.hang)
                if width
            ]
            room = self.inside - width
            tail_cells = (
                sum(cell_len(piece.text) for piece in row.tail) + _TAIL_GAP if row.tail else 0
            )
            is_beside = bool(row.tail) and room - tail_cells >= _MIN_CELLS_BESIDE_TAIL
            if is_beside:
                room -= tail_cells
            else:
                pieces += [Piece(" " * _TAIL_GAP), *row.tail] if row.tail else []
            if row.crops and is_beside:
                pieces = cropped(pieces, room)
            text = "".join(piece.text for piece in pieces)
            ground = self.grounds.get(row.ground)
            head, glue = [*margin, *leads[:1]], row.glue
            for start, end in pairwise([0, *breaks(text, room), len(text)]):
                source = text[start:end]
                trimmed = source.rstrip()
                segments = list(head)
                for piece in cut(pieces, start, start + len(trimmed)):
                    segments.append(
                        Segment(piece.text, self._style(piece.tone, piece.stress, piece.link))
                    )
                if is_beside and not start:
                    missing = (
                        MARGIN + room - sum(segment.cell_length for segment in segments) + width
                    )
                    segments.append(Segment(" " * (missing + _TAIL_GAP - 1)))
                    segments += (Segment(piece.text, self.styles[piece.tone]) for piece in row.tail)
                strip = Strip(segments, sum(segment.cell_length for segment in segments))
                if ground is not None:
                    strip = self._grounded(strip, len(margin), ground)
                lines.append(
                    PaintedLine(strip, sum(len(segment.text) for segment in head), glue, row.folds)
                )
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


@dataclass(frozen=True, slots=True)
class LineFinisher:
    """Adds background, padding and filters to painted lines, and caches the result by line number.

    Textual's cache is keyed by the position on the screen, which changes with every scroll.
    """

    base: Style
    width: int
    """Cells of a line without padding."""
    background: Color
    filters: Sequence[LineFilter]
    _cache: dict[int, tuple[Strip, Strip]] = field(
        default_factory=dict[int, tuple[Strip, Strip]], compare=False
    )

    def line(
        self,
        at: int,
        painted: Strip,
        spans: Sequence[tuple[int, int, Style]] = (),
        cursor: Style | None = None,
    ) -> Strip:
        """The line as sent to the screen, from the cache if its painted strip is the same.

        Each span has its own style; an end of -1 is the end of the line. `cursor` styles the cursor in the margin.
        """
        cached = self._cache.get(at)
        special = bool(spans) or cursor is not None
        if cached is not None and cached[0] is painted and not special:
            return cached[1]
        strip = painted.crop_extend(0, self.width, self.base).apply_style(self.base)
        for first, last, style in spans:
            start = cell_len(
                strip.text[:first]
            )  # an old selection may reach past the end of the line
            end = strip.cell_length if last == -1 else max(start, cell_len(strip.text[:last]))
            chosen = Strip(Segment.apply_style(strip.crop(start, end), post_style=style))
            strip = Strip.join([strip.crop(0, start), chosen, strip.crop(end)])
        if cursor is not None:
            sign = Strip([Segment(CURSOR, self.base + cursor)], 1)
            strip = Strip.join([strip.crop(0, MARGIN - 1), sign, strip.crop(MARGIN)])
        edge = Strip([Segment(" ", self.base)], 1)
        strip = Strip.join([edge, strip.apply_offsets(0, at), edge])  # selections use the offsets
        for line_filter in self.filters:
            strip = strip.apply_filter(line_filter, self.background)
        if not special:
            if len(self._cache) >= _MAX_CACHED_LINES:
                self._cache.clear()
            self._cache[at] = painted, strip
        return strip


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
