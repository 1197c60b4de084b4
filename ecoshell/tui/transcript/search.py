"""Searching a transcript, whatever is folded away or was never painted, and the bar in which a person does."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual import work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Static

from ecoshell.tui.transcript.blocks import sections_of
from ecoshell.tui.transcript.column import BlockColumn, BlockItem, Spot
from ecoshell.tui.transcript.painting import PaintedLine

if TYPE_CHECKING:
    from ecoshell.tui.transcript.view import Transcript

_SLICE = 0.008
"""Seconds of searching before the screen has its turn."""


class Hit(NamedTuple):
    """One place where a query was found."""

    item: BlockItem
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

    def __init__(self, text: str, column: BlockColumn, begin_at: BlockItem | None) -> None:
        self.text = text.strip()
        self.hits: list[Hit] = []
        self.now = -1
        self.done = False
        self.first_is_known = False
        """Whether the search has come to the block to look in first."""
        self.begin_at = begin_at
        """The block to look in first; without one, the first."""
        self._words = text.lower().split()
        self._query = re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)
        self._column = column
        self._known: dict[tuple[BlockItem, int], tuple[list[PaintedLine], dict[int, list[tuple[int, int, int]]]]] = {}
        """Start, end and number of the hits on each line of the sections on the screen, as they were painted last."""

    async def run(self) -> AsyncIterator[None]:
        """Look through all blocks; yields whenever it has given the screen its turn, and at the end."""
        paused = perf_counter()
        for item in list(self._column.items) if self._words else ():
            source = item.whole.lower()
            if all(word in source for word in self._words):  # only then it has to be set
                laid_out = None if item.block.foldable else item.sections
                for at, section in enumerate(laid_out or sections_of(item.block, opened=True)):
                    rows = section.rows(self._column.painter.inside)
                    found = sum(1 for row in rows for _ in self._query.finditer(row.text))
                    self.hits += (Hit(item, at, nth) for nth in range(found))
            self.first_is_known |= item is self.begin_at and bool(self.hits)
            if perf_counter() - paused > _SLICE:
                yield
                await asyncio.sleep(0)
                paused = perf_counter()
        self.done = self.first_is_known = True
        yield

    def move(self, by: int) -> int | None:
        """Look at another hit, round at the ends; gives its line, with what hid it opened, or None without hits."""
        if any(hit.item.index < 0 for hit in self.hits):  # what it was in has given way to something else
            self.hits, self.now = [hit for hit in self.hits if hit.item.index >= 0], -1
        if not self.hits:
            return None
        if self.now >= 0:
            self.now = (self.now + by) % len(self.hits)
        elif by < 0:
            self.now = len(self.hits) - 1
        else:  # the first in or below the block to begin at; the very first when there is none
            start = self.begin_at.index if self.begin_at else 0
            self.now = next((at for at, hit in enumerate(self.hits) if hit.item.index >= start), 0)
        hit = self.hits[self.now]
        if hit.item.block.foldable and not hit.item.opened:
            self._column.fold(hit.item, opened=True)
        top = self._column.line_of(Spot(hit.item, hit.section, 0))  # which paints the section
        painted = hit.item.painted[hit.section] if hit.section < len(hit.item.painted) else None
        begins = [found[0].line for found in self._found(painted or [])]
        return top + (begins[min(hit.nth, len(begins) - 1)] if begins else 0)

    def _found(self, lines: Sequence[PaintedLine]) -> Iterator[list[Span]]:
        """The hits in painted lines; one that was wrapped is on several of them."""
        start = 0
        for end in range(1, len(lines) + 1):
            if end < len(lines) and lines[end].glue is not None:
                continue  # it was one with the line before
            whole = ""
            begins: list[int] = []
            for line in lines[start:end]:
                whole += (line.glue or "") if whole else ""
                begins.append(len(whole))
                whole += line.text
            for hit in self._query.finditer(whole):
                on: list[Span] = []
                for at, begin in enumerate(begins, start):
                    lead = lines[at].lead
                    first, last = max(hit.start(), begin), min(hit.end(), begin + len(lines[at].text))
                    if first < last:
                        on.append(Span(at, first - begin + lead, last - begin + lead))
                if on:
                    yield on
            start = end

    def highlights(self, item: BlockItem, section: int, line: int) -> list[tuple[int, int, bool]]:
        """Start and end of every hit on a section's line, and whether it is the one the search is at."""
        painted = item.painted[section] or []
        lines, found = self._known.get((item, section), ([], {}))
        if lines is not painted:
            found = dict[int, list[tuple[int, int, int]]]()
            self._known[item, section] = painted, found
            for nth, hit in enumerate(self._found(painted)):
                for span in hit:
                    found.setdefault(span.line, []).append((span.start, span.end, nth))
        now = self.hits[self.now] if self.now >= 0 else None
        at = now.nth if now and now.item is item and now.section == section else -1
        return [(start, end, nth == at) for start, end, nth in found.get(line, [])]


class SearchBar(Horizontal):
    """One line below the transcript; it leaves when the search ends."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down", "move(1)", "next", priority=True),
        Binding("shift+enter,up", "move(-1)", "before", priority=True),
        Binding("escape", "close", "close", priority=True),
    ]
    HELP = "Type what to look for. Enter or down goes to the next place, up to the one before, esc closes the search."
    DEFAULT_CSS = """
    SearchBar {
        height: 1;
        padding: 0 1;
        #search-sign { width: 3; color: $primary; }
        #search-text { width: 1fr; background: transparent; }
        #search-count { width: auto; color: $foreground-muted; padding: 0 1; }
    }
    """

    def __init__(self, transcript: "Transcript") -> None:
        super().__init__(
            Static("?", id="search-sign", markup=False),
            Input(placeholder="Search the transcript", id="search-text", compact=True),
            Static("", id="search-count", markup=False),
        )
        self._transcript = transcript
        self._search: Search | None = None
        self._moved = False

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @work(exclusive=True)
    async def on_input_changed(self, event: Input.Changed) -> None:
        """Begin another search, and go to its first hit as soon as it is known."""
        self._moved = False
        column = self._transcript.column
        spot = column.spot(self._transcript.scroll_offset.y)
        search = self._search = self._transcript.search = Search(event.value, column, spot.item if spot else None)
        async for _ in search.run():
            if search.hits and not self._moved and search.first_is_known:
                self.action_move(1)
            self._count(search)

    def action_move(self, by: int) -> None:
        self._moved = True
        self._transcript.action_found(by)
        if self._search is not None:
            self._count(self._search)

    def action_close(self) -> None:
        """End the search; the transcript stays where it is."""
        self._transcript.search = None
        self._transcript.focus()
        self.remove()

    def _count(self, search: Search) -> None:
        """Say how many hits there are, and at which of them the person is."""
        more = "" if search.done else " …"
        words = f"{search.now + 1:,} of {len(search.hits):,}{more}" if search.hits else "" if more else "nothing found"
        self.query_one("#search-count", Static).update(words if search.text else "")
