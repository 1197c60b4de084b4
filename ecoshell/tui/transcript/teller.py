"""Tells a stream of events to a transcript: which block opens, which replaces it, and what is not worth a line."""

from typing import Protocol

from ecoshell.events import (
    Answer,
    ApprovalGiven,
    ApprovalWanted,
    BudgetSettled,
    CallFinished,
    CallStarted,
    ErrorHappened,
    Event,
    LimitChosen,
    LimitHit,
    Notice,
    Rationale,
    TextArrived,
    ToolRegistered,
    ToolsOffered,
    ToolUnregistered,
    TurnFinished,
    TurnStarted,
)
from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.blocks import Block, Tone

THINKING, WRITING = "◇", "…"
"""Signs of a thought and of an answer that are still arriving."""


class Canvas(Protocol):
    """Where blocks go: finished ones, and at most one open end."""

    def add(self, *blocks: Block) -> None:
        """Close the open end and put finished blocks below."""
        ...

    def insert(self, *blocks: Block) -> None:
        """Put finished blocks above the open end, which stays open."""
        ...

    def open(self, block: Block) -> None:
        """Put a block that is replaced when it is settled."""
        ...

    def stream(self, text: str, sign: str, tone: Tone) -> None:
        """Add streamed text to the open end."""
        ...

    def settle(self, block: Block | None = None) -> None:
        """Close the open end: as this block or, without one, as it stands."""
        ...

    def drop(self) -> None:
        """Take the open end away."""
        ...


class Teller:
    """Remembers just enough of a turn to show an event beside the one it belongs to."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._calls: dict[str, CallStarted] = {}
        self._names: dict[str, str] = {}
        self._arriving = False
        self._running = ""
        """The call whose block is the open end."""

    def tell(self, event: Event) -> None:
        """Show one event."""
        match event:
            case TurnStarted():
                self._replace(lines.question(event.question))
            case TextArrived():
                self._stream(event)
            case Rationale():
                self._thought(event)
            case CallStarted():
                self._calls[event.id] = event
                self._running = event.id
                self._canvas.open(lines.call(event))
            case CallFinished():
                self._finish(event)
            case Answer():
                self._replace(lines.answer(event))
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
        block: Block | None = None
        match event:
            case ToolsOffered():
                block = lines.offered(event)
            case ToolRegistered() if event.by != "upfront":  # those are counted in the offer
                block = lines.registered(event)
            case ToolUnregistered():
                block = lines.unregistered(event.name)
            case ApprovalGiven():
                call = self._calls.get(event.id)
                block = lines.approval(self._names.get(event.id) or (call.name if call else "the call"), event)
            case LimitHit():
                block = lines.limit(event)
            case LimitChosen():
                block = lines.chosen(event)
            case Notice():
                block = lines.notice(event.text)
            case ErrorHappened():
                block = lines.error(event)
            case BudgetSettled():
                block = lines.settled(event)
            case _:
                pass
        return block

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

    def _finish(self, event: CallFinished) -> None:
        block = lines.call(self._calls.pop(event.id, None), event)
        if self._running == event.id:
            self._replace(block)
        else:
            self._add(block)

    def _end(self, event: TurnFinished) -> None:
        self._add(lines.footer(event), closes=True)
        self._calls.clear()
        self._names.clear()

    def _replace(self, block: Block) -> None:
        """Put the block in the place of what is arriving or running."""
        self._canvas.settle(block)
        self._arriving, self._running = False, ""

    def _add(self, block: Block, *, closes: bool = False) -> None:
        """Put a block below what is done; what is still open stays open, unless this puts an end to it."""
        if not closes:
            self._canvas.insert(block)
            return
        self._canvas.add(block)
        self._arriving, self._running = False, ""
