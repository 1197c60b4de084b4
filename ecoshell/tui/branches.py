"""A plan of branches drawn in lines: lanes for what waits for what, and how each node stands, at any width."""

from collections.abc import Iterator, Mapping
from typing import Literal

from rich.cells import cell_len

from ecoshell.agent.graph.telling import estimate
from ecoshell.events import NodeState
from ecoshell.planning.catp.rails import Rail, rails
from ecoshell.sessions.branching import Branching
from ecoshell.tui.branch_columns import GAP, SIGN, Columns, Texts, columns_of, texts_of
from ecoshell.tui.text import amount, fit, fit_middle, left, right
from ecoshell.untrusted import visible_line

Look = Literal["rail", "name", "figures", "critical"] | NodeState
DrawnPiece = tuple[str, Look]
DrawnLine = tuple[DrawnPiece, ...]
SIGNS: Mapping[NodeState, str] = {
    "waiting": "○", "running": "►", "done": "√", "failed": "×", "denied": "×", "skipped": "»", "stopped": "■",
}  # fmt: skip
CRITICAL = "*"
"""Marks the nodes of the longest path."""


def headline(branching: Branching) -> tuple[str, str]:
    """How many tools a plan uses, and what it is expected to take."""
    plan = branching.plan
    count = f"{len(plan.nodes):,} tool{'' if len(plan.nodes) == 1 else 's'}"
    kept = f", {len(plan.kept):,} of them done" if plan.kept else ""
    mark = f" · {CRITICAL} longest path" if plan.critical else ""
    return f"{'repaired plan' if plan.repaired else 'plan'} of {count}{kept}", f"{estimate(plan, amount)}{mark}"


class Drawing:
    """One plan as it stands, a line for each node; nothing is set before it is looked at."""

    def __init__(self, branching: Branching, *, reasons: bool = True) -> None:
        """With `reasons`, a line below each node that failed says why."""
        self._branching = branching
        self._nodes = {node.label: node for node in branching.plan.nodes}
        self._critical = frozenset(branching.plan.critical)
        self._lines = [*self._contents(reasons)]
        self._rails: tuple[Rail, ...] | None = None
        self._texts: dict[str, Texts] = {}
        self._columns: tuple[int, Columns] | None = None
        """The columns, and the width they are for."""

    @property
    def height(self) -> int:
        """Lines, whatever the width."""
        return len(self._lines)

    @property
    def front(self) -> int:
        """The line of the first node that has not ended; 0 where all have."""
        states = (self._branching.stands(label) for _, label, _ in self._lines)
        return next((at for at, state in enumerate(states) if state in ("waiting", "running")), 0)

    def lines(self, width: int, start: int = 0, stop: int | None = None) -> Iterator[DrawnLine]:
        """Some lines of the drawing, each of at most `width` cells."""
        columns = self._set(width)
        for at, label, reason in self._lines[start:stop]:
            rail = self._rails[at] if self._rails and columns.lanes else None
            pieces = _reason(reason, rail) if reason else self._node(label, rail, columns)
            yield tuple(_clipped(pieces, width))

    def _contents(self, reasons: bool) -> Iterator[tuple[int, str, str]]:
        """What the lines are about: a node by its place and its label and, where they say that, why it failed."""
        for at, label in enumerate(self._nodes):
            yield at, label, ""
            took = self._branching.came_to(label)
            if reasons and took is not None and took.state in ("failed", "denied") and took.reason.strip():
                yield at, label, took.reason

    def _set(self, width: int) -> Columns:
        """The columns at a width."""
        if self._columns is None:
            self._rails = rails({label: node.after for label, node in self._nodes.items()})
            self._texts = {label: texts_of(self._branching, node) for label, node in self._nodes.items()}
        if self._columns is None or self._columns[0] != width:
            lanes = len(self._rails[0].beside) if self._rails else None
            columns = columns_of([*self._texts.values()], lanes, width, marked=bool(self._critical))
            self._columns = width, columns
        return self._columns[1]

    def _node(self, label: str, rail: Rail | None, columns: Columns) -> Iterator[DrawnPiece]:
        state, texts = self._branching.stands(label), self._texts[label]
        if rail is not None:
            yield f"{rail.beside} ", "rail"
        yield f"{left(SIGNS[state], SIGN)}{left(state, columns.word)}", state
        if columns.mark:
            yield left(CRITICAL if label in self._critical else "", columns.mark), "critical"
        yield left(fit_middle(texts.label, columns.name), columns.name), "name"
        if columns.waits:
            yield " " * GAP + left(fit(texts.waits, columns.waits), columns.waits), "figures"
        figures = zip(texts.full if columns.full else texts.short, columns.figures, strict=False)
        yield "".join(" " * GAP + right(figure, cells) for figure, cells in figures), "figures"


def _reason(reason: str, rail: Rail | None) -> Iterator[DrawnPiece]:
    if rail is not None:
        yield f"{rail.below} ", "rail"
    yield f"{' ' * SIGN}└ {visible_line(reason)}", "failed"


def _clipped(pieces: Iterator[DrawnPiece], width: int) -> Iterator[DrawnPiece]:
    """The pieces as far as there is room for them."""
    for text, look in pieces:
        shown = fit(text, width)
        width -= cell_len(shown)
        if shown:
            yield shown, look
