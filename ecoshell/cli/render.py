"""Events as lines of text: what the line shell and `ask` print, for any terminal, pipe or screen reader."""

import base64
from dataclasses import dataclass
from typing import NoReturn, TextIO

from rich.console import Console
from rich.text import Text

from ecoshell.agent.graph.telling import node_line, outcome, plan_line
from ecoshell.agent.printing import dollars
from ecoshell.budget.money import about, amount_text, counted
from ecoshell.cli.streamed import Streamed, said_by
from ecoshell.events import (
    Answer,
    BranchLeft,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallJudged,
    CallMarked,
    CallStarted,
    CommandRan,
    Compacted,
    ContextTold,
    ErrorHappened,
    Event,
    GraphPlanned,
    LimitHit,
    ModeChosen,
    NodeChanged,
    Notice,
    PlanChanged,
    PlanScored,
    Rationale,
    Reasoned,
    StepProposed,
    StepStarted,
    TextArrived,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TrustGiven,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.events.describe import ENDINGS, back_to, describe, refusal
from ecoshell.messages import Attachment, Call
from ecoshell.options import ROLES
from ecoshell.planning.plan_news import newly_barred, outlook
from ecoshell.sessions.branching import Branching
from ecoshell.sessions.plans import worth_line
from ecoshell.tui.branches import Drawing, headline
from ecoshell.untrusted import visible, visible_line

_DRAWN = 24
"""Lines of a parallel plan that are drawn."""
LONGEST_RESULT = 200
"""Characters of an observation that one line shows."""


@dataclass(frozen=True, slots=True)
class Signs:
    """The sign each kind of line begins with; a word always stands beside it where the sign carries meaning."""

    question: str
    thought: str
    proposed: str
    back: str
    registered: str
    call: str
    result: str
    answer: str
    good: str
    bad: str
    dot: str


FANCY = Signs("›", "◊", "◦", "←", "+", "►", "└", "√", "√", "×", "·")
PLAIN = Signs(">", "-", "?", "<", "+", "*", "=", "answer:", "ok:", "!!", "|")
"""For terminals that show letters only, and for whoever has the screen read aloud."""


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave a closed pipe to the fence; rich would end the program with a status of its own."""
        raise BrokenPipeError


class Printer:
    """Prints text as it is: no markup, no wrapping, no colours where none are wanted (a pipe, TERM=dumb, NO_COLOR)."""

    def __init__(self, file: TextIO) -> None:
        self._console = _Console(file=file, markup=False, emoji=False, highlight=False, soft_wrap=True)

    @property
    def terminal(self) -> bool:
        """Whether a terminal is written to."""
        return self._console.is_terminal

    @property
    def steerable(self) -> bool:
        """Whether a terminal is written to that can do more than print."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    @property
    def signs(self) -> Signs:
        """Signs that can be shown."""
        return FANCY if self.steerable and self._console.encoding.lower().startswith("utf") else PLAIN

    @property
    def width(self) -> int:
        """Cells of a line."""
        return self._console.width

    def line(self, text: str, style: str = "") -> None:
        """Print one line, or several, of text that is already safe to show."""
        self._console.print(Text(text, style=style))

    def piece(self, text: str, style: str = "") -> None:
        """Print text without ending the line."""
        self._console.print(Text(text, style=style), end="")

    def copy(self, text: str) -> bool:
        """Put a text on the clipboard through the terminal (OSC 52), also over ssh; False where there is none."""
        if not self.steerable:
            return False
        encoded = base64.b64encode(text.encode("utf-8", "replace")).decode()
        self._console.file.write(f"\x1b]52;c;{encoded}\x07")
        self._console.file.flush()
        return True

    def clear(self) -> None:
        """Empty the screen, where there is one."""
        if self.steerable:
            self._console.clear()


class EventLines:
    """Prints the events of turns as they arrive; text that was streamed is not printed again when it is complete."""

    def __init__(self, printer: Printer, *, streaming: bool = True, answers: bool = True) -> None:
        """Without `streaming` only finished texts are printed; without `answers` somebody else prints the answer."""
        self._printer = printer
        self._signs = printer.signs
        self._streaming = streaming
        self._answers = answers
        self._streamed = Streamed(printer.piece, self._signs.thought, self._signs.dot)
        self._thinks = ("", "")
        """The role and the model that were last said to think."""
        self._plan: PlanChanged | None = None
        """Of this turn."""
        self._noted = ""
        """What a note has said last."""
        self._branching: Branching | None = None
        """The parallel plan that is under way."""

    def show(self, event: Event) -> None:
        """Print what there is to say about an event, which may be nothing."""
        if isinstance(event, TextArrived):
            if self._streaming:
                self._streamed.arrive(event)
            return
        self._streamed.end()
        self._tell(event)

    def question(self, text: str) -> None:
        """Print a question of the past."""
        self._printer.line(f"{self._signs.question} {visible(text)}", "bold")

    def _tell(self, event: Event) -> None:
        match event:
            case TurnStarted() | TurnFinished():
                self._turn(event)
            case StepStarted() | BudgetHeld() | Rationale() | Reasoned():
                self._thinking(event)
            case StepProposed() | BranchLeft():
                self._search(event)
            case GraphPlanned() | NodeChanged():
                self._branches(event)
            case PlanChanged() | PlanScored() | CallJudged() | CallMarked() | ModeChosen():
                self._planning(event)
            case Answer():
                self._answer(event)
            case CallStarted() | CallFinished() | ToolRegistered() | ToolUnregistered() | ToolsOffered():
                self._tools(event)
            case CommandRan() | TurnUndone() | Compacted():
                self._between(event)
            case ContextTold() | TrustGiven():
                if told := describe(event):
                    self._printer.line(f"{self._signs.dot} {told}", "dim")
            case _:
                self._warn(event)

    def _turn(self, event: TurnStarted | TurnFinished) -> None:
        """What goes along with a question, and how its turn ended."""
        self._end_branches()
        if isinstance(event, TurnFinished):
            self._printer.line(summary(event, self._signs), _ending_style(event.status))
            return
        self._streamed.forget()
        self._thinks, self._plan = ("", ""), None
        for attached in event.attachments:
            self._printer.line(f"{self._signs.dot} attached {_attached(attached)}", "dim")

    def _thinking(self, event: StepStarted | BudgetHeld | Rationale | Reasoned) -> None:
        """Which of several roles is asked, while somebody watches, and what it has thought."""
        line, signs = self._printer.line, self._signs
        match event:
            case StepStarted():
                self._streamed.forget()
            case BudgetHeld():
                who = (event.role, event.model)
                if self._streaming and event.role in ROLES and who != self._thinks:
                    self._thinks = who
                    line(f"{signs.dot} {event.role} is thinking {signs.dot} {visible_line(event.model)}", "dim")
                if event.clamped:
                    line(f"{signs.dot} note: the budget allows this reply {event.max_tokens:,} tokens", "yellow")
            case Reasoned():
                if not self._streamed.take_reasoned():
                    line(f"{signs.dot} {said_by(event.role)}{describe(event)}", "dim")
            case Rationale():
                if not self._streamed.had(event.text):
                    line(f"{signs.thought} {said_by(event.role)}{visible_line(event.text)}", "italic")

    def _search(self, event: StepProposed | BranchLeft) -> None:
        """What a search considers, and where it goes back."""
        line, signs = self._printer.line, self._signs
        match event:
            case StepProposed():
                said = "" if self._streamed.was(event.rationale) else f" {signs.dot} {visible_line(event.rationale)}"
                line(f"{signs.proposed} proposed: {visible_line(event.step)}{said}", "dim")
            case BranchLeft():
                line(f"{signs.back} {back_to(event)}: {visible_line(event.reason)}", "yellow")

    def _branches(self, event: GraphPlanned | NodeChanged) -> None:
        """A parallel plan, which of its nodes failed, and in the end what it came to."""
        line, signs = self._printer.line, self._signs
        if isinstance(event, GraphPlanned):
            self._end_branches()
            self._branching = Branching(event)
            if signs is FANCY:
                self._draw(self._branching)
            else:
                line(f"{signs.thought} {plan_line(event, amount_text)}", "italic")
            return
        if told := node_line(event):
            line(f"{signs.dot} {told}", "yellow")
        if self._branching is not None:
            self._branching = self._branching.heard(event)
            if self._branching.settled:
                self._end_branches()

    def _draw(self, branching: Branching) -> None:
        """A parallel plan before it runs, a line for each node."""
        line, drawing = self._printer.line, Drawing(branching)
        line(f"{self._signs.thought} {' · '.join(headline(branching))}", "italic")
        for drawn in drawing.lines(self._printer.width - 2, 0, _DRAWN):
            line(f"  {''.join(text for text, _ in drawn)}".rstrip(), "dim")
        if drawing.height > _DRAWN:
            line(f"  … {drawing.height - _DRAWN:,} more", "dim")

    def _end_branches(self) -> None:
        """What the parallel plan that was under way came to."""
        if self._branching is not None:
            told = outcome(self._branching.ended(), amount_text)
            self._printer.line(f"{self._signs.dot} plan: {told}", "dim")
            self._branching = None

    def _planning(self, event: PlanChanged | PlanScored | CallJudged | CallMarked | ModeChosen) -> None:
        """Who thinks, what a turn's plans come to and have come to forbid, and which results did not help."""
        line, signs = self._printer.line, self._signs
        match event:
            case ModeChosen():
                line(f"{signs.dot} {describe(event)}", "yellow" if event.after else "dim")
            case PlanChanged():
                before, self._plan = self._plan, event
                if event.number <= 1:
                    line(f"{signs.dot} plan: {outlook(event, amount_text)}", "dim")
                elif barred := newly_barred(before, event):
                    line(f"{signs.dot} plan: {barred}", "yellow")
            case PlanScored():
                line(f"{signs.dot} plan of turn {event.turn}: {worth_line(event, amount_text)}", "dim")
            case CallJudged(helpful=False):
                why = f": {visible_line(event.reason)}" if event.reason else ""
                line(f"  {signs.bad} unhelpful{why}", "dim")
            case CallMarked():
                word = {True: "marked helpful", False: "marked unhelpful", None: "mark removed"}[event.helpful]
                line(f"{signs.dot} {word}: {visible_line(event.name)} of turn {event.turn}", "dim")
            case _:
                pass

    def _between(self, event: CommandRan | TurnUndone | Compacted) -> None:
        """What happened between two turns."""
        line, signs = self._printer.line, self._signs
        match event:
            case CommandRan():
                line(f"! {visible_line(event.command)}", "bold")
                line(visible(event.output), "" if event.ok else "red")
                ending = "done" if event.ok else "failed"
                line(f"{signs.good if event.ok else signs.bad} {ending} {signs.dot} {duration(event.seconds)}", "dim")
            case TurnUndone():
                line(f"{signs.dot} {_undone(event)}", "yellow")
            case Compacted():
                by = visible_line(event.model) if event.model else "no model: an extract"
                sizes = f"{event.tokens_before:,} tokens became {event.tokens_after:,}"
                line(f"{signs.dot} compacted by {by}; {sizes}", "yellow")

    def _tools(self, event: Event) -> None:
        signs, line = self._signs, self._printer.line
        match event:
            case ToolsOffered():
                line(f"{signs.dot} {_offer(event)}", "dim")
            case ToolRegistered(by="agent" | "user"):
                line(
                    f"{signs.registered} registered {visible_line(event.name)}  {_tokens(event.tokens, event.exact)}",
                    "cyan",
                )
            case ToolUnregistered():
                line(f"{signs.dot} unregistered {visible_line(event.name)}", "cyan")
            case CallStarted():
                called = visible_line(Call(event.name, event.arguments).signature())
                line(f"{signs.call} {said_by(event.role)}call {called}", "blue")
            case CallFinished():
                style = "dim" if event.ok else "red"
                line(f"  {signs.result} {_result(event)}", style)
            case _:
                pass

    def _warn(self, event: Event) -> None:
        line, signs = self._printer.line, self._signs
        match event:
            case Notice():
                if event.text != self._noted:
                    line(f"{signs.dot} note: {visible_line(event.text)}", "yellow")
                self._noted = event.text
            case LimitHit():
                line(f"{signs.bad} limit: {visible_line(event.message)}", "yellow")
            case ErrorHappened():
                message = "" if event.message in self._noted and event.fix else event.message
                told = " ".join(part for part in (message, event.kept, event.fix) if part)
                line(f"{signs.bad} error: {visible_line(told)}", "red")
            case BudgetSettled(reported=False):
                line(f"{signs.dot} note: {describe(event)}", "yellow")
            case _:
                pass

    def _answer(self, event: Answer) -> None:
        if not self._answers:
            return
        sign = f"{self._signs.bad} partial answer:" if event.partial else self._signs.answer
        if event.role in ROLES:
            sign = f"{sign.removesuffix(':')} by the {event.role}:"
        if not self._streamed.was(event.text):
            self._printer.line(f"{sign} {visible(event.text)}", "bold")


def _attached(attachment: Attachment) -> str:
    return f"{visible_line(attachment.name)} ({counted(len(attachment.text), 'character')})"


def _undone(event: TurnUndone) -> str:
    parts = [f"turn {event.turn} was undone"]
    parts += [f"restored {visible_line(', '.join(event.restored))}"] if event.restored else []
    parts += [f"left alone {visible_line(', '.join(event.kept))}"] if event.kept else []
    return "; ".join(parts)


def summary(event: TurnFinished, signs: Signs) -> str:
    """One line on how a turn ended and what it took."""
    taken = event.taken
    parts = [
        ENDINGS[event.status],
        "cost unknown" if taken.nano is None else about(dollars(taken.nano), estimated=taken.estimated_nano),
        counted(event.steps, "step"),
        duration(event.seconds),
        about(f"{taken.usage.input:,} tokens in, {taken.usage.output:,} out", estimated=taken.estimated),
    ]
    if event.saved_tokens and event.spent_nano:
        parts.append(f"{event.saved_tokens:,} saved")
    sign = signs.good if event.status == "answered" else signs.bad
    return f"{sign} " + f" {signs.dot} ".join(parts)


def duration(seconds: float) -> str:
    """A time as a person reads it: milliseconds below one second."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _ending_style(status: str) -> str:
    return "green" if status == "answered" else "yellow"


def _tokens(count: int, exact: bool) -> str:
    return f"+{counted(count, 'token')}" if exact else f"about +{counted(count, 'token')}"


def _offer(event: ToolsOffered) -> str:
    about = "" if event.exact else "about "
    sizes = f"{event.context_tokens:,} of {counted(event.everything_tokens, 'token')}"
    text = f"{counted(len(event.names), 'tool')} by name, {about}{sizes}"
    if event.upfront:
        text += f"; up front: {visible_line(', '.join(event.upfront))}"
    return text


def _result(event: CallFinished) -> str:
    """An observation on one line: how it went, its beginning, how much more there is, and how long it took."""
    lines = event.observation.strip().splitlines() or ["(nothing)"]
    first = visible_line(lines[0])
    shown = first if len(first) <= LONGEST_RESULT else first[:LONGEST_RESULT] + "…"
    if len(lines) > 1:
        shown += f" (and {counted(len(lines) - 1, 'more line')})"
    if event.truncated:
        shown += " (truncated)"
    if event.refused:
        return f"{refusal(event.refused)}: {shown}"
    cost = f"  {amount_text(event.spent_nano, 'usd')}" if event.spent_nano else ""
    return f"{'result' if event.ok else 'failed'}: {shown}  {duration(event.seconds)}{cost}"
