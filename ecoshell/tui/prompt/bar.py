"""The bar at the bottom: completions, queued messages, the prompt with its sign, and a hint."""

import asyncio
from time import monotonic
from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.reactive import var
from textual.widgets import Static, TextArea

from ecoshell.messages import visible_line
from ecoshell.tui.keys import Hint
from ecoshell.tui.prompt.background import BackgroundLine
from ecoshell.tui.prompt.completion import CompletionList
from ecoshell.tui.prompt.drafts import Draft, DraftFile, History
from ecoshell.tui.prompt.prompt import Mode, Prompt
from ecoshell.tui.prompt.todo import TodoList
from ecoshell.tui.text import fit, fit_middle

_SPINNER = "|/-\\"
_FRAMES_PER_SECOND = 4
_MAX_QUEUED_LINES = 3
_GAP = " · "
_STOPS = "esc stops"
_MIN_PART_CELLS = 12
"""Cells below which the last part of an activity is dropped instead of shortened."""
_BORDER_CELLS = 4
"""Cells of the border and the spaces around the title."""
_APPROVAL_WORDS = {
    "plan": "plan mode · shift+tab changes it",
    "edits": "edits are accepted · shift+tab changes it",
}


class PromptBar(Vertical):
    """The prompt with completions above and a hint below; stores the draft."""

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
    _WORDS: ClassVar[dict[Mode, str]] = {
        "ask": "",
        "shell": "shell command",
        "search": "history search",
    }
    _SIGNS: ClassVar[dict[Mode, str]] = {"ask": "›", "shell": "", "search": "?"}

    queue: var[tuple[Draft, ...]] = var((), init=False)
    """Messages queued until the end of the turn, oldest first."""
    waiting: var[Draft | None] = var(None, init=False)
    """A message sent before the shell was ready."""

    def __init__(self, history: History, draft: DraftFile) -> None:
        self.completions = CompletionList()
        self.prompt = Prompt(self.completions, history)
        self.todo = TodoList()
        self.background = BackgroundLine()
        super().__init__(
            self.todo,
            self.background,
            self.completions,
            Static("", id="queue", markup=False),
            Horizontal(Static("›", id="sign", markup=False), self.prompt),
            Static("", id="hint", markup=False),
        )
        self._history = history
        self._draft = draft
        self._mode: Mode = "ask"
        self._hinted = self._news = False
        self._activity, self._since, self._title = "", 0.0, ""
        self._approval = ""
        self.is_restored = False
        """Whether the stored draft and history have been loaded."""

    def hint(self, text: str) -> None:
        """Show a hint below the prompt until the next key; an empty text removes it."""
        if text or self._hinted:
            line = self.query_one("#hint", Static)
            line.update(text)
            line.set_class(bool(text), "-on")
            self._hinted = bool(text)

    def set_activity(self, activity: str) -> None:
        """Show the current activity and its duration; empty without any."""
        if bool(activity) != bool(self._activity):
            self._since = monotonic()
            if activity:
                self._clock.resume()
            else:
                self._clock.pause()
        self._activity = activity
        self._show_mode()

    def set_approval_mode(self, mode: str) -> None:
        """Show plan mode, and that edits are accepted."""
        self._approval = _APPROVAL_WORDS.get(mode, "")
        self._show_mode()

    def show_news(self, news: bool) -> None:
        """Show whether there is new content below the visible part of the transcript."""
        self._news = news
        self._show_mode()

    def on_mount(self) -> None:
        self.prompt.take_back = self._take_back
        self._clock = self.set_interval(1 / _FRAMES_PER_SECOND, self._show_mode, pause=True)
        self.call_after_refresh(lambda: self.run_worker(self.restore()))

    async def on_unmount(self) -> None:
        await self._draft.close()

    def clear(self) -> bool:
        """Leave the history search, or clear the prompt; return whether either was needed."""
        if self.prompt.leave_search():
            return True
        if not self.prompt.text:
            return False
        self.prompt.take()
        return True

    @on(TextArea.Changed)
    def typed(self) -> None:
        """Update sign and draft, and remove the hint."""
        self.hint("")
        self._show_mode()
        self._draft.touch()

    def on_hint(self, event: Hint) -> None:
        event.stop()
        self.hint(visible_line(event.text))

    async def restore(self) -> None:
        """Load the history, and insert the stored draft before the current input."""
        draft, entries = await asyncio.to_thread(lambda: (self._draft.read(), self._history.load()))
        self._history.prepend(entries)
        if draft.text:
            self.prompt.put_before(draft)

        def pending() -> Draft:
            """Waiting, queued and typed messages, restored in the prompt after a crash."""
            drafts = [*filter(None, (self.waiting,)), *self.queue, self.prompt.draft]
            attachments = (attachment for draft in drafts for attachment in draft.attachments)
            text = "\n".join(draft.text for draft in drafts if draft.text)
            return Draft(text, tuple(attachments))

        self._draft.current, self._draft.complain = pending, self._warn
        self.is_restored = True

    def _warn(self, failure: OSError) -> None:
        warning = "The draft cannot be stored, and would be lost in a crash"
        self.hint(f"{warning}: {failure.strerror or failure}.")

    def _take_back(self) -> bool:
        """Return the newest queued message to the prompt; return whether there was one."""
        if not self.queue:
            return False
        self.prompt.put(self.queue[-1])
        self.queue = self.queue[:-1]
        return True

    def watch_queue(self) -> None:
        lines = [f"queued  {visible_line(draft.text)}" for draft in self.queue[:_MAX_QUEUED_LINES]]
        if (hidden := len(self.queue) - _MAX_QUEUED_LINES) > 0:
            lines.append(f"… and {hidden} more")
        lines.append("sent when the turn ends · up takes it back · esc empties the queue")
        line = self.query_one("#queue", Static)
        line.update("\n".join(lines))
        line.set_class(bool(self.queue), "-on")
        self._draft.touch()

    def watch_waiting(self) -> None:
        self._draft.touch()

    def _working(self, room: int) -> str:
        """The activity, its duration and the key that stops it, in a number of cells; the key is dropped last."""
        if not self._activity:
            return ""
        seconds = monotonic() - self._since
        sign = _SPINNER[int(seconds * _FRAMES_PER_SECOND) % len(_SPINNER)]
        *parts, last = f"{sign} {self._activity}".split(_GAP)
        ends = ((f"{int(seconds)} s", _STOPS), (_STOPS,))
        fixed = cell_len(_GAP.join((*parts, "", *ends[0])))
        if parts and room - fixed >= _MIN_PART_CELLS:
            last = fit_middle(last, room - fixed)
        parts.append(last)
        rows = (
            _GAP.join((*parts[:count], *end)) for count in range(len(parts), 0, -1) for end in ends
        )
        shortest = (fit(parts[0], room - cell_len(_GAP + _STOPS)), _STOPS)
        row = next((row for row in rows if cell_len(row) <= room), "")
        return row or _GAP.join(filter(None, shortest))

    def _show_mode(self) -> None:
        mode = self.prompt.mode
        nothing = "no match" if mode == "search" and not self.completions.offers else ""
        news = "▼ new content below: end goes there" if self._news else ""
        words = _GAP.join(filter(None, (self._WORDS[mode], self._approval, nothing)))
        with_news = _GAP.join(filter(None, (words, news)))
        width = self.size.width - _BORDER_CELLS
        room = width - cell_len(_GAP + _STOPS)
        is_cut = bool(self._activity) and cell_len(with_news) > room
        words = fit(words, room) if is_cut else with_news
        parts = (words, self._working(width - (cell_len(words + _GAP) if words else 0)))
        title = _GAP.join(filter(None, parts))
        if title != self._title:
            self._title, self.border_title = title, Content(f" {title} " if title else "")
        if mode != self._mode:
            self._mode = mode
            self.query_one("#sign", Static).update(self._SIGNS[mode])
            self.set_class(mode == "shell", "-shell")
