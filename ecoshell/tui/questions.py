"""Questions to the person, asked in place above the prompt: a key or a click answers.

Here are those about trust and about money; whether a call may run, with its arguments to edit, is in `approval`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus, Focus, Key, Paste
from textual.message import Message
from textual.style import Style
from textual.widgets import Input, Static

from ecoshell.agent.user_interface import CostChoice, LimitChoice, Trust, enough_text
from ecoshell.budget.money import Unit, counted, parse_amount
from ecoshell.errors import UsageError
from ecoshell.events import CostWanted, LimitHit, ModelOffer, TrustWanted
from ecoshell.tui.keys import Field, act_at_once
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.text import amount, money, tokens
from ecoshell.untrusted import visible, visible_line

T = TypeVar("T")
M = TypeVar("M", LimitChoice, CostChoice)

QUIET = "$foreground-muted"
"""The style of words that only accompany."""
_PER_LINE = 75
"""Characters a folded line has room for on a narrow screen."""
_LONGEST_NAME = 30
_NAMED = "the model's name: embedded, local:FILE.gguf, or a provider's"
_FOLDED = 5
_UNFOLDED = 400
"""Lines of the file when it is shown whole."""


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


@dataclass(frozen=True, slots=True)
class Folded:
    """The beginning of a text, made safe to show, and how much there is besides."""

    text: str
    more: str

    @classmethod
    def of(cls, text: str, lines: int) -> "Folded":
        """So many lines of the text, and of lines without end no more than there is room for."""
        first = "\n".join(text.split("\n", lines)[:lines])
        shown = first[: lines * _PER_LINE]
        beyond = text.count("\n") - shown.count("\n")
        more = counted(beyond, "more line") if beyond else counted(len(text) - len(shown), "more character")
        return cls(visible(shown), f"  … {more}" if len(shown) < len(text) else "")

    def beside(self, indent: int) -> str:
        """The text with its further lines indented."""
        return self.text.replace("\n", "\n" + " " * indent)


_CHOICES = (
    Choice("1", "trust it", "decide('yes')"),
    Choice("n", "no", "decide('no')"),
    Choice("l", "not now", "decide('later')"),
)
_FOLDS = Choice("f", "fold", "fold")
_UNFOLDS = Choice("f", "unfold", "fold")


class TrustQuestion(Question[Trust]):
    """May the model follow these instructions?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1,y", "decide('yes')", "trust it"),
        Binding("n", "decide('no')", "no"),
        Binding("l,escape", "decide('later')", "not now"),
        Binding("f", "fold", "fold", show=False),
    ]
    HELP = (
        "The model is told of this file only when you trust it. 1 or y: yes, until the file changes. n: no, until it "
        "changes. l or esc: not now, it is asked about again in the next session. f: show it whole; up and down scroll."
    )

    def __init__(self, wanted: TrustWanted) -> None:
        changed = ", which has changed" if wanted.changed else ""
        super().__init__(Content(f"? may the model follow AGENTS.md of this project{changed}"))
        self._wanted = wanted
        self._whole = False

    def compose(self) -> ComposeResult:
        """The text; and below what scrolls, the file's place and the choices."""
        yield Static(self._text(), classes="instructions", markup=False)
        with Foot():
            until = "Trusted or not, it is asked about again when it has changed."
            yield Static(f"{visible_line(self._wanted.file)}\n{until}", classes="quiet", markup=False)
            yield Choices(self._choices(), classes="choices")

    def action_decide(self, word: Trust) -> None:
        """Answer."""
        self.resolve(word)

    def action_fold(self) -> None:
        """Show the whole text, or fold it again."""
        self._whole = not self._whole
        self.query_one(".instructions", Static).update(self._text())
        self.query_one(Choices).show(self._choices())

    def _choices(self) -> tuple[Choice, ...]:
        if self._whole:
            return (*_CHOICES, _FOLDS)
        return (*_CHOICES, _UNFOLDS) if Folded.of(self._wanted.text, _FOLDED).more else _CHOICES

    def _text(self) -> Content:
        shown = Folded.of(self._wanted.text, _UNFOLDED if self._whole else _FOLDED)
        return Content.assemble(shown.text, (shown.more, QUIET))


class MoneyQuestion(Question[M]):
    """A question with other models on offer, and a field for an amount or a model's name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"take({number})", f"model {number}", show=False) for number in range(1, 10)),
        Binding("m", "name_model", "model"),
        Binding("escape", "back", "back"),
    ]
    CHOICES: ClassVar[tuple[Choice, ...]] = ()
    unit: Unit = "usd"
    """What the question is about."""

    def __init__(self, title: str, about: Content, offers: Sequence[ModelOffer], make: Callable[..., M]) -> None:
        """`make` makes an answer of its kind and its value."""
        super().__init__(Content(title))
        self._about = about
        self._offers = tuple(offers)
        self._make = make
        self._typing: Literal["", "cap", "model"] = ""

    def compose(self) -> ComposeResult:
        """What it is about and the models on offer; and below what scrolls, the field and the choices."""
        yield Static(self._about, markup=False)
        if self._offers:
            yield Choices(_offered(self._offers, self.unit), below=True, classes="offers")
        with Foot():
            yield Static(classes="fault", markup=False)
            yield Field(compact=True)
            yield Choices(self.CHOICES, classes="choices")

    def action_take(self, number: int) -> None:
        """Go on with the model that has this number."""
        if number <= len(self._offers):
            self.resolve(self._make("model", self._offers[number - 1].name))

    def action_name_model(self) -> None:
        """Ask for a model's name."""
        self._ask_for("model", "", _NAMED)

    def action_back(self) -> None:
        """Leave the field; without one, stop."""
        if not self._typing:
            self.action_choose("stop")
            return
        self._typing = ""
        self.complain("")
        self.query_one(Field).remove_class("-on")
        self.focus()

    def action_choose(self, kind: str) -> None:
        """Answer with a choice that needs nothing more."""
        self.resolve(self._make(kind))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer with what was typed, if it can be taken."""
        event.stop()
        value = event.value.strip()
        if not value:
            return
        try:
            if self._typing == "cap":
                parse_amount(value)
            self.resolve(self._make("raise" if self._typing == "cap" else "model", value))
        except UsageError as wrong:
            self.complain(str(wrong))

    def _ask_for(self, what: Literal["cap", "model"], proposed: str, placeholder: str) -> None:
        self._typing = what
        field = self.query_one(Field)
        field.value, field.placeholder = proposed, placeholder
        field.cursor_position = len(proposed)
        field.add_class("-on")
        field.focus()


class LimitQuestion(MoneyQuestion[LimitChoice]):
    """The next call could pass a cap: what now?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "raise_cap", "raise"),
        Binding("a", "choose('answer')", "answer"),
        Binding("s", "choose('stop')", "stop"),
    ]
    HELP = (
        "The turn waits, nothing is lost. r: raise the cap; what is proposed leaves room for the step and the answer. "
        "A number: go on with that model, m: with another. a: answer from what there is. s or esc: stop."
    )
    CHOICES = (
        Choice("r", "raise cap", "raise_cap"),
        Choice("m", "another model", "name_model"),
        Choice("a", "answer from what there is", "choose('answer')"),
        Choice("s", "stop", "choose('stop')"),
    )

    def __init__(self, hit: LimitHit) -> None:
        need, left = amount(hit.need, hit.unit), amount(hit.left, hit.unit)
        title = f"■ {visible_line(hit.scope)} cap: needs {need}, {left} is left"
        super().__init__(title, Content(visible(hit.message)), hit.offers, LimitChoice)
        self._hit = hit
        self.unit = hit.unit

    def action_raise_cap(self) -> None:
        """Ask for the new cap."""
        self._ask_for("cap", enough_text(self._hit), "the new cap: 0.50 for dollars, 20000tok for tokens")


class CostQuestion(MoneyQuestion[CostChoice]):
    """May an expensive step go on?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g,y", "choose('go')", "go on"),
        Binding("d", "choose('always')", "don't ask again"),
        Binding("a", "choose('answer')", "answer"),
        Binding("s", "choose('stop')", "stop"),
    ]
    HELP = (
        "Nothing is sent and nothing is reserved before you decide. g or y: go on. d: go on, and do not ask again in "
        "this session. A number: go on with that model, m: with another. a: answer from what there is. s or esc: stop."
    )
    CHOICES = (
        Choice("g", "go on", "choose('go')"),
        Choice("d", "don't ask again", "choose('always')"),
        Choice("m", "another model", "name_model"),
        Choice("a", "answer now", "choose('answer')"),
        Choice("s", "stop", "choose('stop')"),
    )

    def __init__(self, wanted: CostWanted) -> None:
        low, high, above = money(wanted.low_nano), money(wanted.high_nano), money(wanted.threshold_nano)
        about = Content.assemble(
            f"{visible_line(wanted.model)}: from {low}, with the prompt cached and a short answer, to {high} at most, ",
            "which is reserved.\n",
            (f"You are asked above {above}: ask_above in the settings.", QUIET),
        )
        super().__init__(f"$ the next step may cost {high}", about, wanted.offers, CostChoice)


def _offered(offers: Sequence[ModelOffer], unit: Unit) -> Iterator[Choice]:
    """Models on offer as choices: where each runs, what it may cost, and whether there is room."""
    names = [_short(visible_line(offer.name)) for offer in offers]
    for number, (name, offer) in enumerate(zip(names, offers, strict=True), 1):
        room = "" if offer.fits else "  may not fit"
        details = f"  {'local' if offer.local else 'remote'}  {_most(offer, unit)}{room}"
        words = Content.assemble(f"{name:<{max(map(len, names))}}", (details, QUIET))
        yield Choice(str(number), words, f"take({number})")


def _most(offer: ModelOffer, unit: Unit) -> str:
    """What the step may take there: its price, and under a cap in tokens its tokens too."""
    size = f"≤ {tokens(offer.most_tokens)} tok  " if unit == "tokens" else ""
    if not offer.most_nano:
        return f"{size}{money(None) if offer.most_nano is None else 'free'}"
    return f"{size}≤ {money(offer.most_nano)}"


def _short(name: str) -> str:
    """Beginning and end of a long name: the provider, and what tells the model from its kin."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:10]}…{name[11 - _LONGEST_NAME :]}"
