"""The plan panel: what the budget allows of each tool, and what has come of that so far."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from ecoshell.budget import Unit, amount_text, counted
from ecoshell.events import PlanChanged, PlanRow
from ecoshell.events.describe import planned_share, price_range, untried
from ecoshell.messages import visible_line
from ecoshell.sessions.plans import Branching
from ecoshell.tui.branches import Drawing
from ecoshell.tui.side.panel import FILTER, Line, ListPanel, Piece, Tone, bar, ends, percent, row
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.text import amount, fit, fit_middle, left, right, tokens

_WIDE_FROM, _COLUMNS_FROM = 76, 55
"""Columns from which on every number has a column of its own, and from which on amounts are written in full."""
_LEAST_NAME = 8
_SLIM, _LEAST_TAIL = 23, 18
"""Columns that a narrow row keeps for its numbers, and up to which it has no room for what a use costs."""
_SAID = {
    "value": "worth its price",
    "new": "new, to be tried",
    "budget": "beyond what is left",
    "quota": "that is its quota",
    "blacklist": "has not helped",
    "below τ": "has seldom helped",
}
GRAPH_LINES = 12
"""Lines that nodes take where there is no more room than needed."""
_NAME = "branches"
_BEFORE = 2
"""Lines above the first node that has not ended."""
_NONE_YET = "Ask a question: it is planned before its first step. /plan off, btp, prompt or btp+prompt says how."
_ROOMY_FROM = 34
"""Columns from which on amounts stand beside all of their words."""
_LEAST_ROWS = 3
"""Rows of tools that stay in view below a parallel plan."""
_TINY = 2
"""Lines up to which there is nothing but the list."""
_PLANNING: Line = (("planning …", "muted"),)
_OFF = "Turns are not planned: whatever the caps allow may be used. /plan btp plans the next one."


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    width: int
    written: Callable[[PlanRow], str]


class Columns:
    """The columns of one plan at one width: one for every number, or none where a row has to make do for itself."""

    def __init__(self, plan: PlanChanged, width: int) -> None:
        unit = plan.unit
        self._unit: Unit = unit
        self._enforced = plan.enforced
        self._width = width
        value = _Column("value", 6, lambda row: f"{row.value:.2f}")
        cost = _Column("cost", 20, lambda row: _cost(row, unit))
        state = _Column("state", 12, lambda _: "")
        counts = (
            _Column("planned", 9, lambda row: str(row.planned)),
            _Column("used", 6, lambda row: str(row.used)),
            _Column("left", 6, lambda row: str(row.left)),
        )
        self._columns: tuple[_Column, ...] = ()
        if width >= _WIDE_FROM:
            self._columns = (value, cost, *counts, state)
        elif width >= _COLUMNS_FROM:
            self._columns = (value, cost, _Column("used", 7, lambda row: f"{row.used}/{row.planned}"), state)
        longest = max((cell_len(visible_line(row.tool)) for row in plan.rows), default=0)
        most = width - 2 - (sum(column.width for column in self._columns) or _SLIM)
        self._name = max(_LEAST_NAME, most if self._columns else min(longest, most))
        heads = "".join(right(one.head, one.width) for one in self._columns)
        if not heads:
            room = width - 2 - self._name
            numbers = f" val cost {'$' if unit == 'usd' else 'tok'}" if room > _LEAST_TAIL else " val"
            heads = f"{left(numbers, room - 4)}used"
        self.head: Line = ((left("  tool", 2 + self._name) + heads, "muted"),)

    def line(self, row: PlanRow) -> Line:
        """One tool: its state by a sign and a word, its value, what a use costs, how often it was used and may be."""
        sign, word, tone = state_of(row, enforced=self._enforced)
        name = left(fit_middle(visible_line(row.tool), self._name), self._name)
        start: tuple[Piece, ...] = ((f"{sign} ", tone), (name, "muted" if row.state == "unplanned" else "text"))
        if self._columns:
            *numbers, last = self._columns
            cells = "".join(right(one.written(row), one.width) for one in numbers)
            return (*start, (cells, "muted"), (right(word, last.width), tone))
        # as much as there is room for: the state is told first, then the uses, the value and the cost
        room = self._width - 2 - self._name
        value = _short(f"{row.value:.2f}")
        cost, spread = (_short(_expected(part, self._unit).removesuffix(" tok")) for part in (row.cost, row.spread))
        spread = f"±{spread}" if row.spread else ""
        end = f"{row.used}/{row.planned} {word}"
        choices = ((f" {value} {cost}{spread} ", end), (f" {value} {cost} ", end), (f" {value} ", end), (" ", end))
        front, end = next((one for one in choices if cell_len("".join(one)) <= room), (" ", fit(word, room - 1)))
        return (*start, (left(front, room - cell_len(end)), "muted"), (end, tone))


def state_of(row: PlanRow, *, enforced: bool) -> tuple[str, str, Tone]:
    """The sign, the word and the tone of a row's state; where nothing is forbidden, it is advised against."""
    word = "low success" if row.why == "below τ" else row.why
    if row.state == "planned":
        return "√", "new" if row.why == "new" else "ok", "good"
    if row.state == "unplanned":
        return "·", word, "muted"
    return ("×", word, "error") if enforced else ("!", word, "warning")


def _cost(row: PlanRow, unit: Unit) -> str:
    spread = f" ± {_expected(row.spread, unit)}" if row.spread else ""
    return f"{_expected(row.cost, unit)}{spread}"


def _expected(value: int, unit: Unit) -> str:
    """A cost that is only expected, in as few digits as it is worth."""
    return f"{tokens(value)} tok" if unit == "tokens" else amount_text(value, "usd", digits=2)


def _short(number: str) -> str:
    """A decimal without what is no news: `.91`, `1.0`, `.0012`, `<.0001`."""
    number = number.replace("$", "")
    if number == "1.00":
        return "1.0"
    return number.replace("0.", ".", 1) if number.startswith(("0.", "<0.")) else number


def progress(branching: Branching) -> str:
    """How far a parallel plan has come: `1 of 3 done, 2 running`."""
    counts = branching.counts
    done = f"{counts.get('done', 0):,} of {len(branching.plan.nodes):,} done"
    told = ("running", "failed", "denied", "skipped", "stopped")
    others = [f"{counts[state]:,} {state}" for state in told if state in counts]
    return ", ".join((done, *others))


def graph_lines(branching: Branching, width: int, most: int = GRAPH_LINES) -> list[Line]:
    """How far it has come and, in `most` lines, its nodes; of many, those where it goes on."""
    drawing, said = Drawing(branching, reasons=False), progress(branching)
    fits = len(_NAME) + 1 + cell_len(said) <= width
    head: Line = ends((_NAME, "strong"), (said, "text"), width) if fits else ((fit(said, width), "strong"),)
    if most <= 0:
        return [head]
    shown = drawing.height if drawing.height <= most else max(1, most - 2)
    start = max(0, min(drawing.front - _BEFORE, drawing.height - shown))
    above, below = start, drawing.height - start - shown
    return [
        head,
        *([((f"  … {above:,} above", "muted"),)] if above else []),
        *drawing.lines(width, start, start + shown),
        *([((f"  … {below:,} below", "muted"),)] if below else []),
    ]


def heading_lines(state: PanelState, width: int) -> list[Line]:
    """What the plan has for tools, what is reserved, what the turn may cost from here, and what made it anew."""
    standing, plan = state.standing, state.shown_plan
    if standing is None:
        return [(("known once the session is open", "muted"),)]
    if plan is None:
        if state.planning and standing.plan != "off":
            return [_PLANNING]
        said, more = ("plan off", _OFF) if standing.plan == "off" else ("no plan yet", _NONE_YET)
        return [((said, "strong"),), *(((line, "muted"),) for line in textwrap.wrap(more, max(20, width)))]
    roomy, whole = width >= _ROOMY_FROM, state.plan_whole
    lines: list[Line] = []
    if plan.budget is None or plan.cap is None:
        lines.append(ends(("no cap: advice only", "strong"), ("/budget sets one", "muted"), width))
    else:  # of what the caps leave, full blocks are spent, half-toned reserved
        used = percent(whole - plan.budget, whole)
        drawn = bar(((whole - plan.cap, "█"), (plan.reserved, "▒")), whole, max(0, width - len(used) - 1))
        left = f"{amount(plan.budget, plan.unit)}{' left' if roomy else ''} of {amount(whole, plan.unit)}"
        words = ("planned", "reserved") if roomy else ("plan", "answer")
        costs = f"{words[0]} {amount(plan.planned_cost, plan.unit)} · {words[1]} {amount(plan.reserved, plan.unit)}"
        lines.append(ends(("for tools", "strong"), (left, "text"), width))
        lines.append(((drawn, "tool"), (f" {used}", "text")))
        lines.append(((fit(costs, width), "muted"),))
        if not plan.enforced:
            lines.append(((fit("told to the model, not enforced", width), "warning"),))
    if state.planning:
        return [*lines, _PLANNING]
    if state.running:
        price = price_range(plan, amount)
        slim: Line = (("rest ", "muted"), (fit(price.removeprefix("about "), width - 5), "text"))
        lines.append(row("remaining", price, width) if roomy else slim)
    if plan.number > 1:
        lines.append(((fit(f"↔ {visible_line(plan.reason)}", width), "muted"),))
    return lines


class PlanPanel(ListPanel[PlanRow]):
    """What the plan has left for tools, and below it each tool with its value, its cost and its uses."""

    NAME = "plan"
    HELP = (
        "What the budget allows of each tool. √ is planned, × blocked, ! advised against, · not in the plan; used "
        "stands before how often it may be used. Enter shows the arithmetic of a tool, / filters, - folds the panel."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "why"), FILTER]
    MORE = "why"
    _laid_out: tuple[PlanChanged, int, Columns] | None = None

    def known(self) -> Mapping[str, PlanRow]:
        """The rows of the plan; those of which nothing is known share a line while nothing is filtered."""
        rows = self.state.shown_plan.rows if self.state.shown_plan else ()
        self.seldom = frozenset(untried(rows))
        return {row.tool: row for row in rows}

    def above(self, width: int) -> list[Line]:
        """A parallel plan, with as many lines for its nodes as there is room for, and what the plan has for tools."""
        standing, plan, branching = self.state.standing, self.state.shown_plan, self.state.branching
        lines = heading_lines(self.state, width)
        if plan is not None:
            lines.append(self._columns(plan, width).head)
            again = f"replanned {plan.number - 1}×" if plan.number > 1 else ""
            branches = progress(branching) if branching and self.folded else ""
            words = (f"{planned_share(plan)} planned" if self.folded else plan.mode, again, branches)
            self.gist = " · ".join(word for word in words if word)
        elif standing is not None and standing.plan == "off":
            self.gist = "off"
        else:
            self.gist = "none yet" if standing is not None and self.folded else ""
        others = len(lines) + len(self.below(width))
        self.around = others + 2
        if branching is not None:
            self.around += len(graph_lines(branching, width))
            room = self._area.height - others - 1 - min(len(self.shown), _LEAST_ROWS)
            lines = [*graph_lines(branching, width, min(GRAPH_LINES, room)), *lines]
        if self.roomy or plan is None:
            return lines
        return lines[:1] if self._area.height > _TINY else []

    def below(self, width: int) -> list[Line]:
        if self._area.height <= _TINY:
            return []
        plan = self.state.shown_plan
        others, new = plan.others if plan else 0, 0 if self.filter else len(self.seldom)
        said = (f"√ {new} tools not used yet: / finds them", new), (f"  and {counted(others, 'more tool')}", others)
        return [*(((fit(line, width), "muted"),) for line, count in said if count), *super().below(width)]

    def item_line(self, item: PlanRow, width: int) -> Line:
        return self._columns(self.state.shown_plan, width).line(item) if self.state.shown_plan else ()

    def _columns(self, plan: PlanChanged, width: int) -> Columns:
        """The columns of this plan, set once for each plan and width; rows are drawn before a new size is heard of."""
        if self._laid_out is None or self._laid_out[:2] != (plan, width):
            self._laid_out = (plan, width, Columns(plan, width))
        return self._laid_out[2]

    def about(self, item: PlanRow, width: int) -> list[Line]:
        """Everything a row says, in three lines."""
        unit = self.state.shown_plan.unit if self.state.shown_plan else "usd"
        worth = f"value {item.value:.2f} · chance {item.chance:.2f} · {item.used}/{item.planned} used"
        return [
            ((fit_middle(visible_line(item.tool), width), "tool"),),
            ((fit(worth, width), "muted"),),
            ((fit(f"{_cost(item, unit)}: {_SAID[item.why]}", width), "muted"),),
        ]

    def action_open(self) -> None:
        """Ask for the arithmetic of the highlighted tool; without a plan, or while it is folded, fold or unfold."""
        if self.folded or not self.items:
            self.action_fold()
        else:
            super().action_open()
