"""The content of a transcript: finished blocks as painted lines, and at most one open end below them."""

from collections.abc import Iterator
from itertools import chain

from textual.strip import Strip

from ecoshell.tui.transcript.blocks import Block, Tone
from ecoshell.tui.transcript.live import LiveText
from ecoshell.tui.transcript.painter import Painter


class Column:
    """Blocks from top to bottom. Nothing is painted before `repaint` has told the painter and the width."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._lines: list[Strip] = []
        self._live: LiveText | None = None
        self._pending: Block | None = None
        self._pending_lines: list[Strip] = []
        self._painter: Painter | None = None
        self._width = 0

    @property
    def height(self) -> int:
        """Painted lines."""
        return len(self._lines) + (self._live.height if self._live else len(self._pending_lines))

    @property
    def plain(self) -> str:
        """All painted lines without their looks."""
        return "\n".join(self.line(at).text.rstrip() for at in range(self.height))

    def line(self, at: int) -> Strip:
        """One line; empty outside the column."""
        if at < len(self._lines):
            return self._lines[at]
        below = at - len(self._lines)
        if self._live:
            return self._live.line(below) if below < self._live.height else Strip([])
        return self._pending_lines[below] if below < len(self._pending_lines) else Strip([])

    def add(self, *blocks: Block) -> None:
        """Close the open end and put finished blocks below it."""
        self.settle()
        self.insert(*blocks)

    def insert(self, *blocks: Block) -> None:
        """Put finished blocks above the open end, which stays open."""
        self._blocks += blocks
        self._lines += self._painted(*blocks)

    def open(self, block: Block) -> None:
        """Put a block that will be replaced or confirmed when the end is settled."""
        self.settle()
        self._pending = block
        self._pending_lines = list(self._painted(block))

    def stream(self, text: str, sign: str, tone: Tone) -> None:
        """Add streamed text to the open end; it shows after the next `paint`."""
        if self._live is None or self._live.sign != sign:
            self.settle()
            self._live = LiveText(sign, tone)
        self._live.append(text)

    def settle(self, block: Block | None = None) -> None:
        """Close the open end: as this block or, without one, as it stands."""
        left = block or (self._live.finished() if self._live else self._pending)
        self.drop()
        if left is not None:
            self._blocks.append(left)
            self._lines += self._painted(left)

    def drop(self) -> None:
        """Take the open end away."""
        self._live = self._pending = None
        self._pending_lines = []

    def clear(self) -> None:
        """Take everything away."""
        self.drop()
        self._blocks.clear()
        self._lines.clear()

    def paint(self) -> None:
        """Paint the streamed text that has arrived."""
        if self._live and self._painter:
            self._live.paint(self._painter, self._width)

    def prepare(self, block: Block) -> None:
        """Do the slow part of painting a block ahead of time; may be called in a thread."""
        if self._painter is not None:
            self._painter.prepare(block, self._width)

    def repaint(self, painter: Painter, width: int) -> None:
        """Paint everything in these colours at this width."""
        self._painter, self._width = painter, width
        self._lines = list(self._painted(*self._blocks))
        self._pending_lines = list(self._painted(self._pending)) if self._pending else []
        if self._live:
            self._live.repaint(painter, width)

    def _painted(self, *blocks: Block) -> Iterator[Strip]:
        if self._painter is None:
            return iter(())
        painter, width = self._painter, self._width
        return chain.from_iterable(painter.paint(block, width) for block in blocks)
