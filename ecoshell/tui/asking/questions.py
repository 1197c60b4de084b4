"""Questions to the person, asked in place above the prompt: may this call run, and what to do at a limit."""

import asyncio
from typing import ClassVar, Generic, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.widgets import Input, Static

from ecoshell.agent.person import Decision, LimitChoice
from ecoshell.budget.money import parse_amount
from ecoshell.errors import UsageError
from ecoshell.events import ApprovalWanted, LimitHit
from ecoshell.tui.figures import amount
from ecoshell.tui.keys import act_at_once
from ecoshell.tui.transcript.blocks import Row
from ecoshell.tui.transcript.lines import arguments_rows
from ecoshell.untrusted import visible, visible_line

T = TypeVar("T")


class Field(Input):
    """A line to type in."""

    async def _on_key(self, event: Key) -> None:
        if await act_at_once(self, event.key):
            event.stop()
            event.prevent_default()


class Question(Vertical, Generic[T], can_focus=True):
    """A question with one key for each answer; `answer` resolves once."""

    DEFAULT_CSS = """
    Question {
        height: auto;
        border: round $warning;
        border-title-color: $warning;
        border-title-style: bold;
        padding: 0 1;
        & > VerticalScroll { height: auto; max-height: 8; scrollbar-size-vertical: 1; }
        & > Static { height: auto; }
        & > .choices { margin-top: 1; }
        & > Input { display: none; margin-top: 1; &.-on { display: block; } }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def resolve(self, answer: T) -> None:
        """Answer, unless that has happened already."""
        if not self.answer.done():
            self.answer.set_result(answer)


class ApprovalQuestion(Question[Decision]):
    """May this call run?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1,y", "decide('once')", "once"),
        Binding("2", "decide('session')", "this session"),
        Binding("3", "decide('project')", "this project"),
        Binding("n,escape", "decide('no')", "no"),
    ]
    HELP = "Nothing runs before you decide. 1 or y: this once. 2: always in this session. 3: always here. n or esc: no."
    _CHOICES = (("1", "once"), ("2", "always in this session"), ("3", "always in this project"), ("n", "no"))

    def __init__(self, wanted: ApprovalWanted) -> None:
        super().__init__()
        self._wanted = wanted
        self.border_title = Text(f"? may {visible_line(wanted.name)} run")

    def compose(self) -> ComposeResult:
        """The arguments, what would happen, the choices."""
        with VerticalScroll():
            yield Static(_text(arguments_rows(self._wanted.arguments)), markup=False)
        yield Static(visible(self._wanted.reason), markup=False)
        yield Static(_choices(self._CHOICES), classes="choices", markup=False)

    def action_decide(self, decision: Decision) -> None:
        """Answer."""
        self.resolve(decision)


class LimitQuestion(Question[LimitChoice]):
    """The next call could pass a cap: what now?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "ask_for('raise')", "raise"),
        Binding("m", "ask_for('model')", "model"),
        Binding("a", "choose('answer')", "answer"),
        Binding("s", "choose('stop')", "stop"),
        Binding("escape", "back", "back"),
    ]
    HELP = "The turn waits, nothing is lost. r: raise the cap. m: another model. a: answer from what there is. s: stop."
    _CHOICES = (("r", "raise the cap"), ("m", "another model"), ("a", "answer from what there is"), ("s", "stop"))
    _PLACEHOLDERS: ClassVar[dict[str, str]] = {
        "raise": "the new cap: 0.50 for dollars, 20000tok for tokens",
        "model": "the model's name: embedded, local:FILE.gguf, or a provider's",
    }

    def __init__(self, hit: LimitHit) -> None:
        super().__init__()
        self._hit = hit
        self._asked = ""
        self.border_title = Text(f"■ the {visible_line(hit.scope)} cap stands in the way")

    def compose(self) -> ComposeResult:
        """What is needed and left, the choices, and a field for an amount or a name."""
        need, left = amount(self._hit.need, self._hit.unit), amount(self._hit.left, self._hit.unit)
        yield Static(visible(self._hit.message), markup=False)
        yield Static(f"The next call may cost {need}; {left} is left.", markup=False)
        yield Field(compact=True)
        yield Static(_choices(self._CHOICES), classes="choices", markup=False)

    def action_choose(self, kind: str) -> None:
        """Answer with a choice that needs nothing more."""
        self.resolve(LimitChoice("answer" if kind == "answer" else "stop"))

    def action_ask_for(self, kind: str) -> None:
        """Ask for the amount or the model's name."""
        self._asked = kind
        field = self.query_one(Input)
        field.value = ""
        field.placeholder = self._PLACEHOLDERS[kind]
        field.add_class("-on")
        field.focus()

    def action_back(self) -> None:
        """Leave the field; without one, stop."""
        if not self._asked:
            self.action_choose("stop")
        self._asked = ""
        self.query_one(Input).remove_class("-on")
        self.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer with what was typed, if it can be taken."""
        event.stop()
        value = event.value.strip()
        try:
            if self._asked == "raise":
                parse_amount(value)
        except UsageError as wrong:
            self.border_subtitle = Text(str(wrong))
            return
        if value:
            self.resolve(LimitChoice("raise" if self._asked == "raise" else "model", value))


def _choices(choices: tuple[tuple[str, str], ...]) -> Text:
    text = Text()
    for key, words in choices:
        text.append(f" {key} ", "reverse").append(f" {words}   ")
    return text


def _text(rows: tuple[Row, ...]) -> Text:
    return Text("\n".join(row.plain for row in rows))
