"""Questions to the person, asked in place above the prompt: a key or a click answers."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus, Focus, Key, Paste
from textual.message import Message
from textual.style import Style
from textual.widgets import Input, Static

from ecoshell.tui.keys import act_at_once
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.untrusted import visible

T = TypeVar("T")

QUIET = "$foreground-muted"
"""The style of words that only accompany."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to answer: its key, its words, and the question's action that carries it out."""

    key: str
    words: Content | str
    action: str

    def shown(self) -> Content:
        """The key in reverse and the words; a click anywhere on it chooses."""
        click = Style.from_meta({"@click": f"choose({self.action!r})"})
        text = Content.assemble((f" {self.key} ", "reverse"), " ", self.words)
        return text.stylize(click)


class Choices(Static):
    """The ways to answer, on one line or one below the other."""

    DEFAULT_CSS = """
    Choices { link-style: none; link-background: initial; link-color: $foreground; link-style-hover: underline; }
    """

    @dataclass
    class Chosen(Message):
        """Somebody clicked on a choice."""

        action: str

    def __init__(self, choices: Iterable[Choice], *, below: bool = False, classes: str = "") -> None:
        self._gap = Content("\n" if below else "  ")
        super().__init__(self._text(choices), classes=classes, markup=False)

    def show(self, choices: Iterable[Choice]) -> None:
        """Offer these from now on."""
        self.update(self._text(choices))

    def action_choose(self, action: str) -> None:
        """Tell the question which choice was clicked."""
        self.post_message(self.Chosen(action))

    def _text(self, choices: Iterable[Choice]) -> Content:
        return self._gap.join(choice.shown() for choice in choices)


class Field(Input):
    """A line to type in."""

    async def _on_key(self, event: Key) -> None:
        if await act_at_once(self, event.key):
            event.stop()
            event.prevent_default()


class Foot(Vertical):
    """What stays in sight below the part that scrolls: what is wrong, a field, the choices."""


class Question(VerticalScroll, Generic[T]):
    """A question with one key for each answer; `answer` resolves once. It takes at most half of the screen."""

    DEFAULT_CSS = """
    Question {
        height: auto;
        max-height: 50vh;
        scrollbar-size-vertical: 1;
        border: round $warning 60%;
        border-title-color: $text-warning;
        border-title-style: bold;
        border-subtitle-color: $text-muted;
        padding: 0 1;
        &:focus, &:focus-within { border: round $warning; }
        & > Static { height: auto; }
        & > Foot { dock: bottom; height: auto; }
        Foot > Static { height: auto; }
        Foot > Input { display: none; &.-on { display: block; } }
        .fault { color: $text-error; display: none; &.-on { display: block; } }
        .quiet { color: $text-muted; }
    }
    """
    continues = False
    """Whether the person was just busy with it: then it is asked where they are."""

    def __init__(self, title: Content) -> None:
        super().__init__()
        self.border_title = title
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """Take the keys."""
        self.focus()

    def resolve(self, answer: T) -> None:
        """Answer, unless that has happened already."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def complain(self, text: str) -> None:
        """Say what is wrong with what was typed; nothing takes it away."""
        line = self.query_one(".fault", Static)
        line.update(Content(f"! {visible(text)}"))
        line.set_class(bool(text), "-on")

    async def on_choices_chosen(self, chosen: Choices.Chosen) -> None:
        """A click does what the key does."""
        chosen.stop()
        await self.run_action(chosen.action)

    async def on_key(self, event: Key) -> None:
        """A letter that answers nothing begins a message."""
        if not self.has_focus:
            return
        if await act_at_once(self, event.key):
            event.stop()
        elif event.character and event.is_printable and event.key not in self.screen.active_bindings:
            event.stop()
            prompt = self.screen.query_one(Prompt)
            prompt.focus()
            prompt.insert(event.character)

    def on_paste(self, event: Paste) -> None:
        """What is pasted belongs to a message."""
        if self.has_focus:
            event.stop()
            prompt = self.screen.query_one(Prompt)
            prompt.focus()
            prompt.post_message(Paste(event.text))

    def on_focus(self, _: Focus) -> None:
        """The hint how to come here has done its work."""
        self.border_subtitle = ""

    def on_descendant_focus(self, _: DescendantFocus) -> None:
        """So it has for what is inside."""
        self.border_subtitle = ""
