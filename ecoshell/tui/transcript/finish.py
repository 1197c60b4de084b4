"""The last touches to a painted line: background, padding, and what the app does to every line."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

_KEPT = 1_000
"""Lines that are kept at most: some screens."""


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
