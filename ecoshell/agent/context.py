"""What stands still during a turn, and what a mode sees of it from a path."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ecoshell.agent.mode import View
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.presentation import Presentation
from ecoshell.catalog.skills import SkillLibrary
from ecoshell.events import Emit
from ecoshell.messages import Message
from ecoshell.strategies.base import Path, Tried


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one use of a tool is expected to take; unknown is None."""

    price_nano: int | None = None
    seconds: float | None = None


class Steering(Protocol):
    """The plan of one turn, as the driver and the guards see it."""

    @property
    def forbidden(self) -> Mapping[str, str]:
        """Tools that may not be used now, whoever asks, each with the reason in a word: budget, quota or blacklist."""
        ...

    def refusal(self, tool: str) -> str:
        """Why a call of the tool that is asked for would be refused now, and what is affordable instead.

        Empty where it would not. May take a moment.
        """
        ...

    def allows(self, tool: str) -> int | None:
        """How many more uses of a tool are allowed now; None where nothing limits them."""
        ...

    def expected(self, tool: str) -> Estimate:
        """What one use of a tool is expected to take; may block."""
        ...

    async def refresh(self, emit: Emit) -> None:
        """Plan anew if something has changed since."""
        ...


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands still during a turn: the opening, what came before, and what is known."""

    opening: str
    history: tuple[Message, ...]
    catalog: Catalog
    names: tuple[str, ...]
    base: SkillLibrary
    """What was registered before the turn's first step."""
    presentation: Presentation
    large: bool
    along: str
    """What goes along with the question: attachments, and what commands put out."""
    searching: bool
    """Whether the strategy goes back and tries another way."""
    contexts: tuple[str, ...]
    """What questions of the history have at their head of where the agent works."""
    costs: str
    """What tools cost, as a text for whoever plans branches; empty where nothing is told of it."""
    plan: Steering

    def registered(self, path: Path) -> tuple[str, ...]:
        """Names the path may call, in the order of registration."""
        names = dict.fromkeys((*self.base.names, *path.registered))
        return tuple(name for name in names if name in self.catalog)

    def view(self, path: Path, tried: tuple[Tried, ...] = ()) -> View:
        """What a mode sees on this path, and beside siblings that were tried."""
        documents = tuple(self.catalog.document(name) for name in self.registered(path))
        forbidden = frozenset(self.plan.forbidden)
        return View(
            path=path,
            opening=self.opening,
            history=self.history,
            known=self.names,
            registered=documents,
            presentation=self.presentation,
            large=self.large,
            along=self.along,
            contexts=self.contexts,
            forbidden=forbidden,
            closed=bool(forbidden) and len(forbidden) == len(self.catalog),
            searching=self.searching,
            tried=tried,
        )
