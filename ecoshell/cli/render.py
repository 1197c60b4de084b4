"""Events as lines of text: what the line shell and `ask` print, for any terminal, pipe or screen reader."""

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import NoReturn, TextIO

from rich.console import Console
from rich.segment import Segment, Segments

from ecoshell.agent.scoring import outcome
from ecoshell.budget import about, counted
from ecoshell.events import (
    Answer,
    BranchLeft,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallJudged,
    CallMarked,
    CallProgressed,
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
    ResultsTrimmed,
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
from ecoshell.events.describe import CALL_BEGINS, ENDINGS, describe, duration, length_text, plan_news, turn_sums
from ecoshell.messages import visible, visible_line
from ecoshell.options import ROLES
from ecoshell.sessions.tool_graphs import ToolGraph
from ecoshell.tui.graph_drawing import Drawing, headline

_DRAWN = 24
"""Lines of a tool graph that are drawn."""
_LOOKS: Mapping[type[Event], tuple[str, str]] = {
    BranchLeft: ("{back}", "yellow"),
    CallFinished: ("  {result}", "dim"),
    CallJudged: ("  {bad}", "dim"),
    CallMarked: ("{dot}", "dim"),
    CallProgressed: ("  {dot}", "dim"),
    CallStarted: ("{call}", "blue"),
    Compacted: ("{dot}", "yellow"),
    ContextTold: ("{dot}", "dim"),
    ModeChosen: ("{dot}", "dim"),
    PlanScored: ("{dot}", "dim"),
    ResultsTrimmed: ("{dot}", "yellow"),
    ToolRegistered: ("{registered}", "cyan"),
    ToolsOffered: ("{dot}", "dim"),
    ToolUnregistered: ("{dot}", "cyan"),
    TrustGiven: ("{dot}", "dim"),
    TurnUndone: ("{dot}", "yellow"),
}
"""The sign before an event's words, and their style, where nothing else is known of it."""


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
        self.steerable = self._console.is_terminal and not self._console.is_dumb_terminal
        """Whether a terminal is written to that can do more than print."""
        self.signs = FANCY if self.steerable and self._console.encoding.lower().startswith("utf") else PLAIN
        """Signs that can be shown."""

    @property
    def width(self) -> int:
        """Cells of a line."""
        return self._console.width

    def line(self, text: str, style: str = "", end: str = "\n") -> None:
        """Print one line, or several, of text that is already safe to show; a piece of a line where it has no `end`."""
        # a segment keeps tabs, of which a text makes blanks
        self._console.print(Segments([Segment(f"{text}{end}", self._console.get_style(style))]), end="")

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


def said_by(role: str) -> str:
    """The words before what a role says, where there are several."""
    return f"{role}: " if role in ROLES else ""


class EventLines:
    """Prints the events of turns as they arrive; text that was streamed is not printed again when it is complete."""

    def __init__(self, printer: Printer, *, streaming: bool = True, answers: bool = True) -> None:
        """Without `streaming` only finished texts are printed; without `answers` somebody else prints the answer."""
        self._printer = printer
        self._signs = printer.signs
        self._streaming = streaming
        self._answers = answers
        self._open = ""
        """The channel of the reply that is being printed; empty when none is."""
        self._withheld = False
        """Whether what arrives spells a call."""
        self._reasoned: list[str] = []
        self._replies: list[str] = []
        """Of this step."""
        self._thinks = ("", "")
        """The role and the model that were last said to think."""
        self._plan: PlanChanged | None = None
        """Of this turn."""
        self._noted = ""
        """What a note has said last."""
        self._tool_graph: ToolGraph | None = None
        """The tool graph that is under way."""
        self._calls: dict[str, str] = {}
        """How each call of this turn was told, by its id."""

    def show(self, event: Event) -> None:
        """Print what there is to say about an event, which may be nothing."""
        line, signs = self._printer.line, self._signs
        if isinstance(event, TextArrived):
            if self._streaming:
                self._arrive(event)
            return
        self._end_reply()
        match event:
            case TurnStarted():
                self._end_branches()
                self._reasoned, self._replies = [], []
                self._thinks, self._plan, self._calls = ("", ""), None, {}
                for attached in event.attachments:
                    size = counted(len(attached.text), "character")
                    what = attached.text if attached.image else f"{attached.name} ({size})"
                    line(f"{signs.dot} attached {visible_line(what)}", "dim")
            case TurnFinished():
                self._end_branches()
                line(summary(event, signs), "green" if event.status == "answered" else "yellow")
            case StepStarted() | BudgetHeld() | Rationale() | Reasoned() | StepProposed():
                self._thinking(event)
            case PlanChanged() | GraphPlanned() | NodeChanged():
                self._planned(event)
            case Answer():
                sign = f"{signs.bad} partial answer:" if event.partial else signs.answer
                if event.role in ROLES:
                    sign = f"{sign.removesuffix(':')} by the {event.role}:"
                if self._answers and not self._said(event.text):
                    line(f"{sign} {visible(event.text)}", "bold")
            case CommandRan():
                line(f"! {visible_line(event.command)}", "bold")
                line(visible(event.output), "" if event.ok else "red")
                ending = f"{signs.good} done" if event.ok else f"{signs.bad} failed"
                line(f"{ending} {signs.dot} {duration(event.seconds)}", "dim")
            case LimitHit():
                line(f"{signs.bad} limit: {visible_line(event.message)}", "yellow")
            case ErrorHappened():
                message = "" if event.message in self._noted and event.fix else event.message
                told = " ".join(part for part in (message, event.kept, event.fix) if part)
                line(f"{signs.bad} error: {visible_line(told)}", "red")
            case Notice() | BudgetSettled():
                note = event.text if isinstance(event, Notice) else describe(event)
                if note and note != self._noted:  # one is told once
                    line(f"{signs.dot} note: {visible_line(note)}", "yellow")
                    self._noted = note
            case _ if type(event) in _LOOKS and (told := describe(event)):
                sign, style = _LOOKS[type(event)]
                told = self._of_call(event, told)
                failed = isinstance(event, CallFinished) and not event.ok
                changed = isinstance(event, ModeChosen) and event.after
                style = "red" if failed else "yellow" if changed else style
                line(f"{sign.format(**asdict(signs))} {told}", style)
            case _:
                pass

    def _of_call(self, event: Event, told: str) -> str:
        """A call after who makes it; what comes of one after the call itself, where another has begun since."""
        match event:
            case CallStarted():
                self._calls[event.id] = told
                return f"{said_by(event.role)}{told}"
            case CallFinished() | CallJudged() | CallProgressed() if event.id in self._calls:
                return told if event.id == next(reversed(self._calls)) else f"{self._calls[event.id]}: {told}"
            case _:
                return told

    def _arrive(self, event: TextArrived) -> None:
        """Print a piece, whose role it is first; nothing of a call, and of what is reasoned only that it is."""
        write, signs = self._printer.line, self._signs
        if self._open and self._open != event.channel:
            self._end_reply()  # an answer after a thought, or either after what was reasoned
        if event.channel == "reasoning":
            if not self._open:
                write(f"{signs.dot} {said_by(event.role)}thinking …", "dim", end="")
                self._open = event.channel
            self._reasoned.append(event.text)
            return
        text = event.text if self._open else event.text.lstrip()  # models like to begin with a space
        if self._withheld or not text:
            return
        if not self._open:
            self._withheld = text.startswith(CALL_BEGINS)
            if self._withheld:
                return
            write(f"{signs.thought} {said_by(event.role)}", end="")
            self._open = event.channel
            self._replies.append("")
        self._replies[-1] += text
        write(visible(text), end="")

    def _end_reply(self) -> None:
        """Take it that the reply that arrives is over."""
        self._withheld = False
        if self._open:
            counted = f" {length_text(''.join(self._reasoned))}" if self._open == "reasoning" else ""
            self._printer.line(counted, "dim" if counted else "")
            self._open = ""

    def _said(self, text: str) -> bool:
        """Whether this is the reply that was printed last."""
        return (self._replies[-1] if self._replies else "").strip() == text.strip()

    def _thinking(self, event: StepStarted | BudgetHeld | Rationale | Reasoned | StepProposed) -> None:
        """Which of several roles is asked, while somebody watches, what it has thought, and what a search considers."""
        line, signs = self._printer.line, self._signs
        match event:
            case StepStarted():
                self._reasoned, self._replies = [], []
            case BudgetHeld():
                who = (event.role, event.model)
                if self._streaming and event.role in ROLES and who != self._thinks:
                    self._thinks = who
                    line(f"{signs.dot} {event.role} is thinking {signs.dot} {visible_line(event.model)}", "dim")
                if event.clamped:
                    line(f"{signs.dot} note: the budget allows this reply {event.max_tokens:,} tokens", "yellow")
            case Reasoned():
                if not self._reasoned:
                    line(f"{signs.dot} {said_by(event.role)}{describe(event)}", "dim")
                self._reasoned.clear()  # said once for each reply
            case Rationale():
                # a planner says after its thought who is next
                if not any(reply.strip().startswith(event.text.strip()) for reply in self._replies):
                    line(f"{signs.thought} {said_by(event.role)}{visible_line(event.text)}", "italic")
            case StepProposed():
                said = "" if self._said(event.rationale) else f" {signs.dot} {visible_line(event.rationale)}"
                line(f"{signs.proposed} proposed: {visible_line(event.step)}{said}", "dim")

    def _planned(self, event: PlanChanged | GraphPlanned | NodeChanged) -> None:
        """What a turn's plans come to and have come to forbid; a parallel one, and in the end what it came to."""
        line, signs = self._printer.line, self._signs
        match event:
            case PlanChanged():
                before, self._plan = self._plan, event
                if told := plan_news(before, event):
                    line(f"{signs.dot} {told}", "dim" if event.number <= 1 else "yellow")
            case GraphPlanned():
                self._end_branches()
                self._tool_graph = ToolGraph(event)
                if signs is not FANCY:
                    line(f"{signs.thought} {describe(event)}", "italic")
                    return
                drawing = Drawing(self._tool_graph)
                line(f"{signs.thought} {' · '.join(headline(self._tool_graph))}", "italic")
                for drawn in drawing.lines(self._printer.width - 2, 0, _DRAWN):
                    line(f"  {''.join(text for text, _ in drawn)}".rstrip(), "dim")
                if drawing.height > _DRAWN:
                    line(f"  … {drawing.height - _DRAWN:,} more", "dim")
            case NodeChanged():
                if told := describe(event):
                    line(f"{signs.dot} {told}", "yellow")
                if self._tool_graph is not None:
                    self._tool_graph = self._tool_graph.with_change(event)
                    if self._tool_graph.is_settled:
                        self._end_branches()

    def _end_branches(self) -> None:
        """What the tool graph that was under way came to."""
        if self._tool_graph is not None:
            self._printer.line(f"{self._signs.dot} plan: {outcome(self._tool_graph.closed())}", "dim")
            self._tool_graph = None


def summary(event: TurnFinished, signs: Signs) -> str:
    """One line on how a turn ended and what it took."""
    taken = event.consumption
    parts = [
        ENDINGS[event.status],
        *turn_sums(event),
        about(f"{taken.usage.input:,} tokens in, {taken.usage.output:,} out", estimated=taken.estimated),
    ]
    if event.saved_tokens and event.spent_nano:
        parts.append(f"{event.saved_tokens:,} saved")
    sign = signs.good if event.status == "answered" else signs.bad
    return f"{sign} " + f" {signs.dot} ".join(parts)
