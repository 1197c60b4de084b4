"""The plan panel: what the budget allows of each tool, and what has come of that so far."""

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from ecoshell.budget.money import counted
from ecoshell.events import PlanChanged, PlanRow
from ecoshell.planning.plan_news import planned_share, price_range
from ecoshell.tui.figures import amount
from ecoshell.tui.side.board import Board
from ecoshell.tui.side.graph import COMFORTABLE as GRAPH_LINES
from ecoshell.tui.side.graph import graph_lines, progress
from ecoshell.tui.side.list_panel import COMFORTABLE, FILTER, ListPanel
from ecoshell.tui.side.listing import Listing
from ecoshell.tui.side.plan_rows import Columns, about
from ecoshell.tui.side.sheet import Line, bar, ends, fit, percent, row
from ecoshell.untrusted import visible_line

_NONE_YET = "Ask a question: it is planned before its first step. /plan off, btp, prompt or btp+prompt says how."
_ROOMY_FROM = 34
"""Columns from which on amounts stand beside all of their words."""
_LEAST_ROWS = 3
"""Rows of tools that stay in view below a plan of branches."""
_TINY = 2
"""Lines up to which there is nothing but the list."""
_PLANNING: Line = (("planning …", "muted"),)
_OFF = "Turns are not planned: whatever the caps allow may be used. /plan btp plans the next one."


def plan_of(board: Board) -> PlanChanged | None:
    """The plan there is to show; None while there is none, and where turns are not planned."""
    return None if board.standing is None or board.standing.plan == "off" else board.plan


def heading_lines(board: Board, width: int) -> list[Line]:
    """What the plan has for tools, what is set aside, what the turn may cost from here, and what made it anew."""
    standing, plan = board.standing, plan_of(board)
    if standing is None:
        return [(("known once the session is open", "muted"),)]
    if plan is None:
        if board.planning and standing.plan != "off":
            return [_PLANNING]
        said, more = ("plan off", _OFF) if standing.plan == "off" else ("no plan yet", _NONE_YET)
        return [((said, "strong"),), *(((line, "muted"),) for line in textwrap.wrap(more, max(20, width)))]
    lines = _means(plan, board.plan_whole, width)
    if board.planning:
        return [*lines, _PLANNING]
    if board.running:
        price = price_range(plan, amount)
        slim: Line = (("to go ", "muted"), (fit(price.removeprefix("about "), width - 6), "text"))
        lines.append(row("to go", price, width) if width >= _ROOMY_FROM else slim)
    if plan.number > 1:
        lines.append(((fit(f"↔ {visible_line(plan.reason)}", width), "muted"),))
    return lines


def _means(plan: PlanChanged, whole: int, width: int) -> list[Line]:
    """R of what the caps leave, or that there is no cap: full blocks are spent, half-toned ones set aside."""
    if plan.budget is None or plan.cap is None:
        return [ends(("no cap: advice only", "strong"), ("/budget sets one", "muted"), width)]
    used = percent(whole - plan.budget, whole)
    drawn = bar(((whole - plan.cap, "█"), (plan.reserved, "▒")), whole, max(0, width - len(used) - 1))
    roomy = width >= _ROOMY_FROM
    left = f"{amount(plan.budget, plan.unit)}{' left' if roomy else ''} of {amount(whole, plan.unit)}"
    words = ("planned", "set aside") if roomy else ("plan", "aside")
    costs = f"{words[0]} {amount(plan.planned_cost, plan.unit)} · {words[1]} {amount(plan.reserved, plan.unit)}"
    lines: list[Line] = [
        ends(("for tools", "strong"), (left, "text"), width),
        ((drawn, "accent"), (f" {used}", "text")),
        ((fit(costs, width), "muted"),),
    ]
    return lines if plan.enforced else [*lines, ((fit("told to the model, not enforced", width), "near"),)]


class PlanPanel(ListPanel[PlanRow]):
    """What the plan has left for tools, and below it each tool with its value, its cost and its uses."""

    NAME = "plan"
    HELP = (
        "What the budget allows of each tool. √ is planned, × blocked, ! advised against, · not in the plan; used "
        "stands before how often it may be used. Enter shows the arithmetic of a tool, / filters, - folds the panel."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "why"), FILTER]

    class WhyWanted(Message):
        """The person wants to know why a tool's row is as it is."""

        def __init__(self, tool: str) -> None:
            super().__init__()
            self.tool = tool

    def __init__(self, board: Board) -> None:
        self._laid_out: tuple[PlanChanged, int, Columns] | None = None
        super().__init__(board, Listing(lambda row: row.tool))

    @property
    def plan(self) -> PlanChanged | None:
        """The plan that is shown."""
        return plan_of(self.board)

    @property
    def wanted(self) -> int:
        if self.folded:
            return 1
        around = len(self._above(self._area.width)) + len(self.below(self._area.width)) + 2
        return around + min(len(self.list.shown), COMFORTABLE)

    def known(self) -> Sequence[PlanRow]:
        return self.plan.rows if self.plan else ()

    def above(self, width: int) -> list[Line]:
        around = len(self._above(width, 0)) + len(self.below(width)) + min(len(self.list.shown), _LEAST_ROWS)
        lines = self._above(width, min(GRAPH_LINES, self._area.height - around))
        if self.roomy or self.plan is None:
            return lines
        return lines[:1] if self._area.height > _TINY else []

    def below(self, width: int) -> list[Line]:
        return [*self._others(), *super().below(width)] if self._area.height > _TINY else []

    def item_line(self, item: PlanRow, width: int) -> Line:
        return self._columns(self.plan, width).line(item) if self.plan else ()

    def about(self, item: PlanRow, width: int) -> list[Line]:
        return about(item, self.plan.unit, width) if self.plan else []

    def gist(self) -> str:
        standing, plan = self.board.standing, self.plan
        if standing is None:
            return ""
        if plan is None:
            return "off" if standing.plan == "off" else "none yet" if self.folded else ""
        again = f"replanned {plan.number - 1}×" if plan.number > 1 else ""
        branching = self.board.branching
        branches = progress(branching) if branching and self.folded else ""
        words = [f"{planned_share(plan)} planned" if self.folded else plan.mode, again, branches]
        return " · ".join(word for word in words if word)

    def open_item(self, item: PlanRow) -> None:
        self.post_message(self.WhyWanted(item.tool))

    def action_open(self) -> None:
        """Ask for the arithmetic of the highlighted tool; without a plan, or while it is folded, fold or unfold."""
        if self.folded or not self.list.items:
            self.action_fold()
        else:
            super().action_open()

    def _columns(self, plan: PlanChanged, width: int) -> Columns:
        """The columns of this plan, set once for each plan and width."""
        if self._laid_out is None or self._laid_out[:2] != (plan, width):
            self._laid_out = (plan, width, Columns(plan, width))
        return self._laid_out[2]

    def _above(self, width: int, graph_room: int = GRAPH_LINES) -> list[Line]:
        """What stands above the list, a plan of branches with as many lines for its nodes as there is room for."""
        branching = self.board.branching
        graph = graph_lines(branching, width, graph_room) if branching else []
        lines = [*graph, *heading_lines(self.board, width)]
        return [*lines, self._columns(self.plan, width).head] if self.plan else lines

    def _others(self) -> list[Line]:
        others = self.plan.others if self.plan else 0
        return [((f"  and {counted(others, 'more tool')}", "muted"),)] if others else []
