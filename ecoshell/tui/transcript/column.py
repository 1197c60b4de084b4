"""The content of a transcript: blocks from top to bottom, of which only those that are looked at are painted."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from textual.selection import Selection
from textual.strip import Strip

from ecoshell.tui.transcript.blocks import (
    GAP,
    LONGEST,
    Block,
    CallRef,
    Piece,
    Section,
    Tone,
    head_of,
    in_sections,
    row,
    rows_of,
    sections_of,
)
from ecoshell.tui.transcript.painting import MARGIN, PaintedLine, Painter
from ecoshell.untrusted import visible

if TYPE_CHECKING:
    from ecoshell.tui.transcript.markdown import MarkdownReader

STREAM = ""
"""The key of what is streamed or waits, as against calls, which have keys of their own."""
_EMPTY = PaintedLine(Strip([]))
_MOST_PAINTED = 8_000
"""Painted lines that are kept; far from the view they are let go."""


class Heights:
    """Heights in lines; where things begin is summed up again only from the first change on."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights = list(heights)
        self._tops: list[int] = [0]

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, at: int) -> int:
        return self._heights[at]

    def __setitem__(self, at: int, height: int) -> None:
        if self._heights[at] != height:
            self._heights[at] = height
            del self._tops[at + 1 :]

    def splice(self, start: int, end: int, heights: Iterable[int]) -> None:
        """Put these heights in the place of those from `start` up to `end`."""
        self._heights[start:end] = heights
        del self._tops[start + 1 :]

    @property
    def total(self) -> int:
        return self.top(len(self._heights))

    def top(self, at: int) -> int:
        self._sum_up()
        return self._tops[at]

    def at(self, line: int) -> int:
        """Which one stands at a line; the last for a line below them all, and -1 when there is none."""
        self._sum_up()
        return min(bisect_right(self._tops, max(line, 0)), len(self._heights)) - 1

    def _sum_up(self) -> None:
        done = len(self._tops) - 1
        if done < len(self._heights):
            sums = accumulate(self._heights[done:], initial=self._tops[done])
            next(sums)
            self._tops.extend(sums)


class PlainReader:
    """Reads text as it is, line by line."""

    def __init__(self, tone: Tone) -> None:
        self._tone: Tone = tone
        self._rest = ""

    def feed(self, text: str) -> list[Section]:
        """Take a piece; some lines at a time are finished together."""
        self._rest += text
        if len(self._rest) < LONGEST:
            return []
        end = self._rest.rfind("\n") + 1
        if not end and len(self._rest) < 8 * LONGEST:
            return []
        whole, self._rest = self._rest[: end or None], self._rest[end:] if end else ""
        return self._sections(whole.removesuffix("\n"))

    def tail(self) -> list[Section]:
        return self._sections(self._rest) if self._rest else []

    def _sections(self, text: str) -> list[Section]:
        return [*in_sections(row(Piece(line, self._tone)) for line in text.split("\n"))]


class StreamedText:
    """What arrives beside one sign; an answer is read as Markdown, a thought as it is."""

    def __init__(self, sign: str, tone: Tone) -> None:
        self.sign = sign
        self.tone: Tone = tone
        self._reader: MarkdownReader | PlainReader = PlainReader(tone)
        if tone == "text":
            from ecoshell.tui.transcript import markdown  # no first frame waits for it

            self._reader = markdown.MarkdownReader()
        self._arrived: list[str] = []
        self._held = ""
        """White space at the end, of which nobody knows yet whether anything follows."""
        self._read: list[str] = []

    def append(self, text: str) -> None:
        """Take a piece; it is read with the next `finished`."""
        self._arrived.append(text)

    @property
    def waiting(self) -> bool:
        return bool(self._arrived)

    def finished(self) -> list[Section]:
        """The sections that what has arrived since the last time has finished."""
        arrived = self._held + "".join(self._arrived)
        self._arrived.clear()
        solid = arrived.rstrip()
        self._held = arrived[len(solid) :]
        if not self._read:
            solid = solid.lstrip()
        if not solid:
            return []
        shown = visible(solid)
        self._read.append(shown)
        return self._reader.feed(shown)

    def tail(self) -> list[Section]:
        return self._reader.tail()

    @property
    def text(self) -> str:
        """Everything that has been read, without the white space around it."""
        return "".join(self._read)

    def block(self) -> Block:
        if self.tone == "text":
            return Block(self.sign, self.tone, markdown=self.text)
        return Block(self.sign, self.tone, rows_of(self.text, self.tone))


class BlockItem:
    """One block; until a section is painted, its height is an estimate."""

    def __init__(self, block: Block, *, key: str | None = None, live: StreamedText | None = None) -> None:
        self.block = block
        self.key = key
        """By what it is settled; None when it is finished."""
        self.live = live
        self.opened = self.gone = False
        """Whether nothing is folded away, and whether it was taken out of the column."""
        self.sections: list[Section] | None = [] if live else None
        self.heights = Heights()
        self.painted: list[list[PaintedLine] | None] = []
        """The lines of each section; None of one that has not been painted."""
        self._finished = 0
        """Sections of a live text that will not change any more."""
        self._measure: tuple[int, int] | None = None

    @property
    def whole(self) -> str:
        return self.live.text if self.live else self.block.whole

    def height(self, painter: Painter) -> int:
        return painter.estimate(*self._measured()) if self.sections is None else self.heights.total

    def lay_out(self, painter: Painter) -> list[Section]:
        if self.sections is None:
            self.put(list(sections_of(self.block, opened=self.opened)), painter)
        return self.sections or []

    def paint(self, at: int, painter: Painter) -> list[PaintedLine]:
        first = at == (1 if self.block.gap else 0)
        lines = painter.paint(self.lay_out(painter)[at], self.block.sign if first else "", self.block.tone)
        self.painted[at], self.heights[at] = lines, len(lines)
        return lines

    def forget(self, start: int = 0, end: int | None = None) -> None:
        """Let painted sections go, but not how high they are."""
        self.painted[start:end] = [None] * len(self.painted[start:end])

    def become(self, block: Block) -> None:
        """Take another block's place; Markdown that stays the same, as it does when it was streamed, stays painted."""
        before, live = self.block, self.live
        same = block.markdown == (live.text if live and live.tone == "text" else before.markdown)
        self.block, self.live, self._measure = block, None, None
        if self.sections and block.markdown and same and not (block.bodies or before.bodies):
            old, head = (0 if live else sum(1 for _ in head_of(before))), list(head_of(block))
            self.sections[:old] = head
            self.painted[: old + 1] = [None] * (len(head) + 1)
            self.heights.splice(0, old, [1] * len(head))
        else:
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
        self.painted[start:] = [None] * (len(new) + len(tail))
        sizes = (painter.estimate(*part.measure) if painter else 0 for part in (*new, *tail))
        self.heights.splice(start, len(self.heights), sizes)
        return self.heights.top(start)

    def put(self, sections: list[Section], painter: Painter) -> None:
        """Consist of these sections, none of which is painted yet."""
        self.sections = sections
        self.painted = [None] * len(sections)
        self.heights = Heights(1 if part is GAP else painter.estimate(*part.measure) for part in sections)

    def _measured(self) -> tuple[int, int]:
        """Lines if none had to be wrapped, and characters: of what is shown while nothing is laid out."""
        if self._measure is None:
            text = self.block.markdown
            bodies = [body.text if self.opened else body.folded[0] for body in self.block.bodies]
            rows = len(self.block.rows) + len(bodies) + self.block.gap + self.block.drawn(opened=self.opened)
            newlines = text.count("\n") + bool(text) + sum(body.count("\n") + 1 for body in bodies)
            size = sum(len(piece.text) for row in self.block.head for piece in row.pieces)
            self._measure = rows + newlines, size + len(text) * 2 // 3 + sum(map(len, bodies))
        return self._measure


class Spot(NamedTuple):
    """A line by the block and the section it is in, which stays where it is when the blocks above change."""

    item: BlockItem
    section: int
    offset: int


class BlockColumn:
    """Blocks from top to bottom, finished ones above those that are open. Nothing is painted without a painter.

    Open blocks are known by their keys (streamed text has none) and become finished when they are settled.
    """

    def __init__(self, changed: Callable[[bool, bool], None] = lambda whole, arrived: None) -> None:
        """`changed` is told whether more may look different than the streamed text, and whether anything is new."""
        self.items: list[BlockItem] = []
        self._open: list[BlockItem] = []
        self._heights = Heights()
        self.painter: Painter | None = None
        self._painted = 0
        self._changed = changed

    @property
    def height(self) -> int:
        """Lines; where nothing was painted yet, about as many."""
        return self._heights.total

    @property
    def plain(self) -> str:
        """All lines without their looks; this paints everything."""
        self.catch_up()
        self.reveal(0, None)
        painted = (line for item in self.items for lines in item.painted for line in lines or ())
        return "\n".join(line.strip.text.rstrip() for line in painted)

    def add(self, *blocks: Block) -> None:
        """Close what is open and put finished blocks below it."""
        for item in list(self._open):
            self.settle(key=item.key or STREAM)
        self.insert(*blocks)

    def insert(self, *blocks: Block) -> None:
        """Put finished blocks above what is open, which stays open."""
        at, left = len(self.items), len(self._open)
        while left:  # finished ones may stand among those that are open
            at -= 1
            left -= self.items[at].key is not None
        self._put(at, [BlockItem(block) for block in blocks])
        self._changed(True, True)

    def open(self, block: Block, key: str = STREAM) -> None:
        """Put a block, in the place of what is open under its key, that is replaced when the key is settled."""
        item = self._open_item(key)
        if item is None:
            self._put_open(BlockItem(block, key=key))
        else:
            self._replace(item, block)
        self._changed(True, True)

    def stream(self, text: str, sign: str, tone: Tone) -> None:
        """Add streamed text to the open end; it shows after the next `catch_up`."""
        item = self._open_item(STREAM)
        live = item.live if item else None
        if live is None or live.sign != sign:
            self.settle()
            live = StreamedText(sign, tone)
            self._put_open(BlockItem(Block(sign, tone), key=STREAM, live=live))
        live.append(text)
        self._changed(False, True)

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
        self._changed(True, block is not None)

    def judge(self, call: CallRef, verdict: tuple[Piece, ...]) -> None:
        """Show what was thought of a call's result, beside it; nothing where the call is not there."""
        item = next((item for item in reversed(self.items) if item.block.call == call), None)
        if item is not None:
            self._replace(item, replace(item.block, judged=True, verdict=verdict))
            self._changed(True, False)

    def redraw(self, block: Block) -> None:
        """Put a block in the place of the one of its name, which may be finished; nothing where there is none."""
        item = next((item for item in reversed(self.items) if item.block.name == block.name), None)
        if item is not None:
            self._replace(item, block)
            self._changed(True, False)

    def drop(self, key: str = STREAM) -> None:
        item = self._open_item(key)
        if item is not None:
            self._open.remove(item)
            at = self._index(item)
            del self.items[at]
            item.gone = True
            self._heights.splice(at, at + 1, ())
            self._changed(True, False)

    def clear(self) -> None:
        for item in self.items:
            item.gone = True
        self.items.clear()
        self._open.clear()
        self._heights = Heights()
        self._changed(True, False)

    def selected(self, selection: Selection) -> str:
        """What stands between two places, without margins and signs, and with wrapped lines in one piece again.

        Blocks that are selected whole are given as they were written.
        """
        first, start = (selection.start.y, selection.start.x) if selection.start else (0, 0)
        last, end = (selection.end.y, selection.end.x) if selection.end else (self.height, None)
        parts: list[str] = []
        at = max(0, first)
        while at <= min(last, self.height - 1):
            item = self.at(at)
            span = self.span(item)
            if at == span.start and span.stop <= last and (at > first or start <= MARGIN):
                parts += ["\n", item.whole]
                at = span.stop
                continue
            parts += self.line(at).copied(start if at == first else 0, end if at == last else None)
            at += 1
        return "".join(parts[1:])

    def repaint(self, painter: Painter) -> None:
        """Let everything be painted anew by this painter when it is looked at."""
        self.painter, self._painted = painter, 0
        for item in self.items:
            if item.sections is not None:
                item.put(item.sections, painter)
        self._heights = Heights(item.height(painter) for item in self.items)

    def fold(self, item: BlockItem, *, opened: bool) -> None:
        item.opened, item.sections = opened, None
        self._measure(self._index(item))

    def catch_up(self) -> int:
        """Read the streamed text that has arrived; gives the first line that may look different."""
        return min((self._catch_up(item) for item in self._open), default=self.height)

    def line(self, at: int) -> PaintedLine:
        """One line; empty outside the column."""
        if self.painter is None or not 0 <= at < self.height:
            return _EMPTY
        index, section, offset = self._find(at)
        lines = self._paint(index, section)
        return lines[offset] if offset < len(lines) else _EMPTY

    def at(self, line: int) -> BlockItem:
        """The block that stands at a line, or the last one; raises IndexError when there is none."""
        return self.items[self._heights.at(line)]

    def span(self, item: BlockItem) -> range:
        """The lines of a block; none of one that was taken away."""
        if item.gone:
            return range(0)
        index = self._index(item)
        return range(self._heights.top(index), self._heights.top(index + 1))

    def section(self, item: BlockItem, at: int) -> tuple[int, list[PaintedLine]]:
        """The line at which a section of a block begins, and its lines."""
        index = self._index(item)
        self._laid_out(index)
        lines = self._paint(index, at)
        return self._top(index, min(at, len(item.heights))), lines

    def spot(self, line: int) -> Spot | None:
        """Where a line is; None while there are no lines."""
        if self.painter is None or not self.items:
            return None
        index, section, offset = self._find(line)
        return Spot(self.items[index], section, offset)

    def line_of(self, spot: Spot) -> int:
        """The line a spot is at now, or the nearest one that is left."""
        if self.painter is None or spot.item.gone:
            return self.height
        index = self._index(spot.item)
        if spot.section >= len(self._laid_out(index)):
            return self._heights.top(index)
        lines = self._paint(index, spot.section)
        return self._top(index, spot.section) + min(spot.offset, max(0, len(lines) - 1))

    def reveal(self, top: int, lines: int | None, until: float | None = None) -> bool:
        """Paint these lines (all with None) while what stands at `top` stays there; says whether it was in time."""
        if self.painter is None or not self.items:
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
        if self.painter is None or not self.items:
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
        if item.sections is None and self.painter is not None:
            item.lay_out(self.painter)
            self._measure(index)
        return item.sections or []

    def _paint(self, index: int, section: int) -> list[PaintedLine]:
        item = self.items[index]
        if self.painter is None or section >= len(item.sections or ()):
            return []
        lines = item.painted[section]
        if lines is None:
            lines = item.paint(section, self.painter)
            self._painted += len(lines)
            self._measure(index)
        return lines

    def _catch_up(self, item: BlockItem) -> int:
        if item.live is None:
            return self.height
        first, index = item.catch_up(self.painter), self._index(item)
        self._measure(index)
        return self._heights.top(index) + first

    def _put(self, at: int, items: list[BlockItem]) -> None:
        self.items[at:at] = items
        painter = self.painter
        self._heights.splice(at, at, (item.height(painter) if painter else 0 for item in items))

    def _replace(self, item: BlockItem, block: Block) -> None:
        self._catch_up(item)
        item.become(block)
        self._measure(self._index(item))

    def _put_open(self, item: BlockItem) -> None:
        self._open.append(item)
        self._put(len(self.items), [item])

    def _measure(self, index: int) -> None:
        if self.painter is not None:
            self._heights[index] = self.items[index].height(self.painter)

    def _index(self, item: BlockItem) -> int:
        """Where a block is; looked for from the end, because there it is as good as always."""
        return next(at for at in range(len(self.items) - 1, -1, -1) if self.items[at] is item)

    def _open_item(self, key: str) -> BlockItem | None:
        return next((item for item in self._open if item.key == key), None)
