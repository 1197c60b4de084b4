"""A tool graph drawn in text: lanes show which node waits for which, at any width.

╭─── count_text
│ ╭─ count_text#2
╰─┴─ calculate

Lanes are drawn like those of `git log --graph`. A lane starts at a node and ends at the last node that waits for it. A
line from a lane to a node is interrupted where it crosses another lane (`╰─│─`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from rich.cells import cell_len

from ecoshell.events import GraphNode, NodeState
from ecoshell.events.figures import duration
from ecoshell.events.lines import Line
from ecoshell.messages import visible_line
from ecoshell.planning.catp.plan import TASK
from ecoshell.sessions.tool_graphs import ToolGraph
from ecoshell.tui.text import align_left, align_right, fit, fit_middle, money

Tone = Literal["muted", "text", "warning", "tool", "good", "error"]
DrawnPiece = tuple[str, Tone]
DrawnLine = tuple[DrawnPiece, ...]
SIGNS: Mapping[NodeState, str] = {
    "waiting": "○", "running": "►", "done": "√", "failed": "×", "denied": "×", "skipped": "»", "stopped": "■",
}  # fmt: skip
_TONES: Mapping[NodeState, Tone] = {
    "waiting": "muted", "running": "tool", "done": "good", "failed": "error", "denied": "warning", "skipped": "warning",
    "stopped": "warning",
}  # fmt: skip
CRITICAL = "*"
"""Marks the nodes of the longest path."""
MAX_LANES = 16
"""More lanes cannot be followed by eye."""
_SIGN_CELLS, _STATE_CELLS, _MARK_CELLS = 2, 8, 2
"""Widths of a state's sign, its word and the mark of the longest path, with a blank connected each."""
_GAP = 2
_MIN_NAME_CELLS, _NAME_CELLS, _MAX_NAME_CELLS = 8, 20, 32
"""Width of a name: always, before full figures are fitted, and next to the nodes it waits for."""
_MIN_WAITS_CELLS = 14
_MIN_CELLS_AFTER_LANES = 28
_MAX_NAMED_WAITS = 8
"""Awaited nodes listed by name before the others are counted."""
_MAX_LABEL_LENGTH = 200
_Layout = tuple[bool, bool, int]
"""Whether awaited nodes are listed, whether figures are full, and the number of figures."""
_LAYOUTS: tuple[_Layout, ...] = (
    (True, True, 2), (True, False, 2), (True, False, 1), (True, False, 0), (False, False, 0),
)  # fmt: skip
_LAYOUTS_AFTER_LANES: tuple[_Layout, ...] = (
    (True, True, 2), (False, True, 2), (False, False, 2), (False, False, 1),
)  # fmt: skip
"""Lanes already show which node waits for which."""


@dataclass(frozen=True, slots=True)
class Rail:
    """The lanes left of one node: two characters for each lane of the plan."""

    row: str
    row_below: str
    """The lanes left of an additional line below the node."""


def rails(waits: Mapping[str, Sequence[str]], limit: int = MAX_LANES) -> tuple[Rail, ...] | None:
    """The lanes of a plan, given the labels each node waits for; None if there are more than `limit`.

    Awaited labels that are not an earlier node, such as the task, have no lane.
    """
    last = {label: at for at, labels in enumerate(waits.values()) for label in labels}
    lanes: list[str] = []
    """The label of each lane; empty for a free one."""
    drawn: list[tuple[str, str, str]] = []
    for at, (label, labels) in enumerate(waits.items()):
        awaited = set(labels) - {""}
        incoming = {place for place, lane in enumerate(lanes) if lane in awaited}
        own = None
        if last.get(label, -1) > at:  # the first free lane, or a new one
            own = lanes.index("") if "" in lanes else len(lanes)
            lanes[own : own + 1] = [label]
        if len(lanes) > limit:
            return None
        ending = {place for place in incoming if last[lanes[place]] == at}
        first = min(incoming if own is None else incoming | {own}, default=len(lanes))
        row = ""  # a line connects the first of its lanes to the node
        for place, lane in enumerate(lanes):
            connected = place > first
            if place == own:
                row += "┬" if connected else "╭"
            elif place in ending:
                row += "┴" if connected else "╰"
            elif place in incoming:
                row += "┼" if connected else "├"
            elif lane:
                row += "│"
            else:
                row += "─" if connected else " "
            row += "─" if place >= first else " "
        lanes = ["" if place in ending else lane for place, lane in enumerate(lanes)]
        fill = "─" if incoming or own is not None else " "
        drawn.append((row, fill, "".join("│ " if lane else "  " for lane in lanes)))
    width = 2 * len(lanes)
    return tuple(Rail(row.ljust(width, fill), below.ljust(width)) for row, fill, below in drawn)


@dataclass(frozen=True, slots=True)
class _Texts:
    """The uncut texts of a node."""

    label: str
    waits: str
    """The nodes it waits for; empty if it waits only for the question."""
    full: tuple[str, str]
    """Time and price, estimated and actual: `≈1.2 s → 0.9 s`."""
    short: tuple[str, str]
    """The same with one figure each, the actual one once it is known."""


def _texts_of(graph: ToolGraph, node: GraphNode) -> _Texts:
    names = [name for name in node.after[: _MAX_NAMED_WAITS + 1] if name != TASK]
    waits = [visible_line(name[:_MAX_LABEL_LENGTH]) for name in names]
    more = len(node.after) - _MAX_NAMED_WAITS
    if more > 0:
        waits = [*waits[: _MAX_NAMED_WAITS - 1], f"{more + 1:,} more"]
    label = visible_line(node.label[:_MAX_LABEL_LENGTH])
    words = f"after {', '.join(waits)}" if waits else ""
    if node.label in graph.plan.kept and node.label not in graph.changes:
        return _Texts(label, words, ("kept", ""), ("kept", ""))
    time = "?" if node.seconds is None else f"≈{duration(node.seconds)}"
    price = "?" if node.price_nano is None else f"≈{money(node.price_nano)}"
    result = graph.result(node.label)
    if result is None:
        return _Texts(label, words, (time, price), (time, price))
    real = duration(result.seconds), "?" if result.spent_nano is None else money(result.spent_nano)
    return _Texts(label, words, (f"{time} → {real[0]}", f"{price} → {real[1]}"), real)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The width of each column; 0 if it is omitted."""

    lanes: int = 0
    word: int = _STATE_CELLS
    mark: int = _MARK_CELLS
    name: int = 1
    waits: int = 0
    figures: tuple[int, ...] = ()
    """Time and price, as far as they fit."""
    full: bool = False


def _columns_of(
    texts: Sequence[_Texts], lanes: int | None, width: int, *, marked: bool
) -> _Columns:
    """The columns for these nodes; `lanes` is the width of the lanes, None if there are too many."""
    drawn = lanes if lanes and lanes <= min(width // 3, width - _MIN_CELLS_AFTER_LANES) else 0
    word = _STATE_CELLS if width >= _SIGN_CELLS + _STATE_CELLS + _MIN_NAME_CELLS else 0
    mark = _MARK_CELLS if word and marked else 0
    room = width - (drawn + 1 if drawn else 0) - _SIGN_CELLS - word - mark
    longest = _longest(text.label for text in texts)
    for waiting, full, count in _LAYOUTS_AFTER_LANES if drawn or lanes == 0 else _LAYOUTS:
        shown = [text.full if full else text.short for text in texts]
        widths = (_longest(pair[column] for pair in shown) for column in range(count))
        figures = tuple(cells for cells in widths if cells)
        remaining = room - sum(cells + _GAP for cells in figures)
        waits = _longest(text.waits for text in texts) if waiting else 0
        if not waits:
            name, fits = min(longest, remaining), remaining >= min(longest, _NAME_CELLS)
        else:
            name = min(longest, _MAX_NAME_CELLS)
            least = min(waits, _MIN_WAITS_CELLS)
            waits = min(waits, remaining - name - _GAP)
            fits = waits >= least
        if fits:
            return _Columns(drawn, word, mark, name, waits, figures, full)
    return _Columns(drawn, word, mark, max(1, min(longest, room)))


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def headline(graph: ToolGraph) -> Line:
    """The line of a plan, with a legend for its longest path."""
    line = graph.plan.render()
    legend = f" · {CRITICAL} longest path" if graph.plan.critical else ""
    return replace(line, detail=f"{line.detail}{legend}")


class Drawing:
    """A plan in its current state, one line per node, laid out when lines are requested."""

    def __init__(self, graph: ToolGraph, *, reasons: bool = True) -> None:
        """With `reasons`, a line below each failed node says why."""
        self._graph = graph
        self._nodes = {node.label: node for node in graph.plan.nodes}
        self._critical = frozenset(graph.plan.critical)
        self._lines: list[tuple[int, str, str]] = []
        """For each line the index and label of its node and, on a reason line, the reason."""
        for at, label in enumerate(self._nodes):
            self._lines.append((at, label, ""))
            result = graph.result(label)
            if not reasons or result is None or not result.reason.strip():
                continue
            if result.state in ("failed", "denied"):
                self._lines.append((at, label, result.reason))
        self.height = len(self._lines)
        """The number of lines, independent of the width."""
        self._columns: tuple[int, _Columns] | None = None

    @property
    def front(self) -> int:
        """The line of the first unfinished node; 0 if all have finished."""
        states = (self._graph.state(label) for _, label, _ in self._lines)
        return next((at for at, state in enumerate(states) if state in ("waiting", "running")), 0)

    @cached_property
    def _rails(self) -> tuple[Rail, ...] | None:
        return rails({label: node.after for label, node in self._nodes.items()})

    @cached_property
    def _texts(self) -> dict[str, _Texts]:
        return {label: _texts_of(self._graph, node) for label, node in self._nodes.items()}

    def lines(self, width: int, start: int = 0, stop: int | None = None) -> Iterator[DrawnLine]:
        """Lines of the drawing, each at most `width` cells wide."""
        if self._columns is None or self._columns[0] != width:
            lanes = len(self._rails[0].row) if self._rails else None
            texts, is_marked = [*self._texts.values()], bool(self._critical)
            self._columns = width, _columns_of(texts, lanes, width, marked=is_marked)
        columns = self._columns[1]
        for at, label, reason in self._lines[start:stop]:
            rail = self._rails[at] if self._rails and columns.lanes else None
            lanes = f"{rail.row_below if reason else rail.row} " if rail else ""
            why: DrawnPiece = (f"{' ' * _SIGN_CELLS}└ {visible_line(reason)}", "error")
            pieces = (why,) if reason else self._node(label, columns)
            whole: DrawnLine = ((lanes, "muted"), *pieces)
            line: list[DrawnPiece] = []
            room = width
            for text, tone in whole:
                fitted = fit(text, room)
                room -= cell_len(fitted)
                if fitted:
                    line.append((fitted, tone))
            yield tuple(line)

    def _node(self, label: str, columns: _Columns) -> DrawnLine:
        """A node in its columns, without its lanes."""
        state, texts = self._graph.state(label), self._texts[label]
        sign = f"{align_left(SIGNS[state], _SIGN_CELLS)}{align_left(state, columns.word)}"
        mark = align_left(CRITICAL if label in self._critical else "", columns.mark)
        name = align_left(fit_middle(texts.label, columns.name), columns.name)
        gap = " " * _GAP
        waits = gap + align_left(texts.waits, columns.waits) if columns.waits else ""
        shown = zip(texts.full if columns.full else texts.short, columns.figures, strict=False)
        figures = "".join(gap + align_right(figure, cells) for figure, cells in shown)
        return (
            (sign, _TONES[state]),
            (mark, "warning"),
            (name, "text"),
            (waits, "muted"),
            (figures, "muted"),
        )
