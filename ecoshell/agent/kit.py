"""What a conversation is equipped with; assembly fills it, and nothing else builds these parts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ecoshell.agent.approval import Approvals
from ecoshell.agent.mode import Mode
from ecoshell.agent.person import Person
from ecoshell.agent.purse import Purse
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.search import Ranker
from ecoshell.events import Event
from ecoshell.messages import Message, ToolDocument
from ecoshell.models.base import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.strategies.base import Strategy


class Log(Protocol):
    """Where events are kept, in order, before anybody sees them."""

    async def record(self, session: str, events: Sequence[Event]) -> None: ...


@dataclass(frozen=True, slots=True)
class Cast:
    """A model and the mode it plays in."""

    model: MeteredModel
    mode: Mode

    def measure(self, document: ToolDocument) -> tuple[int, bool]:
        """Tokens a document takes in this model's context, and whether the count is exact."""
        return self.tokens(document.as_text())

    def tokens(self, text: str) -> tuple[int, bool]:
        """Tokens of a text for this model, and whether the count is exact."""
        return self.model.count(text), self.model.size(Request((Message("user", text),))).exact


@dataclass(slots=True)
class Kit:
    """The parts conversations share, and the choices a person may change while they run."""

    catalog: Catalog
    ranker: Ranker
    purse: Purse
    log: Log
    approvals: Approvals
    strategies: Mapping[str, Strategy]
    make_cast: Callable[[str], Cast]
    """Makes a model, by name, ready to play; may block; raises ModelMissing and UsageError."""
    cast: Cast
    person: Person
    strategy: str = "react"
    registration: str = "auto"
    presentation: str = "auto"
    max_steps: int = 24
    names_share: float = 0.1
    """The share of the context that names may take before only a shortlist is shown."""

    @property
    def model(self) -> str:
        return self.cast.model.traits.name

    async def switch(self, model: str) -> Mode:
        """Go on with another model from the next step; the old one stays when the new one cannot be had."""
        fresh = await asyncio.to_thread(self.make_cast, model)
        old, self.cast = self.cast, fresh
        await old.model.aclose()
        return fresh.mode
