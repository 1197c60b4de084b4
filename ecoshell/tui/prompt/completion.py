"""What could be typed or recalled: slash commands and `@file` mentions, in a list above the prompt.

The prompt keeps the focus and moves the highlight.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
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
    from ecoshell.agent.commands import Completion


TALLEST = 8
"""Rows; less where the terminal is low."""
_GAP = 2
_SHOWN = 400
"""Characters of an offer that are looked at to draw its row."""
Completer = Callable[[str], "Sequence[Completion]"]
Values = Callable[[str], "Awaitable[Sequence[Completion]]"]
"""The lines that a line could become, where that has to be asked for."""
_MOST_COMMANDS = 100
Files = Callable[[], Awaitable[Sequence[str]]]
_MOST_NAMES = 50
_PATIENCE = 0.3
"""Seconds that a key which takes a completion waits for the names it would take it from."""
_BEGUN = re.compile(r'(?<![\w@/.+-])@(?:"(?P<quoted>[^"]*)|(?P<plain>[^\s"]*))$')
_PLAIN = re.compile(r"[^\s\"'`@<>()\[\]{},;|&$*?!#]+")
_IN_THE_NAME = 10.0
"""More than a match is worth elsewhere in a path."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What stands in the list, and what taking it puts in the place of the text from `start` to the cursor."""

    label: str
    help: str
    insert: str
    start: tuple[int, int] = (0, 0)
    """Line and column."""
    by_its_end: bool = False
    """Whether the end of a label that is too long says more than its beginning, as with paths."""


class CompletionList(Widget, can_focus=False):
    """What the text in the prompt could become; hidden while there is nothing to offer."""

    HELP = "Tab takes the highlighted completion, up and down move, esc closes the list."
    COMPONENT_CLASSES = {"completion--current", "completion--help", "completion--matched"}  # noqa: RUF012 - declared so by Textual
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
        """Called when an offer is clicked, which is highlighted then."""
        self.offers: Sequence[Offer] = ()
        self._words: Sequence[str] = ()
        self._top = 0
        self.highlighted = 0

    @property
    def current(self) -> Offer:
        """The highlighted offer; there is one while the list is open."""
        return self.offers[self.highlighted]

    def offer(self, offers: Sequence[Offer], words: Sequence[str] = (), *, at: int = 0) -> None:
        """Show these, number `at` highlighted and the letters of `words` marked; nothing to offer closes the list."""
        if not offers and not self.offers:
            return
        self.offers, self._words = offers, [word.lower() for word in words]
        self._top, self.highlighted = 0, at
        self.set_class(bool(offers), "-open")
        self.refresh(layout=True)

    def move(self, by: int, *, around: bool = True) -> None:
        """Move the highlight, round and round or to the end."""
        at = self.highlighted + by
        self.highlighted = at % len(self.offers) if around else max(0, min(at, len(self.offers) - 1))
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A row for each offer, as far as a third of the terminal takes them."""
        return min(len(self.offers), lowered(viewport.height))

    def render(self) -> Content:
        """The rows around the highlight, with the letters that were typed marked, and the help beside them."""
        room, width = lowered(self.screen.size.height), self.content_size.width - _GAP
        self._top = max(min(self._top, self.highlighted), self.highlighted - room + 1)
        shown = self.offers[self._top : self._top + room]
        labels = [Content(visible_line(offer.label[:_SHOWN])) for offer in shown]
        helped = (label.cell_length for offer, label in zip(shown, labels, strict=True) if offer.help)
        column = max(helped, default=0) + _GAP
        rows: list[Content] = []
        for at, (offer, label) in enumerate(zip(shown, labels, strict=True), self._top):
            row, is_current = label, at == self.highlighted
            for place in places(self._words, label.plain.lower()):
                row = row.stylize(self.get_visual_style("completion--matched", partial=True), place, place + 1)
            if offer.by_its_end and row.cell_length > width > 0:
                row = Content("…") + row[len(row.plain) - len(fit_end(row.plain, width - 1)) :]
            if offer.help:
                about = Content(visible_line(offer.help))
                if not is_current:  # quiet words could not be read on the highlight
                    about = about.stylize(self.get_visual_style("completion--help", partial=True))
                row = row.pad_right(max(_GAP, column - row.cell_length)) + about
            row = (Content("› " if is_current else "  ") + row).truncate(width + _GAP, ellipsis=True)
            if is_current:
                row = row.pad_right(max(0, width + _GAP - row.cell_length))
                row = row.stylize_before(self.get_visual_style("completion--current", partial=True))
            rows.append(row)
        return Content("\n").join(rows)

    def on_click(self, event: Click) -> None:
        at = self._top + event.get_content_offset_capture(self).y
        if 0 <= at < len(self.offers):
            self.highlighted = at
            self.take()


def lowered(terminal_height: int) -> int:
    """How many rows the prompt, or the list above it, may take in a terminal of this height."""
    return max(1, min(TALLEST, terminal_height // 3))


def command_offers(complete: Completer, typed: str) -> list[Offer]:
    """Lines that begin as typed, then those that hold its letters: commands, or the choices of the one typed."""
    command, blank, argument = typed.partition(" ")
    exact = complete(typed)
    lines = {offer.text.lower(): offer for offer in exact}
    stem, sought = (f"{command} ", argument) if blank else ("/", typed[1:])
    fuzzy, _ = best(sought, ((one.text[len(stem) :].lower(), one) for one in complete(stem)), _MOST_COMMANDS)
    for offer in fuzzy:
        lines.setdefault(offer.text.lower(), offer)
    shown = list(lines.values())[:_MOST_COMMANDS]
    return [Offer(one.text, one.help, one.text if " " in one.text else f"{one.text} ") for one in shown]


@dataclass(frozen=True, slots=True)
class Mention:
    """A mention that is being typed: line and column of its `@`, and what stands between that and the cursor."""

    start: tuple[int, int]
    query: str


def mention_at(line: str, row: int, column: int) -> Mention | None:
    """The mention that the cursor stands at the end of, if any."""
    begun = _BEGUN.search(line[:column])
    if begun is None:
        return None
    quoted: str | None = begun["quoted"]
    return Mention((row, begun.start()), begun["plain"] if quoted is None else quoted)


def written(path: str) -> str:
    """The path as a mention: `@notes.txt`, in quotes where it has blanks or signs."""
    return f"@{path}" if _PLAIN.fullmatch(path) else f'@"{path}"'


class Names:
    """The files that can be mentioned, searched letter by letter; each search looks through what the last one left."""

    def __init__(self, names: Iterable[str]) -> None:
        self._all = [(name.lower(), name) for name in sorted(names, key=len)]
        self._left = self._all
        self._query = ""

    def best(self, query: str) -> list[str]:
        """The likeliest names; a match in a file's own name goes before one in its folders, the shorter path first."""
        wanted = query.lower()
        among = self._left if wanted.startswith(self._query) else self._all
        fits = re.compile("".join(f"[^{letter}]*{letter}" for letter in map(re.escape, wanted))).match
        self._left = [pair for pair in among if fits(pair[0])]
        self._query = wanted
        if not wanted:
            return [name for _, name in self._left[:_MOST_NAMES]]
        found: list[tuple[float, str]] = []
        for text, name in self._left:
            inside = score((wanted,), text.rstrip("/").rpartition("/")[2])
            found.append((_IN_THE_NAME + inside if inside else score((wanted,), text), name))
        found.sort(key=itemgetter(0), reverse=True)
        return [name for _, name in found[:_MOST_NAMES]]


@dataclass(slots=True, eq=False, repr=False)
class MentionSearch:
    """Finds the names for the mention of the moment, off the event loop; an older one's are never shown."""

    show: Callable[[Mention, list[str]], None]
    files: Files | None = None
    """Gives the names; None before anybody can."""
    _wanted: Mention | None = None
    _names: Names = field(default_factory=lambda: Names(()))
    _named_for: tuple[int, int] | None = None
    _task: asyncio.Task[None] | None = None

    def want(self, mention: Mention | None) -> None:
        """Find what this could name; None when nothing is being mentioned any more."""
        self._wanted = mention
        if mention is None:
            self._named_for = None
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._search())

    async def settle(self) -> None:
        """Wait a little for what is being looked for."""
        if self._wanted is not None and self._task is not None:
            await asyncio.wait([self._task], timeout=_PATIENCE)

    async def _search(self) -> None:
        found_for: Mention | None = None
        while (wanted := self._wanted) is not None and wanted != found_for:
            if wanted.start != self._named_for:  # a new mention: files may have come and gone
                self._named_for = wanted.start
                names: Sequence[str] = ()
                with suppress(EcoshellError, OSError):  # nothing can be completed then; what is typed is as good
                    names = await self.files() if self.files else ()
                self._names = await asyncio.to_thread(Names, names)
            found = await asyncio.to_thread(self._names.best, wanted.query)
            found_for = wanted
            if wanted == self._wanted:
                self.show(wanted, found)
