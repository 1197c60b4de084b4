"""Text that arrives piece by piece, until what it comes to is told whole and takes its place."""

from typing import Protocol

from ecoshell.events import BudgetHeld, Rationale, StepProposed, TextArrived
from ecoshell.options import ROLES
from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.blocks import Block, Tone

THINKING, WRITING = "◇", "…"
"""Signs of a thought and of an answer that are still arriving."""


class OpenEnd(Protocol):
    """Where text arrives."""

    def stream(self, text: str, sign: str, tone: Tone) -> None:
        """Add streamed text to the open end."""
        ...

    def settle(self, block: Block | None = None, key: str = "") -> None:
        """Close what is open under this key: as this block or, without one, as it stands."""
        ...

    def drop(self, key: str = "") -> None:
        """Take away what is open under this key."""
        ...


class Arriving:
    """The open end of a transcript. What is thought in one step is one block, with each reply on a line of its own."""

    def __init__(self, end: OpenEnd) -> None:
        self._end = end
        self._begins = True
        """Whether the next piece is the first of a reply."""
        self._anything = self._thinking = False
        """Whether something has arrived, and whether a thought has, that is not whole yet."""

    def hear(self, event: BudgetHeld | TextArrived | Rationale | StepProposed) -> None:
        """Show what arrives, and in its place what it came to."""
        match event:
            case BudgetHeld():
                self._begins = True
            case TextArrived():
                self._take(event)
            case Rationale():
                self._think(event)
            case StepProposed():
                self.become(lines.proposed(event))

    def become(self, block: Block) -> None:
        """Put a block in the place of what is arriving."""
        self._end.settle(block)
        self.over()

    def over(self) -> None:
        """Take it that nothing arrives any more."""
        self._anything = self._thinking = False

    def _take(self, event: TextArrived) -> None:
        """Show a piece; of several roles, whose it is."""
        if event.channel == "answer":
            self._end.stream(event.text, WRITING, "text")
        else:
            text = event.text
            if self._begins:
                start = "\n" if self._thinking else ""
                role = f"{event.role}  " if event.role in ROLES else ""
                text = f"{start}{role}{text.lstrip()}"
            self._end.stream(text, THINKING, "thought")
        self._thinking = event.channel != "answer"
        self._anything, self._begins = True, False

    def _think(self, event: Rationale) -> None:
        """Put a whole thought in the place of what has arrived of it."""
        if event.text.strip():
            self.become(lines.rationale(event))
        elif self._anything:
            self._end.drop()
            self.over()
