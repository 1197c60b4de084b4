"""Keys handled in the order they were typed, text input widgets, and the footer."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from rich.cells import cell_len
from textual.events import Key
from textual.geometry import Offset
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, Input, TextArea
from textual.widgets._footer import FooterKey

_DROPPED_FIRST = (("f2", "f3", "f4"), ("ctrl+q",), ("ctrl+p",), ("f1",))
"""Keys that a narrow footer drops, in this order; help and palette list them all."""


@dataclass
class Hint(Message):
    """A message for the user, shown where hints appear."""

    text: str


async def act_at_once(widget: Widget, key: str) -> bool:
    """Run the action this widget binds to a key now; return whether it binds one.

    Bubbling to the app would run it after all keys of the same packet, as on a slow connection: letters typed after a
    backspace would be deleted by it.
    """
    bound = widget.screen.active_bindings.get(key)
    if bound is None or bound.node is not widget or not bound.enabled:
        return False
    await widget.run_action(bound.binding.action)
    return True


class KeysInOrder:
    """Mixin, placed before the widget class, that handles bound keys in the order they were typed.

    It is not a widget itself: Textual takes styles and bindings from the first base that is one.
    """

    async def _on_key(self, event: Key) -> None:
        if await act_at_once(cast("Widget", self), event.key):
            event.stop()
            event.prevent_default()  # otherwise other handlers follow


class LineInput(KeysInOrder, Input):
    """A single-line input."""


class TextInput(TextArea):
    """A multi-line input."""

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        """Do nothing in the middle of an edit, while the cursor is beyond the last line."""
        is_beyond_end = self.cursor_location[0] >= self.document.line_count
        return Offset() if is_beyond_end else super().scroll_cursor_visible(center, animate)


class KeyLine(Footer):
    """The active keys; if they do not all fit, the global ones are dropped first."""

    _shown: tuple[tuple[str, str, str, bool], ...] = ()

    def bindings_changed(self, screen: Screen[Any]) -> None:
        """Draw the keys again if one of them changed."""
        active = screen.active_bindings.values()
        shown = tuple(
            (bound.binding.key, bound.binding.action, bound.binding.description, bound.enabled)
            for bound in active
            if bound.binding.show
        )
        if shown != self._shown:
            super().bindings_changed(screen)  # pyright: ignore[reportUnknownMemberType]
            has_focus = self.app.app_focus  # pyright: ignore[reportUnknownMemberType]
            is_drawn = has_focus and self.is_attached and screen is self.screen
            self._shown = shown if is_drawn else ()

    def compose(self) -> Iterable[Widget]:
        keys = [key for key in super().compose() if isinstance(key, FooterKey)]
        for less in _DROPPED_FIRST:
            if (
                sum(cell_len(f"{key.key_display} {key.description} ") for key in keys)
                > self.screen.size.width
            ):
                keys = [key for key in keys if key.key not in less]
        return keys

    def on_resize(self) -> None:
        """Recompute the keys for the new width, except before the first frame."""
        if self.children:
            self.refresh(recompose=True)
