"""The models of a session, the mode they play in, and switching to others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ecoshell.agent.mode import Mode
from ecoshell.budget import CapState, Price
from ecoshell.catalog import Presentation
from ecoshell.models import ModelRow, StartingModel, estimate
from ecoshell.models.metered import MeteredModel
from ecoshell.options import NO_ROLE_MODELS, ROLES, RoleModels, RoleName

MODES: Mapping[str, str] = {
    "single": "one model plans, calls tools and answers",
    "umi": "three roles: a planner decides, a caller calls, a summarizer answers",
}
_COMPARED_PROMPT_TOKENS = 4_000
"""A typical prompt, by which prices are compared."""


@dataclass(frozen=True, slots=True)
class ModelSet:
    """Models and the mode they play in; caches the token counts of schemas and names."""

    model: MeteredModel
    """The leading model, whose tokenizer counts schemas."""
    mode: Mode
    players: Mapping[RoleName, MeteredModel] = field(default_factory=dict[RoleName, MeteredModel])
    """The model of each role if the mode has several; roles of one model share the object."""
    counted: dict[tuple[str, bool], int] = field(
        default_factory=dict[tuple[str, bool], int], compare=False, repr=False
    )

    @property
    def models(self) -> tuple[MeteredModel, ...]:
        """Every model once, the leading one first."""
        if not self.players:
            return (self.model,)
        return tuple({id(model): model for model in (self.model, *self.players.values())}.values())

    def capped_by(self, caps: Iterable[CapState]) -> tuple[CapState, ...]:
        """The caps that apply to at least one of the models."""
        return tuple(
            cap for cap in caps if any(cap.over(model.traits.name) for model in self.models)
        )

    @property
    def caller(self) -> MeteredModel:
        return self.players.get("caller", self.model)

    @property
    def seats(self) -> tuple[tuple[str, str], ...]:
        """Each role and the name of its model."""
        leader = ((self.mode.role, self.model.traits.name),)
        return tuple((role, model.traits.name) for role, model in self.players.items()) or leader

    @property
    def context(self) -> int | None:
        contexts = (model.traits.context for model in self.models)
        return min((context for context in contexts if context is not None), default=None)

    @property
    def price(self) -> Price | None:
        """The highest price of a prompt; None if any price is unknown."""
        models = self.models
        prices = [price for model in models if (price := model.traits.price) is not None]
        if len(prices) < len(models):
            return None
        return max(prices, key=lambda price: price.worst(_COMPARED_PROMPT_TOKENS, 0))

    @property
    def is_free(self) -> bool:
        """Whether every model is known to cost nothing."""
        prices = [model.traits.price for model in self.models]
        return all(price is not None and price.summary() == "free" for price in prices)

    @property
    def is_priced(self) -> bool:
        """Whether a cap in dollars limits these models: every price is known, and one is above 0."""
        return self.price is not None and not self.is_free

    @property
    def calls_undeclared(self) -> bool:
        """Whether every model may call a tool that is missing from its tool array."""
        return all(model.traits.calls_undeclared for model in self.models)

    def reads_only_array(self, presentation: Presentation) -> bool:
        """Whether a grammar limits the calls of a small model, which names beyond its tool array would distract."""
        return presentation.by_call and not self.model.traits.capable

    @property
    def defers_tools(self) -> bool:
        """Whether the provider's own search can load tools: for one model that plays every role."""
        return not self.players and self.model.traits.defers_tools

    def sizes(self, texts: Iterable[str]) -> list[int]:
        """Tokens of texts, cached; for schemas and names. May block while a tokenizer loads."""
        texts, sizes = [*texts], list[int]()
        exact = bool(texts) and self.model.exact
        for text in texts:
            if (text, exact) not in self.counted:
                self.counted[text, exact] = self.model.count(text)
            sizes.append(self.counted[text, exact])
        return sizes

    def sizes_at_hand(self, texts: Iterable[str]) -> tuple[list[int], bool]:
        """Like `sizes`, and whether the counts are exact; estimates them instead of loading a model."""
        if self.model.loaded:
            return self.sizes(texts), self.model.exact
        return [estimate(text) for text in texts], False


class ModelFactory(Protocol):
    """Makes models, and owns the resources they share."""

    ask_servers: bool
    """Whether local model servers may be queried for their models."""

    def make(
        self,
        name: str,
        mode: str = "single",
        *,
        roles: RoleModels = NO_ROLE_MODELS,
        at_hand: Iterable[MeteredModel] = (),
    ) -> ModelSet:
        """The models of a mode: `name` in every role for which `roles` names no other.

        Models in `at_hand` are reused by name. May block; raises ModelMissing, ModelBroken and UsageError.
        """
        ...

    def models(self, barred: Mapping[str, str]) -> Sequence[ModelRow]:
        """Every available model; `barred` gives reasons why some are not called. May block."""
        ...

    def substitutes(self, present: str) -> Sequence[str]:
        """Names of models to offer instead of this one. May block."""
        ...

    def introduction(self, present: str) -> str:
        """One or two sentences on which model answers and how to get a better one. May block."""
        ...

    def starting_models(self) -> Sequence[StartingModel]:
        """The models that the first run offers, the best one first. May block for a few seconds."""
        ...

    async def pull(self, name: str, tell: Callable[[str], None]) -> str:
        """Download a model from the hub, report progress, and return the name to select it by."""
        ...

    def store_key(self, provider: str, key: str) -> None:
        """Use and store a provider's key. May block; raises UsageError and StoreError."""
        ...

    async def aclose(self) -> None: ...


def replaced(session_model: str, roles: RoleModels, model: str, by: str) -> tuple[str, RoleModels]:
    """The session's model and those of the roles, after replacing a model."""
    new_roles = RoleModels(*(by if (own := roles.of(role)) == model else own for role in ROLES))
    return by if session_model == model or new_roles == roles else session_model, new_roles


class ActiveModels:
    """The models in use, and the choices for the next turns. Closes models that are no longer used."""

    def __init__(
        self,
        factory: ModelFactory,
        session_model: str,
        *,
        mode: str,
        roles: RoleModels = NO_ROLE_MODELS,
        lender: "ActiveModels | None" = None,
    ) -> None:
        """`mode` is one of MODES; models of the `lender` are used without closing them.

        May block; raises as ModelFactory does.
        """
        self._lender = lender
        self._lent: dict[str, MeteredModel] = {} if lender is None else lender._lent
        """Models of subagents by name, which stay loaded for the next one."""
        self.factory = factory
        self.session_model: str = session_model
        """The model of every role without its own model."""
        self.mode: str = mode
        self.roles: RoleModels = roles
        """The roles' own models in the mode umi."""
        self.current: ModelSet = factory.make(
            session_model, mode, roles=roles, at_hand=self._borrowed
        )

    @property
    def name(self) -> str:
        return self.current.model.traits.name

    def playing(self, mode: str) -> str:
        """The name of the model that plays in a mode, or those of its roles, joined by `+`, if they differ."""
        names = [self.session_model]
        if mode == "umi":
            names = [self.roles.of(role) or self.session_model for role in ROLES]
        return "+".join(names) if len(set(names)) > 1 else names[0]

    async def change(
        self,
        *,
        model: str | None = None,
        mode: str | None = None,
        roles: RoleModels | None = None,
        check: Callable[[Sequence[MeteredModel]], Awaitable[None]] | None = None,
    ) -> None:
        """Change the session's model, the mode (one of MODES), or the roles' models.

        Models used before and after stay loaded. Nothing changes if a model is unavailable, or if `check` raises for
        the new models.
        """
        name, mode = model or self.session_model, mode or self.mode
        roles, at_hand = self.roles if roles is None else roles, self._at_hand
        make = partial(self.factory.make, name, mode, roles=roles, at_hand=at_hand)
        new_set = await asyncio.to_thread(make)
        if check is not None:
            try:
                await check(new_set.models)
            except BaseException:
                for new in new_set.models:
                    if new not in at_hand:
                        await new.aclose()
                raise
        self.current = new_set
        # even if closing the others fails
        self.mode, self.session_model, self.roles = (mode, name, roles)
        for unused in at_hand:
            if unused not in (*self.current.models, *self._borrowed):
                await unused.aclose()
        for new in self.current.models:
            if new not in at_hand:
                await new.warm()

    async def replace(self, model: str, by: str) -> None:
        """Replace a model in every role that it plays; raises as `change` does."""
        session_model, roles = replaced(self.session_model, self.roles, model, by)
        await self.change(model=session_model, roles=roles)

    async def give(self, roles: RoleModels) -> None:
        """Set the roles' models of the mode umi; in another mode, check that they are available first."""
        if not self.current.players:
            name, loaded = self.session_model, self.current.models
            make = partial(self.factory.make, name, "umi", roles=roles, at_hand=loaded)
            for model in (await asyncio.to_thread(make)).models:
                if model not in loaded:
                    await model.aclose()
        await self.change(roles=roles)

    def lend(self, name: str) -> "ActiveModels":
        """The model with this name for a subagent, in the mode single; uses and keeps loaded models.

        May block; raises as ModelFactory does.
        """
        lent, known = ActiveModels(self.factory, name, mode="single", lender=self), self._at_hand
        new = [model for model in lent.current.models if model not in known]
        self._lent |= {model.traits.name: model for model in new}
        return lent

    @property
    def _borrowed(self) -> tuple[MeteredModel, ...]:
        """Models that are not closed when they are no longer in use here."""
        return (*self._lent.values(), *(() if self._lender is None else self._lender._at_hand))

    @property
    def _at_hand(self) -> tuple[MeteredModel, ...]:
        return (*self.current.models, *self._borrowed)

    async def aclose(self) -> None:
        """Close the models; the lender also closes those that it lent, and the shared resources."""
        is_lender = self._lender is None
        models, borrowed = self._at_hand, self._borrowed
        if not is_lender:
            models = tuple(model for model in self.current.models if model not in borrowed)
        for model in {id(model): model for model in models}.values():
            await model.aclose()
        if is_lender:
            await self.factory.aclose()
