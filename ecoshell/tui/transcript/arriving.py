"""Text that arrives piece by piece, until what it comes to is told whole and takes its place."""

from dataclasses import replace
from typing import Protocol

from ecoshell.events import BudgetHeld, Rationale, StepProposed, TextArrived
from ecoshell.options import ROLES
from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.blocks import Block, Tone, rows_of

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

    def redraw(self, block: Block) -> None:
        """Put a block in the place of the one of its name, which may be finished."""
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
        self._anything = False
        self._thought: list[str] = []
        """What has arrived of thoughts that are not whole yet."""
        self._above = ""
        """The name of the block of such a thought, once an answer arrives below it."""
        self._count = 0

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
        self._anything, self._above = False, ""
        self._thought.clear()

    def _take(self, event: TextArrived) -> None:
        """Show a piece; of several roles, whose it is."""
        if event.channel == "answer":
            self._leave_thought()
            self._end.stream(event.text, WRITING, "text")
        else:
            text = event.text
            if self._begins:
                start = "\n" if self._thought else ""
                role = f"{event.role}  " if event.role in ROLES else ""
                text = f"{start}{role}{text.lstrip()}"
            self._end.stream(text, THINKING, "thought")
            self._thought.append(text)
            self._above = ""
        self._anything, self._begins = True, False

    def _think(self, event: Rationale) -> None:
        """Put a whole thought in the place of what has arrived of it."""
        if self._above:
            if event.text.strip():
                self._end.redraw(replace(lines.rationale(event), name=self._above))
        elif event.text.strip():
            self.become(lines.rationale(event))
        elif self._anything:
            self._end.drop()
            self.over()

    def _leave_thought(self) -> None:
        """Let a thought stand, to be told whole while an answer arrives below it."""
        if self._thought:
            self._count += 1
            self._above = f"thought {self._count}"
            rows = rows_of("".join(self._thought).strip(), "thought")
            self._end.settle(Block(THINKING, "thought", rows, name=self._above))
            self._thought.clear()
