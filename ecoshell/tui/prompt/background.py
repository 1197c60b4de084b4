"""The background commands above the prompt, in one line while any runs."""

from typing import TYPE_CHECKING

from textual.widgets import Static

if TYPE_CHECKING:
    from ecoshell.events import Event

_COMMAND_LENGTH = 40


class BackgroundLine(Static):
    """The commands that run in the background; takes no space without one."""

    DEFAULT_CSS = """
    BackgroundLine {
        height: 1;
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
        self._commands: dict[str, str] = {}

    def handle(self, event: "Event") -> None:
        """Follow the start and the end of commands."""
        from ecoshell.events import BackgroundEnded, BackgroundStarted  # not for the first frame
        from ecoshell.messages import visible_line

        if isinstance(event, BackgroundStarted):
            self._commands[event.id] = visible_line(event.command, _COMMAND_LENGTH)
        elif isinstance(event, BackgroundEnded):
            self._commands.pop(event.id, None)
        else:
            return
        self.set_class(bool(self._commands), "-on")
        self.update(f"► in the background: {' · '.join(map(' '.join, self._commands.items()))}")
