"""Base class of pickers: a fuzzy filter above a list with columns, and details of the highlighted row below."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

from rich.cells import cell_len
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content, Span
from textual.events import Key, Resize
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from ecoshell.errors import EcoshellError
from ecoshell.messages import visible, visible_line
from ecoshell.tui.fuzzy import best, places
from ecoshell.tui.keys import LineInput
from ecoshell.tui.screens.overlay import Overlay
from ecoshell.tui.text import align_left, align_right

T = TypeVar("T")
MAX_ROWS = 120
"""Rows shown at once; building thousands would be slow."""
_GAP = 2
_MIN_FIRST_COLUMN = 12
"""Least width of the first column, which names the item."""


@dataclass(frozen=True, slots=True)
class PickerColumn:
    """A column, shown if the list is at least `from_width` cells wide. The first one takes the remaining width."""

    title: str
    right: bool = False
    from_width: int = 0
    max_width: int = 24
    """Not applied to the first column."""


def aligned(
    columns: Sequence[PickerColumn], rows: Sequence[tuple[Sequence[str], Sequence[int]]], width: int
) -> list[Content]:
    """The titles and rows in the columns that fit; the second part of a row marks letters of its first cell."""
    titles = [column.title for column in columns]
    indices = [at for at, column in enumerate(columns) if at == 0 or width >= column.from_width]
    texts = zip(titles, *(cells for cells, _ in rows), strict=True)
    widths = [
        min(max(map(cell_len, cells)), column.max_width)
        for cells, column in zip(texts, columns, strict=True)
    ]
    widths[0] = max(_MIN_FIRST_COLUMN, width - sum(widths[at] + _GAP for at in indices[1:]))
    contents: list[Content] = []
    for cells, marks in [(titles, ()), *rows]:
        padded = (
            (align_right if columns[at].right else align_left)(cells[at], widths[at])
            for at in indices
        )
        uncut = min(len(cells[0]), widths[0] - 1)
        spans = [Span(at, at + 1, "bold underline") for at in marks if at < uncut]
        contents.append(Content((" " * _GAP).join(padded).rstrip(), spans))
    return contents


@dataclass(frozen=True, slots=True)
class PickerRow(Generic[T]):
    """A listed item: its cells, and `also`, more text for the filter; all may be unescaped."""

    item: T
    key: str
    """Unique among the rows."""
    cells: tuple[str, ...]
    also: str = ""
    common: bool = True
    """Whether it is listed without a filter."""
    detail: str = ""
    """Up to three lines shown while it is highlighted."""

    @property
    def text(self) -> str:
        """The text to filter: the first cell, where matches are marked, then `also`."""
        return f"{self.cells[0]} {self.also}".rstrip().lower()


class Filter(Input):
    """The filter input; it keeps the focus and passes keys to the list in the order they were typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "screen.move('cursor_down')", show=False),
        Binding("up", "screen.move('cursor_up')", show=False),
        Binding("pagedown", "screen.move('page_down')", show=False),
        Binding("pageup", "screen.move('page_up')", show=False),
        Binding("ctrl+home", "screen.move('first')", show=False),
        Binding("ctrl+end", "screen.move('last')", show=False),
    ]

    async def _on_key(self, event: Key) -> None:
        bound = self.screen.active_bindings.get(event.key)
        if bound is None or not bound.enabled or event.is_printable:
            return
        if bound.node in (self, self.screen):
            event.stop()
            event.prevent_default()
            await (self if bound.node is self else self.screen).run_action(bound.binding.action)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave enter to the screen, and delete at the end of the text."""
        return action != "submit" and not (
            action == "delete_right" and self.cursor_position == len(self.value)
        )


class Picker(Overlay, Generic[T]):
    """Lists items that load in the background, and returns a text for the selected one, or None.

    Subclasses define `load` and `result`.
    """

    heading: str = ""
    BLOCKED_WHILE_ASKING: ClassVar[frozenset[str]] = frozenset()
    """Actions that are disabled while the ask pane is open."""
    COLUMNS: ClassVar[tuple[PickerColumn, ...]] = ()
    NOTHING: ClassVar[str] = "Nothing to list."
    """Shown instead of an empty list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "choose"),
        Binding("escape", "dismiss(None)", "close"),
    ]
    DEFAULT_CSS = """
    Picker {
        #head { height: 1; color: $foreground-muted; }
        OptionList { height: 1fr; background: transparent; scrollbar-size-vertical: 1; }
        &:nocolor OptionList > .option-list--option-highlighted { text-style: reverse; }
        #state { height: 1fr; color: $foreground; padding: 1 0; display: none; }
        .-stateful #state { display: block; }
        .-stateful OptionList, .-stateful #head { display: none; }
        #detail { height: 4; border-top: solid $foreground 25%; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = ""
        """The key of the row to highlight first; empty for the first one."""
        self._all: list[PickerRow[T]] = []
        self._searchable: list[tuple[str, PickerRow[T]]] = []
        self._rows: list[PickerRow[T]] = []
        self._typed = ""
        """The filter of the listed rows."""
        self._highlighted_key = ""
        """The key of the row to keep highlighted; empty for the best match."""
        self._complaint_key: str | None = None
        """The key of the row whose details are replaced by a complaint."""
        self._status = "reading …"

    @abstractmethod
    async def load(self) -> Sequence[PickerRow[T]]:
        """The rows; may run in a thread; raises EcoshellError."""

    @abstractmethod
    def result(self, item: T) -> str | None:
        """The result of selecting an item; None if it cannot be selected, after a call of `complain`."""

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self.heading)
            box.add_class("-stateful")
            yield Filter(compact=True, placeholder="type to search")
            yield Static("", id="head", markup=False)
            yield OptionList(markup=False, compact=True)
            yield Static(self._status, id="state", markup=False)
            yield Static("", id="detail", markup=False)
            yield AskPane()
            yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(Filter).focus()
        self.reload()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        is_blocked = action in self.BLOCKED_WHILE_ASKING
        return not (is_blocked and self.query_one(AskPane).has_class("-on"))

    @property
    def highlighted(self) -> PickerRow[T] | None:
        at = self.query_one(OptionList).highlighted
        return self._rows[at] if at is not None and at < len(self._rows) else None

    @work(group="load", exclusive=True)
    async def reload(self) -> None:
        """Load the rows again; highlight and filter stay."""
        if self._rows:
            self._store_highlight()
        rows: Sequence[PickerRow[T]] = ()
        try:
            rows = await self.load()
        except EcoshellError as error:
            self._status = " ".join(part for part in (error.message, error.fix) if part)
        except Exception as error:  # noqa: BLE001 - worker boundary: a defect must not close the screen
            self._status = f"Unexpected error: {error}"
        else:
            self._status = ""
        self._all = []
        for row in rows:
            cells = tuple(map(visible_line, row.cells))
            self._all.append(replace(row, cells=cells, also=visible_line(row.also)))
        self._searchable = [(row.text, row) for row in self._all]
        self._update_list(rebuild=True)

    def complain(self, text: str) -> None:
        """Show a message instead of the details until the highlight moves."""
        self._complaint_key = row.key if (row := self.highlighted) else ""
        self.query_one("#detail", Static).update(Content.styled(visible(text), "$warning"))

    def action_move(self, how: str) -> None:
        """Move the highlight with the list's action of this name."""
        self._update_list()
        with suppress(KeyError):  # a list that has just become visible has no pages
            getattr(self.query_one(OptionList), f"action_{how}")()
        self._store_highlight()

    def action_answer(self, word: str) -> None:
        self.query_one(AskPane).resolve(word or None)

    def action_choose(self) -> None:
        self._update_list()
        result = self.result(row.item) if (row := self.highlighted) else None
        if result is not None:
            self.dismiss(result)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if isinstance(event.input, Filter):
            self._update_list()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        row = self.highlighted
        if row is None or row.key == self._complaint_key:
            return
        self._complaint_key = None
        self.query_one("#detail", Static).update(visible(row.detail))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Select by mouse, or with enter in the list."""
        event.stop()
        self._store_highlight()
        if self.check_action("choose", ()):
            self.action_choose()
        else:
            self.query_one(AskPane).focus_input()

    def on_resize(self, event: Resize) -> None:
        """Fit the columns to the new width."""
        self.call_after_refresh(self._update_list, rebuild=True)

    def _store_highlight(self) -> None:
        self._highlighted_key = row.key if (row := self.highlighted) else ""

    def _update_list(self, *, rebuild: bool = False) -> None:
        """Filter the rows, if the filter has changed or with `rebuild`."""
        if not self.is_running:  # closed before the resize was handled
            return
        typed = self.query_one(Filter).value.strip()
        if typed == self._typed and not rebuild:
            return
        self._typed, words = typed, typed.lower().split()
        if typed:
            self._rows, count = best(typed, self._searchable, MAX_ROWS)
        else:
            common = [row for row in self._all if row.common]
            self._rows, count = common[:MAX_ROWS], len(common)
        options = self.query_one(OptionList)
        fallback = (options.highlighted or 0) if rebuild else 0  # if the highlighted row is gone
        # the list may be hidden; without its scrollbar
        width = self.query_one(Filter).size.width - 1
        cells = [(row.cells, places(words, row.text)) for row in self._rows]
        head, *contents = aligned(self.COLUMNS, cells, width)
        self.query_one("#head", Static).update(head)
        options.set_options(map(Option, contents))
        key = self._highlighted_key or ("" if words else self.first)
        keys = [row.key for row in self._rows]
        options.highlighted = keys.index(key) if key in keys else fallback
        if not self._rows:
            self.query_one("#detail", Static).update("")
        total = len(self._all)
        listed = f"{count:,} shown"
        if count > len(self._rows):
            listed = f"the first {len(self._rows):,} of {count:,}"
        more = f" · typing searches all {total:,}" if count < total and not typed else ""
        box = self.query_one(Vertical)
        box.border_subtitle = Content(f"{listed}{more}" if total else "")
        nothing = f"No match for “{typed}”." if typed and total else self.NOTHING
        self.query_one("#state", Static).update(visible(self._status or nothing))
        box.set_class(not self._rows, "-stateful")


class ChoicePicker(Picker[str]):
    """Returns one of some words; the current one is highlighted first."""

    COLUMNS = (PickerColumn("choice"), PickerColumn("now"))
    DEFAULT_CSS = """
    ChoicePicker {
        & > Vertical, &.-narrow > Vertical { width: 50; height: 16; }
    }
    """

    def __init__(self, heading: str, choices: Sequence[str], now: str) -> None:
        super().__init__()
        self.heading = heading
        self._choices = choices
        self.first = now

    async def load(self) -> Sequence[PickerRow[str]]:
        marks = ((word, "√" if word == self.first else "") for word in self._choices)
        return [PickerRow(cells[0], cells[0], cells) for cells in marks]

    def result(self, item: str) -> str:
        return item


class AnswerInput(LineInput):
    """The text input of the ask pane."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "screen.answer('')", "back")]


class YesOrNo(Static, can_focus=True):
    """Accepts y as yes, and common other keys as no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "screen.answer('yes')", "yes"),
        Binding("n,escape,enter,space,tab", "screen.answer('')", "no", key_display="n"),
    ]


class AskPane(Vertical):
    """Asks for a text or a confirmation; hidden otherwise."""

    DEFAULT_CSS = """
    AskPane {
        display: none;
        height: auto;
        border-top: solid $warning;
        &.-on { display: block; }
        & > Static { height: auto; }
        & > AnswerInput { display: none; }
        &.-text > AnswerInput { display: block; }
        &.-text > YesOrNo { display: none; }
    }
    """

    def __init__(self) -> None:
        self._answer: asyncio.Future[str | None] | None = None
        self._question = Static("", markup=False)
        self._line = AnswerInput(compact=True)
        self._yes_or_no = YesOrNo("y yes · n no", markup=False)
        super().__init__(self._question, self._line, self._yes_or_no)

    async def ask(
        self, question: str, value: str | None = None, *, secret: bool = False
    ) -> str | None:
        """Return the typed text, initially `value`, or for None a confirmation; None if the user cancels.

        A secret is masked.
        """
        self._line.password = secret
        self._line.value = value or ""
        self._line.cursor_position = len(self._line.value)
        previous = self.screen.focused
        self.resolve(None)
        self._answer = asyncio.get_running_loop().create_future()
        self.show_question(question)
        self.set_class(value is not None, "-text")
        self.add_class("-on")
        self.screen.refresh_bindings()
        self.focus_input()
        try:
            return await self._answer
        finally:
            if self.is_attached:  # unless the screen was closed
                self.remove_class("-on")
                self.screen.refresh_bindings()
                if previous is not None:
                    previous.focus()

    def focus_input(self) -> None:
        (self._line if self.has_class("-text") else self._yes_or_no).focus()

    def show_question(self, question: str) -> None:
        self._question.update(visible(question))

    def resolve(self, answer: str | None) -> None:
        """Answer, unless there is an answer already."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.resolve(event.value)
