"""The agent's task list above the prompt: one line when folded, otherwise a line per item."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

if TYPE_CHECKING:  # not for the first frame
    from ecoshell.events import Event, TodoItem
    from ecoshell.events.work import TodoState

_SIGNS: "Mapping[TodoState, str]" = {"done": "√", "in_progress": "►", "pending": "○"}
_STYLES: "Mapping[TodoState, str]" = {
    "done": "$text-success",
    "in_progress": "bold $text-accent",
    "pending": "",
}
_MAX_ITEMS = 8
_TALL = 30
"""Screen height from which the list starts unfolded."""


class TodoList(Static):
    """The current task list; takes no space without one."""

    DEFAULT_CSS = """
    TodoList {
        height: auto;
        padding: 0 2;
        color: $text-muted;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        display: none;
        &.-on { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._items: tuple[TodoItem, ...] = ()
        self._folded: bool | None = None
        """The user's choice; None leaves it to the height of the screen."""

    def handle(self, event: "Event") -> None:
        """Follow the list; a new question ends one that is done."""
        from ecoshell.events import TodoChanged, TurnStarted
        from ecoshell.events.work import is_done

        if isinstance(event, TodoChanged):
            self.show(event.items)
        elif isinstance(event, TurnStarted) and self._items and is_done(self._items):
            self.show(())

    def show(self, items: "tuple[TodoItem, ...]") -> None:
        """Show these items; without any, hide the list."""
        self._items = items
        self.set_class(bool(items), "-on")
        if items:
            self.update(self._content())

    def toggle(self) -> bool:
        """Fold or unfold the list; returns whether there is one."""
        self._folded = not self._is_folded
        self.show(self._items)
        return bool(self._items)

    def on_resize(self) -> None:
        """Follow the height of the screen, unless the user has folded or opened the list."""
        self.show(self._items)

    def on_click(self) -> None:
        self.toggle()

    @property
    def _is_folded(self) -> bool:
        return self.screen.size.height < _TALL if self._folded is None else self._folded

    def _content(self) -> Content:
        from ecoshell.events.work import todo_headline
        from ecoshell.messages import visible_line

        sign, verb = ("►", "opens") if self._is_folded else ("▼", "folds")
        lines = [Content(f"{sign} {todo_headline(self._items)} · alt+t {verb}")]
        if not self._is_folded:
            first = self._first_row()
            rows = self._items[first : first + _MAX_ITEMS]
            for item in rows:
                text = f"  {_SIGNS[item.state]} {visible_line(item.text)}"
                lines.append(Content.styled(text, _STYLES[item.state]))
            if len(rows) < len(self._items):
                lines.append(Content(f"  … {len(self._items) - len(rows)} more"))
        return Content("\n").join(lines)

    def _first_row(self) -> int:
        """The index of the first shown item: one before the first open item of a long list."""
        is_open = (at for at, item in enumerate(self._items) if item.state != "done")
        return max(0, min(next(is_open, 0) - 1, len(self._items) - _MAX_ITEMS))
