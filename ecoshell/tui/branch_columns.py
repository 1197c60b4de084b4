"""What is said of each node of a plan of branches, and which of it there is room for at a width."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from ecoshell.events import GraphNode
from ecoshell.planning.catp.base import TASK
from ecoshell.sessions.branching import Branching
from ecoshell.tui.text import duration, money
from ecoshell.untrusted import visible_line

SIGN, WORD, MARK = 2, 8, 2
"""Cells of a state's sign, of its word, and of the mark of the longest path, the blank behind each included."""
GAP = 2
"""Cells between two columns."""
_LEAST_NAME, _NAME, _LONGEST_NAME = 8, 20, 32
"""Cells that a name keeps, that it has before figures are written in full, and that it takes beside other words."""
_LEAST_WAITS = 14
_LEAST_BESIDE_LANES = 28
_NAMED = 8
"""Nodes waited for that are named before they are counted."""
_LONGEST_LABEL = 200


@dataclass(frozen=True, slots=True)
class Texts:
    """What is said of one node, whole."""

    label: str
    waits: str
    """What it waits for; empty when that is the question alone."""
    full: tuple[str, str]
    """Its time and its price, expected and real: `≈1.2 s → 0.9 s`."""
    short: tuple[str, str]
    """The same in one figure each: the real one as soon as there is one."""


def texts_of(branching: Branching, node: GraphNode) -> Texts:
    """What is said of a node as it stands."""
    waits = [visible_line(label[:_LONGEST_LABEL]) for label in node.after[: _NAMED + 1] if label != TASK]
    more = len(node.after) - _NAMED
    if more > 0:
        waits = [*waits[: _NAMED - 1], f"{more + 1:,} more"]
    label, words = visible_line(node.label[:_LONGEST_LABEL]), f"after {', '.join(waits)}" if waits else ""
    if node.label in branching.plan.kept and node.label not in branching.changes:
        return Texts(label, words, ("kept", ""), ("kept", ""))
    time = "?" if node.seconds is None else f"≈{duration(node.seconds)}"
    price = "?" if node.price_nano is None else f"≈{money(node.price_nano)}"
    took = branching.came_to(node.label)
    if took is None:
        return Texts(label, words, (time, price), (time, price))
    real = duration(took.seconds), "?" if took.spent_nano is None else money(took.spent_nano)
    return Texts(label, words, (f"{time} → {real[0]}", f"{price} → {real[1]}"), real)


@dataclass(frozen=True, slots=True)
class Columns:
    """Cells of each column; one that is left out has none."""

    lanes: int = 0
    word: int = WORD
    mark: int = MARK
    name: int = 1
    waits: int = 0
    figures: tuple[int, ...] = ()
    """Time and price, as far as there is room for them."""
    full: bool = False
    """Whether figures are written in full."""


_Choice = tuple[bool, bool, int]
"""Whether it is said what a node waits for, whether figures are in full, and how many of them there are."""
_ALONE: tuple[_Choice, ...] = ((True, True, 2), (True, False, 2), (True, False, 1), (True, False, 0), (False, False, 0))
_BESIDE_LANES: tuple[_Choice, ...] = ((True, True, 2), (False, True, 2), (False, False, 2), (False, False, 1))
"""Lanes say already what waits for what."""


def columns_of(texts: Sequence[Texts], lanes: int | None, width: int, *, marked: bool) -> Columns:
    """The columns for these nodes at a width; `lanes` are the cells that lanes take, None where there are too many."""
    drawn = lanes if lanes and lanes <= min(width // 3, width - _LEAST_BESIDE_LANES) else 0
    word = WORD if width >= SIGN + WORD + _LEAST_NAME else 0
    mark = MARK if word and marked else 0
    room = width - (drawn + 1 if drawn else 0) - SIGN - word - mark
    for choice in _BESIDE_LANES if drawn or lanes == 0 else _ALONE:
        widths = _widths(texts, choice, room)
        if widths is not None:
            name, waits, figures = widths
            return Columns(drawn, word, mark, name, waits, figures, choice[1])
    return Columns(drawn, word, mark, max(1, min(_longest(text.label for text in texts), room)))


def _widths(texts: Sequence[Texts], choice: _Choice, room: int) -> tuple[int, int, tuple[int, ...]] | None:
    """Cells for the name, for what is waited for and for figures; None where this choice does not fit."""
    waiting, full, count = choice
    figures = tuple(
        cells
        for column in range(count)
        if (cells := _longest((text.full if full else text.short)[column] for text in texts))
    )
    room -= sum(cells + GAP for cells in figures)
    longest = _longest(text.label for text in texts)
    waits = _longest(text.waits for text in texts) if waiting else 0
    if not waits:
        return (min(longest, room), 0, figures) if room >= min(longest, _NAME) else None
    name = min(longest, _LONGEST_NAME)
    waits_room = min(waits, room - name - GAP)
    return (name, waits_room, figures) if waits_room >= min(waits, _LEAST_WAITS) else None


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)
