"""Showing a stream of events in the transcript: which block is added, updated or skipped."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
    Bill,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    CallJudged,
    CallMarked,
    CallProgressed,
    CallStarted,
    ErrorHappened,
    Event,
    GraphPlanned,
    LimitHit,
    NodeChanged,
    Notice,
    PlanChanged,
    PlanWritten,
    Quote,
    Rationale,
    Reasoned,
    StepProposed,
    SubagentFinished,
    SubagentProgressed,
    SubagentStarted,
    TextArrived,
    ToolRegistered,
    ToolsOffered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.events.plan import planned_share
from ecoshell.sessions.tool_graphs import ToolGraph
from ecoshell.tui.transcript import event_blocks
from ecoshell.tui.transcript.blocks import Block, Body, CallRef, Piece, row
from ecoshell.tui.transcript.column import BlockColumn
from ecoshell.tui.transcript.streaming import StreamPresenter

_MAX_LIKELY_LINES = 3
_RETRYING = " Retrying (attempt "
"""Follows the error in a notice about a retry; successive retries share a block."""


class EventPresenter:
    """Shows events in a transcript, keeping the state of the running turn."""

    def __init__(
        self, column: BlockColumn, *, panels_shown: Callable[[], bool] = lambda: False
    ) -> None:
        """`panels_shown` tells whether panels show the plan and tools; then only changes get a line."""
        self._column = column
        self._panels_shown = panels_shown
        self._summaries: list[str] = []
        self._details: list[str] = []
        """The turn's registrations and plan: short texts for its folded block, and the full texts inside."""
        self._likely: set[str] = set()
        """Tools beyond the core set that are loaded because the question is likely to use them."""
        self._last_summary: dict[str, object] = {}
        """The last tool offer and plan share that were shown."""
        self._notice: tuple[str, str] = ("", "")
        """The text of the last notice, and the name of its block."""
        self._numbers = count(1)
        """Numbers for the names of blocks that change."""
        self._calls: dict[str, CallStarted] = {}
        self._subagents: dict[str, tuple[SubagentStarted, SubagentFinished | None]] = {}
        """The subagents of the turn, by the call that started them."""
        self._approval_names: dict[tuple[str, str], str] = {}
        """The tools of calls that needed approval, by subagent and ID."""
        self._denied: dict[str, ApprovalGiven] = {}
        self._arriving = StreamPresenter(column)
        self._answer: Answer | None = None
        """The answer of the running turn, whose ending determines its sign."""
        self._late: list[Event] = []
        """Events that are shown below the answer."""
        self._turn = 0
        self._plan: PlanChanged | None = None
        self._graph: ToolGraph | None = None
        """The running tool graph."""
        self._graph_name = ""
        self._results: dict[CallRef, Block] = {}
        self._judgements: dict[CallRef, CallJudged] = {}
        self.marks: dict[CallRef, CallMarked] = {}
        """The user's last mark of each result."""

    def show(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self.end_activity()
                self._turn, self._plan, self._notice = event.turn, None, ("", "")
                self._subagents.clear()
                self._summaries, self._details = [], []
                block = event_blocks.question(event.question, attachments=event.attachments)
                is_shown = (
                    bool(self._column.items) and self._column.items[-1].block == block
                )  # by its command
                self._arriving.settle(None if is_shown else block)
            case TurnFinished():
                self._stop()
                if self._answer is not None:
                    self._column.settle(event_blocks.answer(self._answer, event.status))
                self._close(event_blocks.footer(event, self._answer.by if self._answer else ""))
                self._column.insert(*filter(None, map(event_blocks.block_of, self._late)))
                self._late.clear()
                self._approval_names.clear()
                self._answer = None
            case PlanWritten() | Quote(kind="plan") | Bill(kind="plan"):
                self._late.append(event)
            case ToolsOffered() | ToolRegistered(by="upfront"):
                self._summarize_tools(event)
            case PlanChanged():  # the first plan of a turn is shown; of later ones, what they newly forbid
                block = event_blocks.plan(event, self._plan)
                self._plan = event
                if block is not None and event.number <= 1:
                    share = planned_share(event)
                    self._add_summary(block, "plan", f"plan: {share} tools", share)
                elif block is not None:
                    self._column.insert(block)
            case Notice() | ErrorHappened() | BudgetSettled():
                self._warn(event)
            case TextArrived() | BudgetHeld() | Reasoned() | Rationale() | StepProposed():
                self._arriving.handle(event)
            case GraphPlanned():
                self._end_graph()
                self._graph = ToolGraph(event)
                self._graph_name = f"graph {next(self._numbers)}"
                self._arriving.settle(event_blocks.graph(self._graph, self._graph_name))
            case NodeChanged():
                if self._graph is not None:
                    self._graph = self._graph.with_change(event)
                    self._column.redraw(event_blocks.graph(self._graph, self._graph_name))
            case CallJudged() | CallMarked():
                self._judge(event)
            case CallStarted() | CallProgressed() | CallFinished():
                self._call(event)
            case Answer():
                self._answer = event
                self._arriving.reset()
                self._column.open(event_blocks.answer(event))
            case _:
                self._add(event)

    def _add(self, event: Event) -> None:
        """Show an event that belongs to a call, or in a separate block."""
        match event:
            case ApprovalWanted() | ApprovalGiven():
                self._approve(event)
            case SubagentStarted() | SubagentProgressed() | SubagentFinished():
                self._show_subagent(event)
            case _:
                block = event_blocks.block_of(event)
                if isinstance(event, LimitHit) and block is not None:
                    self._close(block)
                elif block is not None:
                    self._column.insert(block)

    def end_activity(self) -> None:
        """Mark everything as stopped, as after the last event of an ended process."""
        self._stop()
        self._arriving.settle(None)
        self._answer = None

    def _call(self, event: CallStarted | CallProgressed | CallFinished) -> None:
        """Show that a call runs or has ended."""
        key, call = f"call {event.id}", self._calls.get(event.id)
        match event:
            case CallStarted():
                self._calls[event.id] = event
                self._column.settle()
                self._column.open(event_blocks.running_call(event), key)
            case CallProgressed():
                if call is not None:
                    block = event_blocks.running_call(call, progress=event.text or "running")
                    self._column.open(block, key)
            case CallFinished():
                if event.id in self._subagents:
                    block = self._subagent(event.id)
                else:
                    block = event_blocks.call(call, event, self._denied.pop(event.id, None))
                self._calls.pop(event.id, None)
                if not event.refused:
                    ref = CallRef(self._turn, event.id, event.name)
                    block = self._results[ref] = replace(block, name=f"result of {ref}")
                self._column.settle(block, key)

    def _approve(self, event: ApprovalWanted | ApprovalGiven) -> None:
        """Show that a call waits for approval, and decisions that apply to more than one call."""
        key, call = f"call {event.id}", None if event.agent else self._calls.get(event.id)
        match event:
            case ApprovalWanted():
                name = f"{event.agent}: {event.name}" if event.agent else event.name
                self._approval_names[event.agent, event.id] = name
                if call is not None:
                    self._column.open(event_blocks.running_call(call, event_blocks.WAITS), key)
            case ApprovalGiven() if call is not None and event.decision == "no":
                self._denied[event.id] = event
            case ApprovalGiven():
                if call is not None:
                    self._column.open(event_blocks.running_call(call), key)
                if event.decision != "once" or event.arguments is not None:
                    fallback = call.name if call else "the call"
                    name = self._approval_names.get((event.agent, event.id), fallback)
                    self._column.insert(event_blocks.approval(name, event))

    def _show_subagent(
        self, event: SubagentStarted | SubagentProgressed | SubagentFinished
    ) -> None:
        """Show the subagent that a call started in the line of the call."""
        if isinstance(event, SubagentStarted):
            self._subagents[event.id] = event, None
        elif event.id not in self._subagents:
            return
        progress = ""
        if isinstance(event, SubagentProgressed):
            progress = event.state
        elif isinstance(event, SubagentFinished):
            self._subagents[event.id] = self._subagents[event.id][0], event
        self._column.open(self._subagent(event.id, progress), f"call {event.id}")

    def _subagent(self, call: str, progress: str = "") -> Block:
        """The line of the subagent that a call started."""
        started, ended = self._subagents[call]
        return event_blocks.subagent(started, self._calls.get(call), progress=progress, ended=ended)

    def _judge(self, event: CallJudged | CallMarked) -> None:
        """Show the judge's verdict or the user's mark next to a result."""
        turn = event.turn if isinstance(event, CallMarked) else self._turn
        call = CallRef(turn, event.id, event.name)
        if isinstance(event, CallMarked):
            self.marks[call] = event
        else:
            self._judgements[call] = event
        if (block := self._results.get(call)) is not None:
            verdict = event_blocks.verdict(self._judgements.get(call), self.marks.get(call))
            self._column.redraw(replace(block, call=call, verdict=verdict))

    def _summarize_tools(self, event: ToolsOffered | ToolRegistered) -> None:
        """Add the offered tools, and those loaded from the start, to the turn's folded summary."""
        block = event_blocks.block_of(event)
        if block is None:
            return
        if isinstance(event, ToolsOffered):
            likely = set(event.upfront) - set(event.core)
            is_short = event.known and len(likely) <= _MAX_LIKELY_LINES
            self._likely = likely if is_short else set[str]()
            content = (event.names, event.upfront)
            self._add_summary(block, "offer", event.render().text, content)
        elif event.name in self._likely:
            self._column.insert(block)
        else:
            self._details.append(block.text())

    def _add_summary(self, block: Block, kind: str, summary: str, content: object) -> None:
        """Add a block to the turn's folded summary.

        It gets no visible text if panels are shown and its kind had the same `content` in the last turn.
        """
        self._details.append(block.text())
        previous, self._last_summary[kind] = self._last_summary.get(kind), content
        if previous == content and self._panels_shown():
            return
        self._summaries.append(summary)
        head = row(Piece(" · ".join(self._summaries), "muted"))
        bodies = (Body("\n".join(self._details), 0, tone="muted", head=head),)
        folded_summary = Block("·", "muted", bodies=bodies, name=f"summary {self._turn}")
        if len(self._summaries) == 1:
            self._column.insert(folded_summary)
        else:
            self._column.redraw(folded_summary)

    def _warn(self, event: Notice | ErrorHappened | BudgetSettled) -> None:
        """Show a notice or an error; retries update their notice, and their final error replaces it."""
        if isinstance(event, BudgetSettled):
            line = event.render()
            if line is None:
                return
            event = Notice(line.text)
        text, name = self._notice
        cause = text.partition(_RETRYING)[0]
        if isinstance(event, Notice):
            repeats = name and event.text.partition(_RETRYING)[0] == cause
            if not repeats:
                name = f"notice {next(self._numbers)}"
            self._notice = event.text, name
            show = self._column.redraw if repeats else self._column.insert
            show(replace(event_blocks.notice(event.text), name=name))
        elif name and (event.message in text or event.message.startswith(cause)):
            self._notice = "", ""
            self._arriving.end_reasoning()
            self._column.redraw(replace(event_blocks.error(event), name=name))
            self._column.settle()
            self._arriving.reset()
        else:
            self._close(event_blocks.error(event))

    def _end_graph(self) -> None:
        """Show unfinished nodes as stopped or skipped."""
        if self._graph is not None and not self._graph.is_settled:
            self._column.redraw(event_blocks.graph(self._graph.closed(), self._graph_name))
        self._graph = None

    def _stop(self) -> None:
        """Show running calls and nodes as stopped."""
        self._arriving.end_reasoning()
        for started in self._calls.values():
            block = event_blocks.running_call(started, event_blocks.STOPPED)
            if (subagent := self._subagents.get(started.id)) is not None:
                block = event_blocks.subagent(subagent[0], started, ended=subagent[1], stopped=True)
            self._column.settle(block, f"call {started.id}")
        self._calls.clear()
        self._end_graph()

    def _close(self, block: Block) -> None:
        """Add a block below everything open."""
        self._arriving.end_reasoning()
        self._column.add(block)
        self._arriving.reset()
