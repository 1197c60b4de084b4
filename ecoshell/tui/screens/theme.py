"""The theme picker: a theme is tried on while it is highlighted."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from ecoshell.tui.screens.picker import Picker, PickerColumn, PickerRow
from ecoshell.tui.themes import Broken, Look, ThemedApp

NO_COLOR = "No colour is sent: NO_COLOR is set, or the terminal has none. What you pick is worn where there is colour."


class ThemePicker(Picker[Look | Broken]):
    """All themes; the highlighted one is worn by the whole app, esc puts back the one before."""

    HEADING = "theme"
    COLUMNS = (PickerColumn("theme"), PickerColumn("kind"))
    NOTHING = "There are no themes."
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "keep it")]
    HELP = (
        "Each theme is worn while it is highlighted. Enter keeps it in the settings, esc goes back to the one before."
    )
    DEFAULT_CSS = """
    ThemePicker {
        align: right top;
        background: transparent;
        & > Vertical, &.-narrow > Vertical { width: 38; height: 100%; }
        #detail { height: 6; }
    }
    """
    app: ThemedApp[int]

    def __init__(self, current: str) -> None:
        super().__init__()
        self._worn = current
        """What is on when the picker closes."""

    async def load(self) -> Sequence[Look | Broken]:
        """The themes by name, and below them the files that cannot be used."""
        themes = await self.app.learn_themes()
        works: Sequence[Look] = sorted(themes.all, key=lambda theme: theme.name)
        return [*works, *themes.broken]

    def key(self, item: Look | Broken) -> str:
        """Its name; a broken one may bear the name of one that works."""
        return item.name if isinstance(item, Look) else f"{item.file.stem} ×"

    def row(self, item: Look | Broken) -> PickerRow:
        """Its name and kind."""
        kind = "cannot be used"
        if isinstance(item, Look):
            kind = "no colour" if item.colorless else "dark" if item.dark else "light"
        return PickerRow((self.key(item), kind))

    def detail(self, item: Look | Broken) -> str:
        """What is wrong with it, or with the terminal."""
        if isinstance(item, Broken):
            return f"{item.reason}\n{item.file}"
        return NO_COLOR if self.app.forced_mono else ""

    def preview(self, item: Look | Broken) -> None:
        """Wear it; the one before, while it is none that works."""
        self.app.wear(item.name if isinstance(item, Look) else self._worn)

    def result(self, item: Look | Broken) -> str | None:
        """Its name, which is worn from now on."""
        if isinstance(item, Broken):
            return None
        self._worn = item.name
        return item.name

    def first(self) -> str:
        """The one that is worn."""
        return self._worn

    def on_unmount(self) -> None:
        """Wear what was picked, or what was worn before."""
        self.app.wear(self._worn)
