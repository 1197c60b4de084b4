"""The stack of side panels: it receives the events, and divides its height between the panels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.events import DescendantBlur, DescendantFocus
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import Layout, WidgetPlacement
from textual.widget import Widget

from ecoshell.budget import CapState
from ecoshell.events import Event, PlanChanged
from ecoshell.events.plan import planned_share
from ecoshell.tui.side.bars import SummaryLine
from ecoshell.tui.side.cost import BudgetPanel, RolesPanel
from ecoshell.tui.side.panel import ListPanel, Panel
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.side.plan import PlanPanel
from ecoshell.tui.side.tools import ToolsPanel

if TYPE_CHECKING:
    from ecoshell.agent.shell_status import ShellStatus

_HIGHLIGHT_SECONDS = 1.0
"""Time for which changed rows of the plan are highlighted."""


def share(
    height: int, wants: Sequence[int], *, first: int | None = None, spare_to: int | None = None
) -> list[int]:
    """Divide `height` between panels that want so many lines.

    Spare lines go to the panel `spare_to`. If there are too few, every panel keeps its title, the panel `first` gets
    what it wants, and the others are filled evenly.
    """
    heights = [1 if at < height else 0 for at in range(len(wants))]
    free = height - sum(heights)
    if first is not None and heights[first]:
        more = min(free, wants[first] - 1)
        heights[first] += more
        free -= more
    unfilled = [at for at, want in enumerate(wants) if 0 < heights[at] < want]
    while free and unfilled:
        for at in unfilled[:free]:
            heights[at] += 1
        free = height - sum(heights)
        unfilled = [at for at in unfilled if heights[at] < wants[at]]
    if spare_to is not None and heights[spare_to]:
        heights[spare_to] += free
    return heights


class SharedHeight(Layout):
    """Stack the panels; spare height goes to the last list that is not folded."""

    name = "shared-height"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> list[WidgetPlacement]:
        parent.pre_layout(self)
        panels = [panel for panel in children if isinstance(panel, Panel)]
        first = next((at for at, panel in enumerate(panels) if panel.has_focus), None)
        spare_to = None
        for at, panel in enumerate(panels):
            if isinstance(panel, ListPanel) and not panel.folded:
                spare_to = at
        wants = [panel.wanted for panel in panels]
        heights = share(size.height, wants, first=first, spare_to=spare_to)
        placements: list[WidgetPlacement] = []
        y = 0
        for panel, height in zip(panels, heights, strict=True):
            region = Region(0, y, size.width, height)
            placements.append(WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, panel))
            y += height
        return placements


class SidePanels(Widget):
    """Budget, plan, tools and roles; the focused panel comes first when the height is too small for all."""

    DEFAULT_CSS = """
    SidePanels { overflow: hidden; }
    """

    def __init__(self, summary: SummaryLine) -> None:
        """`summary` is the line that replaces the panels while they are hidden."""
        self.state = PanelState()
        kinds = (BudgetPanel, PlanPanel, ToolsPanel, RolesPanel)
        self.panels = [kind(self.state) for kind in kinds]
        super().__init__(*self.panels)
        self._default_layout = SharedHeight()
        self._summary = summary
        self._stale = False

    def handle(self, event: Event) -> None:
        """Apply an event; the panels are redrawn once before the next frame."""
        if self.state.handle(event):
            self.redraw()
        if isinstance(event, PlanChanged) and self.state.changed_rows:
            self.set_timer(_HIGHLIGHT_SECONDS, self._end_highlight)

    def _end_highlight(self) -> None:
        self.state.changed_rows = frozenset()
        self.redraw()

    def show(self, status: "ShellStatus", caps: Sequence[CapState]) -> None:
        if self.state.update(status, caps):
            self.redraw()

    @on(DescendantFocus)
    @on(DescendantBlur)
    def refocused(self, event: DescendantFocus | DescendantBlur) -> None:
        """Divide the height again if it is too small for all panels."""
        if sum(panel.wanted for panel in self.panels) > self.size.height:
            event.widget.refresh(layout=True)

    def redraw(self) -> None:
        """Redraw the panels before the next frame."""
        if not self._stale:
            self._stale = True
            self.call_later(self._draw)

    def _draw(self) -> None:
        self._stale = False
        for panel in self.panels:
            panel.show()
        if (status := self.state.status) is not None:
            plan = self.state.shown_plan
            share_text = f"plan {planned_share(plan)}" if plan else ""
            self._summary.show(status, self.state.caps, share_text)
