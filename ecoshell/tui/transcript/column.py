"""The content of a transcript: blocks from top to bottom, of which only those that are looked at are painted."""

from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

from textual.strip import Strip

from ecoshell.tui.transcript.blocks import Block, CallRef, Piece, Tone
from ecoshell.tui.transcript.heights import Heights
from ecoshell.tui.transcript.item import Item
from ecoshell.tui.transcript.live import Live
from ecoshell.tui.transcript.painter import Line, Painter
from ecoshell.tui.transcript.sections import Section

STREAM = ""
"""The key of what is streamed or waits, as against calls, which have keys of their own."""
_EMPTY = Line(Strip([]))
_MOST_PAINTED = 8_000
"""Painted lines that are kept; far from the view they are let go."""


class Spot(NamedTuple):
    """A line by the block and the section it is in, which stays where it is when the blocks above change."""

    item: Item
    section: int
    offset: int


class Column:
    """Blocks from top to bottom, finished ones above those that are open. Nothing is painted without a painter."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._open: list[Item] = []
        self._heights = Heights()
        self._painter: Painter | None = None
        self._painted = 0

    @property
    def height(self) -> int:
        """Lines; where nothing was painted yet, about as many."""
        return self._heights.total

    @property
    def painter(self) -> Painter | None:
        """What paints it."""
        return self._painter

    @property
    def plain(self) -> str:
        """All lines without their looks; this paints everything."""
        self.catch_up()
        self.reveal(0, None)
        return "\n".join(line.strip.text.rstrip() for item in self.items for line in item.lines())

    def add(self, *blocks: Block) -> None:
        """Close what is open and put finished blocks below it."""
        for item in list(self._open):
            self.settle(key=item.key or STREAM)
        self.insert(*blocks)

    def insert(self, *blocks: Block) -> None:
        """Put finished blocks above what is open, which stays open."""
        self._put(self._first_open(), [Item(block) for block in blocks])

    def open(self, block: Block, key: str = STREAM) -> None:
        """Put a block, in the place of what is open under its key, that is replaced when the key is settled."""
        item = self._open_item(key)
        if item is None:
            self._put_open(Item(block, key=key))
        else:
            self._replace(item, block)

    def stream(self, text: str, sign: str, tone: Tone) -> None:
        """Add streamed text to the open end; it shows after the next `catch_up`."""
        item = self._open_item(STREAM)
        live = item.live if item else None
        if live is None or live.sign != sign:
            self.settle()
            live = Live(sign, tone)
            self._put_open(Item(Block(sign, tone), key=STREAM, live=live))
        live.append(text)

    def settle(self, block: Block | None = None, key: str = STREAM) -> None:
        """Close what is open under this key: as this block, which may be new, or as it stands."""
        item = self._open_item(key)
        if item is None:
            if block is not None:
                self.insert(block)
            return
        self._catch_up(item)  # the block it becomes as it stands needs what has arrived
        self._open.remove(item)
        item.key = None
        self._replace(item, block or (item.live.block() if item.live else item.block))

    def judge(self, call: CallRef, verdict: tuple[Piece, ...]) -> None:
        """Show what was thought of a call's result, beside it; nothing where the call is not there."""
        item = next((item for item in reversed(self.items) if item.block.call == call), None)
        if item is not None:
            self._replace(item, replace(item.block, judged=True, verdict=verdict))

    def redraw(self, block: Block) -> None:
        """Put a block in the place of the one of its name, which may be finished; nothing where there is none."""
        item = next((item for item in reversed(self.items) if item.block.name == block.name), None)
        if item is not None:
            self._replace(item, block)

    def drop(self, key: str = STREAM) -> None:
        """Take away what is open under this key."""
        item = self._open_item(key)
        if item is not None:
            self._open.remove(item)
            at = self._index(item)
            del self.items[at]
            self._heights.splice(at, at + 1, ())

    def clear(self) -> None:
        """Take everything away."""
        self.items.clear()
        self._open.clear()
        self._heights = Heights()

    def repaint(self, painter: Painter) -> None:
        """Let everything be painted anew by this painter when it is looked at."""
        self._painter, self._painted = painter, 0
        for item in self.items:
            item.measure_again(painter)
        self._heights = Heights(item.height(painter) for item in self.items)

    def fold(self, item: Item, *, opened: bool) -> None:
        """Open or close what is folded in a block."""
        item.fold(opened=opened)
        self._measure(self._index(item))

    def catch_up(self) -> int:
        """Read the streamed text that has arrived; gives the first line that may look different."""
        return min((self._catch_up(item) for item in self._open), default=self.height)

    def line(self, at: int) -> Line:
        """One line; empty outside the column."""
        if self._painter is None or not 0 <= at < self.height:
            return _EMPTY
        index, section, offset = self._find(at)
        lines = self._paint(index, section)
        return lines[offset] if offset < len(lines) else _EMPTY

    def at(self, line: int) -> Item:
        """The block that stands at a line, or the last one; raises IndexError when there is none."""
        return self.items[self._heights.at(line)]

    def span(self, item: Item) -> range:
        """The lines of a block."""
        index = self._index(item)
        return range(self._heights.top(index), self._heights.top(index + 1))

    def section(self, item: Item, at: int) -> tuple[int, list[Line]]:
        """The line at which a section of a block begins, and its lines."""
        index = self._index(item)
        self._laid_out(index)
        lines = self._paint(index, at)
        return self._top(index, min(at, len(item.heights))), lines

    def spot(self, line: int) -> Spot | None:
        """Where a line is; None while there are no lines."""
        if self._painter is None or not self.items:
            return None
        index, section, offset = self._find(line)
        return Spot(self.items[index], section, offset)

    def line_of(self, spot: Spot) -> int:
        """The line a spot is at now, or the nearest one that is left."""
        if self._painter is None or spot.item not in self.items:
            return self.height
        index = self._index(spot.item)
        if spot.section >= len(self._laid_out(index)):
            return self._heights.top(index)
        lines = self._paint(index, spot.section)
        return self._top(index, spot.section) + min(spot.offset, max(0, len(lines) - 1))

    def reveal(self, top: int, lines: int | None, until: float | None = None) -> bool:
        """Paint these lines (all with None) while what stands at `top` stays there; says whether it was in time."""
        if self._painter is None or not self.items:
            return True
        index, section, offset = self._find(top)
        left = lines + offset if lines is not None else None
        while index < len(self.items) and (left is None or left > 0):
            if until is not None and perf_counter() > until:
                return False
            if section == len(self._laid_out(index)):
                index, section = index + 1, 0
                continue
            painted = len(self._paint(index, section))
            left = left - painted if left is not None else None
            section += 1
        return True

    def reveal_above(self, top: int, lines: int, until: float | None = None) -> tuple[int, bool]:
        """Paint the lines above `top`; gives how many more they are than was thought, and whether it was in time."""
        if self._painter is None or not self.items:
            return 0, True
        index, section, offset = self._find(top)
        anchor, before, in_time = (index, section), self._top(index, section), True
        while offset < lines and (index or section):
            if until is not None and perf_counter() > until:
                in_time = False
                break
            if not section:
                index -= 1
                section = len(self._laid_out(index))
                continue
            section -= 1
            offset += len(self._paint(index, section))
        return self._top(*anchor) - before, in_time

    def reveal_end(self, lines: int) -> int:
        """Paint the last lines; gives the first of them."""
        known = -1
        while known != self.height:
            known = self.height
            self.reveal(max(0, known - lines), lines)
        return max(0, known - lines)

    def forget_far(self, top: int, lines: int) -> None:
        """Let painted lines go that are far from these, once there are many."""
        if self._painted < _MOST_PAINTED:
            return
        start, end = top - 3 * lines, top + 4 * lines
        for index, item in enumerate(self.items):
            above = self._heights.top(index)
            if item.sections and above < end and above + item.heights.total > start:
                item.forget(0, max(0, item.heights.at(start - above)))
                item.forget(item.heights.at(end - above) + 1)
            else:
                item.forget()
        self._painted = 0

    def _find(self, line: int) -> tuple[int, int, int]:
        """The block at a line, the section of it, and the line in that."""
        index = self._heights.at(line)
        self._laid_out(index)
        heights, below = self.items[index].heights, line - self._heights.top(index)
        section = max(0, heights.at(below))
        return index, section, below - heights.top(section)

    def _top(self, index: int, section: int) -> int:
        return self._heights.top(index) + self.items[index].heights.top(section)

    def _laid_out(self, index: int) -> list[Section]:
        item = self.items[index]
        if item.sections is None and self._painter is not None:
            item.lay_out(self._painter)
            self._measure(index)
        return item.sections or []

    def _paint(self, index: int, section: int) -> list[Line]:
        item = self.items[index]
        if self._painter is None or section >= len(item.sections or ()):
            return []
        lines = item.painted(section)
        if lines is None:
            lines = item.paint(section, self._painter)
            self._painted += len(lines)
            self._measure(index)
        return lines

    def _catch_up(self, item: Item) -> int:
        if item.live is None:
            return self.height
        first, index = item.catch_up(self._painter), self._index(item)
        self._measure(index)
        return self._heights.top(index) + first

    def _put(self, at: int, items: list[Item]) -> None:
        self.items[at:at] = items
        painter = self._painter
        self._heights.splice(at, at, (item.height(painter) if painter else 0 for item in items))

    def _replace(self, item: Item, block: Block) -> None:
        self._catch_up(item)
        item.become(block)
        self._measure(self._index(item))

    def _put_open(self, item: Item) -> None:
        self._open.append(item)
        self._put(len(self.items), [item])

    def _measure(self, index: int) -> None:
        if self._painter is not None:
            self._heights[index] = self.items[index].height(self._painter)

    def _index(self, item: Item) -> int:
        """Where a block is; looked for from the end, because there it is as good as always."""
        return next(at for at in range(len(self.items) - 1, -1, -1) if self.items[at] is item)

    def _first_open(self) -> int:
        """Where the open blocks begin; finished ones may stand among them."""
        at, left = len(self.items), len(self._open)
        while left:
            at -= 1
            left -= self.items[at].key is not None
        return at

    def _open_item(self, key: str) -> Item | None:
        return next((item for item in self._open if item.key == key), None)
