"""What a conversation is equipped with; assembly fills it, and nothing else builds these parts."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from ecoshell.agent.approval import Approvals
from ecoshell.agent.mode import Mode
from ecoshell.agent.person import Person
from ecoshell.agent.plan.choices import Planning
from ecoshell.agent.purse import Purse
from ecoshell.agent.workbench import Workbench
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.presentation import Presentation
from ecoshell.catalog.search import Ranker
from ecoshell.events import Event
from ecoshell.messages import Message, ToolDocument
from ecoshell.models.base import Request
from ecoshell.models.listing import ModelRow
from ecoshell.models.metered import MeteredModel
from ecoshell.models.tokens import ByteCounter
from ecoshell.strategies.base import Way

MODES: Mapping[str, str] = {
    "single": "one model plans, calls tools and answers",
    "umi": "three roles: a planner decides, a caller calls, a summarizer answers",
}
"""Who may think, and what that is."""


class Log(Protocol):
    """Where events are kept, in order, before anybody sees them."""

    async def record(self, session: str, events: Sequence[Event]) -> None: ...

    def keep(self, session: str, events: Sequence[Event]) -> None:
        """Keep events for the next `record` to write first."""
        ...


@dataclass(frozen=True, slots=True)
class Cast:
    """A model and the mode it plays in; remembers the tokens of the documents and names it has counted."""

    model: MeteredModel
    mode: Mode
    counted: dict[tuple[str, bool], int] = field(default_factory=dict[tuple[str, bool], int], compare=False, repr=False)

    @property
    def exact(self) -> bool:
        """Whether counts come, at this moment, from the model's own tokenizer."""
        return self.model.size(Request((Message("user", ""),))).exact

    def tokens(self, text: str) -> int:
        """Tokens of a text for this model; may block while a tokenizer loads."""
        return self.model.count(text)

    def measure(self, document: ToolDocument, presentation: Presentation) -> tuple[int, bool]:
        """Tokens a document takes in this model's context, and whether the count is exact."""
        return self.sizes([presentation.shown(document)])[0], self.exact

    def sizes(self, texts: Iterable[str]) -> list[int]:
        """Tokens of texts that will be asked for again: documents and names."""
        exact = self.exact
        found: list[int] = []
        for text in texts:
            if (text, exact) not in self.counted:
                self.counted[text, exact] = self.model.count(text)
            found.append(self.counted[text, exact])
        return found

    def sizes_at_hand(self, texts: Iterable[str]) -> tuple[list[int], bool]:
        """The same for a look, and whether it is exact: estimated while counting would load a model."""
        if self.model.loaded:
            return self.sizes(texts), self.exact
        return [ByteCounter().count(text) for text in texts], False


class Caster(Protocol):
    """Makes models ready to play, and owns what those share."""

    def cast(self, name: str, mode: str = "single") -> Cast:
        """The model with this name in a mode; may block; raises ModelMissing, ModelBroken and UsageError."""
        ...

    def mode(self, model: MeteredModel, name: str) -> Mode:
        """The mode of this name for a model that is there already."""
        ...

    def models(self, barred: Mapping[str, str]) -> Sequence[ModelRow]:
        """Every model that could be cast; `barred` says of some why no call goes to them; may block."""
        ...

    def substitutes(self, present: str) -> Sequence[str]:
        """Names of models worth offering in the place of this one; may block."""
        ...

    async def aclose(self) -> None:
        """Let go of what the models shared."""
        ...


@dataclass(slots=True)
class Kit:
    """The parts conversations share, and the choices a person may change while they run."""

    catalog: Catalog
    ranker: Ranker
    purse: Purse
    log: Log
    approvals: Approvals
    strategies: Mapping[str, Way]
    caster: Caster
    cast: Cast
    person: Person
    bench: Workbench
    planning: Planning
    mode: str = "single"
    """One of MODES."""
    strategy: str = "react"
    registration: Literal["auto", "names", "all"] = "auto"
    presentation: Literal["auto", "grow", "stable"] = "auto"
    max_steps: int = 24
    ask_above_nano: int | None = None
    """A step that may cost more is asked about first; None is never."""
    compact_model: str | None = None
    """A model that may write the summary of /compact beside the session's."""
    named_models: Sequence[str] = ()
    """Models the settings speak of."""
    names_share: float = 0.1
    """The share of the context that names may take before only a shortlist is shown."""

    @property
    def model(self) -> str:
        return self.cast.model.traits.name

    @property
    def way(self) -> Way:
        """The strategy of the next turn."""
        return self.strategies[self.strategy]

    @property
    def registers_freely(self) -> bool:
        """Whether registering takes no thought of its own: a small model is asked one small thing at a time anyway."""
        return self.cast.model.traits.small

    async def switch(self, model: str) -> Mode:
        """Go on with another model from the next step; the old one stays when the new one cannot be had."""
        fresh = await asyncio.to_thread(self.caster.cast, model, self.mode)
        old, self.cast = self.cast, fresh
        await old.model.aclose()
        await fresh.model.warm()
        return fresh.mode

    def think_as(self, mode: str) -> None:
        """Go on in another of MODES from the next turn; the model stays as it is."""
        self.cast = replace(self.cast, mode=self.caster.mode(self.cast.model, mode))
        self.mode = mode

    async def aclose(self) -> None:
        """Let the model go, and what models share."""
        await self.cast.model.aclose()
        await self.caster.aclose()
