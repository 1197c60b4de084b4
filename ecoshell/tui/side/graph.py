"""The plan of branches as it stands, in a few lines of the plan panel."""

from collections.abc import Mapping

from rich.cells import cell_len

from ecoshell.sessions.branching import Branching
from ecoshell.tui.branches import Drawing, Look
from ecoshell.tui.side.sheet import Line, Tone, ends, fit

_TONES: Mapping[Look, Tone] = {
    "rail": "muted",
    "name": "text",
    "figures": "muted",
    "critical": "near",
    "waiting": "muted",
    "running": "accent",
    "done": "good",
    "failed": "reached",
    "denied": "near",
    "skipped": "near",
    "stopped": "near",
}
COMFORTABLE = 12
"""Lines that nodes take where there is no more room than needed."""
_NAME = "branches"
_BEFORE = 2
"""Lines above the first node that has not ended."""


def progress(branching: Branching) -> str:
    """How far a plan of branches has come: `1 of 3 done, 2 running`."""
    counts = branching.counts
    done = f"{counts.get('done', 0):,} of {len(branching.plan.nodes):,} done"
    told = ("running", "failed", "denied", "skipped", "stopped")
    others = [f"{counts[state]:,} {state}" for state in told if state in counts]
    return ", ".join((done, *others))


def graph_lines(branching: Branching, width: int, most: int = COMFORTABLE) -> list[Line]:
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
        *(tuple((text, _TONES[look]) for text, look in line) for line in drawing.lines(width, start, start + shown)),
        *([((f"  … {below:,} below", "muted"),)] if below else []),
    ]
