"""Keys in the order they were typed, the line that tells of them, and what is said of one that did nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from rich.cells import cell_len
from textual.events import Key
from textual.geometry import Offset
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Footer, Input, TextArea
from textual.widgets._footer import FooterKey

_GO_FIRST = (("f2", "f3", "f4"), ("ctrl+q",), ("ctrl+p",), ("f1",))
"""Keys that the line leaves out where it is too short, the first ones first: help and palette tell of them."""


@dataclass
class Hint(Message):
    """Something to tell the person where hints are shown."""

    text: str


async def act_at_once(widget: Widget, key: str) -> bool:
    """Do now what a key that this widget binds does; says whether it binds it.

    Left to bubble to the app, the key would act after all that came in the same packet, as over a slow line: letters
    typed after a backspace would be taken away by it.
    """
    bound = widget.screen.active_bindings.get(key)
    if bound is None or bound.node is not widget or not bound.enabled:
        return False
    await widget.run_action(bound.binding.action)
    return True


class KeysInOrder:
    """What comes before a widget among a class's bases, so that its keys act in the order they were typed.

    It is no widget itself: Textual takes styles and keys from the first base that is one.
    """

    async def _on_key(self, event: Key) -> None:
        if await act_at_once(cast("Widget", self), event.key):
            event.stop()
            event.prevent_default()  # else the keys of the other widget follow


class Field(KeysInOrder, Input):
    """A line to type in."""


class Lines(TextArea):
    """Lines to type in."""

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Textual wants it amid an edit as well, when the cursor's line may be gone and the cursor is still there."""
        gone = self.cursor_location[0] >= self.document.line_count
        return Offset() if gone else super().scroll_cursor_visible(center, animate)


class KeyLine(Footer):
    """The keys that do something now; where there is no room for all of them, those of where one is come first."""

    def compose(self) -> Iterable[Widget]:
        keys = [key for key in super().compose() if isinstance(key, FooterKey)]
        for less in _GO_FIRST:
            if sum(cell_len(f"{key.key_display} {key.description} ") for key in keys) > self.screen.size.width:
                keys = [key for key in keys if key.key not in less]
        return keys

    def on_resize(self) -> None:
        """Have room for other keys; the first frame comes before any."""
        if self.children:
            self.refresh(recompose=True)
