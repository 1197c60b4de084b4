"""The prompt: input for questions, slash commands and shell commands."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from rich.text import Text
from textual import events, on, work
from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.widgets import TextArea
from textual.widgets.text_area import Edit, EditHistory, EditResult, Location, Selection

from ecoshell.errors import ToolError, UsageError
from ecoshell.messages import visible
from ecoshell.tui.keys import Hint, TextInput, act_at_once
from ecoshell.tui.prompt.completion import (
    Completer,
    CompletionList,
    Mention,
    MentionSearch,
    Offer,
    Values,
    command_offers,
    mention_at,
    mention_text,
    row_limit,
)
from ecoshell.tui.prompt.drafts import Draft, History, Pastes, is_large, unified

if TYPE_CHECKING:
    from textual.app import App


Mode = Literal["ask", "shell", "search"]
Send = Callable[[Draft], None]
SHELL = "!"
_EDITABLE = 10_000
"""Longer texts are inserted as a paste marker."""
PAUSE = 1.0
"""Seconds after a key in which the user counts as typing."""
_MAX_QUERY_LENGTH = 200
_MAX_ENTRIES = 200
_PLACEHOLDER = "Ask anything, / for commands, @ for files, ! for the shell"
_SEARCHING = "Type to search the history"
_STEERING = frozenset({"up", "down", "tab", "enter", "escape", "ctrl+r", "ctrl+s", "ctrl+g"})


@dataclass(frozen=True, slots=True)
class _PausedEdit:
    """The prompt's state before a history search."""

    draft: Draft
    selection: Selection
    edits: EditHistory


class Prompt(TextInput):
    """A text area in which enter sends, with history, paste markers and completion."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line", show=False),
        Binding("ctrl+r", "search", "Search the history", show=False),
        Binding("ctrl+g", "edit", "Edit in $EDITOR", show=False),
        Binding("alt+b,alt+left", "cursor_word_left", "Word left", show=False),
        Binding("alt+f,alt+right", "cursor_word_right", "Word right", show=False),
        Binding("alt+d", "delete_word_right", "Delete the word", show=False),
        Binding("ctrl+shift+z", "redo", "Redo", show=False),
        Binding("pageup", "app.transcript('page(-1)')", "Scroll back", show=False),
        Binding("pagedown", "app.transcript('page(1)')", "Scroll forward", show=False),
    ]
    HELP = (
        "Enter sends, shift+enter or ctrl+j starts a new line, up and down at the edges recall earlier input, "
        "ctrl+r searches it. Tab completes a slash command or an @file, a line that begins with ! runs in the shell. "
        "Ctrl+g opens the draft in $EDITOR. Page up and page down scroll the transcript; end, at the end of the "
        "input, goes to its last line."
    )
    COMPONENT_CLASSES = {"prompt--paste", "prompt--shell"}  # noqa: RUF012 - as declared by Textual

    def __init__(self, completions: CompletionList, history: History) -> None:
        super().__init__(
            id="prompt", compact=True, highlight_cursor_line=False, placeholder=_PLACEHOLDER
        )
        self.cursor_blink = False  # an idle chat does not redraw
        self.completer: Completer = lambda _: ()
        self.values: Values | None = None
        self.send: Send = lambda _: None
        """Called synchronously on enter, so that later keys are not sent with it."""
        self._completions = completions
        completions.take = self.take_offer
        self._history = history
        self._pastes = Pastes()
        self.mentions = MentionSearch(self._offer_names)
        self._paused: _PausedEdit | None = None
        self._offered_for: tuple[str, Location] = ("", (0, 0))
        self._typed_at = -PAUSE
        self.take_back: Callable[[], bool] = lambda: False
        """Called on up in an empty prompt; returns whether a queued message was restored."""

    @property
    def mode(self) -> Mode:
        """What is being typed."""
        if self._paused is not None:
            return "search"
        return "shell" if self.text.lstrip().startswith(SHELL) else "ask"

    @property
    def draft(self) -> Draft:
        """The input with its pastes; during a search, the input before it."""
        if self._paused is not None:
            return self._paused.draft
        return Draft(self.text, self._pastes.attachments_of(self.text))

    @property
    def typing(self) -> bool:
        """Whether a key was typed a moment ago."""
        return monotonic() - self._typed_at < PAUSE

    def put(self, draft: Draft | str) -> None:
        """Replace the input; a very large text becomes a paste marker."""
        self.leave_search()
        self.text = self._editable(Draft(draft) if isinstance(draft, str) else draft)
        self.move_cursor(self.document.end)

    def put_before(self, draft: Draft) -> None:
        """Insert an earlier draft before the input, whose paste names may clash with its own."""
        current = self.draft
        images = (attachment for attachment in current.attachments if attachment.image)
        self.put(
            Draft(draft.text + self._pastes.expand(current.text), (*draft.attachments, *images))
        )

    def take(self) -> Draft:
        """Clear the prompt, add its input to the history, and return it as it is sent."""
        self.leave_search()
        draft, outgoing = self.draft, self._outgoing()
        if self._history.add(draft):
            self.run_worker(self._remember(draft.text))
        self.text, self._typed_at = "", -PAUSE
        self._pastes.by_marker.clear()
        self._close_completions()
        return outgoing

    async def _remember(self, text: str) -> None:
        failure = await asyncio.to_thread(self._history.write, text)
        if failure is not None:
            why = failure.strerror or failure
            self.post_message(Hint(f"The input history can no longer be stored: {why}."))

    @on(TextArea.Changed)
    @on(TextArea.SelectionChanged)
    def refresh_completions(self) -> None:
        """Update the completions, if the text or the cursor has changed."""
        now = (self.text, self.cursor_location)
        if now == self._offered_for or not self.has_focus:
            return
        self._offered_for = now
        if self._paused is not None:
            self._offer_entries()
            return
        row, column = self.cursor_location
        line = self.document.get_line(row)
        typed = self.text
        at_end = self.document.line_count == 1 and column == len(typed)
        command = self.mode == "ask" and at_end and typed.startswith("/")
        offers = command_offers(self.completer, typed) if command else []
        mention = None if offers or self.mode == "shell" else mention_at(line, row, column)
        self.mentions.search(mention)
        if mention is None:
            self._completions.offer(offers, self.text.split())
        if self.values is not None and command and ":" in typed and " " in typed:
            requested = self._offer_values(self.values, offers, typed)
            self.run_worker(requested, exclusive=True, group="values")

    async def _offer_values(self, values: Values, offers: Sequence[Offer], typed: str) -> None:
        """Add completions that have to be requested, if the text is still the same."""
        extra = [Offer(value.text, value.help, value.text) for value in await values(typed)]
        if extra and self.text == typed and self._offered_for == (typed, self.cursor_location):
            self._completions.offer([*offers, *extra], typed.split())

    def take_offer(self) -> None:
        """Insert the highlighted completion or history entry."""
        offer = self._completions.current
        if self._paused is not None:
            self.leave_search()
            self._type(self._editable(self._history.recalled(offer.insert)), replace_all=True)
            self._close_completions()
        else:
            end = self.cursor_location
            self.replace(offer.insert, offer.start, end, maintain_selection_offset=False)

    def leave_search(self) -> bool:
        """End the history search and restore the draft; return whether there was a search."""
        if (paused := self._paused) is None:
            return False
        self._paused = None
        self.text, self.placeholder = paused.draft.text, _PLACEHOLDER
        self.history, self.selection = paused.edits, paused.selection
        self._close_completions()
        return True

    def edit(self, edit: Edit) -> EditResult:
        """Edit the text; markers are deleted completely, and nothing is inserted into them."""
        bounds: list[Location] = []
        for (row, column), to_end in ((edit.top, edit.top == edit.bottom), (edit.bottom, True)):
            # deleting the last line ends at the start of a line that does not exist
            line = self.document.get_line(row) if row < self.document.line_count else ""
            inside = (span for span in self._pastes.spans(line) if span[0] < column < span[1])
            start, end = next(inside, (column, column))
            bounds.append((row, end if to_end else start))
        edit.from_location, edit.to_location = bounds
        return super().edit(edit)

    def get_line(self, line_index: int) -> Text:
        """The line with styles for markers and the shell prefix."""
        line = super().get_line(line_index)
        for start, end in self._pastes.spans(line.plain):
            line.stylize(self.get_component_rich_style("prompt--paste"), start, end)
        if line_index == 0 and line.plain.startswith(SHELL):
            line.stylize(self.get_component_rich_style("prompt--shell"), 0, len(SHELL))
        return line

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The height of the text, up to a third of the terminal."""
        height = super().get_content_height(container, viewport, width)
        return min(height, row_limit(viewport.height))

    def action_newline(self) -> None:
        self._type("\n")

    def action_search(self) -> None:
        if self._paused is None:
            self._paused = _PausedEdit(self.draft, self.selection, self.history)
            self.history = replace(self.history)
            self.text, self.placeholder = "", _SEARCHING
            self._offer_entries()

    def action_cursor_up(self, select: bool = False) -> None:
        """Cursor up; from the first line, the previous history entry."""
        if select or not self.cursor_at_first_line:
            super().action_cursor_up(select)
        elif not self.text and self.take_back():
            return
        elif (entry := self._history.move(-1, self.draft)) is not None:
            self.put(entry)
            self._close_completions()

    def action_cursor_down(self, select: bool = False) -> None:
        """Cursor down; from the last line, the next history entry."""
        if select or not self.cursor_at_last_line:
            super().action_cursor_down(select)
        elif (entry := self._history.move(1, self.draft)) is not None:
            self.put(entry)
            self._close_completions()

    def action_cursor_line_end(self, select: bool = False) -> None:
        """To the end of the line; at the end of the input, to the end of the transcript."""
        if not select and self.cursor_location == self.document.end:
            self.call_later(self.run_action, "app.transcript('end')")
        super().action_cursor_line_end(select)

    async def _on_key(self, event: events.Key) -> None:
        if event.is_printable or event.key == "backspace":
            self._typed_at = monotonic()
        if event.key in _STEERING and await self._steer(event.key):
            handled = True
        elif handled := event.key == "enter":
            self.send(self._outgoing())
        elif not event.is_printable:
            handled = await act_at_once(self, event.key)
        if handled:
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()  # otherwise the base classes handle it, too
        self.history.checkpoint()
        text = unified(event.text)
        if self.mode == "search":
            self._type(" ".join(visible(text[:_MAX_QUERY_LENGTH]).split()))
        elif (
            self.mode == "ask"
            and _ends_with_image(text)
            and (images := await asyncio.to_thread(self._images, text))
        ):
            self._type(images)
        elif len(text) > _EDITABLE or (is_large(text) and self.mode == "ask"):
            self._type(self._pastes.add(text))
        else:
            self._type(visible(text))

    def _images(self, text: str) -> str:
        """Markers for a paste that consists of image paths; empty for any other paste."""
        from ecoshell.images import only_paths, open_image

        markers: list[str] = []
        for path in only_paths(text):
            try:
                markers.append(self._pastes.add_image(open_image(path)))
            except ToolError as error:
                self.post_message(Hint(f"{path.name} was not attached: {error.message}"))
                return ""
        return " ".join(markers)

    def on_blur(self) -> None:
        """Close the completions with the focus."""
        self.leave_search()
        self._close_completions()

    async def _steer(self, key: str) -> bool:
        """Handle a key that moves, takes or closes the completions or the history search; return whether it did."""
        self.refresh_completions()
        if self._paused is not None:
            if key in ("escape", "ctrl+g"):
                self.leave_search()
            elif self._completions.offers and key in ("tab", "enter"):
                self.take_offer()
            elif self._completions.offers:
                self._completions.move(1 if key in ("down", "ctrl+s") else -1, around=False)
            return True
        await self.mentions.settle()
        if not self._completions.offers:
            return False
        typed = self.get_text_range(self._completions.current.start, self.cursor_location)
        unfinished = not typed.endswith(" ") and all(
            typed != completion.insert.rstrip() for completion in self._completions.offers
        )
        if key in ("up", "down"):
            self._completions.move(-1 if key == "up" else 1)
        elif key == "escape":
            self._close_completions()
        elif key == "tab" or (key == "enter" and unfinished):
            self.take_offer()
        else:
            return False
        return True

    def _close_completions(self) -> None:
        """Close the list until the text changes."""
        self.mentions.search(None)
        self._completions.offer(())
        self._offered_for = (self.text, self.cursor_location)

    def _offer_names(self, mention: Mention, names: list[str]) -> None:
        row, column = self.cursor_location
        is_spaced = self.document.get_line(row)[column : column + 1] == " "
        offers: list[Offer] = []
        for name in names:
            blank = "" if is_spaced or name.endswith("/") else " "
            offers.append(Offer(name, "", mention_text(name) + blank, mention.start, True))
        self._completions.offer(offers, (mention.query,))

    def _offer_entries(self) -> None:
        entries = self._history.search(self.text)[:_MAX_ENTRIES]
        oldest_first = [Offer(entry, "", entry) for entry in reversed(entries)]
        self._completions.offer(oldest_first, self.text.split(), at=max(0, len(entries) - 1))

    def _outgoing(self) -> Draft:
        """The draft as it is sent: attachments go with a question, and are expanded in a command."""
        draft = self.draft
        command = draft.text.lstrip().startswith(("/", SHELL))
        return Draft(self._pastes.expand(draft.text)) if command else draft

    def _editable(self, draft: Draft) -> str:
        """A draft's text as shown in the prompt; its attachments are stored."""
        self._pastes.adopt(draft.text, draft.attachments)
        text = unified(draft.text)
        if len(draft.text) > _EDITABLE:
            return self._pastes.add(self._pastes.expand(text))
        return visible(text)

    def _type(self, text: str, *, replace_all: bool = False) -> None:
        """Replace the selection, or everything, by a text; can be undone."""
        if replace_all:
            self.history.checkpoint()
        start, end = ((0, 0), self.document.end) if replace_all else self.selection
        self.replace(text, start, end, maintain_selection_offset=False)

    @work(exclusive=True, group="editor")
    async def action_edit(self) -> None:
        """Edit the text in the user's editor, while the chat continues in the background."""
        from ecoshell.tui.editor import edited_text  # not needed for the first frame

        app = cast("App[Any]", self.app)  # pyright: ignore[reportUnknownMemberType]
        try:
            # a frame written now would stand in the editor's screen
            with app.batch_update(), app.suspend():
                try:
                    text = await asyncio.to_thread(edited_text, self.text)
                except UsageError as error:  # let through, it would keep the app suspended
                    self.post_message(Hint(str(error)))
                    return
        except SuspendNotSupported:
            self.post_message(Hint("This terminal cannot be given to an editor. Type it here."))
        else:
            self._type(self._editable(Draft(text)), replace_all=True)


def _ends_with_image(text: str) -> bool:
    from ecoshell.images import must_be_image  # not needed for the first frame

    return len(text) <= _EDITABLE and must_be_image(text.rstrip(" \n'\""))
