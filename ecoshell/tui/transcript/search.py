"""The bar in which a person searches the transcript: every key searches, enter and the arrows go from hit to hit."""

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Static

from ecoshell.tui.transcript.finding import Search

if TYPE_CHECKING:
    from ecoshell.tui.transcript.view import Transcript


class SearchBar(Horizontal):
    """One line below the transcript; it leaves when the search ends."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down", "move(1)", "next", priority=True),
        Binding("shift+enter,up", "move(-1)", "before", priority=True),
        Binding("escape", "close", "close", priority=True),
    ]
    HELP = "Type what to look for. Enter or down goes to the next place, up to the one before, esc closes the search."
    DEFAULT_CSS = """
    SearchBar {
        height: 1;
        padding: 0 1;
        #search-sign { width: 3; color: $primary; }
        #search-text { width: 1fr; background: transparent; }
        #search-count { width: auto; color: $foreground-muted; padding: 0 1; }
    }
    """

    def __init__(self, transcript: "Transcript") -> None:
        super().__init__()
        self._transcript = transcript
        self._search: Search | None = None
        self._moved = False

    def compose(self) -> ComposeResult:
        """Sign, text, count."""
        yield Static("?", id="search-sign", markup=False)
        yield Input(placeholder="Search the transcript", id="search-text", compact=True)
        yield Static("", id="search-count", markup=False)

    def on_mount(self) -> None:
        """Let the person type."""
        self.focus_input()

    def focus_input(self) -> None:
        """Let the person type."""
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search for what stands there now."""
        self._moved = False
        self._search = self._transcript.search_for(event.value)
        self.run_worker(self._run(self._search), exclusive=True)

    async def _run(self, search: Search) -> None:
        async for _ in search.run():
            if search.hits and not self._moved and search.first_is_known:
                self.action_move(1)
            self._count(search)

    def action_move(self, by: int) -> None:
        """Go to the hit after or before."""
        self._moved = True
        self._transcript.action_found(by)
        if self._search is not None:
            self._count(self._search)

    def action_close(self) -> None:
        """End the search; the transcript stays where it is."""
        self._transcript.end_search()
        self._transcript.focus()
        self.remove()

    def _count(self, search: Search) -> None:
        """Say how many hits there are, and at which of them the person is."""
        more = "" if search.done else " …"
        words = f"{search.now + 1:,} of {len(search.hits):,}{more}" if search.hits else "" if more else "nothing found"
        self.query_one("#search-count", Static).update(words if search.text else "")
