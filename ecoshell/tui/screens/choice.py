"""A few words to choose one from."""

from collections.abc import Sequence

from ecoshell.tui.screens.columns import Column
from ecoshell.tui.screens.picker import Picker, Row


class ChoicePicker(Picker[str]):
    """Gives back the word that was chosen; begins on the one that holds."""

    COLUMNS = (Column("choice"), Column("now"))
    DEFAULT_CSS = """
    ChoicePicker {
        & > Vertical, &.-narrow > Vertical { width: 50; height: 16; }
    }
    """

    def __init__(self, asked: str, choices: Sequence[str], now: str, said: str = "") -> None:
        super().__init__()
        self._asked = asked
        self._choices = choices
        self._now = now
        self._said = said

    async def load(self) -> Sequence[str]:
        return self._choices

    def key(self, item: str) -> str:
        return item

    def row(self, item: str) -> Row:
        return Row((item, "√" if item == self._now else ""))

    def detail(self, item: str) -> str:
        return self._said

    def first(self) -> str:
        return self._now

    def on_mount(self) -> None:
        """Say what is chosen."""
        self.query_one("Vertical").border_title = self._asked
