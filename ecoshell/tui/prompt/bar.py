"""The bar at the bottom: completions, the prompt and its sign, and a hint below."""

import asyncio
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static, TextArea

from ecoshell.tui.prompt.completion import CompletionList
from ecoshell.tui.prompt.drafts import Draft, DraftFile, DraftKeeper
from ecoshell.tui.prompt.history import History
from ecoshell.tui.prompt.prompt import Mode, Prompt
from ecoshell.untrusted import visible_line


class PromptBar(Vertical):
    """The prompt with its completions above and a hint below; keeps the draft."""

    DEFAULT_CSS = """
    PromptBar {
        height: auto;
        border-top: solid $foreground 25%;
        border-title-color: $primary;
        border-title-style: bold;
        & > Horizontal { height: auto; }
        #sign { width: 2; color: $primary; text-style: bold; }
        &.-shell #sign { display: none; }
        Prompt {
            height: auto;
            padding: 0;
            background: transparent;
            border: none;
            scrollbar-size-vertical: 1;
            & .text-area--placeholder { color: $foreground-muted; }
            & .prompt--paste { background: $primary 30%; text-style: bold; }
            & .prompt--shell { color: $primary; text-style: bold; }
        }
        #hint { height: auto; color: $warning; padding: 0 2; display: none; &.-on { display: block; } }
    }
    """
    _WORDS: ClassVar[dict[Mode, str]] = {"ask": "", "shell": "shell command", "search": "history search"}
    _SIGNS: ClassVar[dict[Mode, str]] = {"ask": "❯", "shell": "", "search": "?"}

    def __init__(self, history: History, draft: DraftFile) -> None:
        super().__init__()
        self._history = history
        self._draft = draft
        self._keeper: DraftKeeper | None = None
        self._mode: Mode = "ask"
        self._hinted = False
        self.completions = CompletionList()
        self.prompt = Prompt(self.completions, history)

    def compose(self) -> ComposeResult:
        """The completions, the sign and the prompt, the hint."""
        yield self.completions
        with Horizontal():
            yield Static("❯", id="sign", markup=False)
            yield self.prompt
        yield Static("", id="hint", markup=False)

    @property
    def is_restored(self) -> bool:
        """Whether the draft and the history of the last time have been read."""
        return self._keeper is not None

    def hint(self, text: str) -> None:
        """Say something below the prompt until the next key; nothing takes it away."""
        if text or self._hinted:
            line = self.query_one("#hint", Static)
            line.update(text)
            line.set_class(bool(text), "-on")
            self._hinted = bool(text)

    def on_mount(self) -> None:
        """Read what was sent before, and the draft of the last time."""
        self.call_after_refresh(lambda: self.run_worker(self.restore()))

    async def on_unmount(self) -> None:
        """Keep the draft."""
        if self._keeper is not None:
            await self._keeper.close()

    def take(self) -> Draft:
        """Empty the prompt and the draft with it; gives what was typed, as it is to be sent."""
        draft = self.prompt.take()
        self._keep()
        return draft

    def clear(self) -> bool:
        """Leave the search of the history, or empty the prompt; says whether there was anything to do."""
        if self.prompt.leave_search():
            return True
        if not self.prompt.text:
            return False
        self.take()
        return True

    @on(TextArea.Changed)
    def typed(self) -> None:
        """Keep the completions, the sign and the draft to what is typed now, and take the hint away."""
        self.hint("")
        self.prompt.refresh_completions()
        self._show_mode()
        self._keep()

    @on(TextArea.SelectionChanged)
    def moved(self) -> None:
        """Keep the completions to where the cursor is."""
        self.prompt.refresh_completions()

    @on(CompletionList.Taken)
    def clicked(self) -> None:
        """Take the completion that was clicked."""
        self.prompt.take_offer()

    @on(Prompt.Unedited)
    def unedited(self, event: Prompt.Unedited) -> None:
        """Say why the editor gave nothing back."""
        self.hint(visible_line(event.reason))

    @on(Prompt.Unkept)
    def unkept(self, event: Prompt.Unkept) -> None:
        """Say that what was sent is not remembered."""
        self.hint(f"The history of what you typed is not kept any more: {event.failure.strerror or event.failure}.")

    def _undrafted(self, failure: OSError) -> None:
        self.hint(f"What you type is only here, and would be lost in a crash: {failure.strerror or failure}.")

    async def restore(self) -> None:
        """Put the draft of the last time before what has been typed since, and the history behind the prompt."""
        draft, entries = await asyncio.to_thread(lambda: (self._draft.read(), self._history.load()))
        self._history.begin_with(entries)
        if draft.text:
            since = self.prompt.draft
            self.prompt.put(Draft(draft.text + since.text, draft.attachments + since.attachments))
        self._keeper = DraftKeeper(self._draft, lambda: self.prompt.draft, self._undrafted)

    def _keep(self) -> None:
        if self._keeper is not None:
            self._keeper.touch()

    def _show_mode(self) -> None:
        mode = self.prompt.mode
        nothing = " · nothing found" if mode == "search" and not self.completions.is_open else ""
        self.border_title = f"{self._WORDS[mode]}{nothing}"
        if mode != self._mode:
            self._mode = mode
            self.query_one("#sign", Static).update(self._SIGNS[mode])
            self.set_class(mode == "shell", "-shell")
