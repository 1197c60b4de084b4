"""Tells a stream of events to a transcript: which block opens, which replaces it, and what is not worth a line."""

import re
from collections.abc import Callable
from dataclasses import replace

from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
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
    Rationale,
    Reasoned,
    StepProposed,
    TextArrived,
    ToolRegistered,
    ToolsOffered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.events.describe import describe, planned_share
from ecoshell.options import ROLES
from ecoshell.sessions.plans import Branching
from ecoshell.tui.transcript import event_blocks
from ecoshell.tui.transcript.blocks import Block, CallRef, rows_of
from ecoshell.tui.transcript.column import BlockColumn
from ecoshell.tui.transcript.event_blocks import graph
from ecoshell.untrusted import visible_line

THINKING, WRITING = "◦", "…"
"""Signs of a thought and of an answer that are still arriving."""
_REASONING = "reasoning"


_AGAIN = " It is asked again ("
"""What follows an error after which a model is asked once more, before the number of the attempt."""
_CHOSEN = re.compile(r"\S+ fits best\.")
"""What a mode that chooses tools step by step says of its choice."""


class StreamPresenter:
    """The open end of a transcript. What is thought in one step is one block, with each reply on a line of its own."""

    def __init__(self, column: BlockColumn) -> None:
        self._column = column
        self._begins = True
        """Whether the next piece is the first of a reply."""
        self._thinking = self._answering = False
        """Whether a thought arrives, or an answer has begun to, that is not whole yet."""
        self._thought: list[str] = []
        """What has arrived of it."""
        self._parted = ""
        """The name of a thought's block, where the answer of the same reply stands below it already."""
        self._thoughts = 0
        """Thoughts that were parted so, so far."""
        self._reasoned: list[str] = []
        self._told = 0
        """Pieces of it that are counted on the screen."""
        self._reasons = ""

    def hear(self, event: BudgetHeld | TextArrived | Reasoned | Rationale | StepProposed) -> None:
        """Show what arrives, and in its place what it came to."""
        match event:
            case BudgetHeld():
                self._begins = True
                if self._answering:  # it failed: the model is asked again
                    self._column.drop()
                    self.over()
            case Reasoned():
                self._reason_ended(event)
            case TextArrived():
                self._take(event)
            case Rationale():
                self._think(event)
            case StepProposed():
                self.become(event_blocks.proposed(event))

    def become(self, block: Block) -> None:
        """Put a block in the place of what is arriving."""
        self._column.settle(block)
        self.over()

    def over(self) -> None:
        """Take it that nothing arrives any more."""
        self._thinking = self._answering = False
        self._thought.clear()
        self._parted = ""

    def stop_reasoning(self) -> None:
        """Take it that no more is reasoned, and nobody says what it came to."""
        if self._reasoned:
            self._reason_ended(Reasoned("".join(self._reasoned), self._reasons))

    def _reason_ended(self, event: Reasoned) -> None:
        self._reasoned.clear()
        self._told = 0
        self._column.settle(event_blocks.reasoned(event), _REASONING)

    def _take(self, event: TextArrived) -> None:
        """Show a piece; of several roles, whose it is."""
        if event.channel == "reasoning":
            self._reason(event)
            return
        if self._told:
            self._told = 0
            self._column.open(event_blocks.reasoned(Reasoned("".join(self._reasoned), self._reasons)), _REASONING)
        match event.channel:
            case "answer":
                if self._thinking and not self._begins:
                    # the thought ends here; what it comes to is told after the answer has arrived
                    self._thoughts += 1
                    self._parted = f"thought {self._thoughts}"
                    rows = rows_of("".join(self._thought).strip(), "thought")
                    self._column.settle(Block(THINKING, "thought", rows, name=self._parted))
                self._column.stream(event.text, WRITING, "text")
                self._answering = True
            case "thought":
                if self._answering and not self._begins:
                    return  # what a model says after its answer is told with the thought
                text = event.text
                if self._begins:
                    start = "\n" if self._thinking else ""
                    role = f"{event.role}  " if event.role in ROLES else ""
                    text = f"{start}{role}{text.lstrip()}"
                self._thought.append(text)
                self._column.stream(text, THINKING, "thought")
        self._thinking = event.channel == "thought"
        self._begins = False

    def _reason(self, event: TextArrived) -> None:
        """Say how much is reasoned by now, at ever longer intervals."""
        self._reasoned.append(event.text)
        self._reasons = event.role
        pieces = len(self._reasoned)
        if pieces - self._told > self._told // 16:
            self._told = pieces
            whole = Reasoned("".join(self._reasoned), event.role)
            self._column.open(event_blocks.reasoned(whole, arriving=True), _REASONING)

    def _think(self, event: Rationale) -> None:
        """Put a whole thought in the place of what has arrived of it."""
        if self._parted:
            if event.text.strip():
                self._column.redraw(replace(event_blocks.rationale(event), name=self._parted))
        elif event.text.strip():
            self.become(event_blocks.rationale(event))
        elif self._thinking or self._answering:
            self._column.drop()
            self.over()


class EventPresenter:
    """Remembers just enough of a turn to show an event beside the one it belongs to."""

    def __init__(self, column: BlockColumn, *, beside: Callable[[], bool] = lambda: False) -> None:
        """`beside` says whether panels tell what is kept account of: then only what is new of it gets a line."""
        self._column = column
        self._beside = beside
        self._said: list[str] = []
        self._details: list[str] = []
        """What is kept account of in this turn: what is said of it, and all of it."""
        self._known: dict[type[Event], object] = {}
        """The offer and the share of the plan that were told last."""
        self._noted: tuple[str, str] = ("", "")
        """The note that was told last, and the name of its block."""
        self._notes = 0
        self._calls: dict[str, CallStarted] = {}
        self._names: dict[str, str] = {}
        """What calls are of that somebody was asked about."""
        self._denied: dict[str, ApprovalGiven] = {}
        self._arriving = StreamPresenter(column)
        self._answer: Answer | None = None
        """An answer whose turn has not ended: how it ends decides its sign."""
        self._turn = 0
        self._plan: PlanChanged | None = None
        self._branching: Branching | None = None
        """The parallel plan that is under way."""
        self._graphs = 0
        self._judged: dict[CallRef, bool | None] = {}
        self.marks: dict[CallRef, bool | None] = {}
        """What the person said of results; None when it was taken back."""

    def show(self, event: Event) -> None:
        match event:
            case TurnStarted() | TurnFinished():
                self._turned(event)
            case ToolsOffered() | ToolRegistered(by="agent" | "upfront") | Rationale() if self._account(event):
                pass
            case Notice() | ErrorHappened() | BudgetSettled():
                self._trouble(event)
            case TextArrived() | BudgetHeld() | Reasoned() | Rationale() | StepProposed():
                self._arriving.hear(event)
            case GraphPlanned() | NodeChanged():
                self._graph(event)
            case CallStarted() | CallProgressed() | CallFinished():
                self._call(event)
            case CallJudged() | CallMarked():
                self._judge(event)
            case PlanChanged():
                self._planned(event)
            case Answer():
                self._answer = event
                self._arriving.over()
                self._column.open(event_blocks.answer(event))
            case ApprovalWanted() | ApprovalGiven():
                self._approval(event)
            case _:
                block = event_blocks.block_of(event)
                if block is not None:
                    self._add(block, closes=isinstance(event, LimitHit))

    def rest(self) -> None:
        """Take it that nothing is under way, as after the events of a process that is gone."""
        self._stop()
        if self._answer is not None:
            self._column.settle()
            self._answer = None

    def _approval(self, event: ApprovalWanted | ApprovalGiven) -> None:
        """Say of a call that it waits, that it runs, or in the end who has denied it; of what holds on, a line."""
        call = self._calls.get(event.id)
        if isinstance(event, ApprovalWanted):
            self._names[event.id] = event.name
            if call is not None:
                self._column.open(event_blocks.under_way(call, event_blocks.WAITS), _key(event.id))
            return
        if call is not None and event.decision == "no":
            self._denied[event.id] = event
            return
        if call is not None:
            self._column.open(event_blocks.under_way(call), _key(event.id))
        if event.decision != "once" or event.arguments is not None:
            self._add(event_blocks.approval(self._names.get(event.id) or (call.name if call else "the call"), event))

    def _call(self, event: CallStarted | CallProgressed | CallFinished) -> None:
        if isinstance(event, CallProgressed):
            if (started := self._calls.get(event.id)) is not None:
                self._column.open(event_blocks.under_way(started, progress=event.text or "running"), _key(event.id))
            return
        if isinstance(event, CallStarted):
            self._calls[event.id] = event
            self._column.settle()
            self._column.open(event_blocks.under_way(event), _key(event.id))
            return
        block = event_blocks.call(self._calls.pop(event.id, None), event, self._denied.pop(event.id, None))
        if not event.refused:
            block = replace(block, call=CallRef(self._turn, event.id, event.name))
        self._column.settle(block, _key(event.id))

    def _judge(self, event: CallJudged | CallMarked) -> None:
        """Show beside a result what the judge says or, where the person has spoken, what they say."""
        if isinstance(event, CallJudged):
            call = CallRef(self._turn, event.id, event.name)
            self._judged[call] = event.helpful
        else:
            call = CallRef(event.turn, event.id, event.name)
            self.marks[call] = event.helpful
        self._column.judge(call, event_blocks.verdict(self._judged.get(call), self.marks.get(call)))

    def _planned(self, event: PlanChanged) -> None:
        """Tell of a turn's first plan, and of later ones only what they have come to forbid."""
        before, self._plan = self._plan, event
        block = event_blocks.planned(event, before)
        if block is not None and event.number <= 1:
            share = planned_share(event)
            self._keep(block, f"plan: {share} tools", new=self._new(PlanChanged, share))
        elif block is not None:
            self._add(block)

    def _account(self, event: ToolsOffered | ToolRegistered | Rationale) -> bool:
        """Take what is kept account of into one folded block of the turn; says whether it is that."""
        match event:
            case ToolsOffered():
                said = f"{len(event.names)} tools by name"
                upfront = f", {len(event.upfront)} registered up front" if event.upfront else ""
                self._keep(
                    event_blocks.offered(event), f"{said}{upfront}", new=self._new(ToolsOffered, (event.names, upfront))
                )
            case ToolRegistered():
                if event.by != "upfront":  # those are counted in the offer
                    self._keep(event_blocks.registered(event), f"registered {visible_line(event.name)}", new=True)
            case Rationale():
                if not _CHOSEN.fullmatch(event.text):
                    return False
                self._column.drop()
                self._arriving.over()
                self._details.append(event.text)
        return True

    def _new(self, kind: type[Event], told: object) -> bool:
        """Whether something else was told of this the last time."""
        before, self._known[kind] = self._known.get(kind), told
        return before != told

    def _keep(self, block: Block, said: str, *, new: bool) -> None:
        """Put a line on it into the turn's account, which shows where it is new or no panel tells it."""
        self._details.append(block.text())
        if not new and self._beside():
            return
        fresh = not self._said
        self._said.append(said)
        account = event_blocks.book(f"account {self._turn}", self._said, self._details)
        if fresh:
            self._add(account)
        else:
            self._column.redraw(account)

    def _trouble(self, event: Notice | ErrorHappened | BudgetSettled) -> None:
        """Tell a note or an error once: not the same note again, and an error in the place of the note that has it."""
        if isinstance(event, BudgetSettled):
            event = Notice(describe(event))  # which a model's overrun is followed by, too
            if not event.text:
                return
        text, name = self._noted
        if isinstance(event, Notice):
            if name and event.text.partition(_AGAIN)[0] == text.partition(_AGAIN)[0]:
                self._noted = event.text, name
                self._column.redraw(replace(event_blocks.notice(event.text), name=name))
            else:
                self._notes += 1
                self._noted = event.text, f"note {self._notes}"
                self._add(replace(event_blocks.notice(event.text), name=self._noted[1]))
        elif name and event.message in text:
            self._noted = "", ""
            self._arriving.stop_reasoning()
            self._column.redraw(replace(event_blocks.error(event), name=name))
            self._column.settle()
            self._arriving.over()
        else:
            self._add(event_blocks.error(event), closes=True)

    def _graph(self, event: GraphPlanned | NodeChanged) -> None:
        """Draw a parallel plan in the place of what was streamed, and again whenever a node of it has changed."""
        if isinstance(event, GraphPlanned):
            self._end_graph()
            self._branching, self._graphs = Branching(event), self._graphs + 1
            self._arriving.become(graph(self._branching, self._graph_name))
        elif self._branching is not None:
            self._branching = self._branching.heard(event)
            self._column.redraw(graph(self._branching, self._graph_name))

    def _end_graph(self) -> None:
        """Let no node stand as if it went on."""
        if self._branching is not None and not self._branching.settled:
            self._column.redraw(graph(self._branching.ended(), self._graph_name))
        self._branching = None

    @property
    def _graph_name(self) -> str:
        return f"graph {self._graphs}"

    def _turned(self, event: TurnStarted | TurnFinished) -> None:
        if isinstance(event, TurnFinished):
            self._stop()
            if self._answer is not None:
                self._column.settle(event_blocks.answer(self._answer, event.status))
            self._add(event_blocks.footer(event, self._answer.role if self._answer else ""), closes=True)
            self._names.clear()
            self._answer = None
            return
        self.rest()
        self._turn, self._plan, self._noted = event.turn, None, ("", "")
        self._said, self._details = [], []
        self._arriving.become(event_blocks.question(event.question, attachments=event.attachments))

    def _stop(self) -> None:
        """Say of what nobody heard the end that it was stopped."""
        self._arriving.stop_reasoning()
        for started in self._calls.values():
            self._column.settle(event_blocks.under_way(started, event_blocks.STOPPED), _key(started.id))
        self._calls.clear()
        self._end_graph()

    def _add(self, block: Block, *, closes: bool = False) -> None:
        """Put a block below what is done; what is still open stays open, unless this puts an end to it."""
        if not closes:
            self._column.insert(block)
            return
        self._arriving.stop_reasoning()
        self._column.add(block)
        self._arriving.over()


def _key(call: str) -> str:
    return f"call {call}"
