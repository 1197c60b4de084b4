"""Who thinks: the models of a session, the mode they play in, and how one goes over to others."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ecoshell.agent.mode import Mode
from ecoshell.budget.price import Price
from ecoshell.catalog.presentation import Presentation
from ecoshell.events import ModeChosen
from ecoshell.messages import Message, ToolDocument
from ecoshell.models.base import ModelRow, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.models.tokens import estimate
from ecoshell.options import ALL_ONE, ROLES, RoleModels, RoleName
from ecoshell.planning.mode_choice import CANDIDATES

MODES: Mapping[str, str] = {
    "single": "one model plans, calls tools and answers",
    "umi": "three roles: a planner decides, a caller calls, a summarizer answers",
    "auto": "single or umi, chosen for each question by experience; the other where one gives up",
}
"""Who may think, and what that is."""
AUTO = "auto"
"""The mode that leaves it to experience; who thinks at a moment is in `ActiveModels.current`."""
_PROMPT = 4_000
"""Tokens of a usual prompt, by which prices are compared."""


@dataclass(frozen=True, slots=True)
class ModelSet:
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
        if not self.players:
            return (self.model,)
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
        if not self.players:
            return (self.model,)
        return tuple([model for model in self.models if model is self.model or not model.traits.small])

    @property
    def registers_freely(self) -> bool:
        """Whether registering takes no thought of its own: a small model is asked one small thing at a time anyway."""
        return self.model.traits.small and len(self.models) == 1

    @property
    def calls_undeclared(self) -> bool:
        """Whether all who read everything may call a tool that their array does not hold."""
        return all(model.traits.calls_undeclared for model in self._readers)

    async def aclose(self) -> None:
        """Let the models go."""
        for model in self.models:
            await model.aclose()

    @property
    def exact(self) -> bool:
        """Whether counts come, at this moment, from the model's own tokenizer."""
        return self.model.size(Request((Message("user", ""),))).exact

    def measure(self, document: ToolDocument, presentation: Presentation) -> tuple[int, bool]:
        """Tokens a document takes in this model's context, and whether the count is exact."""
        return self.sizes([presentation.shown(document)])[0], self.exact

    def sizes(self, texts: Iterable[str]) -> list[int]:
        """Tokens of texts that will be asked for again: documents and names; may block while a tokenizer loads."""
        texts, found = [*texts], list[int]()
        exact = bool(texts) and self.exact
        for text in texts:
            if (text, exact) not in self.counted:
                self.counted[text, exact] = self.model.count(text)
            found.append(self.counted[text, exact])
        return found

    def sizes_at_hand(self, texts: Iterable[str]) -> tuple[list[int], bool]:
        """The same for a look, and whether it is exact: estimated while counting would load a model."""
        if self.model.loaded:
            return self.sizes(texts), self.exact
        return [estimate(text) for text in texts], False


class ModelFactory(Protocol):
    """Makes models ready to play, and owns what those share."""

    def make(
        self, name: str, mode: str = "single", *, roles: RoleModels = ALL_ONE, at_hand: Iterable[MeteredModel] = ()
    ) -> ModelSet:
        """The model with this name in a mode, where `roles` have models of their own.

        A model is made once, and not at all where one of its name is `at_hand`. May block; raises ModelMissing,
        ModelBroken and UsageError.
        """
        ...

    def models(self, barred: Mapping[str, str]) -> Sequence[ModelRow]:
        """Every model that could be chosen; `barred` says of some why no call goes to them; may block."""
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


class ActiveModels:
    """The models that think now, and those chosen for the next turns; models that nobody uses any more are let go."""

    def __init__(self, factory: ModelFactory, session_model: str, *, mode: str, roles: RoleModels = ALL_ONE) -> None:
        """`mode` is one of MODES; raises as ModelFactory does, and may block."""
        self.factory = factory
        self.session_model = session_model
        """The name of the model of every role that names none; it leads where the planner names none."""
        self.mode = mode
        self.roles = roles
        """The models that roles of the mode umi have of their own."""
        self.current = factory.make(session_model, CANDIDATES[0] if mode == AUTO else mode, roles=roles)
        self.chosen: ModeChosen | None = None
        """What AUTO chose last, if anything."""
        self.idle: tuple[MeteredModel, ...] = ()
        """Models of the mode that does not think now and that AUTO may come back to."""

    @property
    def name(self) -> str:
        """The name of the model that leads."""
        return self.current.model.traits.name

    @property
    def no_choice(self) -> str:
        """Why it does not matter which mode thinks, as with a small model in all roles; empty where it does."""
        model, name = self.current.model, self.playing("single")
        if self.playing("umi") != name or not (model.traits.small and model.can_score):
            return ""
        return f"{name} is asked one small thing at a time in either mode, so they are the same"

    def playing(self, mode: str) -> str:
        """The names of those who play in a mode: one, or those of the roles, joined by `+`, where they differ."""
        roles = ROLES if mode == "umi" else ()
        names = [self.roles.of(role) or self.session_model for role in roles] or [self.session_model]
        return "+".join(names) if len(set(names)) > 1 else names[0]

    async def change(
        self, *, model: str | None = None, mode: str | None = None, roles: RoleModels | None = None
    ) -> None:
        """Go on with another model in all roles that name none, in another of MODES, or with other models of roles.

        The models that are used before and after stay loaded. Everything stays as it is when one cannot be had.
        """
        mode = mode or self.mode
        thinks = self.current.mode.name if mode == AUTO else mode
        await self._go_over(model or self.session_model, thinks, self.roles if roles is None else roles)
        self.mode = mode

    async def choose(self, mode: str) -> None:
        """Have one of those think that AUTO chooses from; the models of the one before stay loaded beside it."""
        if self.current.mode.name != mode:
            await self._go_over(self.session_model, mode, self.roles, keep=True)
            self.mode = AUTO

    async def give(self, roles: RoleModels) -> None:
        """Go on with these models in the roles of the mode umi; in another they are kept for it, if they can be had."""
        if not self.current.players:
            trial = partial(self.factory.make, self.session_model, "umi", roles=roles, at_hand=self.current.models)
            there, tried = self.current.models, await asyncio.to_thread(trial)
            for one in tried.models:
                if one not in there:
                    await one.aclose()
        await self.change(roles=roles)

    async def aclose(self) -> None:
        """Let the models go, and what they share."""
        for model in (*self.current.models, *self.idle):
            await model.aclose()
        await self.factory.aclose()

    async def _go_over(self, model: str, mode: str, roles: RoleModels, *, keep: bool = False) -> None:
        """Have others think; who does no more is let go or, with `keep`, idle."""
        before = (*self.current.models, *self.idle)
        self.current = await asyncio.to_thread(self.factory.make, model, mode, roles=roles, at_hand=before)
        self.session_model, self.roles = model, roles
        left = tuple(one for one in before if one not in self.current.models)
        self.idle = left if keep else ()
        for one in left if not keep else ():
            await one.aclose()
        for come in self.current.models:
            if come not in before:
                await come.warm()
