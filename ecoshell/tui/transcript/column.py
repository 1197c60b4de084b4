"""The content of a transcript: a column of blocks, of which only the visible ones are painted."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style
from textual.strip import Strip

from ecoshell.messages import visible
from ecoshell.tui.transcript.blocks import (
    TONES,
    Block,
    Section,
    Tone,
    head_of,
    in_sections,
    rows_of,
    sections_of,
)
from ecoshell.tui.transcript.painting import PaintedLine, Painter

if TYPE_CHECKING:
    from ecoshell.tui.transcript.markdown import MarkdownReader

STREAM = ""
"""The key of streamed or waiting content; calls have their own keys."""
_EMPTY = PaintedLine(Strip([]))
_MAX_PAINTED_LINES = 8_000
"""Painted lines above which all are released."""


@dataclass(slots=True)
class Heights:
    """Heights in lines and their running sums, recomputed from the first change on."""

    _heights: list[int] = field(default_factory=list[int])
    _tops: list[int] = field(default_factory=lambda: [0])

    def replace(self, start: int, end: int | None, heights: list[int]) -> None:
        """Replace the heights from `start` up to `end`."""
        if self._heights[start:end] != heights:
            self._heights[start:end] = heights
            del self._tops[start + 1 :]

    @property
    def tops(self) -> list[int]:
        """The first line of each element and, last, the total height."""
        done = len(self._tops) - 1
        if done < len(self._heights):
            self._tops[done:] = accumulate(self._heights[done:], initial=self._tops[done])
        return self._tops

    def at(self, line: int) -> int:
        """The index of the element at a line; the last one below all, -1 without any."""
        return min(bisect_right(self.tops, max(line, 0)), len(self._heights)) - 1


@dataclass(slots=True)
class StreamedText:
    """Streamed text: an answer is read as Markdown, a thought as plain lines."""

    tone: Tone
    arrived: list[str] = field(default_factory=list[str])
    """Pieces not read yet."""
    text: list[str] = field(default_factory=list[str])
    """Text read so far, without surrounding white space."""
    _trailing_space: str = ""
    """White space at the end, kept until more text follows."""
    _reader: "MarkdownReader | None" = None

    def read(self) -> tuple[list[Section], list[Section]]:
        """The sections finished by the pieces since the last call, and those still open."""
        arrived = self._trailing_space + "".join(self.arrived)
        self.arrived.clear()
        solid = arrived.rstrip()
        self._trailing_space = arrived[len(solid) :]
        solid = visible(solid if self.text else solid.lstrip())
        if solid:
            self.text.append(solid)
        if self.tone == "text":
            # not needed for the first frame
            from ecoshell.tui.transcript.markdown import MarkdownReader

            self._reader = self._reader or MarkdownReader()
            return self._reader.feed(solid), self._reader.tail()
        return [], [*in_sections(rows_of("".join(self.text), self.tone))]


@dataclass(slots=True, eq=False)
class BlockItem:
    """A block in the column; the height of an unpainted section is an estimate."""

    block: Block
    key: str | None = None
    """The key to settle it by; None if it is finished."""
    live: StreamedText | None = None
    sections: list[Section] | None = None
    """None until it is laid out."""
    index: int = -1
    """Its position in the column; -1 after removal."""
    opened: bool = False
    """Whether its folded parts are shown."""
    heights: Heights = field(default_factory=Heights)
    painted: list[list[PaintedLine] | None] = field(
        default_factory=list["list[PaintedLine] | None"]
    )
    """The lines of each section; None if it is not painted."""
    finished: int = 0
    """Sections of streamed text that no longer change."""
    measure: tuple[int, int] | None = None
    """Unwrapped lines and characters, for the estimated height before layout."""

    @property
    def full_text(self) -> str:
        return "".join(self.live.text) if self.live else self.block.text(opened=True)

    def height(self, painter: Painter) -> int:
        if self.sections is not None:
            return self.heights.tops[-1]
        if self.measure is None:
            text = self.block.text(opened=self.opened)
            self.measure = text.count("\n") + 1 + self.block.gap, len(text)
        lines, characters = self.measure
        return lines + characters // painter.inside

    def put(self, sections: list[Section], painter: Painter) -> None:
        """Set the sections, all unpainted."""
        self.sections = sections
        self.painted = [None] * len(sections)
        self.heights = Heights([part.height(painter.inside) for part in sections])


class Spot(NamedTuple):
    """A line identified by block and section, which stays valid when the blocks above change."""

    item: BlockItem
    section: int
    offset: int


@dataclass(eq=False, repr=False)
class BlockColumn:
    """Blocks from top to bottom, finished ones above open ones.

    Open blocks are identified by their keys and become finished when they are settled.
    """

    _changed: Callable[[bool, bool], None] = lambda redraw_all, arrived: None
    """Called with whether more than streamed text may have changed, and whether anything was added."""
    items: list[BlockItem] = field(default_factory=list[BlockItem])
    painter: Painter = field(default_factory=lambda: Painter(dict.fromkeys(TONES, Style()), 80))
    """A placeholder until the first `repaint`."""
    _open: dict[str, BlockItem] = field(default_factory=dict[str, BlockItem])
    _heights: Heights = field(default_factory=Heights)
    _painted: int = 0

    @property
    def height(self) -> int:
        """Height in lines, estimated for unpainted sections."""
        return self._heights.tops[-1]

    @property
    def plain(self) -> str:
        """All lines as plain text; paints everything."""
        self.catch_up()
        self.reveal(0, None)
        painted = (line for item in self.items for lines in item.painted for line in lines or ())
        return "\n".join(line.strip.text.rstrip() for line in painted)

    def add(self, *blocks: Block) -> None:
        """Settle everything open and append finished blocks."""
        for key in list(self._open):
            self.settle(key=key)
        self.insert(*blocks)

    def insert(self, *blocks: Block) -> None:
        """Insert finished blocks above the open ones."""
        at = min((item.index for item in self._open.values()), default=len(self.items))
        self._put(at, at, *map(BlockItem, blocks))
        self._changed(True, True)

    def open(self, block: Block, key: str = STREAM) -> None:
        """Show a block, replacing the open one with this key, until the key is settled."""
        item = self._open.get(key)
        if item is None:
            self._put(len(self.items), None, BlockItem(block, key))
        else:
            self._replace(item, block)
        self._changed(True, True)

    def stream(self, text: str, sign: str, tone: Tone) -> None:
        """Append streamed text; it is shown by the next `catch_up`."""
        item = self._open.get(STREAM)
        live = item.live if item and item.block.sign == sign else None
        if live is None:
            self.settle()
            live = StreamedText(tone)
            item = BlockItem(Block(sign, tone, gap=tone == "text"), STREAM, live)
            item.put(list(head_of(item.block)), self.painter)
            item.finished = len(item.sections or ())
            self._put(len(self.items), None, item)
        live.arrived.append(text)
        self._changed(False, True)

    def settle(self, block: Block | None = None, key: str = STREAM) -> None:
        """Finish the open block with this key: as `block`, if given, or as it is."""
        item = self._open.get(key)
        if item is None:
            if block is not None:
                self.insert(block)
            return
        self.catch_up()
        settled, live = item.block, item.live
        if live is not None and live.tone == "text":
            settled = replace(settled, markdown=item.full_text)
        elif live is not None:
            settled = replace(settled, rows=rows_of(item.full_text, live.tone))
        self._replace(item, block or settled)
        del self._open[key]
        item.key = None
        self._changed(True, block is not None)

    def redraw(self, block: Block) -> None:
        """Replace the newest block with the same name, finished or not; without one, do nothing."""
        item = next((item for item in reversed(self.items) if item.block.name == block.name), None)
        if item is not None:
            self._replace(item, block)
            self._changed(True, False)

    def drop(self, key: str = STREAM) -> None:
        """Remove the open block with this key."""
        item = self._open.pop(key, None)
        if item is not None:
            self._put(item.index, item.index + 1)
            self._changed(True, False)

    def clear(self) -> None:
        self._open.clear()
        self._put(0, None)
        self._changed(True, False)

    def repaint(self, painter: Painter) -> None:
        """Use another painter for all blocks."""
        self.painter, self._painted = painter, 0
        for item in self.items:
            if item.sections is not None:
                item.put(item.sections, painter)
        self._heights = Heights([item.height(painter) for item in self.items])

    def fold(self, item: BlockItem, *, opened: bool) -> None:
        item.opened, item.sections, item.measure = opened, None, None
        self._measure(item)

    def catch_up(self) -> int:
        """Lay out the streamed text that has arrived; return the first line that may look different."""
        item = self._open.get(STREAM)
        if item is None or item.live is None or item.sections is None:
            return self.height
        start = len(item.sections)
        if item.live.arrived:
            new, tail = item.live.read()
            start, item.finished = item.finished, item.finished + len(new)
            item.sections[start:] = [*new, *tail]
            item.painted[start:] = [None] * (len(new) + len(tail))
            heights = [part.height(self.painter.inside) for part in (*new, *tail)]
            item.heights.replace(start, None, heights)
            self._measure(item)
        return self._top(item, start)

    def line(self, at: int) -> PaintedLine:
        """A painted line; empty outside the column."""
        if 0 <= at < self.height and (spot := self.spot(at)) is not None:
            lines = self._paint(spot.item, spot.section)
            if spot.offset < len(lines):
                return lines[spot.offset]
        return _EMPTY

    def span(self, item: BlockItem) -> range:
        """The lines of a block; empty after removal."""
        if item.index < 0:
            return range(0)
        return range(*self._heights.tops[item.index : item.index + 2])

    def spot(self, line: int) -> Spot | None:
        """The position of a line, or of the nearest one; None if the column is empty."""
        if not self.items:
            return None
        item = self.items[self._heights.at(line)]
        self._laid_out(item)
        section = max(0, item.heights.at(line - self._top(item, 0)))
        return Spot(item, section, line - self._top(item, section))

    def line_of(self, spot: Spot) -> int:
        """The line a spot is at now, or the nearest existing one."""
        item, section = spot.item, spot.section
        if item.index < 0:
            return self.height
        if section >= len(self._laid_out(item)):
            return self._top(item, 0)
        lines = self._paint(item, section)
        return self._top(item, section) + min(spot.offset, max(0, len(lines) - 1))

    def reveal(self, top: int, lines: int | None) -> None:
        """Paint lines from `top` on (all if None), keeping that line in place."""
        spot = self.spot(top)
        if spot is None:
            return
        index, section = spot.item.index, spot.section
        remaining = inf if lines is None else lines + spot.offset
        while index < len(self.items) and remaining > 0:
            item = self.items[index]
            if section == len(self._laid_out(item)):
                index, section = index + 1, 0
            else:
                remaining -= len(self._paint(item, section))
                section += 1

    def reveal_above(self, top: int, lines: int) -> int:
        """Paint the lines above `top`; return the growth in height."""
        spot = self.spot(top)
        if spot is None:
            return 0
        item, section, offset = spot
        old_top = self._top(item, section)
        while offset < lines and (item.index or section):
            if section:
                section -= 1
                offset += len(self._paint(item, section))
            else:
                item = self.items[item.index - 1]
                section = len(self._laid_out(item))
        return self._top(spot.item, spot.section) - old_top

    def reveal_end(self, lines: int) -> int:
        """Paint the last lines; return the first of them."""
        height = -1
        while height != self.height:
            height = self.height
            self.reveal(max(0, height - lines), lines)
        return max(0, height - lines)

    def release(self) -> None:
        """Release painted lines once there are many; heights are kept."""
        if self._painted < _MAX_PAINTED_LINES:
            return
        for item in self.items:
            item.painted = [None] * len(item.painted)
        self._painted = 0

    def _top(self, item: BlockItem, section: int) -> int:
        return self._heights.tops[item.index] + item.heights.tops[section]

    def _laid_out(self, item: BlockItem) -> list[Section]:
        if item.sections is None:
            item.put(list(sections_of(item.block, opened=item.opened)), self.painter)
            self._measure(item)
        return item.sections or []

    def _paint(self, item: BlockItem, section: int) -> list[PaintedLine]:
        sections = self._laid_out(item)
        if section >= len(sections):
            return []
        lines = item.painted[section]
        if lines is None:
            sign = item.block.sign if section == (1 if item.block.gap else 0) else ""
            lines = self.painter.paint(sections[section], sign, item.block.tone)
            item.painted[section] = lines
            item.heights.replace(section, section + 1, [len(lines)])
            self._painted += len(lines)
            self._measure(item)
        return lines

    def _put(self, start: int, end: int | None, *items: BlockItem) -> None:
        """Replace the items from `start` up to `end`."""
        for item in self.items[start:end]:
            item.index = -1
        self.items[start:end] = items
        self._open.update((item.key, item) for item in items if item.key is not None)
        for at in range(start, len(self.items)):
            self.items[at].index = at
        self._heights.replace(start, end, [item.height(self.painter) for item in items])

    def _replace(self, item: BlockItem, block: Block) -> None:
        """Replace an item's block; Markdown that is unchanged, as after streaming, stays painted."""
        if item.live is not None:
            self.catch_up()
        previous, live = item.block, item.live
        markdown = item.full_text if live and live.tone == "text" else previous.markdown
        has_bodies = bool(block.bodies or previous.bodies)
        is_same = block.markdown != "" and block.markdown == markdown and not has_bodies
        item.block, item.live, item.measure = block, None, None
        if item.sections and is_same:
            old, head = sum(1 for _ in head_of(previous)), list(head_of(block))
            item.sections[:old] = head
            item.painted[: old + 1] = [None] * (len(head) + 1)
            item.heights.replace(0, old, [1] * len(head))
        else:
            item.sections = None
        self._measure(item)

    def _measure(self, item: BlockItem) -> None:
        self._heights.replace(item.index, item.index + 1, [item.height(self.painter)])
