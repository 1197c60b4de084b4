"""The list above the prompt: what could be typed or recalled. The prompt keeps the focus and moves the highlight."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from ecoshell.tui.fuzzy import places
from ecoshell.untrusted import visible_line

TALLEST = 8
"""Rows; less where the terminal is low."""
_GAP = 2
_SHOWN = 400
"""Characters of an offer that are looked at to draw its row."""


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

    class Taken(Message):
        """The highlighted offer was clicked."""

    def __init__(self) -> None:
        super().__init__()
        self._offers: Sequence[Offer] = ()
        self._words: Sequence[str] = ()
        self._top = 0
        self.highlighted = 0

    @property
    def is_open(self) -> bool:
        """Whether it is on the screen."""
        return bool(self._offers)

    @property
    def offers(self) -> Sequence[Offer]:
        """What it shows."""
        return self._offers

    @property
    def current(self) -> Offer:
        """The highlighted offer; there is one while the list is open."""
        return self._offers[self.highlighted]

    def offer(self, offers: Sequence[Offer], words: Sequence[str] = (), *, at: int = 0) -> None:
        """Show these, number `at` highlighted and the letters of `words` marked; nothing to offer closes the list."""
        if not offers and not self._offers:
            return
        self._offers, self._words = offers, [word.lower() for word in words]
        self._top = 0
        self.set_class(bool(offers), "-open")
        self._highlight(at)
        self.refresh(layout=True)

    def move(self, by: int, *, around: bool = True) -> None:
        """Move the highlight, round and round or to the end."""
        at = self.highlighted + by
        self._highlight(at % len(self._offers) if around else max(0, min(at, len(self._offers) - 1)))
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A row for each offer, as far as a third of the terminal takes them."""
        return min(len(self._offers), lowered(viewport.height))

    def render(self) -> Content:
        """The rows around the highlight."""
        shown = self._offers[self._top : self._top + self._height]
        column = max((Content(_line(offer)).cell_length for offer in shown if offer.help), default=0) + _GAP
        return Content("\n").join(self._row(self._top + at, offer, column) for at, offer in enumerate(shown))

    def on_click(self, event: Click) -> None:
        """Take the row."""
        at = self._top + event.get_content_offset_capture(self).y
        if 0 <= at < len(self._offers):
            self._highlight(at)
            self.post_message(self.Taken())

    @property
    def _height(self) -> int:
        return lowered(self.screen.size.height)

    def _highlight(self, at: int) -> None:
        self.highlighted = at
        self._top = max(min(self._top, at), at - self._height + 1)

    def _row(self, at: int, offer: Offer, column: int) -> Content:
        width = self.content_size.width - _GAP
        label, is_current = Content(_line(offer)), at == self.highlighted
        for place in places(self._words, label.plain.lower()):
            label = label.stylize(self.get_visual_style("completion--matched", partial=True), place, place + 1)
        if offer.by_its_end and label.cell_length > width > 0:
            label = Content("…") + label[len(label.plain) - width + 1 :]
        if offer.help:
            about = Content(visible_line(offer.help))
            if not is_current:  # quiet words could not be read on the highlight
                about = about.stylize(self.get_visual_style("completion--help", partial=True))
            label = label.pad_right(max(_GAP, column - label.cell_length)) + about
        row = (Content("› " if is_current else "  ") + label).truncate(width + _GAP, ellipsis=True)
        if is_current:
            row = row.pad_right(max(0, width + _GAP - row.cell_length))
            row = row.stylize_before(self.get_visual_style("completion--current", partial=True))
        return row


def lowered(terminal_height: int) -> int:
    """How many rows the prompt, or the list above it, may take in a terminal of this height."""
    return max(1, min(TALLEST, terminal_height // 3))


def _line(offer: Offer) -> str:
    return visible_line(offer.label[:_SHOWN])
