"""Text that is still arriving: only its last line is ever wrapped again, so a long answer streams like a short one."""

from textual.strip import Strip

from ecoshell.tui.transcript.blocks import Block, Piece, Tone, row, rows_of
from ecoshell.tui.transcript.painter import MARGIN, Painter
from ecoshell.untrusted import visible


class LiveText:
    """Streamed text beside a sign."""

    def __init__(self, sign: str, tone: Tone) -> None:
        self.sign = sign
        self._tone: Tone = tone
        self._parts: list[str] = []
        self._unpainted: list[str] = []
        self._settled: list[Strip] = []
        self._tail = ""
        self._last: list[Strip] = []

    def append(self, text: str) -> None:
        """Take a piece; it shows after the next `paint`."""
        self._parts.append(text)
        self._unpainted.append(text)

    def finished(self) -> Block:
        """The text as a block."""
        return Block(self.sign, self._tone, rows_of("".join(self._parts).strip("\n"), self._tone))

    @property
    def height(self) -> int:
        """Lines painted so far."""
        return len(self._settled) + len(self._last)

    def line(self, at: int) -> Strip:
        """One painted line."""
        return self._settled[at] if at < len(self._settled) else self._last[at - len(self._settled)]

    def paint(self, painter: Painter, width: int) -> None:
        """Bring the lines up to date with what has arrived since the last time."""
        inside = max(1, width - MARGIN)
        *whole, tail = (self._tail + visible("".join(self._unpainted)).replace("\t", "    ")).split("\n")
        self._unpainted.clear()
        for line in whole:
            self._settle(painter.wrap(row(Piece(line, self._tone)), inside), painter)
        wrapped = painter.wrap(row(Piece(tail, self._tone)), inside)
        if len(wrapped) > 1:  # where a line was broken it stays broken; only the one being written can change
            kept = tail.rstrip()
            tail = tail[len(kept) - len(wrapped[-1].text.rstrip()) :]
            self._settle(wrapped[:-1], painter)
        self._tail = tail
        self._last = self._beside(wrapped[-1:], painter)

    def repaint(self, painter: Painter, width: int) -> None:
        """Paint from the beginning, because the width or the colours have changed."""
        self._settled.clear()
        self._tail, self._unpainted = "", list(self._parts)
        self.paint(painter, width)

    def _settle(self, lines: list[Strip], painter: Painter) -> None:
        self._settled += self._beside(lines, painter)

    def _beside(self, lines: list[Strip], painter: Painter) -> list[Strip]:
        return painter.beside("" if self._settled else self.sign, self._tone, lines)
