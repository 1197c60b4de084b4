"""A block in its place in the column: laid out when it is first looked at, and painted section by section."""

from collections.abc import Iterator
from itertools import chain

from ecoshell.tui.transcript.blocks import Block
from ecoshell.tui.transcript.heights import Heights
from ecoshell.tui.transcript.layout import GAP, head_of, sections_of
from ecoshell.tui.transcript.live import Live
from ecoshell.tui.transcript.painter import Line, Painter
from ecoshell.tui.transcript.sections import Section


class Item:
    """One block; until a section is painted, its height is an estimate."""

    def __init__(self, block: Block, *, key: str | None = None, live: Live | None = None) -> None:
        self.block = block
        self.key = key
        """By what it is settled; None when it is finished."""
        self.live = live
        self.opened = False
        self.sections: list[Section] | None = [] if live else None
        self.heights = Heights()
        self._lines: list[list[Line] | None] = []
        self._finished = 0
        """Sections of a live text that will not change any more."""
        self._measure: tuple[int, int] | None = None

    @property
    def whole(self) -> str:
        """Everything in it, as it was written."""
        return self.live.text if self.live else self.block.whole

    def height(self, painter: Painter) -> int:
        """Its lines, as far as is known."""
        return painter.estimate(*self._measured()) if self.sections is None else self.heights.total

    def lay_out(self, painter: Painter) -> list[Section]:
        """Its sections."""
        if self.sections is None:
            self._put(list(sections_of(self.block, opened=self.opened)), painter)
        return self.sections or []

    def painted(self, at: int) -> list[Line] | None:
        """A section's lines, if it has been painted."""
        return self._lines[at]

    def lines(self) -> Iterator[Line]:
        """The lines of all sections that have been painted."""
        return chain.from_iterable(lines for lines in self._lines if lines is not None)

    def paint(self, at: int, painter: Painter) -> list[Line]:
        """A section's lines."""
        lines = self._lines[at]
        if lines is None:
            section = self.lay_out(painter)[at]
            first = at == (1 if self.block.gap else 0)
            lines = painter.paint(section, self.block.sign if first else "", self.block.tone)
            self._lines[at] = lines
            self.heights[at] = len(lines)
        return lines

    def forget(self, start: int = 0, end: int | None = None) -> int:
        """Let painted sections go, but not how high they are; says how many lines that were."""
        gone = self._lines[start:end]
        self._lines[start:end] = [None] * len(gone)
        return sum(len(lines) for lines in gone if lines is not None)

    def measure_again(self, painter: Painter) -> None:
        """Let everything go that hangs on the width or on the colours."""
        if self.sections is not None:
            self._put(self.sections, painter)

    def become(self, block: Block) -> None:
        """Take another block's place; Markdown that stays the same, as it does when it was streamed, stays painted."""
        before, live = self.block, self.live
        same = block.markdown == (live.text if live and live.tone == "text" else before.markdown)
        self.block, self.live, self._measure = block, None, None
        if self.sections and block.markdown and same and not (block.bodies or before.bodies):
            old, head = (0 if live else sum(1 for _ in head_of(before))), list(head_of(block))
            self.sections[:old] = head
            self._lines[: old + 1] = [None] * (len(head) + 1)
            self.heights.splice(0, old, [1] * len(head))
        else:
            self.sections = None

    def fold(self, *, opened: bool) -> None:
        """Open or close what is folded."""
        self.opened = opened
        self.sections = None

    def catch_up(self, painter: Painter | None) -> int:
        """Read what has arrived of a live text, of which only the open end is painted again; gives its first line."""
        if self.live is None or self.sections is None or not self.live.waiting:
            return self.heights.total
        new = self.live.finished()
        tail = self.live.tail()
        start = self._finished
        self._finished += len(new)
        self.sections[start:] = [*new, *tail]
        self._lines[start:] = [None] * (len(new) + len(tail))
        sizes = (painter.estimate(*part.measure) if painter else 0 for part in (*new, *tail))
        self.heights.splice(start, len(self.heights), sizes)
        return self.heights.top(start)

    def _put(self, sections: list[Section], painter: Painter) -> None:
        self.sections = sections
        self._lines = [None] * len(sections)
        self.heights = Heights(1 if part is GAP else painter.estimate(*part.measure) for part in sections)

    def _measured(self) -> tuple[int, int]:
        """Lines if none had to be wrapped, and characters: of what is shown while nothing is laid out."""
        if self._measure is None:
            text = self.block.markdown
            bodies = [body.text if self.opened else body.folded[0] for body in self.block.bodies]
            rows = len(self.block.rows) + len(bodies) + self.block.gap + self.block.pictured(opened=self.opened)
            newlines = text.count("\n") + bool(text) + sum(body.count("\n") + 1 for body in bodies)
            size = sum(len(piece.text) for row in self.block.head for piece in row.pieces)
            self._measure = rows + newlines, size + len(text) * 2 // 3 + sum(map(len, bodies))
        return self._measure
