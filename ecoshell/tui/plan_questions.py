"""Questions about planned work: may a quoted tool graph start, and may a written plan be carried out?"""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from ecoshell.agent import QuoteChoice
from ecoshell.events import PlanWritten, Quote
from ecoshell.events.work import quote_text
from ecoshell.messages import visible, visible_line
from ecoshell.tui.questions import SECONDARY, Choices, Question, choice

_KEYS = "123456789abcdefhijklmopqrstuvwxz"
"""A key for each node; `g`, `n` and `y` decide, and a click excludes further nodes."""


class QuoteQuestion(Question[QuoteChoice]):
    """May this work start, and with which nodes?"""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"leave({n})", f"node {n}", show=False) for n, key in enumerate(_KEYS, 1)),
        Binding("g,y", "start", "start"),
        Binding("n", "refuse", "do not start"),
        Binding("escape", "refuse", "do not start", show=False),
    ]
    HELP = (
        "Nothing has started yet. g or y: start. The key of a node, or a click: leave it out, and what depends on it; "
        "again: take it back in. n or esc: do not start; the agent answers with the results so far."
    )

    def __init__(self, quoted: Quote) -> None:
        self._quoted = quoted
        self._without: set[str] = set()
        self._rows = [Choices() for _ in quoted.labels]
        about = Static(Content(f"{quote_text(quoted)}\n{visible(quoted.reason)}"), markup=False)
        super().__init__("$ start this plan", QuoteChoice("refuse"), about, *self._rows)

    def redraw(self) -> None:
        pairs = zip(self._quoted.labels, self._rows, strict=True)
        for number, (label, row) in enumerate(pairs, 1):
            key = _KEYS[number - 1 : number] or "·"
            state = "left out" if label in self._without else "runs"
            words = Content.assemble(visible_line(label), (f"  {state}", SECONDARY))
            row.choices = [choice(key, words, f"leave({number})")]
        super().redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of nodes that do not exist start a message instead."""
        return action != "leave" or parameters <= (len(self._quoted.labels),)

    def action_leave(self, number: int) -> None:
        self._without ^= {self._quoted.labels[number - 1]}
        self.redraw()

    def action_start(self) -> None:
        without = tuple(label for label in self._quoted.labels if label in self._without)
        if len(without) == len(self._quoted.labels):
            self.action_refuse()
        else:
            self.resolve(QuoteChoice("trim", without) if without else QuoteChoice("start"))

    def action_refuse(self) -> None:
        self.resolve(QuoteChoice("refuse"))


class PlanQuestion(Question[str]):
    """May the written plan be carried out? The answer is `accept`, `edits`, `change`, or empty."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1,y", "decide('accept')", "carry it out"),
        Binding("2,a", "decide('edits')", "and accept edits"),
        Binding("e", "decide('change')", "change it"),
        Binding("n", "decide('')", "not now"),
        Binding("escape", "decide('')", "not now", show=False),
    ]
    HELP = (
        "The plan is the answer above. 1 or y: carry it out, asking before changes. 2: carry it out, and accept edits "
        "inside the workspace without asking. e: change it in the prompt first (ctrl+g opens $EDITOR). n or esc: not "
        "now; the next message stays in plan mode, and /plan accept carries the plan out later."
    )

    def __init__(self, plan: PlanWritten, quoted: Quote | None) -> None:
        text = "" if quoted is None else f"Expected: {quote_text(quoted)}"
        about = Static(Content(text), markup=False)
        super().__init__(f"≡ carry out this plan ({plan.steps})", "", about)

    def action_decide(self, word: str) -> None:
        self.resolve(word)
