"""Where a text occurs in a transcript, whatever is folded away or was never painted."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

from ecoshell.tui.transcript.column import Column
from ecoshell.tui.transcript.item import Item
from ecoshell.tui.transcript.layout import sections_of
from ecoshell.tui.transcript.painter import Line, Painter

_SLICE = 0.008
"""Seconds of searching before the screen has its turn."""


class Hit(NamedTuple):
    """One place where a query was found."""

    item: Item
    section: int
    """Of the block when nothing of it is folded away."""
    nth: int
    """Which one of those in the section."""


class Span(NamedTuple):
    """A part of a line, in characters."""

    line: int
    start: int
    end: int


class Search:
    """One query: what it has found so far, from top to bottom, and which of these is looked at.

    It is found in any case, and over any white space between its words.
    """

    def __init__(self, text: str, column: Column) -> None:
        self.text = text.strip()
        self.hits: list[Hit] = []
        self.now = -1
        self.done = False
        self.first_is_known = False
        """Whether the search has come to the block to look in first."""
        self.begin_at: Item | None = None
        """The block to look in first; without one, the first."""
        self._words = text.lower().split()
        self._query = re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)
        self._column = column

    @property
    def current(self) -> Hit | None:
        """The hit that is looked at."""
        return self.hits[self.now] if self.now >= 0 else None

    async def run(self) -> AsyncIterator[None]:
        """Look through all blocks; yields whenever it has given the screen its turn, and at the end."""
        painter = self._column.painter
        paused = perf_counter()
        for item in list(self._column.items):
            if painter is None or not self._words:
                break
            self.hits += self._hits_in(item, painter)
            self.first_is_known |= item is self.begin_at and bool(self.hits)
            if perf_counter() - paused > _SLICE:
                yield
                await asyncio.sleep(0)
                paused = perf_counter()
        self.done = self.first_is_known = True
        yield

    def move(self, by: int) -> int | None:
        """Look at another hit, round at the ends; gives its line, with what hid it opened, or None without hits."""
        if not self.hits:
            return None
        self.now = (
            (self.now + by) % len(self.hits) if self.now >= 0 else self._first() if by > 0 else len(self.hits) - 1
        )
        return self._line_of(self.hits[self.now])

    def _first(self) -> int:
        """The first hit in or below the block to begin at; the very first when there is none."""
        order = {item: at for at, item in enumerate(self._column.items)}
        start = order.get(self.begin_at, 0) if self.begin_at else 0
        return next((at for at, hit in enumerate(self.hits) if order.get(hit.item, -1) >= start), 0)

    def spans(self, lines: Sequence[Line]) -> Iterator[list[Span]]:
        """The hits in painted lines; one that was wrapped is on several of them."""
        start = 0
        for end in range(1, len(lines) + 1):
            if end == len(lines) or lines[end].glue is None:
                yield from _in_row(lines, range(start, end), self._query)
                start = end

    def _hits_in(self, item: Item, painter: Painter) -> Iterator[Hit]:
        """All hits in a block; it is only set where its source has every word."""
        source = item.whole.lower()
        if not all(word in source for word in self._words):
            return
        sections = sections_of(item.block, opened=True) if item.block.foldable else item.lay_out(painter)
        for at, section in enumerate(sections):
            found = sum(1 for row in painter.rows(section) for _ in self._query.finditer(row.text))
            yield from (Hit(item, at, nth) for nth in range(found))

    def _line_of(self, hit: Hit) -> int:
        if hit.item.block.foldable and not hit.item.opened:
            self._column.fold(hit.item, opened=True)
        top, lines = self._column.section(hit.item, hit.section)
        begins = [found[0].line for found in self.spans(lines)]
        return top + (begins[min(hit.nth, len(begins) - 1)] if begins else 0)


def _in_row(lines: Sequence[Line], numbers: range, query: re.Pattern[str]) -> Iterator[list[Span]]:
    """The hits in lines that were one before they were wrapped."""
    whole = ""
    begins: list[int] = []
    for at in numbers:
        whole += (lines[at].glue or "") if whole else ""
        begins.append(len(whole))
        whole += lines[at].text
    for hit in query.finditer(whole):
        on: list[Span] = []
        for at, begin in zip(numbers, begins, strict=True):
            start, end = max(hit.start(), begin), min(hit.end(), begin + len(lines[at].text))
            if start < end:
                lead = lines[at].lead
                on.append(Span(at, start - begin + lead, end - begin + lead))
        if on:
            yield on
