"""Events as lines of text, printed by the line shell and by `ask` on any terminal, pipe or screen reader."""

from collections.abc import Mapping
from dataclasses import asdict

from ecoshell.agent.scoring import outcome
from ecoshell.budget import about, counted
from ecoshell.cli.printer import UNICODE_SIGNS, Printer, Signs
from ecoshell.events import (
    AdviceFollowed,
    AdvisorReplied,
    Answer,
    BackgroundEnded,
    BackgroundStarted,
    Bill,
    BranchLeft,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallJudged,
    CallMarked,
    CallProgressed,
    CallStarted,
    CapNear,
    CommandRan,
    Compacted,
    ContextTold,
    ErrorHappened,
    Event,
    GraphPlanned,
    HookRan,
    LimitHit,
    NodeChanged,
    Notice,
    PlanChanged,
    PlanScored,
    PlanWritten,
    Quote,
    QuoteChosen,
    Rationale,
    Reasoned,
    ResultsTrimmed,
    SandboxBlocked,
    StepProposed,
    StepStarted,
    SubagentFinished,
    SubagentStarted,
    TextArrived,
    TodoChanged,
    TodoItem,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TrustGiven,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.events.describe import (
    CALL_BEGINS,
    ENDINGS,
    describe,
    duration,
    length_text,
    plan_news,
    turn_sums,
)
from ecoshell.events.work import todo_lines
from ecoshell.messages import visible, visible_line
from ecoshell.options import ROLES
from ecoshell.sessions.tool_graphs import ToolGraph
from ecoshell.tui.graph_drawing import Drawing, headline

_MAX_GRAPH_LINES = 24
_STYLES: Mapping[type[Event], tuple[str, str]] = {
    AdviceFollowed: ("{dot}", "dim"),
    AdvisorReplied: ("{thought}", "cyan"),
    Bill: ("{dot}", "dim"),
    BranchLeft: ("{back}", "yellow"),
    CallFinished: ("  {result}", "dim"),
    BackgroundEnded: ("{dot}", "cyan"),
    BackgroundStarted: ("{dot}", "cyan"),
    CallJudged: ("  {bad}", "dim"),
    CallMarked: ("{dot}", "dim"),
    CallProgressed: ("  {dot}", "dim"),
    CallStarted: ("{call}", "blue"),
    CapNear: ("{dot}", "yellow"),
    Compacted: ("{dot}", "yellow"),
    ContextTold: ("{dot}", "dim"),
    HookRan: ("  {dot}", "yellow"),
    PlanScored: ("{dot}", "dim"),
    PlanWritten: ("{dot}", "cyan"),
    Quote: ("{dot}", "cyan"),
    QuoteChosen: ("{dot}", "yellow"),
    ResultsTrimmed: ("{dot}", "yellow"),
    SubagentFinished: ("{dot}", "cyan"),
    SubagentStarted: ("{dot}", "cyan"),
    SandboxBlocked: ("  {dot}", "yellow"),
    ToolRegistered: ("{registered}", "cyan"),
    ToolsOffered: ("{dot}", "dim"),
    ToolUnregistered: ("{dot}", "cyan"),
    TrustGiven: ("{dot}", "dim"),
    TurnUndone: ("{dot}", "yellow"),
}
"""The sign and the style of events that need no other treatment."""


def speaker(role: str) -> str:
    """Return the prefix that names a role of the mode umi."""
    return f"{role}: " if role in ROLES else ""


class EventLines:
    """Prints the events of turns as they arrive; text that was streamed is not printed again when complete."""

    def __init__(self, printer: Printer, *, streaming: bool = True, answers: bool = True) -> None:
        """Without `streaming`, print only complete texts; without `answers`, leave the answer to the caller."""
        self._printer = printer
        self._signs = printer.signs
        self._streaming = streaming
        self._answers = answers
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
        self._subagents: set[str] = set()
        """Calls that a subagent works for, whose progress is not printed."""

    def show(self, event: Event) -> None:
        """Print an event if it has anything to say."""
        if isinstance(event, TextArrived):
            if self._streaming:
                self._stream(event)
            return
        self._end_reply()
        line, signs = self._printer.line, self._signs
        match event:
            case TurnStarted():
                self._start_turn(event)
            case TurnFinished():
                self._end_tool_graph()
                line(summary(event, signs), "green" if event.status == "answered" else "yellow")
            case StepStarted() | BudgetHeld() | Rationale() | Reasoned() | StepProposed():
                self._show_thinking(event)
            case PlanChanged() | GraphPlanned() | NodeChanged():
                self._show_plan(event)
            case Answer():
                self._show_answer(event)
            case TodoChanged():
                self._show_todo(event)
            case CommandRan():
                line(f"! {visible_line(event.command)}", "bold")
                line(visible(event.output), "" if event.ok else "red")
                ending = f"{signs.good} done" if event.ok else f"{signs.bad} failed"
                line(f"{ending} {signs.dot} {duration(event.seconds)}", "dim")
            case LimitHit():
                line(f"{signs.bad} limit: {visible_line(event.message)}", "yellow")
            case ErrorHappened():
                message = "" if event.message in self._last_note and event.fix else event.message
                text = " ".join(part for part in (message, event.kept, event.fix) if part)
                line(f"{signs.bad} error: {visible_line(text)}", "red")
            case Notice() | BudgetSettled():
                note = event.text if isinstance(event, Notice) else describe(event)
                if note and note != self._last_note:
                    line(f"{signs.dot} note: {visible_line(note)}", "yellow")
                    self._last_note = note
            case CallProgressed() if event.id in self._subagents:
                pass
            case _ if type(event) in _STYLES and (text := describe(event)):
                sign, style = _STYLES[type(event)]
                if isinstance(event, CallFinished) and not event.ok:
                    style = "red"
                text = self._with_call(event, text).replace(UNICODE_SIGNS.dot, signs.dot)
                line(f"{sign.format(**asdict(signs))} {text}", style)
            case _:
                pass

    def _start_turn(self, event: TurnStarted) -> None:
        self._end_tool_graph()
        self._reasoning, self._replies = [], []
        self._thinker, self._plan, self._calls, self._subagents = ("", ""), None, {}, set()
        for attachment in event.attachments:
            size = counted(len(attachment.text), "character")
            text = attachment.text if attachment.image else f"{attachment.name} ({size})"
            self._printer.line(f"{self._signs.dot} attached {visible_line(text)}", "dim")

    def _show_answer(self, event: Answer) -> None:
        sign = f"{self._signs.bad} partial answer:" if event.partial else self._signs.answer
        if event.role in ROLES:
            sign = f"{sign.removesuffix(':')} by the {event.role}:"
        if self._answers and not self._is_latest_reply(event.text):
            self._printer.line(f"{sign} {visible(event.text)}", "bold")

    def _show_todo(self, event: TodoChanged) -> None:
        """Print the task list: what has changed, and all of it if the work itself is another."""
        self._printer.line(
            f"{self._signs.dot} {describe(event).replace(UNICODE_SIGNS.dot, self._signs.dot)}",
            "dim",
        )
        is_same_work = [item.text for item in event.items] == [item.text for item in self._todo]
        changed = [item for item in event.items if not (is_same_work and item in self._todo)]
        for text in todo_lines(changed):
            self._printer.line(f"  {visible_line(text)}", "dim")
        self._todo = event.items

    def _with_call(self, event: Event, text: str) -> str:
        """Prefix a call with its role, and a later event of a call with that call if another has started since."""
        match event:
            case SubagentStarted():
                self._subagents.add(event.id)
                return text
            case CallStarted():
                self._calls[event.id] = text
                return f"{speaker(event.role)}{text}"
            case CallFinished() | CallJudged() | CallProgressed() if event.id in self._calls:
                is_latest = event.id == next(reversed(self._calls))
                return text if is_latest else f"{self._calls[event.id]}: {text}"
            case _:
                return text

    def _stream(self, event: TextArrived) -> None:
        """Print a piece of a reply, but nothing of a call, and of reasoning only that it goes on."""
        write, signs = self._printer.line, self._signs
        if self._open_channel and self._open_channel != event.channel:
            self._end_reply()
        if event.channel == "reasoning":
            if not self._open_channel:
                write(f"{signs.dot} {speaker(event.role)}thinking …", "dim", end="")
                self._open_channel = event.channel
            self._reasoning.append(event.text)
            return
        text = (
            event.text if self._open_channel else event.text.lstrip()
        )  # models often begin with a blank
        if self._is_call or not text:
            return
        if not self._open_channel:
            self._is_call = text.startswith(CALL_BEGINS)
            if self._is_call:
                return
            write(f"{signs.thought} {speaker(event.role)}", end="")
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

    def _show_thinking(
        self, event: StepStarted | BudgetHeld | Rationale | Reasoned | StepProposed
    ) -> None:
        """Print which role thinks, its rationale, and the steps a search proposes."""
        line, signs = self._printer.line, self._signs
        match event:
            case StepStarted():
                self._reasoning, self._replies = [], []
            case BudgetHeld():
                thinker = (event.role, event.model)
                if self._streaming and event.role in ROLES and thinker != self._thinker:
                    self._thinker = thinker
                    line(
                        f"{signs.dot} {event.role} is thinking {signs.dot} {visible_line(event.model)}",
                        "dim",
                    )
                if event.clamped:
                    line(
                        f"{signs.dot} note: the budget allows this reply {event.max_tokens:,} tokens",
                        "yellow",
                    )
            case Reasoned():
                if not self._reasoning:
                    line(f"{signs.dot} {speaker(event.role)}{describe(event)}", "dim")
                self._reasoning.clear()  # one line per reply
            case Rationale():
                # a planner names the next role after its rationale
                if not any(reply.strip().startswith(event.text.strip()) for reply in self._replies):
                    line(
                        f"{signs.thought} {speaker(event.role)}{visible_line(event.text)}", "italic"
                    )
            case StepProposed():
                is_printed = self._is_latest_reply(event.rationale)
                rationale = "" if is_printed else f" {signs.dot} {visible_line(event.rationale)}"
                line(f"{signs.proposed} proposed: {visible_line(event.step)}{rationale}", "dim")

    def _show_plan(self, event: PlanChanged | GraphPlanned | NodeChanged) -> None:
        """Print changes of the plan, a tool graph, and what became of its nodes."""
        line, signs = self._printer.line, self._signs
        match event:
            case PlanChanged():
                previous, self._plan = self._plan, event
                if text := plan_news(previous, event):
                    line(f"{signs.dot} {text}", "dim" if event.number <= 1 else "yellow")
            case GraphPlanned():
                self._end_tool_graph()
                self._tool_graph = ToolGraph(event)
                self._draw(self._tool_graph, describe(event))
            case NodeChanged():
                if text := describe(event):
                    line(f"{signs.dot} {text}", "yellow")
                if self._tool_graph is not None:
                    self._tool_graph = self._tool_graph.with_change(event)
                    if self._tool_graph.is_settled:
                        self._end_tool_graph()

    def _draw(self, tool_graph: ToolGraph, text: str) -> None:
        """Draw a tool graph, or print its text where only ASCII is shown."""
        line, signs = self._printer.line, self._signs
        if signs is not UNICODE_SIGNS:
            line(f"{signs.thought} {text}", "italic")
            return
        drawing = Drawing(tool_graph)
        line(f"{signs.thought} {' · '.join(headline(tool_graph))}", "italic")
        for pieces in drawing.lines(self._printer.width - 2, 0, _MAX_GRAPH_LINES):
            line(f"  {''.join(text for text, _ in pieces)}".rstrip(), "dim")
        if drawing.height > _MAX_GRAPH_LINES:
            line(f"  … {drawing.height - _MAX_GRAPH_LINES:,} more", "dim")

    def _end_tool_graph(self) -> None:
        """Print the outcome of the running tool graph."""
        if self._tool_graph is not None:
            self._printer.line(
                f"{self._signs.dot} plan: {outcome(self._tool_graph.closed())}", "dim"
            )
            self._tool_graph = None


def summary(event: TurnFinished, signs: Signs) -> str:
    """Return one line with the outcome and the consumption of a turn."""
    consumption = event.consumption
    usage = consumption.usage
    parts = [
        ENDINGS[event.status],
        *turn_sums(event),
        about(f"{usage.input:,} tokens in, {usage.output:,} out", estimated=consumption.estimated),
    ]
    if event.saved_tokens and event.spent_nano:
        parts.append(f"{event.saved_tokens:,} saved")
    sign = signs.good if event.status == "answered" else signs.bad
    return f"{sign} " + f" {signs.dot} ".join(parts)
