"""Completion of slash commands and `@file` mentions, in a list above the prompt.

The prompt keeps the focus and moves the highlight.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from textual.content import Content
from textual.events import Click
from textual.geometry import Size
from textual.widget import Widget

from ecoshell.errors import EcoshellError
from ecoshell.messages import visible_line
from ecoshell.tui.fuzzy import best, places, score
from ecoshell.tui.text import fit_end

if TYPE_CHECKING:
    from ecoshell.agent.command_table import Completion


MAX_ROWS = 8
_GAP = 2
_MAX_DRAWN_LENGTH = 400
"""Characters of an offer that are drawn."""
Completer = Callable[[str], "Sequence[Completion]"]
Values = Callable[[str], "Awaitable[Sequence[Completion]]"]
"""Completions that have to be requested."""
_MAX_COMMANDS = 100
Files = Callable[[], Awaitable[Sequence[str]]]
_MAX_NAMES = 50
_SETTLE_SECONDS = 0.3
"""How long a key that takes a completion waits for the search."""
_MENTION = re.compile(r'(?<![\w@/.+-])@(?:"(?P<quoted>[^"]*)|(?P<plain>[^\s"]*))$')
_UNQUOTED = re.compile(r"[^\s\"'`@<>()\[\]{},;|&$*?!#]+")
_FILE_NAME_BONUS = 10.0
"""Added to the score of a match in the last part of a path."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An entry of the list, and the text that replaces the input from `start` to the cursor."""

    label: str
    help: str
    insert: str
    start: tuple[int, int] = (0, 0)
    keep_end: bool = False
    """Whether a label that is too long is cut at its start, as for paths."""


class CompletionList(Widget, can_focus=False):
    """The completions of the current input; hidden without any."""

    HELP = "Tab takes the highlighted completion, up and down move, esc closes the list."
    COMPONENT_CLASSES = {"completion--current", "completion--help", "completion--matched"}  # noqa: RUF012 - as declared by Textual
    DEFAULT_CSS = """
    CompletionList {
        display: none;
        height: auto;
        background: $panel;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        &.-open { display: block; }
        & .completion--current { background: $primary 25%; text-style: bold; }
        & .completion--help { color: $foreground-muted; }
        & .completion--matched { text-style: bold underline; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.take: Callable[[], None] = lambda: None
        """Called when an offer is clicked and thereby highlighted."""
        self.offers: Sequence[Offer] = ()
        self._words: Sequence[str] = ()
        self._top = 0
        self.highlighted = 0

    @property
    def current(self) -> Offer:
        return self.offers[self.highlighted]

    def offer(self, offers: Sequence[Offer], words: Sequence[str] = (), *, at: int = 0) -> None:
        """Show offers with number `at` highlighted and the letters of `words` marked; without offers, close."""
        if not offers and not self.offers:
            return
        self.offers, self._words = offers, [word.lower() for word in words]
        self._top, self.highlighted = 0, at
        self.set_class(bool(offers), "-open")
        self.refresh(layout=True)

    def move(self, by: int, *, around: bool = True) -> None:
        """Move the highlight, wrapping around if `around`."""
        at, count = self.highlighted + by, len(self.offers)
        self.highlighted = at % count if around else max(0, min(at, count - 1))
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A row per offer, up to a third of the terminal."""
        return min(len(self.offers), row_limit(viewport.height))

    def render(self) -> Content:
        """The visible rows, with matching letters marked and the help next to them."""
        room, width = row_limit(self.screen.size.height), self.content_size.width - _GAP
        self._top = max(min(self._top, self.highlighted), self.highlighted - room + 1)
        visible = self.offers[self._top : self._top + room]
        labels = [Content(visible_line(offer.label[:_MAX_DRAWN_LENGTH])) for offer in visible]
        widths = [
            label.cell_length for offer, label in zip(visible, labels, strict=True) if offer.help
        ]
        column = max(widths, default=0) + _GAP
        matched, about, current = (
            self.get_visual_style(f"completion--{part}", partial=True)
            for part in ("matched", "help", "current")
        )
        rows: list[Content] = []
        for at, (offer, label) in enumerate(zip(visible, labels, strict=True), self._top):
            row, is_current = label, at == self.highlighted
            for place in places(self._words, label.plain.lower()):
                row = row.stylize(matched, place, place + 1)
            if offer.keep_end and row.cell_length > width > 0:
                row = Content("…") + row[len(row.plain) - len(fit_end(row.plain, width - 1)) :]
            if offer.help:
                words = Content(visible_line(offer.help))
                # muted text is hard to read on the highlight
                words = words if is_current else words.stylize(about)
                row = row.pad_right(max(_GAP, column - row.cell_length)) + words
            row = Content("› " if is_current else "  ") + row
            row = row.truncate(width + _GAP, ellipsis=True)
            if is_current:
                row = row.pad_right(max(0, width + _GAP - row.cell_length)).stylize_before(current)
            rows.append(row)
        return Content("\n").join(rows)

    def on_click(self, event: Click) -> None:
        at = self._top + event.get_content_offset_capture(self).y
        if 0 <= at < len(self.offers):
            self.highlighted = at
            self.take()


def row_limit(terminal_height: int) -> int:
    """The maximum height of the prompt or its list in a terminal of this height."""
    return max(1, min(MAX_ROWS, terminal_height // 3))


def command_offers(complete: Completer, typed: str) -> list[Offer]:
    """Commands, or values of the typed command: first those that start as typed, then fuzzy matches."""
    command, blank, argument = typed.partition(" ")
    exact = complete(typed)
    lines = {offer.text.lower(): offer for offer in exact}
    prefix, query = (f"{command} ", argument) if blank else ("/", typed[1:])
    candidates = ((offer.text[len(prefix) :].lower(), offer) for offer in complete(prefix))
    fuzzy, _ = best(query, candidates, _MAX_COMMANDS)
    for offer in fuzzy:
        lines.setdefault(offer.text.lower(), offer)
    return [
        Offer(offer.text, offer.help, offer.text if " " in offer.text else f"{offer.text} ")
        for offer in islice(lines.values(), _MAX_COMMANDS)
    ]


@dataclass(frozen=True, slots=True)
class Mention:
    """A mention being typed: line and column of its `@`, and its text up to the cursor."""

    start: tuple[int, int]
    query: str


def mention_at(line: str, row: int, column: int) -> Mention | None:
    """The mention that ends at the cursor, if any."""
    match = _MENTION.search(line[:column])
    if match is None:
        return None
    quoted: str | None = match["quoted"]
    return Mention((row, match.start()), match["plain"] if quoted is None else quoted)


def mention_text(path: str) -> str:
    """The path as a mention, `@notes.txt`, quoted if necessary."""
    return f"@{path}" if _UNQUOTED.fullmatch(path) else f'@"{path}"'


def best_names(names: Iterable[str], query: str) -> list[str]:
    """The names that match best: those in a file's own name first, then the shorter path."""
    letters = query.lower()
    pattern = "".join(f"[^{letter}]*{letter}" for letter in map(re.escape, letters))
    matches = re.compile(pattern).match  # faster than the score of each name

    def worth(name: str) -> float:
        text = name.lower()
        in_name = score((letters,), text.rstrip("/").rpartition("/")[2])
        return _FILE_NAME_BONUS + in_name if in_name else score((letters,), text)

    candidates = (name for name in sorted(names, key=len) if matches(name.lower()))
    return nlargest(_MAX_NAMES, candidates, key=worth)


@dataclass(slots=True, eq=False, repr=False)
class MentionSearch:
    """Searches names for the current mention in a thread; results for an older one are dropped."""

    show: Callable[[Mention, list[str]], None]
    files: Files | None = None
    """Lists the names; None before the shell is open."""
    _mention: Mention | None = None
    _names: Sequence[str] = ()
    _listed_for: tuple[int, int] | None = None
    _task: asyncio.Task[None] | None = None

    def search(self, mention: Mention | None) -> None:
        """Search names for this mention; None cancels."""
        self._mention = mention
        if mention is None:
            self._listed_for = None
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._search())

    async def settle(self) -> None:
        """Wait briefly for a running search."""
        if self._mention is not None and self._task is not None:
            await asyncio.wait([self._task], timeout=_SETTLE_SECONDS)

    async def _search(self) -> None:
        done: Mention | None = None
        while (mention := self._mention) is not None and mention != done:
            if mention.start != self._listed_for:  # files may have changed since the last mention
                self._listed_for, self._names = mention.start, ()
                with suppress(EcoshellError, OSError):  # no completion then
                    self._names = await self.files() if self.files else ()
            matches = await asyncio.to_thread(best_names, self._names, mention.query)
            done = mention
            if mention == self._mention:
                self.show(mention, matches)
