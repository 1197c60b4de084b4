"""Questions to the user, shown above the prompt and answered by a key or a click."""

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
from ecoshell.events.tools import argument_text
from ecoshell.messages import visible, visible_line
from ecoshell.tui.keys import KeysInOrder, LineInput, TextInput, act_at_once
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.text import amount, fit_middle, money, tokens
from ecoshell.tui.transcript.blocks import preview

T = TypeVar("T")
M = TypeVar("M", LimitChoice, CostChoice)
SECONDARY = "$foreground-muted"
"""The style of accompanying text."""
_CHARACTERS_PER_LINE = 75
"""Characters of a folded line on a narrow screen."""
_CHOICE_GAP = "  "
_MAX_NAME_CELLS = 30
_INPUTS = {
    "raise": (
        "the new cap: 0.50 for dollars, 20000tok for tokens, 2min for time",
        "raise the cap and continue",
    ),
    "model": (
        "the model's name: embedded, local:FILE.gguf, or a provider's",
        "continue with this model",
    ),
}
"""The placeholder of each input, and what enter does."""
_INSTRUCTION_LINES, _RATIONALE_LINES, _ARGUMENT_LINES = 5, 3, 6
_ARGUMENT_LINES_WITH_DIFF = 1
"""Lines of an argument that the diff shows again."""
_UNFOLDED_LINES = 400
"""Limit of an unfolded text; more would block the screen."""
_DIFF_STYLES = {"+": "$text-success", "-": "$text-error", "@": SECONDARY, "[": SECONDARY}


def choice(key: str, words: Content | str, action: str) -> Content:
    """One answer: its key and words; a click on it runs the question's action."""
    text = Content.assemble((f" {key} ", "reverse"), " ", words)
    return text.stylize(Style.from_meta({"@click": f"choose({action!r})"}))


_BACK = choice("esc", "back", "back")


def _note(text: str) -> Static:
    return Static(text, classes="quiet", markup=False)


class Choices(Static):
    """The answers to a question, as many per line as fit."""

    DEFAULT_CSS = """
    Choices { link-style: none; link-background: initial; link-color: $foreground; link-style-hover: underline; }
    """

    choices: reactive[Sequence[Content]] = reactive((), layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        return Content("\n").join(self._lines(self.size.width))

    async def action_choose(self, action: str) -> None:
        await self.query_ancestor(Question).run_action(action)

    def _lines(self, width: int) -> list[Content]:
        lines: list[Content] = []
        for choice in self.choices:
            if lines and lines[-1].cell_length + len(_CHOICE_GAP) + choice.cell_length <= width:
                lines[-1] = Content.assemble(lines[-1], _CHOICE_GAP, choice)
            else:
                lines.append(choice)
        return lines


class Foot(Vertical):
    """The fixed part below the scrolling one: an error, an input and the choices."""


class Question(VerticalScroll, Generic[T]):
    """A question with a key for each answer, at most half as high as the screen; `answer` resolves once."""

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
    takes_focus = False
    """Whether it takes the focus in any case, as a follow-up of the user's own answer."""

    def __init__(self, title: str, refusal: T, *about: Widget) -> None:
        """`refusal` is the answer of esc; `about` scrolls."""
        super().__init__()
        self.border_title = Content(title)
        self._refusal = refusal
        self._about = about
        self._fault = Static(classes="fault", markup=False)
        self._field = LineInput(compact=True)
        self._choices = Choices()
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._unfolded = self._foldable = False

    def compose(self) -> ComposeResult:
        self.redraw()
        yield from self._about
        with Foot():
            yield self._fault
            yield self._field
            yield self._choices

    def redraw(self) -> None:
        """Update the foldable texts and the choices, which follow from the bindings."""
        choices = [
            choice(binding.key.partition(",")[0], binding.description, binding.action)
            for binding in self.BINDINGS
            if isinstance(binding, Binding)
            and binding.show
            and self.check_action(*parse(binding.action)[1:])
        ]
        if self._foldable:
            choices.append(choice("f", "fold" if self._unfolded else "all", "fold"))
        self._choices.choices = choices

    def action_fold(self) -> None:
        """Show long texts in full, or fold them again."""
        self._unfolded = not self._unfolded
        self.redraw()

    def preview(self, text: str, lines: int) -> tuple[str, str]:
        """The start of a text, escaped, or all of it if unfolded; and a note about the rest."""
        lines = _UNFOLDED_LINES if self._unfolded else lines
        text, note = preview(text, lines=lines, characters=lines * _CHARACTERS_PER_LINE)
        self._foldable = self._foldable or bool(note)
        return visible(text), f"  {note}" if note else ""

    def ask_for(self, placeholder: str, enter: str, proposed: str = "") -> None:
        """Open the input, in which enter does what `enter` says."""
        self._field.value, self._field.placeholder = proposed, placeholder
        self._field.cursor_position = len(proposed)
        self._field.add_class("-on")
        self._choices.choices = (choice("enter", enter, "enter"), _BACK)
        self.screen.set_focus(self._field)

    async def action_enter(self) -> None:
        await self._field.action_submit()

    def action_back(self) -> None:
        """Return from an input to the question; without one, refuse."""
        if not (self._field.has_class("-on") or self.has_class("-editing")):
            self.resolve(self._refusal)
        self._field.remove_class("-on")
        self.remove_class("-editing")
        self.complain("")
        self.redraw()
        self.focus()

    def resolve(self, answer: T) -> None:
        """Answer, unless there is an answer already."""
        if not self.answer.done():
            self.answer.set_result(answer)
            self.screen.set_focus(self.screen.query_one(Prompt))

    def complain(self, text: str) -> None:
        """Show what is wrong with the input; an empty text clears the message."""
        self._fault.update(Content(f"! {visible(text)}"))
        self._fault.set_class(bool(text), "-on")

    async def on_key(self, event: Key) -> None:
        """Letters that are not answers start a message in the prompt.

        The focus moves at once, so that the other keys of a packet go to the new widget; those that are here already
        are passed on.
        """
        focused = self.screen.focused
        if focused is not self:
            if self.has_focus and focused is not None:
                event.stop()
                focused.post_message(Key(event.key, event.character))
        elif await act_at_once(self, event.key):
            event.stop()
        elif event.is_printable and event.key not in self.screen.active_bindings:
            event.stop()
            prompt = self.screen.query_one(Prompt)
            self.screen.set_focus(prompt)
            prompt.post_message(Key(event.key, event.character))

    def on_paste(self, event: Paste) -> None:
        """A paste starts a message, too."""
        if not self.has_focus:
            return
        event.stop()
        if self.screen.focused is self:
            self.screen.set_focus(self.screen.query_one(Prompt))
        if (focused := self.screen.focused) is not None:
            focused.post_message(Paste(event.text))

    @on(Focus)
    @on(DescendantFocus)
    def clear_focus_hint(self) -> None:
        self.border_subtitle = ""


class TrustQuestion(Question[Trust]):
    """May this file of the project be used?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1,y", "decide('yes')", "trust it"),
        Binding("n", "decide('no')", "no"),
        Binding("l,escape", "decide('later')", "not now"),
        Binding("f", "fold", "fold", show=False),
    ]
    HELP = (
        "The file is used only if you trust it. 1 or y: yes, until the file changes. n: no, until it "
        "changes. l or esc: not now, ask again in the next session. f: show all of it; up and down scroll."
    )

    def __init__(self, wanted: TrustWanted) -> None:
        until = "You will be asked again when the file changes."
        title = f"? {visible_line(wanted.render().text)}"
        self._instructions = Static(markup=False)
        note = _note(f"{visible_line(wanted.file)}\n{until}")
        super().__init__(title, "later", note, self._instructions)
        self._wanted = wanted

    def redraw(self) -> None:
        text, more = self.preview(self._wanted.text, _INSTRUCTION_LINES)
        self._instructions.update(Content.assemble(text, (more, SECONDARY)))
        super().redraw()

    def action_decide(self, word: Trust) -> None:
        self.resolve(word)


class ArgumentsEditor(KeysInOrder, TextInput):
    """The arguments as JSON; enter runs the call, ctrl+j starts a new line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,ctrl+s", "answer('submit')", "run with these"),
        Binding("escape", "answer('back')", "back"),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "new line", show=False),
    ]
    HELP = "Enter runs the call with these arguments, esc discards the changes."

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
        Binding("2", "decide('session')", "session"),
        Binding("3", "decide('project')", "project"),
        Binding("n", "decide('no')", "no"),
        Binding("escape", "back", "no", show=False),
        Binding("d", "instead", "instead"),
        Binding("e", "edit", "edit"),
        Binding("f", "fold", "fold", show=False),
    ]
    HELP = (
        "The call waits for your decision. 1 or y: this once. 2: always in this session. 3: always in this project. "
        "n or esc: no. d: no, with other instructions. e: change the arguments first. f: show long arguments in full; "
        "up and down scroll. Any other letter starts a message, which is queued until the end of the turn."
    )

    def __init__(self, wanted: ApprovalWanted) -> None:
        self._why = Static(classes="why", markup=False)
        self._why.display = bool(wanted.rationale.strip())
        self._call = Static(classes="call", markup=False)
        self._editor = ArgumentsEditor(compact=True, highlight_cursor_line=False, soft_wrap=True)
        line = wanted.render()
        about: list[Widget] = [self._why, _note(visible(line.detail)), self._call, self._editor]
        if wanted.changes:  # lines keep their signs, so that they can be read without colour
            lines = visible(wanted.changes).split("\n")
            new = [Content.styled("a new file:", SECONDARY)] if lines[0] == "--- /dev/null" else []
            if lines[0].startswith("--- "):  # the arguments name the file
                lines = lines[2:]
            hunks = (Content.styled(line, _DIFF_STYLES.get(line[:1], "")) for line in lines)
            diff = Content("\n").join([*new, *hunks])
            about.insert(3, Static(diff, classes="changes", markup=False))
        super().__init__(f"? {visible_line(line.text)}", Approval("no"), *about)
        self._wanted = wanted
        self.takes_focus = bool(wanted.fault)

    def on_mount(self) -> None:
        """Continue editing arguments that were invalid."""
        if self._wanted.fault:
            self.complain(self._wanted.fault)
            self.action_edit()
        elif not self._wanted.of_server:
            self.call_after_refresh(self._reveal_call)

    def _reveal_call(self) -> None:
        """Scroll to the call if no line of it is visible, as on a low screen."""
        if self._call.region.y >= self.query_one(Foot).region.y:
            self.scroll_to_widget(self._call, top=True, animate=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """A server's question is answered yes or no, once only."""
        is_extra = action == "instead" or parameters in (("session",), ("project",))
        return not (self._wanted.of_server and is_extra)

    def action_decide(self, decision: Decision) -> None:
        changed = self._wanted.arguments if self._wanted.fault and decision != "no" else None
        self.resolve(Approval(decision, changed))

    def action_instead(self) -> None:
        """Ask what to do instead of the call."""
        self._field.select_on_focus = False
        self.ask_for("what to do instead", "no, and do this instead", self._field.value)

    @on(Input.Submitted)
    def refuse(self) -> None:
        self.resolve(Approval("no", instead=self._field.value.strip()))

    def action_edit(self) -> None:
        text = json.dumps(dict(self._wanted.arguments), ensure_ascii=False, indent=2, default=str)
        # control characters are written as JSON escapes
        self._editor.text = "".join(
            char if visible(char) == char else json.dumps(char)[1:-1] for char in text
        )
        self.add_class("-editing")
        self._choices.choices = (choice("enter", "run it with these", "submit"), _BACK)
        self.screen.set_focus(self._editor)
        self.call_after_refresh(self._editor.scroll_visible, animate=False)

    def action_submit(self) -> None:
        try:
            self.resolve(Approval("once", parse_arguments(self._editor.text)))
        except UsageError as wrong:
            self.complain(str(wrong))

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Keep the edit from being stored as a draft."""
        event.stop()

    def redraw(self) -> None:
        # a server's text is the question itself, and shown in full
        lines = _UNFOLDED_LINES if self._wanted.of_server else _RATIONALE_LINES
        why, more = self.preview(self._wanted.rationale.strip(), lines)
        why = Content.assemble(("◊ ", "$text-accent"), (why, "italic"), (more, SECONDARY))
        self._why.update(why)
        rows: list[Content] = []
        lines = _ARGUMENT_LINES_WITH_DIFF if self._wanted.changes else _ARGUMENT_LINES
        for name, value in self._wanted.shown_arguments.items():
            text, more = self.preview(argument_text(value), lines)
            label, text = f"{visible_line(name)} = ", text.replace("\n", "\n  ")
            rows.append(Content.assemble((label, SECONDARY), text, (more, SECONDARY)))
        nothing = Content.styled("without arguments", SECONDARY)
        self._call.update(Content("\n").join(rows) if rows else nothing)
        super().redraw()


class MoneyQuestion(Question[M]):
    """A question with other models to choose from, and an input for an amount or a model's name."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(f"{n}", f"take({n})", f"model {n}", show=False) for n in range(1, 10)),
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
        """`make` creates an answer from its kind and value; `enough` is the proposed cap."""
        names = [fit_middle(visible_line(offer.name), _MAX_NAME_CELLS) for offer in offers]
        listed: list[Choices] = []
        for number, (name, offer) in enumerate(zip(names, offers, strict=True), 1):
            size = f"≤ {tokens(offer.most_tokens)} tok  " if unit == "tokens" else ""
            price = "free" if offer.most_nano == 0 else money(offer.most_nano)
            price_limit = f"≤ {price}" if offer.most_nano else price
            room = "" if offer.fits else "  may not fit"
            details = f"  {'local' if offer.local else 'remote'}  {size}{price_limit}{room}"
            words = Content.assemble(f"{name:<{max(map(len, names))}}", (details, SECONDARY))
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
        placeholder, enter = _INPUTS[kind]
        self.ask_for(placeholder, enter, self._enough if kind == "raise" else "")

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
    """What to do if the next call could exceed a cap."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "type('raise')", "raise cap"),
        Binding("m", "type('model')", "another model"),
        Binding("a", "choose('answer')", "answer with results so far"),
        Binding("s", "choose('stop')", "stop"),
    ]
    HELP = (
        "The turn is paused. r: raise the cap; the proposed one leaves room for the step and the answer. "
        "A number: continue with that model, m: with another. a: answer with the results so far. s or esc: stop."
    )

    def __init__(self, hit: LimitHit) -> None:
        need, available = amount(hit.need, hit.unit), amount(hit.left, hit.unit)
        title = f"■ {visible_line(hit.scope)} cap: needs {need}, {available} not reserved"
        text, enough = Content(visible(hit.message)), enough_text(hit)
        super().__init__(title, text, hit.offers, LimitChoice, unit=hit.unit, enough=enough)


class CostQuestion(MoneyQuestion[CostChoice]):
    """May an expensive step run?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g,y", "choose('go')", "run it"),
        Binding("d", "choose('always')", "don't ask again"),
        Binding("m", "type('model')", "another model"),
        Binding("a", "choose('answer')", "answer now"),
        Binding("s", "choose('stop')", "stop"),
    ]
    HELP = (
        "Nothing is sent or reserved before you decide. g or y: run it. d: run it, and do not ask again in this "
        "session. A number: continue with that model, m: with another. a: answer with the results so far. s or esc: "
        "stop."
    )

    def __init__(self, wanted: CostWanted) -> None:
        line = wanted.render()
        about = Content.assemble(
            "The lower price is for a cached prompt and a short answer; the higher one is reserved.\n",
            (f"It is {line.detail}.", SECONDARY),
        )
        super().__init__(f"$ {visible_line(line.text)}", about, wanted.offers, CostChoice)
