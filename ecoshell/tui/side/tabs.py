"""The tabs of a narrow screen: which panel stands in the place of the transcript."""

from rich.cells import cell_len
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import Static

TABS = (("tools", "f2"), ("plan", "f3"), ("cost", "f4"))
"""Each tab and the key that shows it."""


class TabRow(Static):
    """One line that names the tabs; the one that is shown stands in brackets and stands out."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    TabRow { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    class Chosen(Message):
        """A tab was clicked; empty is the transcript."""

        def __init__(self, tab: str) -> None:
            super().__init__()
            self.tab = tab

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._spans: list[tuple[int, str]] = []

    def show(self, tab: str) -> None:
        """Mark this tab; empty is the transcript."""
        parts: list[Content] = []
        self._spans, end = [], 1
        for name, key in (("", "esc"), *TABS):
            label = f"{key} {name or 'transcript'}"
            text = f"[{label}] " if name == tab else f" {label}  "
            parts.append(Content.styled(text, "bold $primary" if name == tab else ""))
            end += cell_len(text)
            self._spans.append((end, name))
        self.update(Content.assemble(*parts))

    def on_click(self, event: Click) -> None:
        """Choose the tab under the mouse."""
        chosen = next((name for end, name in self._spans if event.x < end), None)
        if chosen is not None:
            self.post_message(self.Chosen(chosen))
