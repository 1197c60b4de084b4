"""What a mode is to the agent: it decides who thinks, and never sees how a call is carried out."""

from dataclasses import dataclass
from typing import Protocol

from ecoshell.catalog.presentation import Presentation
from ecoshell.events import Emit
from ecoshell.messages import Message, ToolDocument
from ecoshell.strategies.base import Path, Thought


@dataclass(frozen=True, slots=True)
class View:
    """Everything a mode may look at when it thinks."""

    path: Path
    opening: str
    """The question as the model reads it: with names, and with documents where the presentation puts them there."""
    history: tuple[Message, ...]
    """Earlier turns of the session, as messages."""
    known: tuple[str, ...]
    """Names of all tools that may be registered or called."""
    registered: tuple[ToolDocument, ...]
    """Documents this path may call, in the order of registration."""
    presentation: Presentation
    large: bool = False
    """Whether only a shortlist of names is shown and `tool_search` is offered."""


class Mode(Protocol):
    """Who thinks: one model, or several in roles. Raises BudgetError and ModelError."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str:
        """The name of the model that leads."""
        ...

    async def set_aside(self, view: View) -> None:
        """Hold the price of concluding from this view, in place of the hold before it."""
        ...

    async def think(self, view: View, emit: Emit) -> Thought:
        """The next thought on the view's path."""
        ...

    async def conclude(self, view: View, emit: Emit) -> str:
        """The answer from what there is, without further calls, paid from what was set aside."""
        ...

    async def release(self) -> None:
        """Give back what was set aside and not used."""
        ...
