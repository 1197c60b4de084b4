"""A parallel plan drawn in lines: lanes for what waits for what, and how each node stands, at any width.

╭─── count_text
│ ╭─ count_text#2
╰─┴─ calculate

The lanes stand beside the nodes as `git log --graph` draws commits. A lane carries what one node gives: it begins
beside that node and ends beside the last one that waits for it. A line that leads from a lane to a node is broken where
it passes under another lane (`╰─│─`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from ecoshell.budget import counted
from ecoshell.events import GraphNode, NodeState
from ecoshell.events.describe import duration, estimate
from ecoshell.messages import visible_line
from ecoshell.planning.catp.plan import TASK
from ecoshell.sessions.plans import Branching
from ecoshell.tui.text import fit, fit_middle, left, money, right

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
MOST_LANES = 16
"""Lanes beyond which nobody follows them with the eye."""
_SIGN, _WORD, _MARK = 2, 8, 2
"""Cells of a state's sign, of its word, and of the mark of the longest path, the blank behind each included."""
_GAP = 2
_LEAST_NAME, _NAME, _LONGEST_NAME = 8, 20, 32
"""Cells that a name keeps, that it has before figures are written in full, and that it takes beside other words."""
_LEAST_WAITS = 14
_LEAST_BESIDE_LANES = 28
_NAMED = 8
"""Nodes waited for that are named before they are counted."""
_LONGEST_LABEL = 200
_Choice = tuple[bool, bool, int]
"""Whether it is said what a node waits for, whether figures are in full, and how many of them there are."""
_ALONE: tuple[_Choice, ...] = ((True, True, 2), (True, False, 2), (True, False, 1), (True, False, 0), (False, False, 0))
_BESIDE_LANES: tuple[_Choice, ...] = ((True, True, 2), (False, True, 2), (False, False, 2), (False, False, 1))
"""Lanes say already what waits for what."""


@dataclass(frozen=True, slots=True)
class Rail:
    """What stands before one node; every text of a plan has two characters for each of its lanes."""

    beside: str
    below: str
    """What stands before more that is said of the node, under it."""


def rails(waits: Mapping[str, Sequence[str]], most: int = MOST_LANES) -> tuple[Rail, ...] | None:
    """The lanes of a plan, of which `waits` says in order what each node waits for; None where there would be too many.

    Whatever is waited for and is no earlier node, as the task, has no lane.
    """
    last = {label: at for at, labels in enumerate(waits.values()) for label in labels}
    lanes: list[str] = []
    """By place, the label a lane belongs to; empty where none is."""
    drawn: list[tuple[str, str, str]] = []
    for at, (label, labels) in enumerate(waits.items()):
        awaited = set(labels) - {""}
        joined = {place for place, lane in enumerate(lanes) if lane in awaited}
        own = None
        if last.get(label, -1) > at:  # the first place without a lane, made where there is none
            own = lanes.index("") if "" in lanes else len(lanes)
            lanes[own : own + 1] = [label]
        if len(lanes) > most:
            return None
        ending = {place for place in joined if last[lanes[place]] == at}
        first = min(joined if own is None else joined | {own}, default=len(lanes))
        beside = ""  # from the first lane that has to do with the node, a line leads to it
        for place, lane in enumerate(lanes):
            behind = place > first
            if place == own:
                beside += "┬" if behind else "╭"
            elif place in ending:
                beside += "┴" if behind else "╰"
            elif place in joined:
                beside += "┼" if behind else "├"
            elif lane:
                beside += "│"
            else:
                beside += "─" if behind else " "
            beside += "─" if place >= first else " "
        lanes = ["" if place in ending else lane for place, lane in enumerate(lanes)]
        drawn.append(
            (beside, "─" if joined or own is not None else " ", "".join("│ " if lane else "  " for lane in lanes))
        )
    width = 2 * len(lanes)
    return tuple(Rail(beside.ljust(width, fill), below.ljust(width)) for beside, fill, below in drawn)


@dataclass(frozen=True, slots=True)
class _Texts:
    """What is said of one node, whole."""

    label: str
    waits: str
    """What it waits for; empty when that is the question alone."""
    full: tuple[str, str]
    """Its time and its price, expected and real: `≈1.2 s → 0.9 s`."""
    short: tuple[str, str]
    """The same in one figure each: the real one as soon as there is one."""


def _texts_of(branching: Branching, node: GraphNode) -> _Texts:
    """What is said of a node as it stands."""
    waits = [visible_line(label[:_LONGEST_LABEL]) for label in node.after[: _NAMED + 1] if label != TASK]
    more = len(node.after) - _NAMED
    if more > 0:
        waits = [*waits[: _NAMED - 1], f"{more + 1:,} more"]
    label, words = visible_line(node.label[:_LONGEST_LABEL]), f"after {', '.join(waits)}" if waits else ""
    if node.label in branching.plan.kept and node.label not in branching.changes:
        return _Texts(label, words, ("kept", ""), ("kept", ""))
    time = "?" if node.seconds is None else f"≈{duration(node.seconds)}"
    price = "?" if node.price_nano is None else f"≈{money(node.price_nano)}"
    took = branching.came_to(node.label)
    if took is None:
        return _Texts(label, words, (time, price), (time, price))
    real = duration(took.seconds), "?" if took.spent_nano is None else money(took.spent_nano)
    return _Texts(label, words, (f"{time} → {real[0]}", f"{price} → {real[1]}"), real)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Cells of each column; one that is left out has none."""

    lanes: int = 0
    word: int = _WORD
    mark: int = _MARK
    name: int = 1
    waits: int = 0
    figures: tuple[int, ...] = ()
    """Time and price, as far as there is room for them."""
    full: bool = False


def _columns_of(texts: Sequence[_Texts], lanes: int | None, width: int, *, marked: bool) -> _Columns:
    """The columns for these nodes at a width; `lanes` are the cells that lanes take, None where there are too many."""
    drawn = lanes if lanes and lanes <= min(width // 3, width - _LEAST_BESIDE_LANES) else 0
    word = _WORD if width >= _SIGN + _WORD + _LEAST_NAME else 0
    mark = _MARK if word and marked else 0
    room = width - (drawn + 1 if drawn else 0) - _SIGN - word - mark
    longest = _longest(text.label for text in texts)
    for waiting, full, count in _BESIDE_LANES if drawn or lanes == 0 else _ALONE:
        said = (_longest((text.full if full else text.short)[column] for text in texts) for column in range(count))
        figures = tuple(cells for cells in said if cells)
        left_over = room - sum(cells + _GAP for cells in figures)
        waits = _longest(text.waits for text in texts) if waiting else 0
        if not waits:
            name, fits = min(longest, left_over), left_over >= min(longest, _NAME)
        else:
            name = min(longest, _LONGEST_NAME)
            least = min(waits, _LEAST_WAITS)
            waits = min(waits, left_over - name - _GAP)
            fits = waits >= least
        if fits:
            return _Columns(drawn, word, mark, name, waits, figures, full)
    return _Columns(drawn, word, mark, max(1, min(longest, room)))


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def headline(branching: Branching) -> tuple[str, str]:
    """How many tools a plan uses, and what it is expected to take."""
    plan = branching.plan
    count = counted(len(plan.nodes), "tool")
    kept = f", {len(plan.kept):,} of them done" if plan.kept else ""
    mark = f" · {CRITICAL} longest path" if plan.critical else ""
    return f"{'repaired plan' if plan.repaired else 'plan'} of {count}{kept}", f"{estimate(plan)}{mark}"


class Drawing:
    """One plan as it stands, a line for each node; nothing is set before it is looked at."""

    def __init__(self, branching: Branching, *, reasons: bool = True) -> None:
        """With `reasons`, a line below each node that failed says why."""
        self._branching = branching
        self._nodes = {node.label: node for node in branching.plan.nodes}
        self._critical = frozenset(branching.plan.critical)
        self._lines: list[tuple[int, str, str]] = []
        """What the lines are about: a node by its place and its label and, where they say that, why it failed."""
        for at, label in enumerate(self._nodes):
            self._lines.append((at, label, ""))
            took = branching.came_to(label)
            if reasons and took is not None and took.state in ("failed", "denied") and took.reason.strip():
                self._lines.append((at, label, took.reason))
        self.height = len(self._lines)
        """Lines, whatever the width."""
        self._rails: tuple[Rail, ...] | None = None
        self._texts: dict[str, _Texts] = {}
        self._columns: tuple[int, _Columns] | None = None

    @property
    def front(self) -> int:
        """The line of the first node that has not ended; 0 where all have."""
        states = (self._branching.stands(label) for _, label, _ in self._lines)
        return next((at for at, state in enumerate(states) if state in ("waiting", "running")), 0)

    def lines(self, width: int, start: int = 0, stop: int | None = None) -> Iterator[DrawnLine]:
        """Some lines of the drawing, each of at most `width` cells."""
        if self._columns is None:
            self._rails = rails({label: node.after for label, node in self._nodes.items()})
            self._texts = {label: _texts_of(self._branching, node) for label, node in self._nodes.items()}
        if self._columns is None or self._columns[0] != width:
            lanes = len(self._rails[0].beside) if self._rails else None
            columns = _columns_of([*self._texts.values()], lanes, width, marked=bool(self._critical))
            self._columns = width, columns
        columns = self._columns[1]
        for at, label, reason in self._lines[start:stop]:
            rail = self._rails[at] if self._rails and columns.lanes else None
            pieces: tuple[DrawnPiece, ...]
            if reason:
                why = f"{' ' * _SIGN}└ {visible_line(reason)}"
                pieces = ((f"{rail.below} " if rail else "", "muted"), (why, "error"))
            else:
                state, texts = self._branching.stands(label), self._texts[label]
                mark = left(CRITICAL if label in self._critical else "", columns.mark)
                name = left(fit_middle(texts.label, columns.name), columns.name)
                waits = " " * _GAP + left(fit(texts.waits, columns.waits), columns.waits) if columns.waits else ""
                figures = zip(texts.full if columns.full else texts.short, columns.figures, strict=False)
                pieces = (
                    (f"{rail.beside} " if rail else "", "muted"),
                    (f"{left(SIGNS[state], _SIGN)}{left(state, columns.word)}", _TONES[state]),
                    (mark, "warning"),
                    (name, "text"),
                    (waits, "muted"),
                    ("".join(" " * _GAP + right(figure, cells) for figure, cells in figures), "muted"),
                )
            line: list[DrawnPiece] = []
            room = width
            for text, tone in pieces:
                shown = fit(text, room)
                room -= cell_len(shown)
                if shown:
                    line.append((shown, tone))
            yield tuple(line)
