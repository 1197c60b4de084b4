"""The list of completions above the prompt: the prompt keeps the focus and moves the list's highlight."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ecoshell.untrusted import visible_line

if TYPE_CHECKING:
    from ecoshell.agent.commands import Completion

_TALLEST = 8


class CompletionList(OptionList, can_focus=False):
    """What the line in the prompt could become; hidden while there is nothing to offer."""

    HELP = "Tab takes the highlighted completion, up and down move, esc closes the list."
    DEFAULT_CSS = """
    CompletionList {
        display: none;
        height: auto;
        max-height: 8;
        border: none;
        padding: 0 1;
        background: $panel;
        &.-open { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__(compact=True)
        self._offers: Sequence[Completion] = ()

    @property
    def is_open(self) -> bool:
        """Whether it is on the screen."""
        return bool(self._offers)

    @property
    def current(self) -> "Completion":
        """The highlighted completion; there is one while the list is open."""
        return self._offers[self.highlighted or 0]

    def offer(self, completions: "Sequence[Completion]") -> None:
        """Show these, the first one highlighted; nothing to offer closes the list."""
        self._offers = completions
        width = max((len(offer.text) for offer in completions), default=0) + 2
        self.set_options(Option(_line(offer, width)) for offer in completions)
        self.highlighted = 0 if completions else None
        self.set_class(bool(completions), "-open")

    def move(self, by: int) -> None:
        """Move the highlight, round and round."""
        self.highlighted = ((self.highlighted or 0) + by) % len(self._offers)


def _line(offer: "Completion", width: int) -> Text:
    return Text.assemble((visible_line(offer.text).ljust(width), "bold"), visible_line(offer.help), no_wrap=True)
