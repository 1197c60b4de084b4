"""What a session works with, what a person may change in it, and who thinks."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from ecoshell.agent.approval import Approvals
from ecoshell.agent.environment import Environment
from ecoshell.agent.mode import Mode
from ecoshell.agent.person import Person
from ecoshell.agent.plan.choices import Planning
from ecoshell.agent.workspace import Workbench
from ecoshell.budget.caps import CapState, Scope
from ecoshell.budget.gate import Account, Gate
from ecoshell.budget.money import Amount
from ecoshell.budget.price import Price
from ecoshell.catalog.catalog import Catalog
from ecoshell.catalog.presentation import Presentation
from ecoshell.catalog.search import Ranker
from ecoshell.events import Event, ModeChosen
from ecoshell.messages import Message, ToolDocument
from ecoshell.models.base import Request
from ecoshell.models.listing import ModelRow
from ecoshell.models.metered import MeteredModel
from ecoshell.models.tokens import ByteCounter
from ecoshell.options import ALL_ONE, ROLES, RoleModels, RoleName
from ecoshell.strategies.base import Way

MODES: Mapping[str, str] = {
    "single": "one model plans, calls tools and answers",
    "umi": "three roles: a planner decides, a caller calls, a summarizer answers",
    "auto": "single or umi, chosen for each question by experience; the other where one gives up",
}
"""Who may think, and what that is."""
AUTO = "auto"
"""The mode that leaves it to experience; who thinks at a moment is in `Kit.cast`."""
_PROMPT = 4_000
"""Tokens of a usual prompt, by which prices are compared."""


class Purse:
    """Knows whose money is being spent: the session and the turn of the moment."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self._session = ""
        self._turn = 0

    def enter(self, session: str, turn: int) -> None:
        """From now on calls are this session's, in this turn."""
        self._session, self._turn = session, turn

    def account(self) -> Account:
        """Whose money a call made now is; role, model and purpose are for the caller to fill in."""
        return Account(session=self._session, turn=self._turn, role="", model="", purpose="")

    async def caps(self) -> tuple[CapState, ...]:
        """The caps over the turn of the moment."""
        return await self.gate.caps(self.account())

    async def caps_at_rest(self) -> tuple[CapState, ...]:
        """The same, without what calls hold that are under way, most of which will be free again."""
        return await self.gate.caps_at_rest(self.account())

    async def set_cap(self, scope: Scope, amount: Amount | None) -> None:
        """Set a cap, or remove the scope's with None."""
        await self.gate.set_cap(self.account(), scope, amount)

    async def require(self, nano: int) -> None:
        """Raise LimitReached when a cap does not leave this much now; nothing is reserved by asking."""
        await self.gate.require(self.account(), nano)

    async def charge_tool(self, tool: str, nano: int) -> None:
        """Pay for one use of a tool; raises LimitReached."""
        await self.gate.charge_tool(self.account(), tool, nano)


class Log(Protocol):
    """Where events are kept, in order, before anybody sees them and before what they announce is done."""

    async def record(self, session: str, events: Sequence[Event]) -> None: ...

    def keep(self, session: str, events: Sequence[Event]) -> None:
        """Keep events for the next `record` or `flush` to write."""
        ...

    async def flush(self) -> None:
        """Return when what was kept is on disk; raises StoreError when it cannot be written."""
        ...


@dataclass(frozen=True, slots=True)
class Cast:
    """Models and the mode they play in; remembers the tokens of the documents and names that were counted."""

    model: MeteredModel
    """The one that leads; it is by its tokenizer that documents are counted."""
    mode: Mode
    players: Mapping[RoleName, MeteredModel] = field(default_factory=dict[RoleName, MeteredModel])
    """The model of each role, where the mode has several; roles of one model share the object."""
    counted: dict[tuple[str, bool], int] = field(default_factory=dict[tuple[str, bool], int], compare=False, repr=False)

    @property
    def models(self) -> tuple[MeteredModel, ...]:
        """Every model that plays, each once, the leading one first."""
        return tuple({id(model): model for model in (self.model, *self.players.values())}.values())

    @property
    def caller(self) -> MeteredModel:
        """The model that makes the calls."""
        return self.players.get("caller", self.model)

    @property
    def seats(self) -> tuple[tuple[str, str], ...]:
        """Each role and the name of the model that plays it."""
        alone = ((self.mode.role, self.model.traits.name),)
        return tuple((role, model.traits.name) for role, model in self.players.items()) or alone

    @property
    def context(self) -> int | None:
        """The smallest context among those that read everything, as far as contexts are known."""
        known = [model.traits.context for model in self._readers if model.traits.context is not None]
        return min(known, default=None)

    @property
    def price(self) -> Price | None:
        """The dearest price of a prompt among those that read everything; None where one is unknown."""
        prices = [model.traits.price for model in self._readers]
        known = [price for price in prices if price is not None]
        return max(known, key=lambda price: price.worst(_PROMPT, 0)) if len(known) == len(prices) else None

    @property
    def _readers(self) -> tuple[MeteredModel, ...]:
        """A small model that does not lead is told only what it needs; all others read names and documents."""
        return (self.model, *(model for model in self.models[1:] if not model.traits.small))

    @property
    def registers_freely(self) -> bool:
        """Whether registering takes no thought of its own: a small model is asked one small thing at a time anyway."""
        return len(self.models) == 1 and self.model.traits.small

    @property
    def calls_undeclared(self) -> bool:
        """Whether all who read everything may call a tool that their array does not hold."""
        return all(model.traits.calls_undeclared for model in self._readers)

    async def warm(self) -> None:
        """Have models that are slow to load begin to; returns at once."""
        for model in self.models:
            await model.warm()

    async def aclose(self) -> None:
        """Let the models go."""
        for model in self.models:
            await model.aclose()

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

    def cast(
        self, name: str, mode: str = "single", *, roles: RoleModels = ALL_ONE, at_hand: Iterable[MeteredModel] = ()
    ) -> Cast:
        """The model with this name in a mode, where `roles` have models of their own.

        A model is made once, and not at all where one of its name is `at_hand`. May block; raises ModelMissing,
        ModelBroken and UsageError.
        """
        ...

    def models(self, barred: Mapping[str, str]) -> Sequence[ModelRow]:
        """Every model that could be cast; `barred` says of some why no call goes to them; may block."""
        ...

    def substitutes(self, present: str) -> Sequence[str]:
        """Names of models worth offering in the place of this one; may block."""
        ...

    def introduction(self, present: str) -> str:
        """Which model answers, and how to get a better one, in a sentence or two; may block."""
        ...

    def keep_key(self, provider: str, key: str) -> None:
        """Use a provider's key from now on and store it; may block; raises UsageError and StoreError."""
        ...

    def ask_servers(self, ask: bool) -> None:
        """Say whether servers of this machine may be asked for their models from now on."""
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
    environment: Environment
    planning: Planning
    session_model: str
    """The name of the model of every role that names none; it leads where the planner names none."""
    mode: str = "single"
    """One of MODES."""
    chosen: ModeChosen | None = None
    """What AUTO chose last, if anything."""
    idle: tuple[MeteredModel, ...] = ()
    """Models of the mode that does not think now and that AUTO may come back to."""
    roles: RoleModels = ALL_ONE
    """The models that roles of the mode umi have of their own."""
    presets: Mapping[str, RoleModels] = field(default_factory=dict[str, RoleModels])
    """Models of roles that the settings give together, by the name of the whole."""
    strategy: str = "react"
    registration: Literal["auto", "names", "all", "all_text"] = "auto"
    presentation: Literal["auto", "grow", "stable"] = "auto"
    max_steps: int = 24
    ask_above_nano: int | None = None
    """A step that may cost more is asked about first; None is never."""
    compact_model: str | None = None
    """A model that writes the summary of /compact in the place of the session's."""
    readers: set[str] = field(default_factory=set[str])
    """Models beside the session's that were named to the person before they read the conversation."""
    named_models: Sequence[str] = ()
    """Models the settings speak of."""
    names_share: float = 0.1
    """The share of the context that names may take before only a shortlist is shown."""

    @property
    def model(self) -> str:
        """The name of the model that leads."""
        return self.cast.model.traits.name

    @property
    def way(self) -> Way:
        """The strategy of the next turn."""
        return self.strategies[self.strategy]

    @property
    def registers_freely(self) -> bool:
        """Whether registering takes no thought of its own."""
        return self.cast.registers_freely

    @property
    def thinks(self) -> str:
        """Who thinks, as a person reads it: the mode and, where it is AUTO, the one chosen last."""
        return f"{AUTO} → {self.cast.mode.name}" if self.mode == AUTO else self.mode

    @property
    def no_choice(self) -> str:
        """Why it does not matter which mode thinks, as with a small model in all roles; empty where it does."""
        model, name = self.cast.model, self.playing("single")
        if self.playing("umi") != name or not (model.traits.small and model.can_score):
            return ""
        return f"{name} is asked one small thing at a time in either mode, so they are the same"

    def playing(self, mode: str) -> str:
        """The names of those who play in a mode: one, or those of the roles, joined by `+`, where they differ."""
        roles = ROLES if mode == "umi" else ()
        names = [self.roles.of(role) or self.session_model for role in roles] or [self.session_model]
        return "+".join(names) if len(set(names)) > 1 else names[0]

    async def switch(self, model: str) -> Mode:
        """Go on with another model from the next step, in all roles that name none of their own."""
        return await self._recast(model, self.mode, self.roles)

    async def think_as(self, mode: str) -> Mode:
        """Go on in another of MODES from the next turn; the models it has in common with this one stay loaded."""
        return await self._recast(self.session_model, mode, self.roles)

    async def let_think(self, mode: str) -> Mode:
        """Have one of those think that AUTO chooses from; the models of the one before stay loaded beside it."""
        if self.cast.mode.name == mode:
            return self.cast.mode
        return await self._recast(self.session_model, AUTO, self.roles, chosen=mode)

    async def give(self, roles: RoleModels) -> Mode:
        """Go on with these models in the roles of the mode umi; in another they are kept for it, if they can be had."""
        if not self.cast.players:
            trial = partial(self.caster.cast, self.session_model, "umi", roles=roles, at_hand=self.cast.models)
            there, tried = self.cast.models, await asyncio.to_thread(trial)
            for one in tried.models:
                if one not in there:
                    await one.aclose()
        return await self._recast(self.session_model, self.mode, roles)

    async def go_on_as(self, model: str, mode: str, roles: RoleModels) -> Mode:
        """Go on with the models and in the mode that a session had."""
        return await self._recast(model, mode, roles)

    async def go_on_alone_with(self, model: str) -> Mode:
        """Go on with one model for all there is to do, whatever models roles have had."""
        return await self._recast(model, self.mode, ALL_ONE if self.cast.players else self.roles)

    async def aclose(self) -> None:
        """Let the models go, and what they share."""
        await self.cast.aclose()
        for model in self.idle:
            await model.aclose()
        await self.caster.aclose()

    async def _recast(self, model: str, mode: str, roles: RoleModels, chosen: str = "") -> Mode:
        """Everything stays as it is when a model cannot be had; models that nobody uses any more are let go.

        `chosen` is who thinks now in the mode AUTO; without it, it is who did before.
        """
        thinks = chosen or (self.cast.mode.name if mode == AUTO else mode)
        there = (*self.cast.models, *self.idle)
        fresh = await asyncio.to_thread(self.caster.cast, model, thinks, roles=roles, at_hand=there)
        self.cast, self.session_model, self.mode, self.roles = fresh, model, mode, roles
        unused = tuple(one for one in there if one not in fresh.models)
        self.idle = unused if chosen else ()
        for left in () if chosen else unused:
            await left.aclose()
        for come in fresh.models:
            if come not in there:
                await come.warm()
        return fresh.mode
