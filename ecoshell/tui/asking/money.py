"""What a turn pauses for when it comes to money: a limit, and an expensive step."""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Literal, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, Static

from ecoshell.agent.person import CostChoice, LimitChoice, enough_text
from ecoshell.budget.money import Unit, parse_amount
from ecoshell.errors import UsageError
from ecoshell.events import CostWanted, LimitHit, ModelOffer
from ecoshell.tui.asking.questions import QUIET, Choice, Choices, Field, Foot, Question
from ecoshell.tui.text import amount, money, tokens
from ecoshell.untrusted import visible, visible_line

T = TypeVar("T", LimitChoice, CostChoice)

_LONGEST_NAME = 30
_NAMED = "the model's name: embedded, local:FILE.gguf, or a provider's"


class MoneyQuestion(Question[T]):
    """A question with other models on offer, and a field for an amount or a model's name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"take({number})", f"model {number}", show=False) for number in range(1, 10)),
        Binding("m", "name_model", "model"),
        Binding("escape", "back", "back"),
    ]
    CHOICES: ClassVar[tuple[Choice, ...]] = ()
    unit: Unit = "usd"
    """What the question is about."""

    def __init__(self, title: str, about: Content, offers: Sequence[ModelOffer], make: Callable[..., T]) -> None:
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
