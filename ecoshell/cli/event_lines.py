"""Events as lines of text, printed by the line shell and by `ask` on any terminal, pipe or screen reader."""

from collections.abc import Mapping
from dataclasses import replace

from ecoshell.agent.scoring import outcome
from ecoshell.cli.printer import Printer
from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallJudged,
    CallProgressed,
    CallStarted,
    CommandRan,
    CostWanted,
    ErrorHappened,
    Event,
    GraphPlanned,
    HookRan,
    NodeChanged,
    Notice,
    PlanChanged,
    PlanWritten,
    Rationale,
    Reasoned,
    SandboxBlocked,
    StepProposed,
    StepStarted,
    TextArrived,
    TodoChanged,
    TodoItem,
    ToolRegistered,
    TrustWanted,
    TurnFinished,
    TurnStarted,
)
from ecoshell.events.figures import length_text
from ecoshell.events.lines import Kind, Line
from ecoshell.events.turn import CALL_BEGINS, attachment_line
from ecoshell.events.work import todo_lines
from ecoshell.messages import visible, visible_line
from ecoshell.options import ROLES
from ecoshell.sessions.tool_graphs import ToolGraph
from ecoshell.tui.graph_drawing import Drawing, headline

_MAX_GRAPH_LINES = 24
_STYLES: Mapping[Kind, str] = {
    "info": "dim", "good": "cyan", "warning": "yellow", "error": "red", "note": "yellow", "thought": "italic",
    "call": "blue", "result": "dim", "failure": "red", "progress": "dim",
}  # fmt: skip
_OF_CALLS = (CallFinished, CallJudged, CallProgressed, HookRan, SandboxBlocked)
"""Events that are indented below their call."""
_ASKED = (ApprovalWanted, ApprovalGiven, CostWanted, TrustWanted)
"""Events of questions, which the prompt shows."""


def speaker(event: Event) -> str:
    """Return the prefix that names the role of an event in the mode umi."""
    role = getattr(event, "role", "")
    return f"{role}: " if role in ROLES else ""


class EventLines:
    """Prints the events of turns as they arrive; text that was streamed is not printed again when complete."""

    def __init__(
        self,
        printer: Printer,
        *,
        streaming: bool = True,
        answers: bool = True,
        plan_hint: str = "",
    ) -> None:
        """Without `streaming`, print only complete texts; without `answers`, leave the answer to the caller.

        `plan_hint` says how to carry out a written plan where `/plan accept` cannot be typed.
        """
        self._printer = printer
        self._streaming = streaming
        self._answers = answers
        self._plan_hint = plan_hint
        self._open_channel = ""
        """The channel of the reply that is being printed, or empty."""
        self._is_call = False
        """Whether the arriving text spells a call, which is not printed."""
        self._reasoning: list[str] = []
        """Pieces of reasoning in this step."""
        self._replies: list[str] = []
        """Printed replies of this step."""
        self._thinker = ("", "")
        """The role and the model of the latest line about thinking."""
        self._plan: PlanChanged | None = None
        """The latest plan of this turn."""
        self._last_note = ""
        self._todo: tuple[TodoItem, ...] = ()
        """The printed task list."""
        self._tool_graph: ToolGraph | None = None
        """The running tool graph."""
        self._calls: dict[str, str] = {}
        """The printed text of each call of this turn, by call ID."""

    def show(self, event: Event) -> None:
        """Print an event if it has anything to say."""
        if isinstance(event, TextArrived):
            if self._streaming:
                self._stream(event)
            return
        self._end_reply()
        match event:
            case TurnStarted():
                self._start_turn(event)
            case StepStarted():
                self._reasoning, self._replies = [], []
            case Answer():
                self._show_answer(event)
            case GraphPlanned():
                self._end_tool_graph()
                self._tool_graph = ToolGraph(event)
                self._print(event)
                self._draw(self._tool_graph)
            case NodeChanged():
                self._print(event)
                if self._tool_graph is not None:
                    self._tool_graph = self._tool_graph.with_change(event)
                    if self._tool_graph.is_settled:
                        self._end_tool_graph()
            case TurnFinished():
                self._end_tool_graph()
                self._print(event)
            case TodoChanged():
                self._print(event)
                self._show_todo(event)
            case CommandRan():
                self._print(event)
                self._printer.line(visible(event.output), "" if event.ok else "red")
            case _:
                self._print(event)

    def _print(self, event: Event) -> None:
        """Print the line of an event: its sign, its role, the word for its kind, and its words."""
        line = self._line_of(event)
        if line is None:
            return
        indent = "  " if isinstance(event, _OF_CALLS) else ""
        label = f"{line.label} " if line.label else ""
        words = f"{speaker(event)}{label}{self._with_call(event, line.words)}"
        self._say(f"{indent}{self._printer.sign(line.icon)}", words, _STYLES[line.kind])

    def _say(self, sign: str, words: str, style: str = "dim") -> None:
        self._printer.line(f"{sign} {words.replace('·', self._printer.sign('·'))}", style)

    def _line_of(self, event: Event) -> Line | None:
        """The line of an event, without what was printed before."""
        line = event.render()
        match event:
            case GraphPlanned() if self._printer.has_unicode:
                line = headline(ToolGraph(event))
            case PlanChanged():
                previous, self._plan = self._plan, event
                line = event.render(previous)
            case Reasoned():  # one line per reply
                line = None if self._reasoning else line
                self._reasoning.clear()
            case StepProposed() if line is not None and self._is_latest_reply(event.rationale):
                line = replace(line, detail="")
            case Notice() | BudgetSettled() if line is not None:
                previous, self._last_note = self._last_note, line.text
                line = None if line.text == previous else line
            case ErrorHappened() if line is not None:
                is_printed = event.fix and event.message in self._last_note
                line = replace(line, text="") if is_printed else line
            case PlanWritten() if line is not None and self._plan_hint:
                line = replace(line, detail=self._plan_hint)
            case _:
                line = None if self._is_hidden(event) else line
        return line

    def _is_hidden(self, event: Event) -> bool:
        """Whether an event was printed while it arrived, or is shown in another form."""
        match event:
            case BudgetHeld(clamped=False):
                previous, self._thinker = self._thinker, (event.role, event.model)
                is_new = event.role in ROLES and self._thinker != previous
                return not (is_new and self._streaming)
            case Rationale():
                # a planner names the next role after its rationale
                return any(reply.strip().startswith(event.text.strip()) for reply in self._replies)
            case ToolRegistered(by="upfront") | CallJudged(helpful=True):
                return True
            case _:
                return isinstance(event, _ASKED)

    def _with_call(self, event: Event, words: str) -> str:
        """Prefix a later event of a call with that call if another has started since."""
        if isinstance(event, CallStarted):
            self._calls[event.id] = words
        elif isinstance(event, CallFinished | CallJudged | CallProgressed):
            call = self._calls.get(event.id)
            if call is not None and event.id != next(reversed(self._calls)):
                return f"{call}: {words}"
        return words

    def _start_turn(self, event: TurnStarted) -> None:
        self._end_tool_graph()
        self._reasoning, self._replies = [], []
        self._thinker, self._plan, self._calls = ("", ""), None, {}
        for attachment in event.attachments:
            line = attachment_line(attachment)
            self._say(self._printer.sign(line.icon), line.words)

    def _show_answer(self, event: Answer) -> None:
        if not self._answers or self._is_latest_reply(event.text):
            return
        line = event.render()
        head = f"{line.text}:"
        if self._printer.has_unicode:
            head = line.icon if line.text == "answer" else f"{line.icon} {head}"
        self._printer.line(f"{head} {visible(event.text)}", "bold")

    def _show_todo(self, event: TodoChanged) -> None:
        """Print what has changed in the task list, and all of it if the work itself is another."""
        is_same_work = [item.text for item in event.items] == [item.text for item in self._todo]
        changed = [item for item in event.items if not (is_same_work and item in self._todo)]
        for text in todo_lines(changed):
            self._printer.line(f"  {visible_line(text)}", "dim")
        self._todo = event.items

    def _stream(self, event: TextArrived) -> None:
        """Print a piece of a reply, but nothing of a call, and of reasoning only that it goes on."""
        write, sign = self._printer.line, self._printer.sign
        if self._open_channel and self._open_channel != event.channel:
            self._end_reply()
        if event.channel == "reasoning":
            if not self._open_channel:
                write(f"{sign('◦')} {speaker(event)}thinking …", "dim", end="")
                self._open_channel = event.channel
            self._reasoning.append(event.text)
            return
        # models often begin with a blank
        text = event.text if self._open_channel else event.text.lstrip()
        if self._is_call or not text:
            return
        if not self._open_channel:
            self._is_call = text.startswith(CALL_BEGINS)
            if self._is_call:
                return
            write(f"{sign('◊')} {speaker(event)}", end="")
            self._open_channel = event.channel
            self._replies.append("")
        self._replies[-1] += text
        write(visible(text), end="")

    def _end_reply(self) -> None:
        """End the line of the reply that was arriving."""
        self._is_call = False
        if self._open_channel:
            is_reasoning = self._open_channel == "reasoning"
            length = f" {length_text(''.join(self._reasoning))}" if is_reasoning else ""
            self._printer.line(length, "dim" if length else "")
            self._open_channel = ""

    def _is_latest_reply(self, text: str) -> bool:
        return (self._replies[-1] if self._replies else "").strip() == text.strip()

    def _draw(self, tool_graph: ToolGraph) -> None:
        """Draw a tool graph, or print its nodes and edges where only ASCII is shown."""
        if not self._printer.has_unicode:
            self._printer.line(f"  {visible_line(tool_graph.plan.edges)}", "dim")
            return
        drawing = Drawing(tool_graph)
        for pieces in drawing.lines(self._printer.width - 2, 0, _MAX_GRAPH_LINES):
            self._printer.line(f"  {''.join(text for text, _ in pieces)}".rstrip(), "dim")
        if drawing.height > _MAX_GRAPH_LINES:
            self._printer.line(f"  … {drawing.height - _MAX_GRAPH_LINES:,} more", "dim")

    def _end_tool_graph(self) -> None:
        """Print the outcome of the running tool graph."""
        if self._tool_graph is not None:
            self._say(self._printer.sign("·"), f"plan: {outcome(self._tool_graph.closed())}")
            self._tool_graph = None
