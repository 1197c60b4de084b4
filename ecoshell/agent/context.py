"""What stands still during a turn, and what a mode sees of it from a path."""

from dataclasses import dataclass

from ecoshell.agent.mode import View
from ecoshell.agent.planning import PlanPolicy
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.presentation import Presentation
from ecoshell.catalog.skills import SkillLibrary
from ecoshell.messages import Message
from ecoshell.strategies.base import Path, Tried


@dataclass(frozen=True, slots=True)
class TurnContext:
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
    plan: PlanPolicy

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
