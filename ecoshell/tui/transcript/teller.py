"""Tells a stream of events to a transcript: which block opens, which replaces it, and what is not worth a line."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
    BranchLeft,
    BudgetSettled,
    CallFinished,
    CallJudged,
    CallMarked,
    CallStarted,
    CommandRan,
    Compacted,
    CostChosen,
    CostWanted,
    ErrorHappened,
    Event,
    LimitChosen,
    LimitHit,
    Notice,
    PlanChanged,
    Rationale,
    StepProposed,
    TextArrived,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.blocks import Block, CallRef, Piece, Tone

THINKING, WRITING = "◇", "…"
"""Signs of a thought and of an answer that are still arriving."""


_PLAIN: Mapping[type[Event], Callable[[Any], Block | None]] = {
    ToolsOffered: lines.offered,
    BranchLeft: lines.branch_left,
    ToolRegistered: lines.registered,
    ToolUnregistered: lambda event: lines.unregistered(event.name),
    LimitHit: lines.limit,
    LimitChosen: lines.chosen,
    CostWanted: lines.cost_wanted,
    CostChosen: lines.cost_chosen,
    CommandRan: lines.command_ran,
    TurnUndone: lines.undone,
    Compacted: lines.compacted,
    Notice: lambda event: lines.notice(event.text),
    ErrorHappened: lines.error,
    BudgetSettled: lines.settled,
}
"""How events are told that need no other beside them."""


class Canvas(Protocol):
    """Where blocks go: finished ones, and below them open ones, each under a key (streamed text has none)."""

    def add(self, *blocks: Block) -> None:
        """Close what is open and put finished blocks below."""
        ...

    def insert(self, *blocks: Block) -> None:
        """Put finished blocks above what is open, which stays open."""
        ...

    def open(self, block: Block, key: str = "") -> None:
        """Put a block, in the place of what is open under its key, that is replaced when the key is settled."""
        ...

    def stream(self, text: str, sign: str, tone: Tone) -> None:
        """Add streamed text to the open end."""
        ...

    def settle(self, block: Block | None = None, key: str = "") -> None:
        """Close what is open under this key: as this block or, without one, as it stands."""
        ...

    def drop(self, key: str = "") -> None:
        """Take away what is open under this key."""
        ...

    def judge(self, call: CallRef, verdict: tuple[Piece, ...]) -> None:
        """Show what was thought of a call's result, beside it."""
        ...


class Teller:
    """Remembers just enough of a turn to show an event beside the one it belongs to."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._calls: dict[str, CallStarted] = {}
        self._names: dict[str, str] = {}
        self._arriving = False
        self._answer: Answer | None = None
        """An answer whose turn has not ended: how it ends decides its sign."""
        self._turn = 0
        self._plan: PlanChanged | None = None
        """Of this turn."""
        self._judged: dict[CallRef, bool | None] = {}
        self._marks: dict[CallRef, bool | None] = {}

    def mark_of(self, call: CallRef) -> bool | None:
        """What the person said of a call's result; None when nothing, or not any more."""
        return self._marks.get(call)

    def tell(self, event: Event) -> None:
        """Show one event."""
        match event:
            case TurnStarted():
                self._begin(event)
            case TextArrived():
                self._stream(event)
            case Rationale():
                self._thought(event)
            case StepProposed():
                self._replace(lines.proposed(event))
            case CallStarted() | CallFinished():
                self._call(event)
            case CallJudged() | CallMarked():
                self._judge(event)
            case PlanChanged():
                self._planned(event)
            case Answer():
                self._answer = event
                self._canvas.open(lines.answer(event))
            case TurnFinished():
                self._end(event)
            case ApprovalWanted():
                self._names[event.id] = event.name
            case _:
                block = self._plain(event)
                if block is not None:
                    self._add(block, closes=isinstance(event, (ErrorHappened, LimitHit)))

    def _plain(self, event: Event) -> Block | None:
        """The block of an event that stands for itself; None for what has its place elsewhere on the screen."""
        if isinstance(event, ApprovalGiven):
            call = self._calls.get(event.id)
            return lines.approval(self._names.get(event.id) or (call.name if call else "the call"), event)
        if isinstance(event, ToolRegistered) and event.by == "upfront":
            return None  # those are counted in the offer
        told = _PLAIN.get(type(event))
        return told(event) if told else None

    def _call(self, event: CallStarted | CallFinished) -> None:
        if isinstance(event, CallStarted):
            self._calls[event.id] = event
            self._canvas.settle()
            self._canvas.open(lines.call(event), _key(event.id))
            return
        block = lines.call(self._calls.pop(event.id, None), event)
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
        if block is not None:
            self._add(block)

    def _stream(self, event: TextArrived) -> None:
        self._arriving = True
        if event.channel == "answer":
            self._canvas.stream(event.text, WRITING, "text")
        else:
            self._canvas.stream(event.text, THINKING, "thought")

    def _thought(self, event: Rationale) -> None:
        if event.text.strip():
            self._replace(lines.rationale(event.text))
        elif self._arriving:
            self._canvas.drop()
            self._arriving = False

    def _begin(self, event: TurnStarted) -> None:
        if self._answer is not None:  # of a turn whose end was never recorded
            self._canvas.settle()
            self._answer = None
        self._turn, self._plan = event.turn, None
        self._replace(lines.question(event.question, attachments=event.attachments))

    def _end(self, event: TurnFinished) -> None:
        for started in self._calls.values():
            self._canvas.settle(lines.stopped(started), _key(started.id))
        if self._answer is not None:
            self._canvas.settle(lines.answer(self._answer, event.status))
        self._add(lines.footer(event), closes=True)
        self._calls.clear()
        self._names.clear()
        self._answer = None

    def _replace(self, block: Block) -> None:
        """Put the block in the place of what is arriving."""
        self._canvas.settle(block)
        self._arriving = False

    def _add(self, block: Block, *, closes: bool = False) -> None:
        """Put a block below what is done; what is still open stays open, unless this puts an end to it."""
        if not closes:
            self._canvas.insert(block)
            return
        self._canvas.add(block)
        self._arriving = False


def _key(call: str) -> str:
    return f"call {call}"
