"""The plan panel: what the budget allows of each tool, and how much of it is used."""

import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.events import Click

from ecoshell.budget import Unit, amount_text, counted
from ecoshell.events import PlanChanged, PlanRow
from ecoshell.events.plan import planned_share, price_range, untried
from ecoshell.messages import visible_line
from ecoshell.sessions.tool_graphs import ToolGraph
from ecoshell.tui.graph_drawing import Drawing
from ecoshell.tui.side.panel import (
    FILTER,
    SPENT,
    Line,
    ListPanel,
    Piece,
    Tone,
    ToolRequested,
    bar,
    bar_line,
    justify,
    percent,
    row,
)
from ecoshell.tui.side.panel_state import PanelState
from ecoshell.tui.text import align_left, align_right, amount, fit, fit_middle, tokens

_ALL_COLUMNS_MIN_WIDTH, _COLUMNS_MIN_WIDTH = 80, 59
_MIN_NAME_CELLS = 8
_VALUE_CELLS = 4
_NARROW_NUMBER_CELLS = 23
"""Cells that a row without columns keeps for its numbers."""
_REASONS = {
    "value": "worth its price",
    "new": "new, worth a try",
    "budget": "beyond the remaining budget",
    "quota": "quota reached",
    "blacklist": "has not helped",
    "below τ": "has rarely helped",
}
GRAPH_LINES = 12
"""Preferred number of lines for the nodes of a tool graph."""
_GRAPH_TITLE = "tool graph"
_LINES_ABOVE_FRONT = 2
"""Finished nodes kept in view above the first unfinished one."""
_NO_PLAN = "A plan is made before the first step of a question: what the budget allows of each tool. /plan sets how."
_MIN_TOOL_ROWS = 3
"""Tool rows that stay visible below a tool graph."""
_TITLE_CELLS = 12
"""Cells of the title line without its summary."""
_IRRELEVANT = 1
"""The group of tools that are neither planned nor used nor blocked."""
WHY_HINT = "alt+w why"
_LIST_ONLY_HEIGHT = 2
"""Panel height up to which only the list is shown."""
_PLANNING: Line = (("planning …", "muted"),)
_OFF = (
    "Turns are not planned: tools may use whatever the caps allow. /plan btp plans the next turn."
)


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    width: int
    text: Callable[[PlanRow], str]


_COST_UNITS: Mapping[Unit, str] = {"usd": "$", "tokens": "tok", "ms": "time"}


class Columns:
    """Columns of a plan at a width: one per number, or none where each row is fitted on its own."""

    def __init__(self, plan: PlanChanged, width: int) -> None:
        unit = plan.unit
        self._unit: Unit = unit
        self._enforced = plan.enforced
        self._width = width
        value = _Column("value", 10, lambda row: f"{value_bar(row)} {row.value:.2f}")
        cost = _Column("cost", 20, lambda row: _cost(row, unit))
        state = _Column("state", 12, lambda _: "")
        counts = (
            _Column("planned", 9, lambda row: str(row.planned)),
            _Column("used", 6, lambda row: str(row.used)),
            _Column("left", 6, lambda row: str(row.left)),
        )
        self._columns: tuple[_Column, ...] = ()
        if width >= _ALL_COLUMNS_MIN_WIDTH:
            self._columns = (value, cost, *counts, state)
        elif width >= _COLUMNS_MIN_WIDTH:
            uses = _Column("used", 7, lambda row: f"{row.used}/{row.planned}")
            self._columns = (value, cost, uses, state)
        longest = max((cell_len(visible_line(row.tool)) for row in plan.rows), default=0)
        room = width - 2 - (sum(column.width for column in self._columns) or _NARROW_NUMBER_CELLS)
        self._name = max(_MIN_NAME_CELLS, room if self._columns else min(longest, room))
        heads = "".join(align_right(column.head, column.width) for column in self._columns)
        if not heads:
            numbers = f" val  cost {_COST_UNITS[unit]}"
            heads = f"{align_left(numbers, width - 2 - self._name - 4)}used"
        self.head: Line = ((align_left("  tool", 2 + self._name) + heads, "muted"),)

    def line(self, row: PlanRow, *, changed: bool = False) -> Line:
        """One tool: the sign and word of its state, its value, its cost per use, its uses and their limit.

        A row that has just `changed` is bold.
        """
        sign, word, tone = state_of(row, enforced=self._enforced)
        name = align_left(fit_middle(visible_line(row.tool), self._name), self._name)
        name_tone: Tone = "strong" if changed else "muted" if row.state == "unplanned" else "text"
        start: tuple[Piece, ...] = ((f"{sign} ", tone), (name, name_tone))
        if changed:
            tone = "strong"
        if self._columns:
            *numbers, last = self._columns
            cells = "".join(align_right(column.text(row), column.width) for column in numbers)
            return (*start, (cells, "muted"), (align_right(word, last.width), tone))
        # by priority: state, uses, value, cost
        room = self._width - 2 - self._name
        value = value_bar(row)
        cost, spread = (
            _short(_expected(part, self._unit).removesuffix(" tok"))
            for part in (row.cost, row.spread)
        )
        cost = cost if row.is_cost_known else "?"
        spread = f"±{spread}" if row.spread else ""
        end = f"{row.used}/{row.planned} {word}"
        fronts = (f" {value} {cost}{spread} ", f" {value} {cost} ", f" {value} ", " ")
        front = next((text for text in fronts if cell_len(text + end) <= room), "")
        if not front:
            front, end = " ", fit(word, room - 1)
        return (*start, (align_left(front, room - cell_len(end)), "muted"), (end, tone))


def value_bar(row: PlanRow) -> str:
    """The value of a tool as a short bar."""
    return bar(((round(100 * row.value), SPENT),), 100, _VALUE_CELLS)


def state_of(row: PlanRow, *, enforced: bool) -> tuple[str, str, Tone]:
    """Sign, word and tone of a row's state; a plan that is not enforced only advises against a tool."""
    word = "low success" if row.why == "below τ" else row.why
    if row.state == "planned":
        return "√", "new" if row.why == "new" else "ok", "good"
    if row.state == "unplanned":
        return "·", word, "muted"
    return ("×", word, "error") if enforced else ("!", word, "warning")


def _cost(row: PlanRow, unit: Unit) -> str:
    if not row.is_cost_known:
        return "unknown"
    spread = f" ± {_expected(row.spread, unit)}" if row.spread else ""
    return f"{_expected(row.cost, unit)}{spread}"


def _expected(value: int, unit: Unit) -> str:
    """An estimated cost, in two significant digits."""
    return f"{tokens(value)} tok" if unit == "tokens" else amount_text(value, unit, digits=2)


def _short(number: str) -> str:
    """A short decimal or duration: `.91`, `1.0`, `<.0001`, `.4s`, `12s`, `1m35s`."""
    number = number.replace("$", "").replace("min", "m").replace(" ", "")
    if number == "1.00":
        return "1.0"
    return number.replace("0.", ".", 1) if number.startswith(("0.", "<0.")) else number


def progress(graph: ToolGraph) -> str:
    """Counts of node states: `1 of 3 done, 2 running`."""
    counts = graph.counts
    done = f"{counts.get('done', 0):,} of {len(graph.plan.nodes):,} done"
    states = ("running", "failed", "denied", "skipped", "stopped")
    return ", ".join((done, *(f"{counts[state]:,} {state}" for state in states if state in counts)))


def graph_lines(graph: ToolGraph, width: int, limit: int = GRAPH_LINES) -> list[Line]:
    """Progress of a tool graph and up to `limit` lines of nodes around the first unfinished one."""
    drawing, counts = Drawing(graph, reasons=False), progress(graph)
    fits = len(_GRAPH_TITLE) + 1 + cell_len(counts) <= width
    head: Line = ((fit(counts, width), "strong"),)
    if fits:
        head = justify((_GRAPH_TITLE, "strong"), (counts, "text"), width)
    if limit <= 0:
        return [head]
    visible = drawing.height if drawing.height <= limit else max(1, limit - 2)
    start = max(0, min(drawing.front - _LINES_ABOVE_FRONT, drawing.height - visible))
    above, below = start, drawing.height - start - visible
    return [
        head,
        *([((f"  … {above:,} above", "muted"),)] if above else []),
        *drawing.lines(width, start, start + visible),
        *([((f"  … {below:,} below", "muted"),)] if below else []),
    ]


def heading_lines(state: PanelState, width: int) -> list[Line]:
    """Why the plan last changed, its budget for tools as a bar, and the estimated remaining cost."""
    status, plan = state.status, state.shown_plan
    if status is None:
        return [(("available once the session is open", "muted"),)]
    if plan is None:
        if state.planning and status.plan != "off":
            return [_PLANNING]
        title, text = ("plan off", _OFF) if status.plan == "off" else ("no plan yet", _NO_PLAN)
        rows = textwrap.wrap(text, max(20, width))
        return [((title, "strong"),), *(((line, "muted"),) for line in rows)]
    if state.planning:
        return [_PLANNING]
    reason = f"↔ {visible_line(plan.reason)}" if plan.number > 1 else "made for this question"
    reasons = textwrap.wrap(reason, max(1, width))
    last = reasons.pop() if cell_len(reasons[-1]) + len(WHY_HINT) < width else ""
    lines: list[Line] = [((fit(line, width), "text"),) for line in reasons]
    lines.append(justify((last, "text"), (WHY_HINT, "tool"), width))
    mode = "" if plan.mode == "btp" else f" · {plan.mode}"
    if plan.budget is None or plan.cap is None:
        lines.append(((fit(f"advice only: /budget sets a cap{mode}", width), "muted"),))
    else:
        total = state.plan_total
        used = percent(total - plan.budget, total)
        spent = total - plan.cap
        lines.append(bar_line(spent, plan.reserved, total, "tool", (used, "text"), width))
        planned, reserved = (amount(part, plan.unit) for part in (plan.planned_cost, plan.reserved))
        costs = f"planned {planned} · reserved {reserved}{mode}"
        lines.append(((fit(costs, width), "muted"),))
        if not plan.enforced:
            lines.append((("shown to the model, not enforced", "warning"),))
    if state.running:
        lines.append(row("remaining", price_range(plan, amount).replace("about ", "≈ "), width))
    return lines


def remaining_text(state: PanelState) -> str:
    """The plan's remaining budget for tools: `$0.13 of $0.20 left`; empty without one."""
    plan = state.shown_plan
    if plan is None or plan.budget is None:
        return ""
    return f"{amount(plan.budget, plan.unit)} of {amount(state.plan_total, plan.unit)} left"


class PlanPanel(ListPanel[PlanRow]):
    """The plan's budget, above the relevant tools with their value, cost and uses."""

    NAME = "plan"
    HELP = (
        "What the budget allows of each tool. √ is planned, × blocked, ! advised against, · not in the plan; uses "
        "and their limit come last. Enter shows the arithmetic of a tool, m shows the tools that are neither planned "
        "nor used nor blocked, / filters, - folds the panel."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "why"),
        Binding("m", "more", "more tools"),
        FILTER,
    ]
    MORE = "why"
    GROUPS = 2
    _laid_out: tuple[PlanChanged, int, Columns] | None = None

    def __init__(self, state: PanelState) -> None:
        super().__init__(state)
        self.folded_groups = {_IRRELEVANT}
        self._untried: Collection[str] = ()

    def load_items(self) -> Mapping[str, PlanRow]:
        rows = self.state.shown_plan.rows if self.state.shown_plan else ()
        self._untried = frozenset(untried(rows))
        return {row.tool: row for row in rows}

    def group(self, item: PlanRow) -> int:
        """Planned, used and blocked tools are relevant, except untried ones that hardly concern the question."""
        is_unplanned = item.state == "unplanned" and not item.used
        return _IRRELEVANT if is_unplanned or item.tool in self._untried else 0

    def heading(self, group: int, count: int, width: int) -> Line:
        """The line that replaces or precedes the irrelevant tools."""
        if group != _IRRELEVANT or not count:
            return ()
        sign, verb = ("►", "shows") if _IRRELEVANT in self.folded_groups else ("▼", "hides")
        return ((fit(f"{sign} {count} more · m {verb} them", width), "muted"),)

    def action_more(self) -> None:
        """Unfold or fold the irrelevant tools."""
        self.folded_groups ^= {_IRRELEVANT}
        self.show()

    def on_click(self, event: Click) -> None:
        """Unfold or fold the irrelevant tools if their heading is clicked."""
        if isinstance(self.row_at(event.y - 1), tuple):
            self.action_more()

    def header_lines(self, width: int) -> list[Line]:
        """The tool graph, in as many lines as fit, and the heading of the plan."""
        status, plan, graph = self.state.status, self.state.shown_plan, self.state.graph
        lines = heading_lines(self.state, width)
        if plan is not None:
            lines.append(self._columns(plan, width).head)
            changes = f"replanned {plan.number - 1}×" if plan.number > 1 else ""
            nodes = progress(graph) if graph and self.folded else ""
            last = f"{planned_share(plan)} planned" if self.folded else changes
            self.gist = self._title_text(filter(None, (nodes, remaining_text(self.state), last)))
        elif status is not None and status.plan == "off":
            self.gist = "off"
        else:
            self.gist = "none yet" if status is not None and self.folded else ""
        fixed = len(lines) + len(self.footer_lines(width))
        self.fixed_lines = fixed + 2
        if graph is not None:
            self.fixed_lines += len(graph_lines(graph, width))
            room = self._area.height - fixed - 1 - min(len(self.visible_names), _MIN_TOOL_ROWS)
            lines = [*graph_lines(graph, width, min(GRAPH_LINES, room)), *lines]
        if self.roomy or plan is None:
            return lines
        return lines[:1] if self._area.height > _LIST_ONLY_HEIGHT else []

    def _title_text(self, parts: Iterable[str]) -> str:
        """The first part, and those of the others that fit into the title."""
        text = ""
        for part in parts:
            longer = f"{text} · {part}" if text else part
            if not text or cell_len(longer) <= self.size.width - _TITLE_CELLS:
                text = longer
        return text

    def footer_lines(self, width: int) -> list[Line]:
        if self._area.height <= _LIST_ONLY_HEIGHT:
            return []
        omitted = self.state.shown_plan.others if self.state.shown_plan else 0
        note = fit(f"  and {counted(omitted, 'more tool')}", width)
        return [*([((note, "muted"),)] if omitted else []), *super().footer_lines(width)]

    def item_line(self, item: PlanRow, width: int) -> Line:
        if (plan := self.state.shown_plan) is None:
            return ()
        changed = item.tool in self.state.changed_rows
        return self._columns(plan, width).line(item, changed=changed)

    def _columns(self, plan: PlanChanged, width: int) -> Columns:
        """The columns of this plan, cached per plan and width; rows may be drawn before a resize arrives."""
        if self._laid_out is None or self._laid_out[:2] != (plan, width):
            self._laid_out = (plan, width, Columns(plan, width))
        return self._laid_out[2]

    def detail_lines(self, item: PlanRow, width: int) -> list[Line]:
        """Value, chance, uses, cost and state of a row in three lines."""
        unit = self.state.shown_plan.unit if self.state.shown_plan else "usd"
        uses = f"{item.used}/{item.planned} used"
        worth = f"value {item.value:.2f} · chance {item.chance:.2f} · {uses}"
        return [
            ((fit_middle(visible_line(item.tool), width), "tool"),),
            ((fit(worth, width), "muted"),),
            ((fit(f"{_cost(item, unit)}: {_REASONS[item.why]}", width), "muted"),),
        ]

    def explain(self) -> bool:
        """Show the arithmetic of the highlighted tool or the one used last; return False without a plan."""
        tool = self.current
        if self.state.last_used in self.items and not self.has_focus:
            tool = self.state.last_used
        if tool:
            self.post_message(ToolRequested(tool, "why"))
        return bool(tool)

    def action_open(self) -> None:
        """Show the arithmetic of the highlighted tool; without a list, toggle the fold."""
        if self.folded or not self.items:
            self.action_fold()
        else:
            super().action_open()
