"""Showing arriving text at the end of the transcript: reasoning, thoughts and the answer."""

from dataclasses import dataclass, field, replace

from ecoshell.events import BudgetHeld, Rationale, Reasoned, StepProposed, TextArrived
from ecoshell.options import ROLES
from ecoshell.tui.transcript import event_blocks
from ecoshell.tui.transcript.blocks import Block, rows_of
from ecoshell.tui.transcript.column import BlockColumn

THINKING, WRITING = "◦", "…"
"""Signs of an arriving thought and of an arriving answer."""
_REASONING = "reasoning"


@dataclass(slots=True, eq=False, repr=False)
class StreamPresenter:
    """The streamed end of a transcript. The thoughts of one step share a block, with a line for each reply."""

    _column: BlockColumn
    _is_first_piece: bool = True
    """Whether the next piece starts a reply."""
    _thinking: bool = False
    _answering: bool = False
    _thought: list[str] = field(default_factory=list[str])
    _thought_name: str = ""
    """The block of a thought that the same reply's answer already follows."""
    _thoughts: int = 0
    """The number of such thoughts."""
    _reasoned: list[str] = field(default_factory=list[str])
    _drawn_pieces: int = 0
    """Pieces of the reasoning included in its last update."""
    _reasoning_role: str = ""

    def handle(self, event: BudgetHeld | TextArrived | Reasoned | Rationale | StepProposed) -> None:
        """Show arriving text, and replace it by the finished thought or step."""
        match event:
            case BudgetHeld():
                self._is_first_piece = True
                if self._answering:  # the reply failed and is retried
                    self._column.drop()
                    self.reset()
            case Reasoned():
                self.end_reasoning(event)
            case TextArrived():
                self._take(event)
            case StepProposed():
                self.settle(event_blocks.block_of(event))
            case Rationale() if self._thought_name:
                if event.text.strip():
                    self._column.redraw(
                        replace(event_blocks.rationale(event), name=self._thought_name)
                    )
            case Rationale() if event.text.strip():
                self.settle(event_blocks.rationale(event))
            case Rationale():
                if self._thinking or self._answering:
                    self._column.drop()
                    self.reset()

    def settle(self, block: Block | None) -> None:
        """Replace the arriving text by a finished block."""
        self._column.settle(block)
        self.reset()

    def reset(self) -> None:
        """Forget the arriving text."""
        self._thinking = self._answering = False
        self._thought.clear()
        self._thought_name = ""

    def end_reasoning(self, event: Reasoned | None = None) -> None:
        """Show the finished reasoning; without an event, as much of it as has arrived."""
        if event is None and self._reasoned:
            event = Reasoned("".join(self._reasoned), self._reasoning_role)
        if event is not None:
            self._reasoned.clear()
            self._drawn_pieces = 0
            self._column.settle(event_blocks.reasoning(event), _REASONING)

    def _take(self, event: TextArrived) -> None:
        """Show a piece of text with its role; of reasoning show the length, at growing intervals."""
        if event.channel == "reasoning":
            self._reasoned.append(event.text)
            self._reasoning_role = event.role
            pieces = len(self._reasoned)
            if pieces - self._drawn_pieces > self._drawn_pieces // 16:
                self._drawn_pieces = pieces
                reasoned = Reasoned("".join(self._reasoned), event.role)
                self._column.open(event_blocks.reasoning(reasoned, arriving=True), _REASONING)
            return
        if self._drawn_pieces:
            self._drawn_pieces = 0
            reasoned = Reasoned("".join(self._reasoned), self._reasoning_role)
            self._column.open(event_blocks.reasoning(reasoned), _REASONING)
        if event.channel == "answer":
            if self._thinking and not self._is_first_piece:
                # the thought ends here; its Rationale follows after the answer
                self._thoughts += 1
                self._thought_name = f"thought {self._thoughts}"
                rows = rows_of("".join(self._thought).strip(), "thought")
                self._column.settle(Block(THINKING, "thought", rows, name=self._thought_name))
            self._column.stream(event.text, WRITING, "text")
            self._answering = True
        elif self._answering and not self._is_first_piece:
            return  # text after the answer is part of the Rationale
        else:
            text = event.text
            if self._is_first_piece:
                start = "\n" if self._thinking else ""
                role = f"{event.role}  " if event.role in ROLES else ""
                text = f"{start}{role}{text.lstrip()}"
            self._thought.append(text)
            self._column.stream(text, THINKING, "thought")
        self._thinking = event.channel == "thought"
        self._is_first_piece = False
