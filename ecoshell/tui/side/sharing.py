"""How panels below each other share a height that is too small for all of them."""

from collections.abc import Callable, Sequence

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import Layout, WidgetPlacement
from textual.widget import Widget


def share(height: int, wants: Sequence[int], *, first: int | None = None, rest: int | None = None) -> list[int]:
    """Lines for each panel, at most `height` together.

    What nobody wants goes to the panel `rest`. When it is too little, every panel keeps its title, the panel `first`
    gets what it wants, and the others are filled up evenly.
    """
    given = [1 if at < height else 0 for at in range(len(wants))]
    left = height - sum(given)
    if first is not None and given[first]:
        more = min(left, wants[first] - 1)
        given[first] += more
        left -= more
    hungry = [at for at, want in enumerate(wants) if 0 < given[at] < want]
    while left and hungry:
        for at in hungry[:left]:
            given[at] += 1
        left = height - sum(given)
        hungry = [at for at in hungry if given[at] < wants[at]]
    if rest is not None and given[rest]:
        given[rest] += left
    return given


class SharedHeight(Layout):
    """Puts widgets below each other at the heights that a function gives them."""

    name = "shared-height"

    def __init__(self, heights: Callable[[Sequence[Widget], Size], Sequence[int]]) -> None:
        self._heights = heights

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> list[WidgetPlacement]:
        """The widgets' places, for Textual's compositor."""
        parent.pre_layout(self)
        placements: list[WidgetPlacement] = []
        y = 0
        for child, height in zip(children, self._heights(children, size), strict=True):
            region = Region(0, y, size.width, height)
            placements.append(WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, child))
            y += height
        return placements
