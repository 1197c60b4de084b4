"""The bar at the bottom: completions, the prompt and its sign, and a hint below."""

import asyncio
from time import monotonic
from typing import ClassVar

from textual import on
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.reactive import var
from textual.widgets import Static, TextArea

from ecoshell.messages import visible_line
from ecoshell.tui.keys import Hint
from ecoshell.tui.prompt.completion import CompletionList
from ecoshell.tui.prompt.drafts import Draft, DraftFile, History
from ecoshell.tui.prompt.prompt import Mode, Prompt

_SPINNER = "|/-\\"
_TURNS = 4
"""Times a second that the spinner moves on."""
_QUEUED = 3
"""Messages that are shown while they wait."""


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
        #queue {
            height: auto;
            color: $text-muted;
            padding: 0 2;
            text-wrap: nowrap;
            text-overflow: ellipsis;
            display: none;
            &.-on { display: block; }
        }
        #hint { height: auto; color: $warning; padding: 0 2; display: none; &.-on { display: block; } }
    }
    """
    _WORDS: ClassVar[dict[Mode, str]] = {"ask": "", "shell": "shell command", "search": "history search"}
    _SIGNS: ClassVar[dict[Mode, str]] = {"ask": "›", "shell": "", "search": "?"}

    queue: var[tuple[Draft, ...]] = var((), init=False)
    """Messages that wait for the end of the turn, the oldest first."""
    waiting: var[Draft | None] = var(None, init=False)
    """What was sent before there was a shell, and waits for it."""

    def __init__(self, history: History, draft: DraftFile) -> None:
        self.completions = CompletionList()
        self.prompt = Prompt(self.completions, history)
        super().__init__(
            self.completions,
            Static("", id="queue", markup=False),
            Horizontal(Static("›", id="sign", markup=False), self.prompt),
            Static("", id="hint", markup=False),
        )
        self._history = history
        self._draft = draft
        self._mode: Mode = "ask"
        self._hinted = self._news = False
        self._doing, self._since, self._said = "", 0.0, ""
        self.is_restored = False
        """Whether the draft and the history of the last time have been read."""

    def hint(self, text: str) -> None:
        """Say something below the prompt until the next key; nothing takes it away."""
        if text or self._hinted:
            line = self.query_one("#hint", Static)
            line.update(text)
            line.set_class(bool(text), "-on")
            self._hinted = bool(text)

    def doing(self, words: str) -> None:
        """Say what is done, and for how long by now; empty when nothing is done any more."""
        if bool(words) != bool(self._doing):
            self._since = monotonic()
            if words:
                self._clock.resume()
            else:
                self._clock.pause()
        self._doing = words
        self._show_mode()

    def tell_news(self, news: bool) -> None:
        """Say whether something has arrived below what is seen of the transcript."""
        self._news = news
        self._show_mode()

    def on_mount(self) -> None:
        self.prompt.take_back = self._take_back
        self._clock = self.set_interval(1 / _TURNS, self._show_mode, pause=True)
        self.call_after_refresh(lambda: self.run_worker(self.restore()))

    async def on_unmount(self) -> None:
        await self._draft.close()

    def clear(self) -> bool:
        """Leave the search of the history, or empty the prompt; says whether there was anything to do."""
        if self.prompt.leave_search():
            return True
        if not self.prompt.text:
            return False
        self.prompt.take()
        return True

    @on(TextArea.Changed)
    def typed(self) -> None:
        """Keep the sign and the draft to what is typed now, and take the hint away."""
        self.hint("")
        self._show_mode()
        self._draft.touch()

    def on_hint(self, event: Hint) -> None:
        event.stop()
        self.hint(visible_line(event.text))

    async def restore(self) -> None:
        """Put the draft of the last time before what has been typed since, and the history behind the prompt."""
        draft, entries = await asyncio.to_thread(lambda: (self._draft.read(), self._history.load()))
        self._history.begin_with(entries)
        if draft.text:
            self.prompt.put_before(draft)

        def kept() -> Draft:
            """What waits and what is typed: should the program end, the next start has it in the prompt."""
            drafts = [*filter(None, (self.waiting,)), *self.queue, self.prompt.draft]
            text = "\n".join(draft.text for draft in drafts if draft.text)
            return Draft(text, tuple(one for draft in drafts for one in draft.attachments))

        lost = "What you type is only here, and would be lost in a crash"
        self._draft.current = kept
        self._draft.complain = lambda failure: self.hint(f"{lost}: {failure.strerror or failure}.")
        self.is_restored = True

    def _take_back(self) -> bool:
        """Put the newest message that waits back into the prompt; says whether there was one."""
        if not self.queue:
            return False
        self.prompt.put(self.queue[-1])
        self.queue = self.queue[:-1]
        return True

    def watch_queue(self) -> None:
        rows = [f"queued  {visible_line(draft.text)}" for draft in self.queue]
        more = [f"… and {len(rows) - _QUEUED} more"] if len(rows) > _QUEUED else []
        shown = [*rows[:_QUEUED], *more, "sent when the turn ends · up takes it back · esc empties the queue"]
        line = self.query_one("#queue", Static)
        line.update("\n".join(shown))
        line.set_class(bool(rows), "-on")
        self._draft.touch()

    def watch_waiting(self) -> None:
        self._draft.touch()

    def _show_mode(self) -> None:
        mode = self.prompt.mode
        nothing = "nothing found" if mode == "search" and not self.completions.offers else ""
        news = "▼ new below: end goes there" if self._news else ""
        seconds = monotonic() - self._since
        sign = _SPINNER[int(seconds * _TURNS) % len(_SPINNER)]
        working = f"{sign} {self._doing} · {int(seconds)} s · esc stops" if self._doing else ""
        said = " · ".join(word for word in (self._WORDS[mode], nothing, news, working) if word)
        if said != self._said:
            self._said, self.border_title = said, Content(f" {said} " if said else "")
        if mode != self._mode:
            self._mode = mode
            self.query_one("#sign", Static).update(self._SIGNS[mode])
            self.set_class(mode == "shell", "-shell")
