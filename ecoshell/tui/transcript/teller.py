"""Tells a stream of events to a transcript: which block opens, which replaces it, and what is not worth a line."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
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
    CostChosen,
    CostWanted,
    ErrorHappened,
    Event,
    GraphPlanned,
    LimitChosen,
    LimitHit,
    ModeChosen,
    NodeChanged,
    Notice,
    PlanChanged,
    PlanScored,
    Rationale,
    Reasoned,
    StepProposed,
    TextArrived,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TrustGiven,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.planning.plan_news import planned_share
from ecoshell.sessions.branching import Branching
from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.arriving import Arriving, OpenEnd
from ecoshell.tui.transcript.blocks import Block, CallRef, Piece
from ecoshell.tui.transcript.graph import graph
from ecoshell.untrusted import visible_line

_PLAIN: Mapping[type[Event], Callable[[Any], Block | None]] = {
    ModeChosen: lines.mode_chosen,
    ContextTold: lines.context_told,
    TrustGiven: lines.trust_given,
    BranchLeft: lines.branch_left,
    PlanScored: lines.plan_scored,
    ToolRegistered: lines.registered,
    ToolUnregistered: lambda event: lines.unregistered(event.name),
    LimitHit: lines.limit,
    LimitChosen: lines.chosen,
    CostWanted: lines.cost_wanted,
    CostChosen: lines.cost_chosen,
    CommandRan: lines.command_ran,
    TurnUndone: lines.undone,
    Compacted: lines.compacted,
    BudgetSettled: lines.settled,
}
"""How events are told that need no other beside them."""
_AGAIN = " It is asked again ("
"""What follows an error after which a model is asked once more, before the number of the attempt."""
_CHOSEN = re.compile(r"\S+ fits best\.")
"""What a mode that chooses tools step by step says of its choice."""


class Canvas(OpenEnd, Protocol):
    """Where blocks go: finished ones, and below them open ones, each under a key (streamed text has none)."""

    def add(self, *blocks: Block) -> None:
        """Close what is open and put finished blocks below."""
        ...

    def insert(self, *blocks: Block) -> None:
        """Put finished blocks above what is open, which stays open."""
        ...

    def judge(self, call: CallRef, verdict: tuple[Piece, ...]) -> None:
        """Show what was thought of a call's result, beside it."""
        ...


class Teller:
    """Remembers just enough of a turn to show an event beside the one it belongs to."""

    def __init__(self, canvas: Canvas, *, beside: Callable[[], bool] = lambda: False) -> None:
        """`beside` says whether panels tell what is kept account of: then only what is new of it gets a line."""
        self._canvas = canvas
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
        self._arriving = Arriving(canvas)
        self._answer: Answer | None = None
        """An answer whose turn has not ended: how it ends decides its sign."""
        self._turn = 0
        self._plan: PlanChanged | None = None
        """Of this turn."""
        self._branching: Branching | None = None
        """The plan of branches that is under way."""
        self._graphs = 0
        """Plans of branches so far."""
        self._judged: dict[CallRef, bool | None] = {}
        self._marks: dict[CallRef, bool | None] = {}

    def mark_of(self, call: CallRef) -> bool | None:
        """What the person said of a call's result; None when nothing, or not any more."""
        return self._marks.get(call)

    def tell(self, event: Event) -> None:
        """Show one event."""
        match event:
            case TurnStarted() | TurnFinished():
                self._turned(event)
            case ToolsOffered() | ToolRegistered(by="agent" | "upfront") | Rationale() if self._account(event):
                pass
            case Notice() | ErrorHappened():
                self._trouble(event)
            case TextArrived() | BudgetHeld() | Reasoned() | Rationale() | StepProposed():
                self._arriving.hear(event)
            case GraphPlanned() | NodeChanged():
                self._graph(event)
            case CallStarted() | CallFinished():
                self._call(event)
            case CallJudged() | CallMarked():
                self._judge(event)
            case PlanChanged():
                self._planned(event)
            case Answer():
                self._answer = event
                self._arriving.over()
                self._canvas.open(lines.answer(event))
            case ApprovalWanted() | ApprovalGiven():
                self._approval(event)
            case _:
                block = self._plain(event)
                if block is not None:
                    self._add(block, closes=isinstance(event, LimitHit))

    def rest(self) -> None:
        """Take it that nothing is under way, as after the events of a process that is gone."""
        self._stop()
        if self._answer is not None:
            self._canvas.settle()
            self._answer = None

    def _plain(self, event: Event) -> Block | None:
        """The block of an event that stands for itself; None for what has its place elsewhere on the screen."""
        told = _PLAIN.get(type(event))
        return told(event) if told else None

    def _approval(self, event: ApprovalWanted | ApprovalGiven) -> None:
        """Say of a call that it waits, that it runs, or in the end who has denied it; of what holds on, a line."""
        call = self._calls.get(event.id)
        if isinstance(event, ApprovalWanted):
            self._names[event.id] = event.name
            if call is not None:
                self._canvas.open(lines.under_way(call, waits=True), _key(event.id))
            return
        if call is not None and event.decision == "no":
            self._denied[event.id] = event
            return
        if call is not None:
            self._canvas.open(lines.under_way(call), _key(event.id))
        if event.decision != "once" or event.arguments is not None:
            self._add(lines.approval(self._names.get(event.id) or (call.name if call else "the call"), event))

    def _call(self, event: CallStarted | CallFinished) -> None:
        if isinstance(event, CallStarted):
            self._calls[event.id] = event
            self._canvas.settle()
            self._canvas.open(lines.under_way(event), _key(event.id))
            return
        block = lines.call(self._calls.pop(event.id, None), event, self._denied.pop(event.id, None))
        if not event.refused:
            block = replace(block, call=CallRef(self._turn, event.id, event.name))
        self._canvas.settle(block, _key(event.id))

    def _judge(self, event: CallJudged | CallMarked) -> None:
        """Show beside a result what the judge says or, where the person has spoken, what they say."""
        if isinstance(event, CallJudged):
            call = CallRef(self._turn, event.id, event.name)
            self._judged[call] = event.helpful
        else:
            call = CallRef(event.turn, event.id, event.name)
            self._marks[call] = event.helpful
        self._canvas.judge(call, lines.verdict(self._judged.get(call), self._marks.get(call)))

    def _planned(self, event: PlanChanged) -> None:
        """Tell of a turn's first plan, and of later ones only what they have come to forbid."""
        before, self._plan = self._plan, event
        block = lines.planned(event, before)
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
                    lines.offered(event), f"{said}{upfront}", new=self._new(ToolsOffered, (event.names, upfront))
                )
            case ToolRegistered():
                if event.by != "upfront":  # those are counted in the offer
                    self._keep(lines.registered(event), f"registered {visible_line(event.name)}", new=True)
            case Rationale():
                if not _CHOSEN.fullmatch(event.text):
                    return False
                self._canvas.drop()
                self._arriving.over()
                self._details.append(event.text)
        return True

    def _new(self, kind: type[Event], told: object) -> bool:
        """Whether something else was told of this the last time."""
        before, self._known[kind] = self._known.get(kind), told
        return before != told

    def _keep(self, block: Block, said: str, *, new: bool) -> None:
        """Put a line on it into the turn's account, which shows where it is new or no panel tells it."""
        self._details.append(block.plain)
        if not new and self._beside():
            return
        fresh = not self._said
        self._said.append(said)
        account = lines.book(f"account {self._turn}", self._said, self._details)
        if fresh:
            self._add(account)
        else:
            self._canvas.redraw(account)

    def _trouble(self, event: Notice | ErrorHappened) -> None:
        """Tell a note or an error once: not the same note again, and an error in the place of the note that has it."""
        text, name = self._noted
        if isinstance(event, Notice):
            if name and event.text.partition(_AGAIN)[0] == text.partition(_AGAIN)[0]:
                self._noted = event.text, name
                self._canvas.redraw(replace(lines.notice(event.text), name=name))
            else:
                self._notes += 1
                self._noted = event.text, f"note {self._notes}"
                self._add(replace(lines.notice(event.text), name=self._noted[1]))
        elif name and event.message in text:
            self._noted = "", ""
            self._arriving.stop_reasoning()
            self._canvas.redraw(replace(lines.error(event), name=name))
            self._canvas.settle()
            self._arriving.over()
        else:
            self._add(lines.error(event), closes=True)

    def _graph(self, event: GraphPlanned | NodeChanged) -> None:
        """Draw a plan of branches in the place of what was streamed, and again whenever a node of it has changed."""
        if isinstance(event, GraphPlanned):
            self._end_graph()
            self._branching, self._graphs = Branching(event), self._graphs + 1
            self._arriving.become(graph(self._branching, self._graph_name))
        elif self._branching is not None:
            self._branching = self._branching.heard(event)
            self._canvas.redraw(graph(self._branching, self._graph_name))

    def _end_graph(self) -> None:
        """Let no node stand as if it went on."""
        if self._branching is not None and not self._branching.settled:
            self._canvas.redraw(graph(self._branching.ended(), self._graph_name))
        self._branching = None

    @property
    def _graph_name(self) -> str:
        return f"graph {self._graphs}"

    def _turned(self, event: TurnStarted | TurnFinished) -> None:
        """A turn begins or ends."""
        if isinstance(event, TurnFinished):
            self._end(event)
            return
        self.rest()
        self._turn, self._plan, self._noted = event.turn, None, ("", "")
        self._said, self._details = [], []
        self._arriving.become(lines.question(event.question, attachments=event.attachments))

    def _end(self, event: TurnFinished) -> None:
        self._stop()
        if self._answer is not None:
            self._canvas.settle(lines.answer(self._answer, event.status))
        self._add(lines.footer(event, self._answer.role if self._answer else ""), closes=True)
        self._names.clear()
        self._answer = None

    def _stop(self) -> None:
        """Say of what nobody heard the end that it was stopped."""
        self._arriving.stop_reasoning()
        for started in self._calls.values():
            self._canvas.settle(lines.stopped(started), _key(started.id))
        self._calls.clear()
        self._end_graph()

    def _add(self, block: Block, *, closes: bool = False) -> None:
        """Put a block below what is done; what is still open stays open, unless this puts an end to it."""
        if not closes:
            self._canvas.insert(block)
            return
        self._arriving.stop_reasoning()
        self._canvas.add(block)
        self._arriving.over()


def _key(call: str) -> str:
    return f"call {call}"
