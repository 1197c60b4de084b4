"""May this call run? With its reason, its arguments, what it would change, and a way to change the arguments."""

import json
from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Key
from textual.message import Message
from textual.widgets import Input, Static, TextArea

from ecoshell.agent.user_interface import Approval, Decision, parse_arguments
from ecoshell.errors import UsageError
from ecoshell.events import ApprovalWanted
from ecoshell.tui.keys import Field, act_at_once
from ecoshell.tui.questions import QUIET, Choice, Choices, Folded, Foot, Question
from ecoshell.tui.text import money
from ecoshell.untrusted import visible, visible_line

_FOLDED = 6
_FOLDED_BESIDE_A_DIFF = 1
"""Lines of one argument; what a diff shows need not be read twice."""
_RATIONALE = 3
_UNFOLDED = 400
"""Lines of one argument, or of the rationale, when it is shown whole: more would hold up the screen."""
_CHOICES = (
    Choice("1", "once", "decide('once')"),
    Choice("2", "session", "decide('session')"),
    Choice("3", "project", "decide('project')"),
    Choice("n", "no", "decide('no')"),
    Choice("d", "no, instead …", "instead"),
    Choice("e", "edit", "edit"),
)
_UNFOLD = Choice("f", "unfold", "fold")
_FOLD = Choice("f", "fold", "fold")
_EDITING = (Choice("enter", "run it with these", "submit"), Choice("esc", "back", "leave"))
_TELLING = (Choice("enter", "no, and do this instead", "refuse"), Choice("esc", "back", "leave"))


_STYLES = {"+": "$text-success", "-": "$text-error", "@": QUIET, "[": QUIET}
"""How a line of a diff is shown, by its sign."""


class ArgumentsEditor(TextArea):
    """The arguments as JSON, to be changed; enter runs, a new line is ctrl+j."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,ctrl+s", "submit", "run with these"),
        Binding("escape", "leave", "back"),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "new line", show=False),
    ]
    HELP = "The call runs with these arguments once you press enter; esc leaves them as they were."

    class Submitted(Message):
        """The call is to run with what stands here."""

    class Left(Message):
        """The arguments are to stay as they were."""

    def __init__(self) -> None:
        super().__init__(compact=True, highlight_cursor_line=False, soft_wrap=True)

    def action_submit(self) -> None:
        """Hand the arguments over."""
        self.post_message(self.Submitted())

    def action_leave(self) -> None:
        """Go back to the question."""
        self.post_message(self.Left())

    def action_newline(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    async def _on_key(self, event: Key) -> None:
        if await act_at_once(self, event.key):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)


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
        Binding("2,s", "decide('session')", "this session"),
        Binding("3,p", "decide('project')", "this project"),
        Binding("n,escape", "back", "no"),
        Binding("d", "instead", "no, instead"),
        Binding("e", "edit", "edit"),
        Binding("f", "fold", "fold", show=False),
    ]
    HELP = (
        "Nothing runs before you decide. 1 or y: this once. 2: always in this session. 3: always in this project. "
        "n or esc: no. d: no, and what to do instead. e: change the arguments first. f: show long arguments whole; up "
        "and down scroll. Any other letter begins a message, which waits for the end of the turn."
    )

    def __init__(self, wanted: ApprovalWanted) -> None:
        super().__init__(Content(f"? may {visible_line(wanted.name)} run"))
        self._wanted = wanted
        self._whole = False
        self.continues = bool(wanted.fault)

    def compose(self) -> ComposeResult:
        """Why, with what, what would change; and below what scrolls, what it would do and the choices."""
        yield Static(self._why(), classes="why", markup=False)
        yield Static(self._call(), classes="call", markup=False)
        yield Static(_diff(self._wanted.changes), classes="changes", markup=False)
        yield ArgumentsEditor()
        with Foot():
            yield Static(classes="fault", markup=False)
            yield Static(self._consequences(), classes="quiet", markup=False)
            yield Field(compact=True, placeholder="what to do instead", select_on_focus=False)
            yield Choices(self._choices(), classes="choices")

    def on_mount(self) -> None:
        """Leave out what there is nothing of."""
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
        """Answer."""
        changed = self._wanted.arguments if self._wanted.fault and decision != "no" else None
        self.resolve(Approval(decision, changed))

    def action_back(self) -> None:
        """Leave the field of what to do instead; without one, say no."""
        if self.query_one(Field).has_class("-on"):
            self.action_leave()
        else:
            self.action_decide("no")

    def action_instead(self) -> None:
        """Ask what is to be done in the place of the call."""
        field = self.query_one(Field)
        field.add_class("-on")
        self.query_one(Choices).show(_TELLING)
        field.focus()

    def action_refuse(self) -> None:
        """Say no, with what stands in the field."""
        self.resolve(Approval("no", instead=self.query_one(Field).value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter in the field."""
        event.stop()
        self.action_refuse()

    def action_edit(self) -> None:
        """Change the arguments."""
        editor = self.query_one(ArgumentsEditor)
        editor.text = json.dumps(dict(self._wanted.arguments), ensure_ascii=False, indent=2, default=str)
        self.add_class("-editing")
        self.query_one(Choices).show(_EDITING)
        editor.focus()

    def action_submit(self) -> None:
        """Run the call with what stands in the editor."""
        try:
            self.resolve(Approval("once", parse_arguments(self.query_one(ArgumentsEditor).text)))
        except UsageError as wrong:
            self.complain(str(wrong))

    def action_leave(self) -> None:
        """Back to the question, the arguments as they were."""
        self.complain("")
        self.remove_class("-editing")
        self.query_one(Field).remove_class("-on")
        self.query_one(Choices).show(self._choices())
        self.focus()

    def action_fold(self) -> None:
        """Show long texts whole, or fold them again."""
        self._whole = not self._whole
        self.query_one(".why", Static).update(self._why())
        self.query_one(".call", Static).update(self._call())
        self.query_one(Choices).show(self._choices())

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """What is typed here is no draft of a question."""
        event.stop()

    def on_arguments_editor_submitted(self) -> None:
        """Enter in the editor."""
        self.action_submit()

    def on_arguments_editor_left(self) -> None:
        """Escape in the editor."""
        self.action_leave()

    def _choices(self) -> tuple[Choice, ...]:
        if self._whole:
            return (*_CHOICES, _FOLD)
        folded = self._shown_rationale().more or any(text.more for _, text in self._shown_arguments())
        return (*_CHOICES, _UNFOLD) if folded else _CHOICES

    def _shown_rationale(self) -> Folded:
        return Folded.of(self._wanted.rationale.strip(), _UNFOLDED if self._whole else _RATIONALE)

    def _shown_arguments(self) -> Iterator[tuple[str, Folded]]:
        lines = _FOLDED_BESIDE_A_DIFF if self._wanted.changes else _FOLDED
        for name, value in self._wanted.arguments.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            yield visible_line(name), Folded.of(text, _UNFOLDED if self._whole else lines)

    def _why(self) -> Content:
        shown = self._shown_rationale()
        return Content.assemble(("◊ ", "$text-accent"), (shown.text, "italic"), (shown.more, QUIET))

    def _call(self) -> Content:
        rows = [
            Content.assemble((f"{name} = ", QUIET), shown.beside(2), (shown.more, QUIET))
            for name, shown in self._shown_arguments()
        ]
        return Content("\n").join(rows) if rows else Content.styled("without arguments", QUIET)

    def _consequences(self) -> str:
        price = f" One use costs {money(self._wanted.price_nano)}." if self._wanted.price_nano else ""
        return f"{visible(self._wanted.reason)}{price}"


def _diff(changes: str) -> Content:
    """The hunks of a unified diff; each line keeps its sign, so that no colour is needed to read it."""
    lines = visible(changes).split("\n")
    new = [Content.styled("a new file:", QUIET)] if lines[0] == "--- /dev/null" else []
    hunks = lines[2:] if lines[0].startswith("--- ") else lines  # the file is named above, among the arguments
    return Content("\n").join([*new, *(Content.styled(line, _STYLES.get(line[:1], "")) for line in hunks)])
