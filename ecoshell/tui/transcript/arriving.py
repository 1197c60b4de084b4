"""Text that arrives piece by piece, until what it comes to is told whole and takes its place."""

from dataclasses import replace
from typing import Protocol

from ecoshell.events import BudgetHeld, Rationale, Reasoned, StepProposed, TextArrived
from ecoshell.options import ROLES
from ecoshell.tui.transcript import lines
from ecoshell.tui.transcript.blocks import Block, Tone, rows_of

THINKING, WRITING = "◦", "…"
"""Signs of a thought and of an answer that are still arriving."""
_REASONING = "reasoning"
"""The key of what is being reasoned."""


class OpenEnd(Protocol):
    """Where text arrives."""

    def stream(self, text: str, sign: str, tone: Tone) -> None:
        """Add streamed text to the open end."""
        ...

    def settle(self, block: Block | None = None, key: str = "") -> None:
        """Close what is open under this key: as this block or, without one, as it stands."""
        ...

    def open(self, block: Block, key: str = "") -> None:
        """Put a block, in the place of what is open under its key."""
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
        self._anything = self._thinking = self._answering = False
        """Whether something has arrived, and whether it is a thought or an answer, that is not whole yet."""
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
        """Who does."""

    def hear(self, event: BudgetHeld | TextArrived | Reasoned | Rationale | StepProposed) -> None:
        """Show what arrives, and in its place what it came to."""
        match event:
            case BudgetHeld():
                self._begins = True
                if self._answering:  # it came to nothing: the model is asked again
                    self._end.drop()
                    self.over()
            case Reasoned():
                self._forget_reasoning()
                self._end.settle(lines.reasoned(event), _REASONING)
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
        self._anything = self._thinking = self._answering = False
        self._thought.clear()
        self._parted = ""

    def stop_reasoning(self) -> None:
        """Take it that no more is reasoned, and nobody says what it came to."""
        if self._reasoned:
            event = Reasoned("".join(self._reasoned), self._reasons)
            self._forget_reasoning()
            self._end.settle(lines.reasoned(event), _REASONING)

    def _forget_reasoning(self) -> None:
        self._reasoned.clear()
        self._told = 0

    def _take(self, event: TextArrived) -> None:
        """Show a piece; of several roles, whose it is."""
        if event.channel == "reasoning":
            self._reason(event)
            return
        if self._told:
            self._told = 0
            self._end.open(lines.reasoned(Reasoned("".join(self._reasoned), self._reasons)), _REASONING)
        match event.channel:
            case "answer":
                if self._thinking and not self._begins:
                    self._part()
                self._end.stream(event.text, WRITING, "text")
                self._answering = True
            case "thought":
                if self._answering and not self._begins:
                    return  # what a model says after its answer is told with the thought
                self._think_aloud(event)
        self._thinking = event.channel == "thought"
        self._anything, self._begins = True, False

    def _think_aloud(self, event: TextArrived) -> None:
        text = event.text
        if self._begins:
            start = "\n" if self._thinking else ""
            role = f"{event.role}  " if event.role in ROLES else ""
            text = f"{start}{role}{text.lstrip()}"
        self._thought.append(text)
        self._end.stream(text, THINKING, "thought")

    def _reason(self, event: TextArrived) -> None:
        """Say how much is reasoned by now, at ever longer intervals."""
        self._reasoned.append(event.text)
        self._reasons = event.role
        pieces = len(self._reasoned)
        if pieces - self._told > self._told // 16:
            self._told = pieces
            whole = Reasoned("".join(self._reasoned), event.role)
            self._end.open(lines.reasoned(whole, arriving=True), _REASONING)

    def _part(self) -> None:
        """Close a thought whose reply goes on with the answer; what it comes to is told after that has arrived."""
        self._thoughts += 1
        self._parted = f"thought {self._thoughts}"
        rows = rows_of("".join(self._thought).strip(), "thought")
        self._end.settle(Block(THINKING, "thought", rows, name=self._parted))

    def _think(self, event: Rationale) -> None:
        """Put a whole thought in the place of what has arrived of it."""
        if self._parted:
            if event.text.strip():
                self._end.redraw(replace(lines.rationale(event), name=self._parted))
        elif event.text.strip():
            self.become(lines.rationale(event))
        elif self._anything:
            self._end.drop()
            self.over()
