"""An app that shows one screen and records its results."""

from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.widgets import OptionList, Static
from tui_play import eventually

from ecoshell.tui.screens.picker import Picker


class Stage(App[None]):
    """Shows a screen once the app below it has been drawn."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self.shown = screen
        self.given: list[object] = []

    def compose(self) -> ComposeResult:
        yield Static("what was on the screen before")

    def on_ready(self) -> None:
        self.push_screen(self.shown, self.given.append)

    @property
    def seen(self) -> list[str]:
        """The lines on the screen."""
        strips = self.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.seen)


def listed(picker: Picker) -> list[str]:
    """The rows of the list."""
    return [str(option.prompt) for option in picker.query_one(OptionList).options]


def here(picker: Picker) -> str:
    """The highlighted row."""
    option = picker.query_one(OptionList).highlighted_option
    return "" if option is None else str(option.prompt)


async def read(pilot, picker: Picker) -> None:
    """Wait until the picker has loaded its list."""
    await eventually(
        pilot, lambda: picker.is_mounted and "reading" not in str(picker.query_one("#state").visual)
    )
