"""The choice of a model at the first start."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.binding import Binding, BindingType
from textual.events import Key
from textual.widgets import OptionList

from ecoshell.messages import visible_line
from ecoshell.models import StartingModel
from ecoshell.tui.questions import Question, start_message
from ecoshell.tui.text import align_left, fit_middle

_NAME_CELLS = 44


class StartQuestion(Question[StartingModel | None]):
    """Which model shall answer?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "use it"),
        Binding("escape", "back", "not now"),
    ]
    HELP = "Up and down choose a model, enter uses it from now on. Any letter starts a message; f7 opens all models."
    DEFAULT_CSS = """
    StartQuestion {
        OptionList {
            height: auto; max-height: 100%; border: none; padding: 0; background: transparent;
            scrollbar-size-vertical: 1;
        }
    }
    """

    def __init__(self, offers: Sequence[StartingModel]) -> None:
        self._offers = offers
        names = [fit_middle(visible_line(offer.name), _NAME_CELLS) for offer in offers]
        width = max(map(cell_len, names))
        pairs = zip(names, offers, strict=True)
        lines = [f"{align_left(name, width)}  {offer.words}" for name, offer in pairs]
        self._list = OptionList(*lines, markup=False, compact=True)
        super().__init__("which model shall answer?", None, self._list)

    def on_mount(self) -> None:
        self._list.highlighted = 0
        self._list.focus()

    def action_select(self) -> None:
        self.resolve(self._offers[self._list.highlighted or 0])

    @on(OptionList.OptionSelected)
    def selected(self, event: OptionList.OptionSelected) -> None:
        self.resolve(self._offers[event.option_index])

    def on_focus(self) -> None:
        self._list.focus()

    async def on_key(self, event: Key) -> None:
        """A letter starts a message without a choice."""
        start_message(self, event)
