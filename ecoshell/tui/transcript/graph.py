"""A plan of branches as a block of the transcript."""

from collections.abc import Iterator, Mapping

from ecoshell.agent.graph.telling import outcome
from ecoshell.sessions.branching import Branching
from ecoshell.tui.branches import Drawing, Look, headline
from ecoshell.tui.figures import amount
from ecoshell.tui.transcript.blocks import Block, Body, Piece, Row, Tone, row

_TONES: Mapping[Look, Tone] = {
    "rail": "muted",
    "name": "text",
    "figures": "muted",
    "critical": "warning",
    "waiting": "muted",
    "running": "tool",
    "done": "good",
    "failed": "error",
    "denied": "warning",
    "skipped": "warning",
    "stopped": "warning",
}


def graph(branching: Branching, name: str) -> Block:
    """A plan with what it is expected to take, its nodes as they stand, and in the end what it came to."""
    what, about = headline(branching)
    head = row(Piece(what, "thought"), Piece(f" · {about}", "muted"))
    end = row(Piece(outcome(branching, amount), "muted"), lead="└ ")
    bodies = (Body("", 0, head=end),) if branching.settled else ()
    return Block("◦", "thought", (head,), picture=_Drawn(Drawing(branching)), bodies=bodies, name=name)


class _Drawn:
    """A drawing in the transcript's tones."""

    def __init__(self, drawing: Drawing) -> None:
        self._drawing = drawing

    @property
    def height(self) -> int:
        return self._drawing.height

    def rows(self, width: int, start: int, stop: int) -> Iterator[Row]:
        for line in self._drawing.lines(width, start, stop):
            yield Row(tuple(Piece(text, _TONES[look]) for text, look in line))
