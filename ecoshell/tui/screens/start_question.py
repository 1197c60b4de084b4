"""The choice of a model at the first start."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.binding import Binding, BindingType
from textual.widgets import OptionList

from ecoshell.messages import visible_line
from ecoshell.models import StartingModel
from ecoshell.tui.questions import Question
from ecoshell.tui.text import align_left, fit_middle

_NAME_CELLS = 44
_MOVES = {
    "up": "cursor_up", "down": "cursor_down", "home": "first", "end": "last", "pageup": "page_up",
    "pagedown": "page_down",
}  # fmt: skip
"""The keys of the list, which cannot have the focus itself, and their actions."""


class StartQuestion(Question[StartingModel | None]):
    """Which model shall answer?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "use it"),
        Binding("escape", "back", "not now"),
        *(Binding(key, f"move('{action}')", action, show=False) for key, action in _MOVES.items()),
    ]
    HELP = "Up and down choose a model, enter uses it from now on. Any letter starts a message; f7 opens all models."
    DEFAULT_CSS = """
    StartQuestion {
        OptionList {
            height: auto; max-height: 100%; border: none; padding: 0; background: transparent;
            scrollbar-size-vertical: 1;
        }
        &:focus .option-list--option-highlighted {
            color: $block-cursor-foreground;
            background: $block-cursor-background;
            text-style: $block-cursor-text-style;
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
        self._list.can_focus = False
        super().__init__("which model shall answer?", None, self._list)

    def on_mount(self) -> None:
        self._list.highlighted = 0

    async def action_move(self, action: str) -> None:
        await self._list.run_action(action)

    def action_select(self) -> None:
        self.resolve(self._offers[self._list.highlighted or 0])

    @on(OptionList.OptionSelected)
    def selected(self, event: OptionList.OptionSelected) -> None:
        self.resolve(self._offers[event.option_index])
