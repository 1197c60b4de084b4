"""Questions to the person, asked in place above the prompt: a key or a click answers."""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus, Focus, Key, Paste
from textual.geometry import Size
from textual.style import Style
from textual.widgets import Input, Static, TextArea

from ecoshell.agent.user_interface import (
    Approval,
    CostChoice,
    Decision,
    LimitChoice,
    Trust,
    enough_text,
    parse_arguments,
)
from ecoshell.budget.money import Unit, parse_amount
from ecoshell.errors import UsageError
from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, ModelOffer, TrustWanted
from ecoshell.tui.keys import Field, KeysInOrder, act_at_once
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.text import amount, fit_middle, money, tokens
from ecoshell.tui.transcript.blocks import folded
from ecoshell.untrusted import visible, visible_line

T = TypeVar("T")
M = TypeVar("M", LimitChoice, CostChoice)
QUIET = "$foreground-muted"
"""The style of words that only accompany."""
_PER_LINE = 75
"""Characters a folded line has room for on a narrow screen."""
_BETWEEN = "  "
_LONGEST_NAME = 30
_NAMED = "the model's name: embedded, local:FILE.gguf, or a provider's"
_INSTRUCTIONS, _RATIONALE, _ARGUMENT = 5, 3, 6
"""Lines that are shown of a project's file, of what a model says, and of one argument until they are unfolded."""
_BESIDE_A_DIFF = 1
"""Lines of one argument where a diff shows it: it need not be read twice."""
_UNFOLDED = 400
"""Lines of a text that is shown whole: more would hold up the screen."""
_SIGNS = {"+": "$text-success", "-": "$text-error", "@": QUIET, "[": QUIET}


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
    """The ways to answer a question, on one line or one below the other."""

    DEFAULT_CSS = """
    Choices { link-style: none; link-background: initial; link-color: $foreground; link-style-hover: underline; }
    """

    def __init__(self, choices: Iterable[Choice], *, below: bool = False, classes: str = "") -> None:
        super().__init__(classes=classes)
        self._below = below
        self._choices = [choice.shown() for choice in choices]

    def show(self, choices: Iterable[Choice]) -> None:
        self._choices = [choice.shown() for choice in choices]
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        """The choices, none of them broken over two lines."""
        return Content("\n").join(self._lines(self.size.width))

    async def action_choose(self, action: str) -> None:
        """Answer as the choice that was clicked does."""
        await self.query_ancestor(Question).run_action(action)

    def _lines(self, width: int) -> list[Content]:
        lines: list[Content] = []
        for choice in self._choices:
            if lines and not self._below and lines[-1].cell_length + len(_BETWEEN) + choice.cell_length <= width:
                lines[-1] = Content.assemble(lines[-1], _BETWEEN, choice)
            else:
                lines.append(choice)
        return lines


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

    def __init__(self, title: str, note: str = "") -> None:
        """The note only accompanies, and stays in sight while the rest scrolls."""
        super().__init__()
        self.border_title = Content(title)
        self._note = note
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._whole = self._folds = False
        """Whether nothing is folded, and whether anything can be."""

    def compose(self) -> ComposeResult:
        yield from self.about()
        with Foot():
            yield Static(classes="fault", markup=False)
            if self._note:
                yield Static(self._note, classes="quiet", markup=False)
            yield Field(compact=True)
            yield Choices((), classes="choices")

    @abstractmethod
    def about(self) -> ComposeResult:
        """What it is about, which scrolls."""

    def on_mount(self) -> None:
        self._fold(whole=False)

    def begin(self) -> None:
        self.focus()

    def choices(self) -> Iterator[Choice]:
        """The ways to answer, from the keys; where something is folded, or was, the key for that is among them."""
        for binding in self.BINDINGS:
            if isinstance(binding, Binding) and binding.show:
                yield Choice(binding.key.partition(",")[0], binding.description, binding.action)
        if self._folds:
            yield Choice("f", "fold" if self._whole else "all", "fold")

    def redraw(self) -> None:
        """Show what may be folded as it is now."""

    def action_fold(self) -> None:
        """Show long texts whole, or fold them again."""
        self._fold(whole=not self._whole)

    def _fold(self, *, whole: bool) -> None:
        self._whole = whole
        self.redraw()
        self.query_one(".choices", Choices).show(self.choices())

    def folded(self, text: str, lines: int) -> tuple[str, str]:
        """So many lines of a text, safe to show, or all there is room for; and words for how much there is besides."""
        lines = _UNFOLDED if self._whole else lines
        shown, more = folded(text, lines=lines, characters=lines * _PER_LINE)
        self._folds = self._folds or bool(more)
        return visible(shown), f"  {more}" if more else ""

    def ask_for(self, placeholder: str, proposed: str = "") -> None:
        field = self.query_one(Field)
        field.value, field.placeholder = proposed, placeholder
        field.cursor_position = len(proposed)
        field.add_class("-on")
        field.focus()

    def leave_field(self) -> bool:
        """Go back from what is typed; says whether anything was."""
        field = self.query_one(Field)
        typing = field.has_class("-on")
        field.remove_class("-on")
        self.complain("")
        self.focus()
        return typing

    def resolve(self, answer: T) -> None:
        """Answer, unless that has happened already."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def complain(self, text: str) -> None:
        """Say what is wrong with what was typed; nothing takes it away."""
        line = self.query_one(".fault", Static)
        line.update(Content(f"! {visible(text)}"))
        line.set_class(bool(text), "-on")

    async def on_key(self, event: Key) -> None:
        """A letter that answers nothing begins a message."""
        if not self.has_focus:
            return
        if await act_at_once(self, event.key):
            event.stop()
        elif event.character and event.is_printable and event.key not in self.screen.active_bindings:
            event.stop()
            self.screen.query_one(Prompt).focus().insert(event.character)

    def on_paste(self, event: Paste) -> None:
        """What is pasted belongs to a message."""
        if self.has_focus:
            event.stop()
            self.screen.query_one(Prompt).focus().post_message(Paste(event.text))

    @on(Focus)
    @on(DescendantFocus)
    def attended(self) -> None:
        """The hint how to come here has done its work."""
        self.border_subtitle = ""


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
        until = "Trusted or not, it is asked about again when it has changed."
        title = f"? may the model follow AGENTS.md of this project{changed}"
        super().__init__(title, f"{visible_line(wanted.file)}\n{until}")
        self._wanted = wanted

    def about(self) -> ComposeResult:
        yield Static(classes="instructions", markup=False)

    def redraw(self) -> None:
        text, more = self.folded(self._wanted.text, _INSTRUCTIONS)
        self.query_one(".instructions", Static).update(Content.assemble(text, (more, QUIET)))

    def action_decide(self, word: Trust) -> None:
        self.resolve(word)


class ArgumentsEditor(KeysInOrder, TextArea):
    """The arguments as JSON, to be changed; enter runs, a new line is ctrl+j."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,ctrl+s", "submit", "run with these"),
        Binding("escape", "leave", "back"),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "new line", show=False),
    ]
    HELP = "The call runs with these arguments once you press enter; esc leaves them as they were."

    def __init__(self) -> None:
        super().__init__(compact=True, highlight_cursor_line=False, soft_wrap=True)

    def action_submit(self) -> None:
        self.query_ancestor(ApprovalQuestion).action_submit()

    def action_leave(self) -> None:
        self.query_ancestor(ApprovalQuestion).action_leave()

    def action_newline(self) -> None:
        self.insert("\n")


class ApprovalQuestion(Question[Approval]):
    """May this call run?"""

    DEFAULT_CSS = """
    ApprovalQuestion {
        ArgumentsEditor { display: none; height: auto; max-height: 30vh; padding: 0; border: none; }
        &.-editing {
            ArgumentsEditor { display: block; }
            .call, .changes { display: none; }
        }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1,y", "decide('once')", "once"),
        Binding("2,s", "decide('session')", "session"),
        Binding("3,p", "decide('project')", "project"),
        Binding("n", "decide('no')", "no"),
        Binding("escape", "back", "no", show=False),
        Binding("d", "instead", "instead"),
        Binding("e", "edit", "edit"),
        Binding("f", "fold", "fold", show=False),
    ]
    HELP = (
        "Nothing runs before you decide. 1 or y: this once. 2: always in this session. 3: always in this project. "
        "n or esc: no. d: no, and what to do instead. e: change the arguments first. f: show long arguments whole; up "
        "and down scroll. Any other letter begins a message, which waits for the end of the turn."
    )

    def __init__(self, wanted: ApprovalWanted) -> None:
        price = f" One use costs {money(wanted.price_nano)}." if wanted.price_nano else ""
        super().__init__(f"? may {visible_line(wanted.name)} run", f"{visible(wanted.reason)}{price}")
        self._wanted = wanted
        self.continues = bool(wanted.fault)

    def about(self) -> ComposeResult:
        yield Static(classes="why", markup=False)
        yield Static(classes="call", markup=False)
        yield Static(_diff(self._wanted.changes), classes="changes", markup=False)
        yield ArgumentsEditor()

    def on_mount(self) -> None:
        """Leave out what there is nothing of."""
        self.query_one(Field).select_on_focus = False
        self.query_one(".why").display = bool(self._wanted.rationale.strip())
        if not self._wanted.changes:
            self.query_one(".changes").remove()
        if self._wanted.fault:
            self.complain(self._wanted.fault)

    def begin(self) -> None:
        """Take the keys; arguments that could not be taken are edited on."""
        if self.continues:
            self.action_edit()
        else:
            self.focus()

    def action_decide(self, decision: Decision) -> None:
        changed = self._wanted.arguments if self._wanted.fault and decision != "no" else None
        self.resolve(Approval(decision, changed))

    def action_back(self) -> None:
        """Leave the field of what to do instead; without one, say no."""
        if not self.action_leave():
            self.action_decide("no")

    def action_instead(self) -> None:
        """Ask what is to be done in the place of the call."""
        self.ask_for("what to do instead", self.query_one(Field).value)
        telling = Choice("enter", "no, and do this instead", "refuse")
        self.query_one(Choices).show((telling, Choice("esc", "back", "leave")))

    def action_refuse(self) -> None:
        self.resolve(Approval("no", instead=self.query_one(Field).value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_refuse()

    def action_edit(self) -> None:
        editor = self.query_one(ArgumentsEditor)
        text = json.dumps(dict(self._wanted.arguments), ensure_ascii=False, indent=2, default=str)
        # what the terminal could obey is written as JSON escapes it
        editor.text = "".join(one if visible(one) == one else json.dumps(one)[1:-1] for one in text)
        self.add_class("-editing")
        editing = Choice("enter", "run it with these", "submit")
        self.query_one(Choices).show((editing, Choice("esc", "back", "leave")))
        editor.focus()

    def action_submit(self) -> None:
        try:
            self.resolve(Approval("once", parse_arguments(self.query_one(ArgumentsEditor).text)))
        except UsageError as wrong:
            self.complain(str(wrong))

    def action_leave(self) -> bool:
        """Back to the question, the arguments as they were; says whether a line was typed."""
        self.remove_class("-editing")
        self.query_one(Choices).show(self.choices())
        return self.leave_field()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """What is typed here is no draft of a question."""
        event.stop()

    def redraw(self) -> None:
        why, more = self.folded(self._wanted.rationale.strip(), _RATIONALE)
        shown = Content.assemble(("◊ ", "$text-accent"), (why, "italic"), (more, QUIET))
        self.query_one(".why", Static).update(shown)
        rows: list[Content] = []
        for name, value in self._wanted.arguments.items():
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            text, more = self.folded(written, _BESIDE_A_DIFF if self._wanted.changes else _ARGUMENT)
            label = f"{visible_line(name)} = "
            rows.append(Content.assemble((label, QUIET), text.replace("\n", "\n  "), (more, QUIET)))
        without = Content.styled("without arguments", QUIET)
        self.query_one(".call", Static).update(Content("\n").join(rows) if rows else without)


def _diff(changes: str) -> Content:
    """The hunks of a unified diff; each line keeps its sign, so that no colour is needed to read it."""
    lines = visible(changes).split("\n")
    new = [Content.styled("a new file:", QUIET)] if lines[0] == "--- /dev/null" else []
    hunks = lines[2:] if lines[0].startswith("--- ") else lines  # the file is named above, among the arguments
    return Content("\n").join([*new, *(Content.styled(line, _SIGNS.get(line[:1], "")) for line in hunks)])


class MoneyQuestion(Question[M]):
    """A question with other models on offer, and a field for an amount or a model's name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"take({number})", f"model {number}", show=False) for number in range(1, 10)),
        Binding("escape", "back", "back", show=False),
    ]
    unit: Unit = "usd"

    def __init__(self, title: str, about: Content, offers: Sequence[ModelOffer], make: Callable[..., M]) -> None:
        """`make` makes an answer of its kind and its value."""
        super().__init__(title)
        self._about = about
        self._offers = tuple(offers)
        self._make = make
        self._typing: Literal["cap", "model"] = "model"

    def about(self) -> ComposeResult:
        yield Static(self._about, markup=False)
        if self._offers:
            yield Choices(_offered(self._offers, self.unit), below=True, classes="offers")

    def action_take(self, number: int) -> None:
        if number <= len(self._offers):
            self.resolve(self._make("model", self._offers[number - 1].name))

    def action_name_model(self) -> None:
        self._typing = "model"
        self.ask_for(_NAMED)

    def action_back(self) -> None:
        """Leave the field; without one, stop."""
        if not self.leave_field():
            self.action_choose("stop")

    def action_choose(self, kind: str) -> None:
        self.resolve(self._make(kind))

    def on_input_submitted(self, event: Input.Submitted) -> None:
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


class LimitQuestion(MoneyQuestion[LimitChoice]):
    """The next call could pass a cap: what now?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "raise_cap", "raise cap"),
        Binding("m", "name_model", "another model"),
        Binding("a", "choose('answer')", "answer from what there is"),
        Binding("s", "choose('stop')", "stop"),
    ]
    HELP = (
        "The turn waits, nothing is lost. r: raise the cap; what is proposed leaves room for the step and the answer. "
        "A number: go on with that model, m: with another. a: answer from what there is. s or esc: stop."
    )

    def __init__(self, hit: LimitHit) -> None:
        need, left = amount(hit.need, hit.unit), amount(hit.left, hit.unit)
        title = f"■ {visible_line(hit.scope)} cap: needs {need}, {left} is left"
        super().__init__(title, Content(visible(hit.message)), hit.offers, LimitChoice)
        self._hit = hit
        self.unit = hit.unit

    def action_raise_cap(self) -> None:
        self._typing = "cap"
        self.ask_for("the new cap: 0.50 for dollars, 20000tok for tokens", enough_text(self._hit))


class CostQuestion(MoneyQuestion[CostChoice]):
    """May an expensive step go on?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g,y", "choose('go')", "go on"),
        Binding("d", "choose('always')", "don't ask again"),
        Binding("m", "name_model", "another model"),
        Binding("a", "choose('answer')", "answer now"),
        Binding("s", "choose('stop')", "stop"),
    ]
    HELP = (
        "Nothing is sent and nothing is reserved before you decide. g or y: go on. d: go on, and do not ask again in "
        "this session. A number: go on with that model, m: with another. a: answer from what there is. s or esc: stop."
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
    names = [fit_middle(visible_line(offer.name), _LONGEST_NAME) for offer in offers]
    for number, (name, offer) in enumerate(zip(names, offers, strict=True), 1):
        size = f"≤ {tokens(offer.most_tokens)} tok  " if unit == "tokens" else ""  # under a cap in tokens
        price = "free" if offer.most_nano == 0 else money(offer.most_nano)
        most = f"≤ {price}" if offer.most_nano else price
        room = "" if offer.fits else "  may not fit"
        details = f"  {'local' if offer.local else 'remote'}  {size}{most}{room}"
        words = Content.assemble(f"{name:<{max(map(len, names))}}", (details, QUIET))
        yield Choice(str(number), words, f"take({number})")
