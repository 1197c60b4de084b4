"""What a mode is to the agent: it decides who thinks, and never sees how a call is carried out."""

from dataclasses import dataclass
from typing import Protocol

from ecoshell.budget.holds import Hold
from ecoshell.catalog.presentation import Presentation
from ecoshell.events import Emit
from ecoshell.messages import Message, ToolDocument
from ecoshell.models.base import Request
from ecoshell.strategies.base import Path, Thought, Tried


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
    along: str = ""
    """What goes along with the question, which the opening holds too: attachments, and what commands put out."""
    forbidden: frozenset[str] = frozenset()
    """Names that the plan does not allow now."""
    closed: bool = False
    """Whether no tool of the catalog may be used any more, so that only answering is left."""
    tried: tuple[Tried, ...] = ()
    """Next steps from here that are known already; the thought is to be another."""

    @property
    def usable(self) -> tuple[str, ...]:
        """Names of tools that may be registered or called now."""
        return tuple(name for name in self.known if name not in self.forbidden)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The calls the next thought may take, for estimates: nothing in them is counted yet, or cut to fit."""

    steps: tuple[Request, ...]
    """Each is reserved on its own."""
    conclusion: Request | None = None
    """What is set aside beside them."""
    slack: int = 0
    """Tokens by which the conclusion's prompt may grow until it is asked for."""


class Mode(Protocol):
    """Who thinks: one model, or several in roles. Raises BudgetError and ModelError."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> str:
        """The role that thinks each step."""
        ...

    @property
    def model(self) -> str:
        """The name of the model that leads."""
        ...

    @property
    def aside(self) -> Hold | None:
        """What is set aside at this moment."""
        ...

    def foresee(self, view: View) -> Foreseen:
        """What thinking on this view may ask of the model that leads; counts nothing, so it loads nothing."""
        ...

    async def set_aside(self, view: View) -> None:
        """Hold the price of concluding from this view, in place of the hold before it."""
        ...

    async def think(self, view: View, emit: Emit) -> Thought:
        """The next thought on the view's path."""
        ...

    async def prefer(self, view: View, one: Thought, other: Thought, emit: Emit) -> Thought | None:
        """The better of two thoughts on the view's path, `one` shown first; None when it cannot be told."""
        ...

    async def conclude(self, view: View, emit: Emit) -> str:
        """The answer from what there is, without further calls, paid from what was set aside."""
        ...

    async def release(self) -> None:
        """Give back what was set aside and not used."""
        ...
