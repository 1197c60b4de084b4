"""Search in the whole transcript, including folded and unpainted parts, and its search bar."""

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
"""Seconds of searching before other tasks run."""


class Hit(NamedTuple):
    """One match of a query."""

    item: BlockItem
    section: int
    """Index of the section in the opened block."""
    nth: int
    """Index of the match in the section."""


class Span(NamedTuple):
    """A part of a line, in characters."""

    line: int
    start: int
    end: int


class Search:
    """One query: its matches so far, from top to bottom, and the current one.

    It ignores case, and any white space matches between words.
    """

    def __init__(self, text: str, column: BlockColumn, begin_at: BlockItem | None) -> None:
        """The first move goes to a match in the block `begin_at` or below it, if there is one."""
        self.text = text.strip()
        self.hits: list[Hit] = []
        self.now = -1
        self.done = False
        self._begin_at = begin_at
        self._words = text.lower().split()
        self._query = re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)
        self._column = column

    async def run(self) -> AsyncIterator[None]:
        """Search all blocks; yields after each time slice and at the end."""
        paused = perf_counter()
        for item in list(self._column.items) if self._words else ():
            source = item.full_text.lower()
            # otherwise there is no need to lay it out
            if all(word in source for word in self._words):
                laid_out = None if item.block.foldable else item.sections
                for at, section in enumerate(laid_out or sections_of(item.block, opened=True)):
                    rows = section.rows(self._column.painter.inside)
                    count = sum(1 for row in rows for _ in self._query.finditer(row.text))
                    self.hits += (Hit(item, at, nth) for nth in range(count))
            if perf_counter() - paused > _SLICE:
                yield
                await asyncio.sleep(0)
                paused = perf_counter()
        self.done = True
        yield

    def move(self, by: int) -> int | None:
        """Go to another match, wrapping around; return its line, unfolded, or None without matches."""
        if any(hit.item.index < 0 for hit in self.hits):  # their block was replaced
            self.hits, self.now = [hit for hit in self.hits if hit.item.index >= 0], -1
        if not self.hits:
            return None
        if self.now >= 0:
            self.now = (self.now + by) % len(self.hits)
        elif by < 0:
            self.now = len(self.hits) - 1
        else:
            start = self._begin_at.index if self._begin_at else 0
            self.now = next((at for at, hit in enumerate(self.hits) if hit.item.index >= start), 0)
        hit = self.hits[self.now]
        if hit.item.block.foldable and not hit.item.opened:
            self._column.fold(hit.item, opened=True)
        top = self._column.line_of(Spot(hit.item, hit.section, 0))  # paints the section
        painted = hit.item.painted[hit.section] if hit.section < len(hit.item.painted) else None
        begins = [spans[0].line for spans in self._matches(painted or [])]
        return top + (begins[min(hit.nth, len(begins) - 1)] if begins else 0)

    def _matches(self, lines: Sequence[PaintedLine]) -> Iterator[list[Span]]:
        """The matches in painted lines; a wrapped match has several spans."""
        start = 0
        for end in range(1, len(lines) + 1):
            if end < len(lines) and lines[end].glue is not None:
                continue  # a wrapped line
            text = ""
            begins: list[int] = []
            for line in lines[start:end]:
                text += (line.glue or "") if text else ""
                begins.append(len(text))
                text += line.text
            for match in self._query.finditer(text):
                spans: list[Span] = []
                for at, begin in enumerate(begins, start):
                    lead = lines[at].lead
                    first = max(match.start(), begin)
                    last = min(match.end(), begin + len(lines[at].text))
                    if first < last:
                        spans.append(Span(at, first - begin + lead, last - begin + lead))
                if spans:
                    yield spans
            start = end

    def highlights(self, item: BlockItem, section: int, line: int) -> list[tuple[int, int, bool]]:
        """Start and end of every match on a line of a section, and whether it is the current one."""
        now = self.hits[self.now] if self.now >= 0 else None
        at = now.nth if now and now.item is item and now.section == section else -1
        matches = enumerate(self._matches(item.painted[section] or []))
        return [
            (span.start, span.end, nth == at)
            for nth, spans in matches
            for span in spans
            if span.line == line
        ]


class SearchBar(Horizontal):
    """A line below the transcript while a search is open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down", "move(1)", "next", priority=True),
        Binding("shift+enter,up", "move(-1)", "previous", priority=True),
        Binding("escape", "close", "close", priority=True),
    ]
    HELP = "Type to search. Enter or down goes to the next match, up to the previous one, esc closes the search."
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
        """Start another search, and go to its first match."""
        self._moved = False
        column = self._transcript.column
        spot = column.spot(self._transcript.scroll_offset.y)
        search = self._search = self._transcript.search = Search(
            event.value, column, spot.item if spot else None
        )
        async for _ in search.run():
            self._count(search)
        if search.hits and not self._moved:
            self.action_move(1)

    def action_move(self, by: int) -> None:
        self._moved = True
        self._transcript.action_go_to_match(by)
        if self._search is not None:
            self._count(self._search)

    def action_close(self) -> None:
        """End the search without scrolling."""
        self._transcript.search = None
        self._transcript.focus()
        self.remove()

    def _count(self, search: Search) -> None:
        words = ""
        if search.hits:
            more = "" if search.done else " …"
            words = f"{search.now + 1:,} of {len(search.hits):,}{more}"
        elif search.done and search.text:
            words = "no match"
        self.query_one("#search-count", Static).update(words)
