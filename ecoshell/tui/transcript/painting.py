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

from ecoshell.tui.transcript.blocks import Piece, Row, Section, Tone

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

    def copied(self, start: int = 0, end: int | None = None) -> tuple[str, str]:
        """What goes before the line when it is copied, and its characters from one place up to another."""
        return "\n" if self.glue is None else self.glue, self.strip.text[max(start, self.lead) : end].rstrip()


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
            lines += self._wrapped(row, [Segment(" " * MARGIN)] if lines else margin)
        return lines

    def estimate(self, lines: int, characters: int) -> int:
        """About how many lines that many lines and characters take."""
        return lines + characters // self.inside

    def _wrapped(self, row: Row, margin: list[Segment]) -> Iterable[PaintedLine]:
        pieces = [replace(one, text=one.text.replace("\t", _TAB)) if "\t" in one.text else one for one in row.pieces]
        text = "".join(piece.text for piece in pieces)
        width = max(0, min(cell_len(row.lead), self.inside - _NARROWEST))
        leads = [Segment(set_cell_size(lead, width), self.styles["muted"]) for lead in (row.lead, row.hang) if width]
        places = [0, *breaks(text, self.inside - width), len(text)]
        head, glue = [*margin, *leads[:1]], row.joined
        for start, end in pairwise(places):
            whole = text[start:end]
            kept = whole.rstrip()
            shown = cut(pieces, start, start + len(kept))
            segments = [*head, *(Segment(one.text, self._style(one.tone, one.stress, one.link)) for one in shown)]
            strip = Strip(segments, sum(segment.cell_length for segment in segments))
            yield PaintedLine(strip, sum(len(segment.text) for segment in head), glue, row.folds)
            head, glue = [Segment(" " * MARGIN), *leads[1:]], whole[len(kept) :]

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

    def line(self, at: int, painted: Strip) -> Strip:
        """The line at a place in the column, finished; done anew only when it was painted anew."""
        kept = self._kept.get(at)
        if kept is not None and kept[0] is painted:
            return kept[1]
        finished = self.padded(at, self.extended(painted))
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[at] = painted, finished
        return finished

    def extended(self, painted: Strip) -> Strip:
        """The line on its background, as wide as the view."""
        return painted.crop_extend(0, self.width, self.base).apply_style(self.base)

    def padded(self, at: int, strip: Strip) -> Strip:
        """The line as it goes to the screen; `at` is what a selection knows it by."""
        edge = Strip([Segment(" ", self.base)], 1)
        strip = Strip.join([edge, strip.apply_offsets(0, at), edge])
        for one in self.filters:
            strip = strip.apply_filter(one, self.background)
        return strip


def marked(strip: Strip, spans: Iterable[tuple[int, int, Style]]) -> Strip:
    """The strip with the characters of each span in its style; -1 stands for the end of the line."""
    for first, last, style in spans:
        start = strip.index_to_cell_position(first)
        end = strip.cell_length if last == -1 else strip.index_to_cell_position(last)
        chosen = Strip(Segment.apply_style(strip.crop(start, end), post_style=style))
        strip = Strip.join([strip.crop(0, start), chosen, strip.crop(end)])
    return strip


def with_cursor(strip: Strip, style: Style) -> Strip:
    """The strip with the cursor at the end of its margin."""
    return Strip.join([strip.crop(0, MARGIN - 1), Strip([Segment(CURSOR, style)], 1), strip.crop(MARGIN)])


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
        if solid > width:
            cuts = [0, *_chopped(whole.rstrip(), width)]
            found += [start + at for at in cuts[1:]]
            whole = whole[cuts[-1] :]
        used += cell_len(whole)
    return found


def _chopped(word: str, width: int) -> Iterator[int]:
    """The places at which a word that is too wide is cut; what is seen as one character stays whole."""
    if word.isascii():
        yield from range(width, len(word), width)
        return
    used = 0
    for start, _, cells in split_graphemes(word)[0]:
        if used and used + cells > width:
            yield start
            used = 0
        used += cells
