"""What is laid over painted lines: the selection, what was found, and the block cursor."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ecoshell.tui.transcript.item import Item
from ecoshell.tui.transcript.painter import MARGIN, Line

if TYPE_CHECKING:
    from ecoshell.tui.transcript.finding import Search

CURSOR = "┃"
"""Stands in the margin of the block the cursor is on."""


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


@dataclass(frozen=True, slots=True)
class _Found:
    """Start, end and number of the hits on each line of a section as it was painted."""

    lines: list[Line]
    spans: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict[int, list[tuple[int, int, int]]])


class Highlights:
    """The hits of a search in the sections that are on the screen, looked for once for each painting of them."""

    def __init__(self, search: "Search") -> None:
        self._search = search
        self._known: dict[tuple[Item, int], _Found] = {}

    def on(self, item: Item, section: int, line: int) -> list[tuple[int, int, bool]]:
        """Start and end of every hit on a section's line, and whether it is the one the search is at."""
        painted = item.painted(section) or []
        known = self._known.get((item, section))
        if known is None or known.lines is not painted:
            known = self._known[item, section] = _Found(painted)
            for nth, hit in enumerate(self._search.spans(painted)):
                for span in hit:
                    known.spans.setdefault(span.line, []).append((span.start, span.end, nth))
        now = self._search.current
        at = now.nth if now and now.item is item and now.section == section else -1
        return [(start, end, nth == at) for start, end, nth in known.spans.get(line, [])]
