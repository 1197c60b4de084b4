"""The panels below each other, fed from the stream of events, and how they share a height too small for all."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.events import DescendantBlur, DescendantFocus
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import Layout, WidgetPlacement
from textual.widget import Widget

from ecoshell.budget import CapState
from ecoshell.events import Event
from ecoshell.events.describe import planned_share
from ecoshell.tui.side.bars import SummaryLine
from ecoshell.tui.side.cost import BudgetPanel, RolesPanel
from ecoshell.tui.side.panel import ListPanel, Panel
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.side.plan import PlanPanel
from ecoshell.tui.side.tools import ToolsPanel

if TYPE_CHECKING:
    from ecoshell.agent.shell import Standing

_BREATH = 500
"""Events of an old session heard in one go."""


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
    """Puts the panels below each other; what is left over of the height goes to the last list."""

    name = "shared-height"

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> list[WidgetPlacement]:
        parent.pre_layout(self)
        panels = [panel for panel in children if isinstance(panel, Panel)]
        first = next((at for at, panel in enumerate(panels) if panel.has_focus), None)
        lists = [at for at, panel in enumerate(panels) if isinstance(panel, ListPanel) and not panel.folded]
        heights = share(size.height, [panel.wanted for panel in panels], first=first, rest=lists[-1] if lists else None)
        placements: list[WidgetPlacement] = []
        y = 0
        for panel, height in zip(panels, heights, strict=True):
            region = Region(0, y, size.width, height)
            placements.append(WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, panel))
            y += height
        return placements


class SidePanels(Widget):
    """Budget, plan, tools and roles; when the height is too little for all, the one with the focus comes first."""

    DEFAULT_CSS = """
    SidePanels { overflow: hidden; }
    """

    def __init__(self, summary: SummaryLine) -> None:
        """`summary` is the line that replaces the panels while they are hidden."""
        self.state = PanelState()
        self.panels = [kind(self.state) for kind in (BudgetPanel, PlanPanel, ToolsPanel, RolesPanel)]
        super().__init__(*self.panels)
        self._default_layout = SharedHeight()
        self._summary = summary
        self._stale = False

    def hear(self, event: Event) -> None:
        """Take an event into account; the panels follow before the next frame, however many events come at once."""
        if self.state.hear(event):
            self._touch()

    def show(self, standing: "Standing", caps: Sequence[CapState]) -> None:
        if self.state.look(standing, caps):
            self._touch()

    async def recall(self, past: Iterable[Event]) -> None:
        """Show another session, from its events so far; a long one does not hold up the screen."""
        self.state.clear()
        for at, event in enumerate(past):
            self.state.hear(event)
            if at % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        self.state.rest()
        self._touch()

    @on(DescendantFocus)
    @on(DescendantBlur)
    def refocused(self, event: DescendantFocus | DescendantBlur) -> None:
        """Give the focused panel its height, or share the height evenly again, where it is too little for all."""
        if sum(panel.wanted for panel in self.panels) > self.size.height:
            event.widget.refresh(layout=True)

    def _touch(self) -> None:
        if not self._stale:
            self._stale = True
            self.call_later(self._draw)

    def _draw(self) -> None:
        self._stale = False
        for panel in self.panels:
            panel.show()
        if self.state.standing is not None:
            plan = self.state.shown_plan
            self._summary.show(self.state.standing, self.state.caps, f"plan {planned_share(plan)}" if plan else "")
