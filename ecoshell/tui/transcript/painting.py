"""From sections to painted lines: rows are wrapped beside their sign, and every tone has its style.

Finished lines are strips and not widgets: what is off screen costs nothing, and a long session types and streams like a
new one, which no tree of mounted widgets does (`bench speed` compares them).
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

from ecoshell.tui.transcript.blocks import Piece, Section, Tone

MARGIN = 3
"""Cells the sign stands in."""
CURSOR = "┃"
"""Stands in the margin of the block the cursor is on."""
_NARROWEST = 8
"""Cells that are wrapped to, however narrow the screen; what is too wide for it is cut off at its edge."""
_TAB = "    "
_KEPT = 1_000
"""Finished lines that are kept at most: some screens."""
_WORD = re.compile(r"\s*\S+\s*|\s+")


class PaintedLine(NamedTuple):
    """A painted line, and what has to be known to take the text out of it again."""

    strip: Strip
    lead: int = 0
    """Characters before the text: margin, indent, bullet."""
    glue: str | None = None
    """What was between it and the line above; None when the writer began it anew."""
    folds: bool = False

    @property
    def text(self) -> str:
        return self.strip.text[self.lead :].rstrip()


class Painter:
    """Paints in one set of styles at one width."""

    def __init__(self, styles: Mapping[Tone, Style], width: int) -> None:
        self.width = width
        self.styles = styles
        self.inside = max(_NARROWEST, width - MARGIN)
        """Cells beside the margin, for which sections are set."""
        self._style = lru_cache(maxsize=1_024)(self._styled)

    def paint(self, section: Section, sign: str = "", tone: Tone = "text") -> list[PaintedLine]:
        """A section's lines, the first with the sign in its margin."""
        blank = Segment(" " * (MARGIN - min(MARGIN, cell_len(sign))))
        margin = [Segment(sign, self.styles[tone]), blank] if sign else [blank]
        lines: list[PaintedLine] = []
        for row in section.rows(self.inside):
            pieces = [
                replace(one, text=one.text.replace("\t", _TAB)) if "\t" in one.text else one for one in row.pieces
            ]
            text = "".join(piece.text for piece in pieces)
            width = max(0, min(cell_len(row.lead), self.inside - _NARROWEST))
            leads = [
                Segment(set_cell_size(lead, width), self.styles["muted"]) for lead in (row.lead, row.hang) if width
            ]
            head, glue = [*margin, *leads[:1]], row.joined
            for start, end in pairwise([0, *breaks(text, self.inside - width), len(text)]):
                whole = text[start:end]
                kept = whole.rstrip()
                shown = cut(pieces, start, start + len(kept))
                segments = [*head, *(Segment(one.text, self._style(one.tone, one.stress, one.link)) for one in shown)]
                strip = Strip(segments, sum(segment.cell_length for segment in segments))
                lines.append(PaintedLine(strip, sum(len(segment.text) for segment in head), glue, row.folds))
                margin = [Segment(" " * MARGIN)]
                head, glue = [*margin, *leads[1:]], whole[len(kept) :]
        return lines

    def _styled(self, tone: Tone, stress: str, link: str) -> Style:
        style = self.styles[tone]
        if not stress and not link:
            return style
        bold, italic, underline, strike = (True if sign in stress else None for sign in "bius")
        return style + Style(bold=bold, italic=italic, underline=underline, strike=strike, link=link or None)


@dataclass(frozen=True, slots=True)
class Finish:
    """One look of the view; lines that were finished with it are kept by their place in the column.

    Textual's own cache goes by the place on the screen, and is of no use to what scrolls.
    """

    base: Style
    width: int
    """Cells of a line without its padding."""
    background: Color
    filters: Sequence[LineFilter]
    _kept: dict[int, tuple[Strip, Strip]] = field(default_factory=dict[int, tuple[Strip, Strip]], compare=False)

    def line(
        self, at: int, painted: Strip, spans: Sequence[tuple[int, int, Style]] = (), cursor: Style | None = None
    ) -> Strip:
        """The line at a place in the column as it goes to the screen; done anew only when it was painted anew.

        The characters of each span are in its style; -1 stands for the end of the line. With a style for it, the
        cursor stands at the end of the margin.
        """
        kept = self._kept.get(at)
        special = bool(spans) or cursor is not None
        if kept is not None and kept[0] is painted and not special:
            return kept[1]
        strip = painted.crop_extend(0, self.width, self.base).apply_style(self.base)
        for first, last, style in spans:
            start = cell_len(strip.text[:first])  # a selection may end past a line that was laid out anew
            end = strip.cell_length if last == -1 else max(start, cell_len(strip.text[:last]))
            chosen = Strip(Segment.apply_style(strip.crop(start, end), post_style=style))
            strip = Strip.join([strip.crop(0, start), chosen, strip.crop(end)])
        if cursor is not None:
            sign = Strip([Segment(CURSOR, self.base + cursor)], 1)
            strip = Strip.join([strip.crop(0, MARGIN - 1), sign, strip.crop(MARGIN)])
        edge = Strip([Segment(" ", self.base)], 1)
        strip = Strip.join([edge, strip.apply_offsets(0, at), edge])  # a selection knows the line by this
        for one in self.filters:
            strip = strip.apply_filter(one, self.background)
        if not special:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[at] = painted, strip
        return strip


def cut(pieces: Iterable[Piece], start: int, end: int) -> Iterator[Piece]:
    """The characters of some pieces from `start` up to `end`."""
    at = 0
    for piece in pieces:
        text = piece.text[max(0, start - at) : max(0, end - at)]
        if text:
            yield Piece(text, piece.tone, piece.stress, piece.link)
        at += len(piece.text)


def breaks(text: str, width: int) -> list[int]:
    """The places at which a line begins after the first; blanks at a break stay at the end of the line before it."""
    if len(text) <= width and text.isascii():
        return []
    found: list[int] = []
    used = 0
    for word in _WORD.finditer(text):
        start, whole = word.start(), word.group()
        solid = cell_len(whole.rstrip())
        if used and used + solid > width:
            found.append(start)
            used = 0
        if solid > width:  # the word itself is cut; what is seen as one character stays whole
            cuts = list(range(width, solid, width)) if whole.isascii() else []
            taken = 0
            for at, _, cells in [] if whole.isascii() else split_graphemes(whole.rstrip())[0]:
                if taken and taken + cells > width:
                    cuts.append(at)
                    taken = 0
                taken += cells
            found += [start + at for at in cuts]
            whole = whole[cuts[-1] if cuts else 0 :]
        used += cell_len(whole)
    return found
