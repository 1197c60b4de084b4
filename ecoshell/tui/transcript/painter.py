"""From sections to lines: wraps rows beside their sign, and gives every tone its style."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ecoshell.tui.transcript.blocks import Piece, Row, Tone
from ecoshell.tui.transcript.sections import Section
from ecoshell.tui.transcript.wrap import breaks

MARGIN = 3
"""Cells the sign stands in."""
_NARROWEST = 8
"""Cells that are wrapped to, however narrow the screen; what is too wide for it is cut off at its edge."""
_TAB = "    "


class Line(NamedTuple):
    """A painted line, and what has to be known to take the text out of it again."""

    strip: Strip
    lead: int = 0
    """Characters before the text: margin, indent, bullet."""
    glue: str | None = None
    """What was between it and the line above; None when the writer began it anew."""
    folds: bool = False

    @property
    def text(self) -> str:
        """The text alone."""
        return self.strip.text[self.lead :].rstrip()


class Painter:
    """Paints in one set of styles at one width."""

    def __init__(self, styles: Mapping[Tone, Style], width: int) -> None:
        self.width = width
        self._styles = styles
        self._style = lru_cache(maxsize=1_024)(self._styled)
        self._inside = max(_NARROWEST, width - MARGIN)

    def paints_like(self, other: "Painter") -> bool:
        """Whether another one paints the same."""
        return (self.width, self._styles) == (other.width, other._styles)

    def paint(self, section: Section, sign: str = "", tone: Tone = "text") -> list[Line]:
        """A section's lines, the first with the sign in its margin."""
        lines: list[Line] = []
        for row in section.rows(self._inside):
            head = self._margin(sign if not lines else "", tone)
            lines += self._wrapped(row, head)
        return lines

    def rows(self, section: Section) -> Iterable[Row]:
        """A section's rows before they are wrapped."""
        return section.rows(self._inside)

    def estimate(self, lines: int, characters: int) -> int:
        """About how many lines that many lines and characters take."""
        return lines + characters // self._inside

    def _margin(self, sign: str, tone: Tone) -> list[Segment]:
        blank = " " * (MARGIN - min(MARGIN, cell_len(sign)))
        return [Segment(sign, self._styles[tone]), Segment(blank)] if sign else [Segment(blank)]

    def _wrapped(self, row: Row, margin: list[Segment]) -> Iterable[Line]:
        pieces = [(piece, piece.text.replace("\t", _TAB)) for piece in row.pieces]
        text = "".join(shown for _, shown in pieces)
        lead, hang, room = self._leads(row)
        places = [0, *breaks(text, room), len(text)]
        head, glue = [*margin, *lead], row.joined
        for start, end in pairwise(places):
            whole = text[start:end]
            kept = whole.rstrip()
            yield self._line(head, list(self._cut(pieces, start, start + len(kept))), row, glue)
            head, glue = [Segment(" " * MARGIN), *hang], whole[len(kept) :]

    def _line(self, head: list[Segment], body: list[Segment], row: Row, glue: str | None) -> Line:
        segments = [*head, *body]
        length = sum(segment.cell_length for segment in segments)
        return Line(Strip(segments, length), sum(len(segment.text) for segment in head), glue, row.folds)

    def _leads(self, row: Row) -> tuple[list[Segment], list[Segment], int]:
        """What stands before the first line of a row and before its others, and the room beside it."""
        width = min(cell_len(row.lead), self._inside - _NARROWEST)
        if width <= 0:
            return [], [], self._inside
        muted = self._styles["muted"]
        first, others = (Segment(set_cell_size(lead, width), muted) for lead in (row.lead, row.hang))
        return [first], [others], self._inside - width

    def _cut(self, pieces: Iterable[tuple[Piece, str]], start: int, end: int) -> Iterable[Segment]:
        at = 0
        for piece, shown in pieces:
            text = shown[max(0, start - at) : max(0, end - at)]
            if text:
                yield Segment(text, self._style(piece.tone, piece.stress, piece.link))
            at += len(shown)

    def _styled(self, tone: Tone, stress: str, link: str) -> Style:
        style = self._styles[tone]
        if not stress and not link:
            return style
        bold, italic, underline, strike = (True if sign in stress else None for sign in "bius")
        return style + Style(bold=bold, italic=italic, underline=underline, strike=strike, link=link or None)
