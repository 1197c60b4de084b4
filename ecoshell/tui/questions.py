"""Questions to the person, asked in place above the prompt: a key or a click answers."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, Literal, TypeVar

from textual import on
from textual.actions import parse
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus, Focus, Key, Paste
from textual.geometry import Size
from textual.reactive import reactive
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from ecoshell.agent import (
    Approval,
    CostChoice,
    Decision,
    LimitChoice,
    Trust,
    enough_text,
    parse_arguments,
)
from ecoshell.budget import Unit, parse_amount
from ecoshell.errors import UsageError
from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, ModelOffer, TrustWanted
from ecoshell.messages import visible, visible_line
from ecoshell.tui.keys import Field, KeysInOrder, Lines, act_at_once
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.text import amount, fit_middle, money, tokens
from ecoshell.tui.transcript.blocks import folded

T = TypeVar("T")
M = TypeVar("M", LimitChoice, CostChoice)
QUIET = "$foreground-muted"
"""The style of words that only accompany."""
_PER_LINE = 75
"""Characters a folded line has room for on a narrow screen."""
_BETWEEN = "  "
_LONGEST_NAME = 30
_NAMED = {
    "raise": "the new cap: 0.50 for dollars, 20000tok for tokens",
    "model": "the model's name: embedded, local:FILE.gguf, or a provider's",
}
_INSTRUCTIONS, _RATIONALE, _ARGUMENT = 5, 3, 6
"""Lines that are shown of a project's file, of what a model says, and of one argument until they are unfolded."""
_BESIDE_A_DIFF = 1
"""Lines of one argument where a diff shows it: it need not be read twice."""
_UNFOLDED = 400
"""Lines of a text that is shown whole: more would hold up the screen."""
_SIGNS = {"+": "$text-success", "-": "$text-error", "@": QUIET, "[": QUIET}


def choice(key: str, words: Content | str, action: str) -> Content:
    """One way to answer: its key in reverse and its words; a click anywhere on it does the question's action."""
    text = Content.assemble((f" {key} ", "reverse"), " ", words)
    return text.stylize(Style.from_meta({"@click": f"choose({action!r})"}))


class Choices(Static):
    """The ways to answer a question, as many on one line as there is room for."""

    DEFAULT_CSS = """
    Choices { link-style: none; link-background: initial; link-color: $foreground; link-style-hover: underline; }
    """

    choices: reactive[Sequence[Content]] = reactive((), layout=True)

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
        for choice in self.choices:
            if lines and lines[-1].cell_length + len(_BETWEEN) + choice.cell_length <= width:
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
    """Whether the person was just busy with it, and goes on with what it asks."""

    def __init__(self, title: str, refusal: T, *about: Widget, note: str = "") -> None:
        """`refusal` is what esc answers; what it is `about` scrolls; the note only accompanies, and stays in sight."""
        super().__init__()
        self.border_title = Content(title)
        self._refusal = refusal
        self._about = about
        self._note = note
        self._fault = Static(classes="fault", markup=False)
        self._field = Field(compact=True)
        self._choices = Choices()
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._whole = self._folds = False
        """Whether nothing is folded, and whether anything can be."""

    def compose(self) -> ComposeResult:
        self.redraw()
        yield from self._about
        with Foot():
            yield self._fault
            if self._note:
                yield Static(self._note, classes="quiet", markup=False)
            yield self._field
            yield self._choices

    def redraw(self) -> None:
        """Show what may be folded as it is now, and the ways to answer, from the keys, with that for folding."""
        shown = [one for one in self.BINDINGS if isinstance(one, Binding) and one.show]
        bindings = [one for one in shown if self.check_action(*parse(one.action)[1:])]
        choices = [choice(one.key.partition(",")[0], one.description, one.action) for one in bindings]
        if self._folds:
            choices.append(choice("f", "fold" if self._whole else "all", "fold"))
        self._choices.choices = choices

    def action_fold(self) -> None:
        """Show long texts whole, or fold them again."""
        self._whole = not self._whole
        self.redraw()

    def folded(self, text: str, lines: int) -> tuple[str, str]:
        """So many lines of a text, safe to show, or all there is room for; and words for how much there is besides."""
        lines = _UNFOLDED if self._whole else lines
        shown, more = folded(text, lines=lines, characters=lines * _PER_LINE)
        self._folds = self._folds or bool(more)
        return visible(shown), f"  {more}" if more else ""

    def ask_for(self, placeholder: str, proposed: str = "") -> None:
        self._field.value, self._field.placeholder = proposed, placeholder
        self._field.cursor_position = len(proposed)
        self._field.add_class("-on")
        self._field.focus()

    def action_back(self) -> None:
        """Go back from what is typed to the question; where nothing is, refuse."""
        if not (self._field.has_class("-on") or self.has_class("-editing")):
            self.resolve(self._refusal)
        self._field.remove_class("-on")
        self.remove_class("-editing")
        self.complain("")
        self.redraw()
        self.focus()

    def resolve(self, answer: T) -> None:
        """Answer, unless that has happened already."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def complain(self, text: str) -> None:
        """Say what is wrong with what was typed; nothing takes it away."""
        self._fault.update(Content(f"! {visible(text)}"))
        self._fault.set_class(bool(text), "-on")

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
        self._instructions = Static(markup=False)
        super().__init__(title, "later", self._instructions, note=f"{visible_line(wanted.file)}\n{until}")
        self._wanted = wanted

    def redraw(self) -> None:
        text, more = self.folded(self._wanted.text, _INSTRUCTIONS)
        self._instructions.update(Content.assemble(text, (more, QUIET)))
        super().redraw()

    def action_decide(self, word: Trust) -> None:
        self.resolve(word)


class ArgumentsEditor(KeysInOrder, Lines):
    """The arguments as JSON, to be changed; enter runs, a new line is ctrl+j."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,ctrl+s", "answer('submit')", "run with these"),
        Binding("escape", "answer('back')", "back"),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "new line", show=False),
    ]
    HELP = "The call runs with these arguments once you press enter; esc leaves them as they were."

    async def action_answer(self, action: str) -> None:
        await self.query_ancestor(ApprovalQuestion).run_action(action)

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
        self._why = Static(classes="why", markup=False)
        self._why.display = bool(wanted.rationale.strip())
        self._call = Static(classes="call", markup=False)
        self._editor = ArgumentsEditor(compact=True, highlight_cursor_line=False, soft_wrap=True)
        about: list[Widget] = [self._why, self._call, self._editor]
        if wanted.changes:  # each line keeps its sign, so that no colour is needed to read it
            lines = visible(wanted.changes).split("\n")
            new = [Content.styled("a new file:", QUIET)] if lines[0] == "--- /dev/null" else []
            hunks = lines[2:] if lines[0].startswith("--- ") else lines  # the file is named above, in the arguments
            diff = Content("\n").join([*new, *(Content.styled(line, _SIGNS.get(line[:1], "")) for line in hunks)])
            about.insert(2, Static(diff, classes="changes", markup=False))
        note = f"{visible(wanted.reason)}{price}"
        server = visible_line(wanted.of_server)
        title = f"? {server} asks" if server else f"? may {visible_line(wanted.name)} run"
        super().__init__(title, Approval("no"), *about, note=note)
        self._wanted = wanted
        self.continues = bool(wanted.fault)

    def on_mount(self) -> None:
        """Have arguments that could not be taken edited on."""
        if self._wanted.fault:
            self.complain(self._wanted.fault)
            self.action_edit()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """What a server asks is answered yes or no, this once."""
        beside = action == "instead" or parameters in (("session",), ("project",))
        return not (self._wanted.of_server and beside)

    def action_decide(self, decision: Decision) -> None:
        changed = self._wanted.arguments if self._wanted.fault and decision != "no" else None
        self.resolve(Approval(decision, changed))

    def action_instead(self) -> None:
        """Ask what is to be done in the place of the call."""
        self._field.select_on_focus = False
        self.ask_for("what to do instead", self._field.value)
        self._choices.choices = (choice("enter", "no, and do this instead", "refuse"), choice("esc", "back", "back"))

    @on(Input.Submitted)
    def action_refuse(self) -> None:
        self.resolve(Approval("no", instead=self._field.value.strip()))

    def action_edit(self) -> None:
        text = json.dumps(dict(self._wanted.arguments), ensure_ascii=False, indent=2, default=str)
        # what the terminal could obey is written as JSON escapes it
        self._editor.text = "".join(one if visible(one) == one else json.dumps(one)[1:-1] for one in text)
        self.add_class("-editing")
        self._choices.choices = (choice("enter", "run it with these", "submit"), choice("esc", "back", "back"))
        self._editor.focus()
        self.call_after_refresh(self._editor.scroll_visible, animate=False)  # once it is laid out

    def action_submit(self) -> None:
        try:
            self.resolve(Approval("once", parse_arguments(self._editor.text)))
        except UsageError as wrong:
            self.complain(str(wrong))

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """What is typed here is no draft of a question."""
        event.stop()

    def redraw(self) -> None:
        # what a server says is what is asked, and shown whole
        why, more = self.folded(self._wanted.rationale.strip(), _UNFOLDED if self._wanted.of_server else _RATIONALE)
        shown = Content.assemble(("◊ ", "$text-accent"), (why, "italic"), (more, QUIET))
        self._why.update(shown)
        rows: list[Content] = []
        for name, value in self._wanted.arguments.items():
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            text, more = self.folded(written, _BESIDE_A_DIFF if self._wanted.changes else _ARGUMENT)
            label = f"{visible_line(name)} = "
            rows.append(Content.assemble((label, QUIET), text.replace("\n", "\n  "), (more, QUIET)))
        without = Content.styled("without arguments", QUIET)
        self._call.update(Content("\n").join(rows) if rows else without)
        super().redraw()


class MoneyQuestion(Question[M]):
    """A question with other models on offer, and a field for an amount or a model's name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"take({number})", f"model {number}", show=False) for number in range(1, 10)),
        Binding("escape", "back", "back", show=False),
    ]

    def __init__(
        self,
        title: str,
        text: Content,
        offers: Sequence[ModelOffer],
        make: Callable[..., M],
        *,
        unit: Unit = "usd",
        enough: str = "",
    ) -> None:
        """`make` makes an answer of its kind and its value; of each offer it is told where the model runs, what it may
        cost, and whether there is room. `enough` is the cap that is proposed.
        """
        names = [fit_middle(visible_line(offer.name), _LONGEST_NAME) for offer in offers]
        listed: list[Choices] = []
        for number, (name, offer) in enumerate(zip(names, offers, strict=True), 1):
            size = f"≤ {tokens(offer.most_tokens)} tok  " if unit == "tokens" else ""  # under a cap in tokens
            price = "free" if offer.most_nano == 0 else money(offer.most_nano)
            most = f"≤ {price}" if offer.most_nano else price
            room = "" if offer.fits else "  may not fit"
            details = f"  {'local' if offer.local else 'remote'}  {size}{most}{room}"
            words = Content.assemble(f"{name:<{max(map(len, names))}}", (details, QUIET))
            listed.append(Choices())
            listed[-1].choices = [choice(str(number), words, f"take({number})")]
        super().__init__(title, make("stop"), Static(text, markup=False), *listed)
        self._offers = tuple(offers)
        self._make = make
        self._enough = enough
        self._typing: Literal["raise", "model"] = "model"

    def action_take(self, number: int) -> None:
        if number <= len(self._offers):
            self.resolve(self._make("model", self._offers[number - 1].name))

    def action_type(self, kind: Literal["raise", "model"]) -> None:
        self._typing = kind
        self.ask_for(_NAMED[kind], self._enough if kind == "raise" else "")

    def action_choose(self, kind: str) -> None:
        self.resolve(self._make(kind))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        value = event.value.strip()
        if not value:
            return
        try:
            if self._typing == "raise":
                parse_amount(value)
            self.resolve(self._make(self._typing, value))
        except UsageError as wrong:
            self.complain(str(wrong))


class LimitQuestion(MoneyQuestion[LimitChoice]):
    """The next call could pass a cap: what now?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "type('raise')", "raise cap"),
        Binding("m", "type('model')", "another model"),
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
        text, enough = Content(visible(hit.message)), enough_text(hit)
        super().__init__(title, text, hit.offers, LimitChoice, unit=hit.unit, enough=enough)


class CostQuestion(MoneyQuestion[CostChoice]):
    """May an expensive step go on?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g,y", "choose('go')", "go on"),
        Binding("d", "choose('always')", "don't ask again"),
        Binding("m", "type('model')", "another model"),
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
