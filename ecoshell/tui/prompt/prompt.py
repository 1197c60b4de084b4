"""The prompt: where questions and slash commands are typed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import Static, TextArea

from ecoshell.tui.keys import act_at_once
from ecoshell.tui.prompt.completion import CompletionList
from ecoshell.tui.prompt.drafts import DraftFile
from ecoshell.tui.prompt.history import History
from ecoshell.tui.prompt.pastes import ATTACHED_FROM, Pastes

if TYPE_CHECKING:
    from ecoshell.agent.commands import Completion

_PAUSE = 0.5
"""Seconds without a change after which the draft is kept."""
Completer = Callable[[str], "Sequence[Completion]"]
Send = Callable[[str], None]


class Prompt(TextArea):
    """A text area in which enter sends; it knows its history, its large pastes and its completions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line", show=False),
        Binding("pageup", "app.scroll_transcript(-1)", "Scroll back", show=False),
        Binding("pagedown", "app.scroll_transcript(1)", "Scroll on", show=False),
    ]
    HELP = (
        "Enter sends, shift+enter or ctrl+j begins a new line, up and down at the edges recall what was sent before, "
        "tab completes a slash command, page up and page down scroll the transcript."
    )

    def __init__(self, completions: CompletionList, history: History) -> None:
        super().__init__(
            id="prompt",
            compact=True,
            highlight_cursor_line=False,
            placeholder="Ask anything, or / for commands",
        )
        self.completer: Completer = lambda _: ()
        self.send: Send = lambda _: None
        """Called when enter is pressed, with every paste in the text; at once, or what is typed next would go along."""
        self._completions = completions
        self._history = history
        self._pastes = Pastes()

    @property
    def draft(self) -> str:
        """What would be sent now."""
        return self._pastes.expand(self.text)

    def put(self, text: str) -> None:
        """Replace what is typed; a large text is kept aside as a paste is."""
        self.text = self._short(text)
        self.move_cursor(self.document.end)

    def take(self) -> str:
        """Empty the prompt and remember what stood in it; gives the text with its pastes."""
        draft = self.draft
        self._history.add(self.text)
        self.text = ""
        self._pastes.clear()
        return draft

    def refresh_completions(self) -> None:
        """Offer what the typed line could become."""
        typed = self.text
        command = typed.startswith("/") and "\n" not in typed and self.has_focus
        self._completions.offer(list(self.completer(typed)) if command else ())

    def action_newline(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    def action_cursor_up(self, select: bool = False) -> None:
        """Up; from the first line to what was sent before."""
        if select or not self.cursor_at_first_line:
            super().action_cursor_up(select)
        elif (entry := self._history.back(self.text)) is not None:
            self._recall(entry)

    def action_cursor_down(self, select: bool = False) -> None:
        """Down; from the last line to what was sent after."""
        if select or not self.cursor_at_last_line:
            super().action_cursor_down(select)
        elif (entry := self._history.forward()) is not None:
            self._recall(entry)

    async def _on_key(self, event: events.Key) -> None:
        if self._completions.is_open and self._steer(event.key):
            handled = True
        elif handled := event.key == "enter":
            self.send(self.draft)
        if handled or await act_at_once(self, event.key):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()  # every class of a widget is asked in turn
        self.insert(self._short(event.text))

    def on_blur(self) -> None:
        """Close the completions: they belong to what is being typed."""
        self._completions.offer(())

    def _steer(self, key: str) -> bool:
        """Let a key move, take or close the completions; says whether it did."""
        offer = self._completions.current.text
        if key in ("up", "down"):
            self._completions.move(-1 if key == "up" else 1)
        elif key == "escape":
            self._completions.offer(())
        elif key == "tab" or (key == "enter" and self._is_unfinished(offer)):
            self.put(offer if " " in offer else f"{offer} ")
        else:
            return False
        return True

    def _is_unfinished(self, offer: str) -> bool:
        """Whether enter should complete rather than send: a word was begun and is none of the offers yet."""
        typed = self.text
        return not typed.endswith(" ") and typed not in (offer, *(other.text for other in self.completer(typed)))

    def _recall(self, entry: str) -> None:
        self.put(entry)
        self._completions.offer(())

    def _short(self, text: str) -> str:
        return self._pastes.keep(text) if len(text) > ATTACHED_FROM else text


class PromptBar(Vertical):
    """The prompt with its completions above and a hint below."""

    DEFAULT_CSS = """
    PromptBar {
        height: auto;
        & > Horizontal { height: auto; }
        #sign { width: 2; color: $primary; text-style: bold; }
        Prompt { height: auto; max-height: 8; padding: 0; background: transparent; border: none; }
        #hint { height: auto; color: $warning; padding: 0 2; display: none; &.-on { display: block; } }
    }
    """

    def __init__(self, history: History, draft: DraftFile) -> None:
        super().__init__()
        self._draft = draft
        self._saving: Timer | None = None
        completions = CompletionList()
        self.completions = completions
        self.prompt = Prompt(completions, history)

    def compose(self) -> ComposeResult:
        """The completions, the sign and the prompt, the hint."""
        yield self.completions
        with Horizontal():
            yield Static("❯", id="sign", markup=False)
            yield self.prompt
        yield Static("", id="hint", markup=False)

    def hint(self, text: str) -> None:
        """Say something below the prompt until the next key; nothing takes it away."""
        line = self.query_one("#hint", Static)
        line.update(text)
        line.set_class(bool(text), "-on")

    def on_mount(self) -> None:
        """Put back the draft of the last time."""
        self.prompt.put(self._draft.read())

    def on_unmount(self) -> None:
        """Keep the draft."""
        self._save()

    def on_text_area_changed(self) -> None:
        """Keep completions and hint to what is typed now, and the draft once the person pauses."""
        self.hint("")
        self.prompt.refresh_completions()
        if self._saving is not None:
            self._saving.stop()
        self._saving = self.set_timer(_PAUSE, self._save)

    def take(self) -> str:
        """Empty the prompt and the draft with it; gives what was typed."""
        text = self.prompt.take()
        self._draft.write("")
        return text

    def _save(self) -> None:
        self._draft.write(self.prompt.draft)
