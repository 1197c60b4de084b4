"""The edges of a branching plan as lanes beside its nodes, one line for each node, as `git log --graph` draws commits.

╭─── count_text
│ ╭─ count_text#2
╰─┴─ calculate

A lane carries what one node gives: it begins beside that node and ends beside the last one that waits for it. A line
that leads from a lane to a node is broken where it passes under another lane (`╰─│─`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_LANES = 16
"""Lanes beyond which nobody follows them with the eye."""


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
        beside = _beside(lanes, joined, ending, own)
        lanes = ["" if place in ending else lane for place, lane in enumerate(lanes)]
        drawn.append(
            (beside, "─" if joined or own is not None else " ", "".join("│ " if lane else "  " for lane in lanes))
        )
    width = 2 * len(lanes)
    return tuple(Rail(beside.ljust(width, fill), below.ljust(width)) for beside, fill, below in drawn)


def _beside(lanes: Sequence[str], joined: set[int], ending: set[int], own: int | None) -> str:
    """The lanes on a node's own line; from the first that has to do with the node, a line leads to it."""
    first = min(joined if own is None else joined | {own}, default=len(lanes))
    cells: list[str] = []
    for place, lane in enumerate(lanes):
        behind = place > first
        if place == own:
            sign = "┬" if behind else "╭"
        elif place in ending:
            sign = "┴" if behind else "╰"
        elif place in joined:
            sign = "┼" if behind else "├"
        elif lane:
            sign = "│"
        else:
            sign = "─" if behind else " "
        cells.append(sign + ("─" if place >= first else " "))
    return "".join(cells)
