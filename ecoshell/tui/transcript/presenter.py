"""Tells a stream of events to a transcript: which block opens, which replaces it, and what is not worth a line."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

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
from ecoshell.messages import visible_line
from ecoshell.options import ROLES
from ecoshell.sessions.plans import Branching
from ecoshell.tui.transcript import event_blocks
from ecoshell.tui.transcript.blocks import Block, Body, CallRef, Piece, row, rows_of
from ecoshell.tui.transcript.column import BlockColumn

THINKING, WRITING = "◦", "…"
"""Signs of a thought and of an answer that are still arriving."""
_REASONING = "reasoning"
_AGAIN = " It is asked again ("
"""What follows an error after which a model is asked once more, before the number of the attempt."""
_CHOSEN = re.compile(r"\S+ fits best\.")
"""What a mode that chooses tools step by step says of its choice."""


@dataclass(slots=True, eq=False, repr=False)
class StreamPresenter:
    """The open end of a transcript. What is thought in one step is one block, with each reply on a line of its own."""

    _column: BlockColumn
    _begins: bool = True
    """Whether the next piece is the first of a reply."""
    _thinking: bool = False
    """Whether a thought arrives that is not whole yet."""
    _answering: bool = False
    """Whether an answer has begun to arrive that is not whole yet."""
    _thought: list[str] = field(default_factory=list[str])
    """What has arrived of it."""
    _parted: str = ""
    """The name of a thought's block, where the answer of the same reply stands below it already."""
    _thoughts: int = 0
    """Thoughts that were parted so, so far."""
    _reasoned: list[str] = field(default_factory=list[str])
    _told: int = 0
    """Pieces of it that are counted on the screen."""
    _reasons: str = ""

    def hear(self, event: BudgetHeld | TextArrived | Reasoned | Rationale | StepProposed) -> None:
        """Show what arrives, and in its place what it came to."""
        match event:
            case BudgetHeld():
                self._begins = True
                if self._answering:  # it failed: the model is asked again
                    self._column.drop()
                    self.over()
            case Reasoned():
                self.reason_ended(event)
            case TextArrived():
                self._take(event)
            case StepProposed():
                self.become(event_blocks.block_of(event))
            case Rationale() if self._parted:
                if event.text.strip():
                    self._column.redraw(replace(event_blocks.rationale(event), name=self._parted))
            case Rationale() if event.text.strip():
                self.become(event_blocks.rationale(event))
            case Rationale():
                if self._thinking or self._answering:
                    self._column.drop()
                    self.over()

    def become(self, block: Block | None) -> None:
        """Put a block in the place of what is arriving."""
        self._column.settle(block)
        self.over()

    def over(self) -> None:
        """Take it that nothing arrives any more."""
        self._thinking = self._answering = False
        self._thought.clear()
        self._parted = ""

    def reason_ended(self, event: Reasoned | None = None) -> None:
        """Show what was reasoned, or what has arrived of it where nobody says what it came to."""
        if event is None and self._reasoned:
            event = Reasoned("".join(self._reasoned), self._reasons)
        if event is not None:
            self._reasoned.clear()
            self._told = 0
            self._column.settle(event_blocks.reasoned(event), _REASONING)

    def _take(self, event: TextArrived) -> None:
        """Show a piece; of several roles, whose it is; of what is reasoned how much, at ever longer intervals."""
        if event.channel == "reasoning":
            self._reasoned.append(event.text)
            self._reasons = event.role
            pieces = len(self._reasoned)
            if pieces - self._told > self._told // 16:
                self._told = pieces
                whole = Reasoned("".join(self._reasoned), event.role)
                self._column.open(event_blocks.reasoned(whole, arriving=True), _REASONING)
            return
        if self._told:
            self._told = 0
            self._column.open(event_blocks.reasoned(Reasoned("".join(self._reasoned), self._reasons)), _REASONING)
        if event.channel == "answer":
            if self._thinking and not self._begins:
                # the thought ends here; what it comes to is told after the answer has arrived
                self._thoughts += 1
                self._parted = f"thought {self._thoughts}"
                rows = rows_of("".join(self._thought).strip(), "thought")
                self._column.settle(Block(THINKING, "thought", rows, name=self._parted))
            self._column.stream(event.text, WRITING, "text")
            self._answering = True
        elif self._answering and not self._begins:
            return  # what a model says after its answer is told with the thought
        else:
            text = event.text
            if self._begins:
                start = "\n" if self._thinking else ""
                role = f"{event.role}  " if event.role in ROLES else ""
                text = f"{start}{role}{text.lstrip()}"
            self._thought.append(text)
            self._column.stream(text, THINKING, "thought")
        self._thinking = event.channel == "thought"
        self._begins = False


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
        self._graph_name = ""
        self._results: dict[CallRef, Block] = {}
        self._judged: dict[CallRef, bool | None] = {}
        self.marks: dict[CallRef, bool | None] = {}
        """What the person said of results; None when it was taken back."""

    def show(self, event: Event) -> None:
        """Tell one event."""
        match event:
            case TurnStarted():
                self.rest()
                self._turn, self._plan, self._noted = event.turn, None, ("", "")
                self._said, self._details = [], []
                self._arriving.become(event_blocks.question(event.question, attachments=event.attachments))
            case TurnFinished():
                self._stop()
                if self._answer is not None:
                    self._column.settle(event_blocks.answer(self._answer, event.status))
                self._close(event_blocks.footer(event, self._answer.role if self._answer else ""))
                self._names.clear()
                self._answer = None
            case ToolsOffered() | ToolRegistered(by="agent" | "first_call" | "upfront") | Rationale() if self._account(
                event
            ):
                pass
            case PlanChanged():  # a turn's first plan is told and, of later ones, only what they have come to forbid
                block = event_blocks.planned(event, self._plan)
                self._plan = event
                if block is not None and event.number <= 1:
                    share = planned_share(event)
                    self._keep(block, f"plan: {share} tools", (PlanChanged, share))
                elif block is not None:
                    self._column.insert(block)
            case Notice() | ErrorHappened() | BudgetSettled():
                self._trouble(event)
            case TextArrived() | BudgetHeld() | Reasoned() | Rationale() | StepProposed():
                self._arriving.hear(event)
            case GraphPlanned():  # drawn in the place of what was streamed
                self._end_graph()
                self._graphs += 1
                self._branching, self._graph_name = Branching(event), f"graph {self._graphs}"
                self._arriving.become(event_blocks.graph(self._branching, self._graph_name))
            case NodeChanged():
                if self._branching is not None:
                    self._branching = self._branching.heard(event)
                    self._column.redraw(event_blocks.graph(self._branching, self._graph_name))
            case CallJudged() | CallMarked():
                self._judge(event)
            case Answer():
                self._answer = event
                self._arriving.over()
                self._column.open(event_blocks.answer(event))
            case CallStarted() | CallProgressed() | CallFinished() | ApprovalWanted() | ApprovalGiven():
                self._call(event)
            case _:
                block = event_blocks.block_of(event)
                if isinstance(event, LimitHit) and block is not None:
                    self._close(block)
                elif block is not None:
                    self._column.insert(block)

    def rest(self) -> None:
        """Take it that nothing is under way, as after the events of a process that is gone."""
        self._stop()
        if self._answer is not None:
            self._column.settle()
            self._answer = None

    def _call(self, event: CallStarted | CallProgressed | CallFinished | ApprovalWanted | ApprovalGiven) -> None:
        """Say of a call that it waits, that it runs, or what it came to; of an approval that holds on, a line."""
        key, call = f"call {event.id}", self._calls.get(event.id)
        match event:
            case CallStarted():
                self._calls[event.id] = event
                self._column.settle()
                self._column.open(event_blocks.under_way(event), key)
            case CallProgressed():
                if call is not None:
                    self._column.open(event_blocks.under_way(call, progress=event.text or "running"), key)
            case CallFinished():
                block = event_blocks.call(self._calls.pop(event.id, None), event, self._denied.pop(event.id, None))
                if not event.refused:
                    ref = CallRef(self._turn, event.id, event.name)
                    block = self._results[ref] = replace(block, call=ref, name=f"result of {ref}")
                self._column.settle(block, key)
            case ApprovalWanted():
                self._names[event.id] = event.name
                if call is not None:
                    self._column.open(event_blocks.under_way(call, event_blocks.WAITS), key)
            case ApprovalGiven() if call is not None and event.decision == "no":
                self._denied[event.id] = event
            case ApprovalGiven():
                if call is not None:
                    self._column.open(event_blocks.under_way(call), key)
                if event.decision != "once" or event.arguments is not None:
                    name = self._names.get(event.id) or (call.name if call else "the call")
                    self._column.insert(event_blocks.approval(name, event))

    def _judge(self, event: CallJudged | CallMarked) -> None:
        """Show beside a result what the judge says or, where the person has spoken, what they say."""
        marked = isinstance(event, CallMarked)
        call = CallRef(event.turn if marked else self._turn, event.id, event.name)
        said = self.marks if marked else self._judged
        said[call] = event.helpful
        if (block := self._results.get(call)) is not None:
            verdict = event_blocks.verdict(self._judged.get(call), self.marks.get(call))
            self._column.redraw(replace(block, judged=True, verdict=verdict))

    def _account(self, event: ToolsOffered | ToolRegistered | Rationale) -> bool:
        """Take what is kept account of into one folded block of the turn; says whether it is that."""
        block = event_blocks.block_of(event)
        if isinstance(event, ToolsOffered) and block is not None:
            upfront = f", {len(event.upfront)} registered up front" if event.upfront else ""
            told = (ToolsOffered, (event.names, upfront))
            self._keep(block, f"{len(event.names)} tools by name{upfront}", told)
        elif isinstance(event, ToolRegistered) and block is not None:
            if event.by != "upfront":  # those are counted in the offer
                self._keep(block, f"registered {visible_line(event.name)}")
        elif isinstance(event, Rationale):
            if not _CHOSEN.fullmatch(event.text):
                return False
            self._column.drop()
            self._arriving.over()
            self._details.append(event.text)
        return True

    def _keep(self, block: Block, said: str, told: tuple[type[Event], object] | None = None) -> None:
        """Put a line on it into the turn's account, which shows where it is new or no panel tells it.

        It is not new where the same was `told` the last time.
        """
        self._details.append(block.text())
        if told is not None:
            kind, what = told
            before, self._known[kind] = self._known.get(kind), what
            if before == what and self._beside():
                return
        self._said.append(said)
        head = row(Piece(" · ".join(self._said), "muted"))  # all of it is folded away
        bodies = (Body("\n".join(self._details), 0, tone="muted", head=head),)
        account = Block("·", "muted", bodies=bodies, name=f"account {self._turn}")
        if len(self._said) == 1:
            self._column.insert(account)
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
            again = name and event.text.partition(_AGAIN)[0] == text.partition(_AGAIN)[0]
            if not again:
                self._notes += 1
                name = f"note {self._notes}"
            self._noted = event.text, name
            show = self._column.redraw if again else self._column.insert
            show(replace(event_blocks.notice(event.text), name=name))
        elif name and event.message in text:
            self._noted = "", ""
            self._arriving.reason_ended()
            self._column.redraw(replace(event_blocks.error(event), name=name))
            self._column.settle()
            self._arriving.over()
        else:
            self._close(event_blocks.error(event))

    def _end_graph(self) -> None:
        """Let no node stand as if it went on."""
        if self._branching is not None and not self._branching.settled:
            self._column.redraw(event_blocks.graph(self._branching.ended(), self._graph_name))
        self._branching = None

    def _stop(self) -> None:
        """Say of what nobody heard the end that it was stopped."""
        self._arriving.reason_ended()
        for started in self._calls.values():
            self._column.settle(event_blocks.under_way(started, event_blocks.STOPPED), f"call {started.id}")
        self._calls.clear()
        self._end_graph()

    def _close(self, block: Block) -> None:
        """Put a block below everything, which ends what is still open."""
        self._arriving.reason_ended()
        self._column.add(block)
        self._arriving.over()
