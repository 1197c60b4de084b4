"""May the model follow the instructions that a project brings along? With their text, before it is told of them."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from ecoshell.agent.person import Trust
from ecoshell.events import TrustWanted
from ecoshell.tui.asking.approval import Folded
from ecoshell.tui.asking.questions import QUIET, Choice, Choices, Foot, Question
from ecoshell.untrusted import visible_line

_FOLDED = 5
_UNFOLDED = 400
"""Lines of the file when it is shown whole."""
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
