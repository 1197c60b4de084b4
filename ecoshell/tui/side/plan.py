"""The plan panel: what it will show, and that there is nothing to show yet."""

import textwrap

from ecoshell.tui.side.panel import Panel
from ecoshell.tui.side.sheet import Line

_EMPTY = "Planning comes with a later version, which will show here how often the budget allows each tool."


def plan_lines(width: int) -> list[Line]:
    """That there is no plan, and why."""
    wrapped = textwrap.wrap(_EMPTY, max(20, width))
    return [(("no plan is made", "strong"),), *(((line, "muted"),) for line in wrapped)]


class PlanPanel(Panel):
    """What the plan allows; no version plans yet, and the panel says so."""

    NAME = "plan"
    HELP = "What the budget allows of each tool. Nothing is planned in this version; enter folds the panel."

    def lines(self, width: int) -> list[Line]:
        return plan_lines(width)

    def gist(self) -> str:
        return "none" if self.folded else ""
