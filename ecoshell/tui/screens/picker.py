"""A list to pick from: a fuzzy filter above aligned columns, and below them what is known of the highlighted row."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

from rich.cells import cell_len
from textual import work
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content, Span
from textual.events import Click, Key, Resize
from textual.messages import Prune
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from ecoshell.errors import EcoshellError
from ecoshell.messages import visible, visible_line
from ecoshell.tui.fuzzy import best, places
from ecoshell.tui.keys import Field
from ecoshell.tui.text import left, right

T = TypeVar("T")
MOST = 120
"""Rows that are shown at once: nobody reads on, and a list of thousands would take its time."""
_GAP = 2
_LEAST = 12
"""Cells the first column is left with at least: it holds what is picked."""


@dataclass(frozen=True, slots=True)
class PickerColumn:
    """One column; it is shown where the list is at least `from_width` cells wide. The first takes what is left over."""

    title: str
    right: bool = False
    from_width: int = 0
    most: int = 24
    """Cells it takes at most, unless it is the first."""


def aligned(
    columns: Sequence[PickerColumn], rows: Sequence[tuple[Sequence[str], Sequence[int]]], width: int
) -> list[Content]:
    """The titles and the rows in those columns that fit; of each row its cells, and what of the first one is marked."""
    titles = [column.title for column in columns]
    shown = [at for at, column in enumerate(columns) if at == 0 or width >= column.from_width]
    texts = zip(titles, *(cells for cells, _ in rows), strict=True)
    widths = [min(max(map(cell_len, one)), column.most) for one, column in zip(texts, columns, strict=True)]
    widths[0] = max(_LEAST, width - sum(widths[at] + _GAP for at in shown[1:]))
    contents: list[Content] = []
    for cells, found in [(titles, ()), *rows]:
        put = ((right if columns[at].right else left)(cells[at], widths[at]) for at in shown)
        line, whole = (" " * _GAP).join(put).rstrip(), min(len(cells[0]), widths[0] - 1)
        contents.append(Content(line, [Span(at, at + 1, "bold underline") for at in found if at < whole]))
    return contents


@dataclass(frozen=True, slots=True)
class PickerRow(Generic[T]):
    """How an item is listed: a cell for each column, and what else the filter looks at; none need be made visible."""

    item: T
    key: str
    """What the item is known by; no two have the same."""
    cells: tuple[str, ...]
    also: str = ""
    common: bool = True
    """Whether it is listed while nothing is typed."""
    detail: str = ""
    """What is told of it while it is highlighted, in up to three lines."""

    @property
    def text(self) -> str:
        """What the filter looks in: the first cell, where its finds are shown, and the rest."""
        return f"{self.cells[0]} {self.also}".lower() if self.also else self.cells[0].lower()


class Filter(Input):
    """The field above the list: it keeps the focus, and the keys that move and choose act in the order they came."""

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
        if bound is None or not bound.enabled or event.is_printable or bound.node not in (self, self.screen):
            return
        event.stop()
        event.prevent_default()
        await (self if bound.node is self else self.screen).run_action(bound.binding.action)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave to the screen what is not about the text: enter, and deleting where nothing is left to delete."""
        return action != "submit" and not (action == "delete_right" and self.cursor_position == len(self.value))


class ClosedOnce(ModalScreen[T]):
    """A screen over another one that may be closed at any moment, and while it is still being read."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close the box; what still arrives for one that is closed, or under another, closes nothing."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    async def on_prune(self, event: Prune) -> None:
        """Give up what is still read for it before its widgets are gone; Textual does so after them."""
        self.workers.cancel_node(self)  # pyright: ignore[reportUnknownMemberType]


class Overlay(ClosedOnce[str | None]):
    """A box over the chat, and the whole of a narrow screen; gives back a text, or None when it is only closed."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - declared so by Textual
    DEFAULT_CSS = """
    Overlay {
        align: center middle;
        background: $background 60%;
        & > Vertical {
            width: 90%;
            max-width: 130;
            height: 90%;
            background: $surface;
            border: round $primary;
            border-title-color: $primary;
            border-title-style: bold;
            padding: 0 1;
        }
        &.-narrow > Vertical { width: 100%; height: 100%; }
        Footer { background: $surface; }
    }
    """

    def on_click(self, event: Click) -> None:
        """A click beside the box closes it."""
        if event.widget is self:
            self.dismiss(None)


class Picker(Overlay, Generic[T]):
    """Shows items that come in time and gives back the text that stands for the one picked, or None.

    A picker says what to list (`load`) and what picking an item gives (`result`).
    """

    heading: str = ""
    ASKED_ALONE: ClassVar[frozenset[str]] = frozenset()
    """Actions that cannot be begun while something is asked."""
    COLUMNS: ClassVar[tuple[PickerColumn, ...]] = ()
    NOTHING: ClassVar[str] = "There is nothing to list."
    """Said when there is nothing at all."""

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
        """The key of the item to begin on, while nothing is typed; empty for the first in the list."""
        self._all: list[PickerRow[T]] = []
        self._sought: list[tuple[str, PickerRow[T]]] = []
        self._shown: list[PickerRow[T]] = []
        self._typed = ""
        """What the list was made for."""
        self._kept = ""
        """The key of the item to keep highlighted; empty while the best match is to be."""
        self._complained: str | None = None
        """The key of the item whose detail has given way to a complaint."""
        self._complaint = "reading …"

    @abstractmethod
    async def load(self) -> Sequence[PickerRow[T]]:
        """What there is to pick from; may take its time off the event loop; raises EcoshellError."""

    @abstractmethod
    def result(self, item: T) -> str | None:
        """What picking the item gives; None when it cannot be picked, which `complain` should have told."""

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self.heading)
            box.add_class("-stateful")
            yield Filter(compact=True, placeholder="type to search")
            yield Static("", id="head", markup=False)
            yield OptionList(markup=False, compact=True)
            yield Static(self._complaint, id="state", markup=False)
            yield Static("", id="detail", markup=False)
            yield Aside()
            yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(Filter).focus()
        self.reload()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (action in self.ASKED_ALONE and self.query_one(Aside).has_class("-on"))

    @property
    def highlighted(self) -> PickerRow[T] | None:
        at = self.query_one(OptionList).highlighted
        return self._shown[at] if at is not None and at < len(self._shown) else None

    @work(group="load", exclusive=True)
    async def reload(self) -> None:
        """Read the items anew; the highlight and what is typed stay."""
        if self._shown:
            self._keep()
        rows: Sequence[PickerRow[T]] = ()
        try:
            rows = await self.load()
        except EcoshellError as error:
            self._complaint = " ".join(part for part in (error.message, error.fix) if part)
        except Exception as error:  # noqa: BLE001 - the edge of the worker: a defect must not take the screen
            self._complaint = f"Something unexpected happened: {error}"
        else:
            self._complaint = ""
        self._all = [
            replace(row, cells=tuple(map(visible_line, row.cells)), also=visible_line(row.also)) for row in rows
        ]
        self._sought = [(row.text, row) for row in self._all]
        self._follow(anew=True)

    def complain(self, text: str) -> None:
        """Say something in the place of the detail, until the highlight moves."""
        self._complained = row.key if (row := self.highlighted) else ""
        self.query_one("#detail", Static).update(Content.styled(visible(text), "$warning"))

    def action_move(self, how: str) -> None:
        """Move the highlight as the list's own action of this name does; from now on it stays on its item."""
        self._follow()
        with suppress(KeyError):  # a list that has only just come into sight has no pages yet
            getattr(self.query_one(OptionList), f"action_{how}")()
        self._keep()

    def action_answer(self, word: str) -> None:
        self.query_one(Aside).resolve(word or None)

    def action_choose(self) -> None:
        self._follow()
        result = self.result(row.item) if (row := self.highlighted) else None
        if result is not None:
            self.dismiss(result)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if isinstance(event.input, Filter):
            self._follow()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        row = self.highlighted
        if row is None or row.key == self._complained:
            return
        self._complained = None
        self.query_one("#detail", Static).update(visible(row.detail))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Pick by mouse, or by enter while the list has the focus."""
        event.stop()
        self._keep()
        if self.check_action("choose", ()):
            self.action_choose()
        else:
            self.query_one(Aside).attend()

    def on_resize(self, event: Resize) -> None:
        """Fit the columns to the new width, once the list has it."""
        self.call_after_refresh(self._follow, anew=True)

    def _keep(self) -> None:
        self._kept = row.key if (row := self.highlighted) else ""

    def _follow(self, *, anew: bool = False) -> None:
        """Make the list fit what is typed; nothing is done when it does already, unless it is to be made `anew`."""
        if not self.is_running:  # it was closed before it could be fitted to a new width
            return
        typed = self.query_one(Filter).value.strip()
        if typed == self._typed and not anew:
            return
        self._typed, words = typed, typed.lower().split()
        common = [row for row in self._all if row.common] if not typed else []
        self._shown, count = best(typed, self._sought, MOST) if typed else (common[:MOST], len(common))
        rows = self.query_one(OptionList)
        before = (rows.highlighted or 0) if anew else 0  # what was highlighted may be gone
        width = self.query_one(Filter).size.width - 1  # the list's, which may be out of sight, without its scrollbar
        cells = [(row.cells, places(words, row.text)) for row in self._shown]
        head, *contents = aligned(self.COLUMNS, cells, width)
        self.query_one("#head", Static).update(head)
        rows.set_options(map(Option, contents))
        wanted = self._kept or ("" if words else self.first)
        rows.highlighted = next((at for at, row in enumerate(self._shown) if row.key == wanted), before)
        if not self._shown:
            self.query_one("#detail", Static).update("")
        total = len(self._all)
        shown = f"the first {len(self._shown):,} of {count:,}" if count > len(self._shown) else f"{count:,}"
        more = f" · typing searches {total:,}" if count < total and not typed else ""
        box = self.query_one(Vertical)
        box.border_subtitle = Content(f"{shown}{more}" if total else "")
        # words in the place of a list that is empty
        nothing = f"Nothing fits “{typed}”." if typed and total else self.NOTHING
        self.query_one("#state", Static).update(visible(self._complaint or nothing))
        box.set_class(not self._shown, "-stateful")


class ChoicePicker(Picker[str]):
    """Gives back the word that was chosen; begins on the one that holds."""

    COLUMNS = (PickerColumn("choice"), PickerColumn("now"))
    DEFAULT_CSS = """
    ChoicePicker {
        & > Vertical, &.-narrow > Vertical { width: 50; height: 16; }
    }
    """

    def __init__(self, asked: str, choices: Sequence[str], now: str) -> None:
        super().__init__()
        self.heading = asked
        self._choices = choices
        self.first = now

    async def load(self) -> Sequence[PickerRow[str]]:
        return [PickerRow(word, word, (word, "√" if word == self.first else "")) for word in self._choices]

    def result(self, item: str) -> str:
        return item


class Line(Field):
    """Where a text is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "screen.answer('')", "back")]


class YesOrNo(Static, can_focus=True):
    """Takes y as yes; every other key that could be meant as an answer is a no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "screen.answer('yes')", "yes"),
        Binding("n,escape,enter,space,tab", "screen.answer('')", "no", key_display="n"),
    ]


class Aside(Vertical):
    """Asks one thing at a time; out of sight while there is nothing to ask."""

    DEFAULT_CSS = """
    Aside {
        display: none;
        height: auto;
        border-top: solid $warning;
        &.-on { display: block; }
        & > Static { height: auto; }
        & > Line { display: none; }
        &.-text > Line { display: block; }
        &.-text > YesOrNo { display: none; }
    }
    """

    def __init__(self) -> None:
        self._answer: asyncio.Future[str | None] | None = None
        self._asked = Static("", markup=False)
        self._line = Line(compact=True)
        self._yes_or_no = YesOrNo("y yes · n no", markup=False)
        super().__init__(self._asked, self._line, self._yes_or_no)

    async def ask(self, asked: str, value: str | None = None, *, secret: bool = False) -> str | None:
        """The text that was typed, which begins as `value`, or without one a yes; None when the person went back.

        A secret is not shown.
        """
        self._line.password = secret
        self._line.value = value or ""
        self._line.cursor_position = len(self._line.value)
        before = self.screen.focused
        self.resolve(None)
        self._answer = asyncio.get_running_loop().create_future()
        self.say(asked)
        self.set_class(value is not None, "-text")
        self.add_class("-on")
        self.screen.refresh_bindings()
        self.attend()
        try:
            return await self._answer
        finally:
            if self.is_attached:  # else the screen was closed meanwhile
                self.remove_class("-on")
                self.screen.refresh_bindings()
                if before is not None:
                    before.focus()

    def attend(self) -> None:
        """Give what is asked the keys."""
        (self._line if self.has_class("-text") else self._yes_or_no).focus()

    def say(self, asked: str) -> None:
        self._asked.update(visible(asked))

    def resolve(self, answer: str | None) -> None:
        """Answer, unless that has happened already."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.resolve(event.value)
