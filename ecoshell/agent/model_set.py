"""Who thinks: what a mode is to the agent, the models of a session, and how one goes over to others."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ecoshell.budget import CapState, Hold, Price, price_unknown
from ecoshell.catalog import Presentation
from ecoshell.errors import PriceUnknown
from ecoshell.events import Emit, ModeChosen
from ecoshell.messages import Attachment, Call, Message, ToolDocument
from ecoshell.models import ModelRow, Request, embedded, estimate
from ecoshell.models.metered import MeteredModel
from ecoshell.options import NO_ROLE_MODELS, ROLES, RoleModels, RoleName
from ecoshell.planning.btp.evidence import CANDIDATES
from ecoshell.strategies import Path, Step, Thought, Tried


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
    deferrable: tuple[ToolDocument, ...] = ()
    """All tools that the provider's search may load, where the presentation defers."""
    large: bool = False
    """Whether only a shortlist of names is shown and `tool_search` is offered."""
    along: str = ""
    """What goes along with the question, which the opening holds too: attachments, and what commands put out."""
    attachments: tuple[Attachment, ...] = ()
    """The files among it that a program is to be tried on first."""
    contexts: tuple[str, ...] = ()
    """What questions of the history have at their head of where the agent works; small models are not told of it."""
    forbidden: frozenset[str] = frozenset()
    """Names that the plan does not allow now."""
    closed: bool = False
    """Whether no tool of the catalog may be used any more, so that only answering is left."""
    searching: bool = False
    """Whether giving up on a way leads to another one, so that `finish` is offered, which says so."""
    tried: tuple[Tried, ...] = ()
    """Next steps from here that are known already; the thought is to be another."""

    @property
    def array(self) -> tuple[ToolDocument, ...]:
        """The tool array of a request."""
        return self.presentation.array(
            self.registered, deferrable=self.deferrable, large=self.large, finish=self.searching
        )

    @property
    def usable(self) -> tuple[str, ...]:
        """Names of tools that may be registered or called now."""
        return tuple(name for name in self.known if name not in self.forbidden)


@dataclass(frozen=True, slots=True)
class ForeseenCall:
    """A request that may be made, the model it would go to, and the role it would be made in."""

    request: Request
    model: MeteredModel
    role: str


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The calls the next thought may take, for estimates: nothing in them is counted yet, or cut to fit."""

    steps: tuple[ForeseenCall, ...]
    """Each is reserved on its own."""
    conclusion: ForeseenCall | None = None
    """What is set aside beside them."""
    slack: int = 0
    """Tokens by which the conclusion's prompt may grow until it is asked for."""
    ending: tuple[ForeseenCall, ...] = ()
    """What a thought takes that answers at once; where that is not said, the last of the steps."""


@dataclass(frozen=True, slots=True)
class DraftTask:
    """What there is to know, beside the view, for whoever writes a parallel plan."""

    before: str = ""
    """The plan that ran before this one, as it was written; empty for the first."""
    unfinished: tuple[str, ...] = ()
    """What of it failed, and why."""
    finished: tuple[str, ...] = ()
    """Labels of its nodes that are done, and are not run again."""
    faulty: str = ""
    """What was written last and cannot be run."""
    fault: str = ""
    """Why it cannot."""
    costs: str = ""
    """What tools cost, as a text; empty where nothing is told of it."""
    grammar: Callable[[], str] | None = None
    """Makes the grammar of the plans that can be run, in the form of numbers; may take a second."""


@dataclass(frozen=True, slots=True)
class FillTask:
    """A node of a parallel plan whose call is to be made."""

    label: str
    """As the plan names it: `read_file#2`."""
    document: ToolDocument
    plan: str
    """The whole plan, as it was written."""
    given: tuple[Step, ...] = ()
    """The steps it waits for; the view's path holds them too, and those before them."""
    use: int = 1
    uses: int = 1
    """Which it is of the nodes with its tool that wait for the same."""
    calls: tuple[Call, ...] = ()
    """What was called already for other nodes with its tool."""


class Mode(Protocol):
    """Who thinks: one model, or several in roles. Raises BudgetError and ModelError."""

    name: str
    role: str
    """The role that thinks each step."""
    model: str
    """The name of the model that leads."""
    aside: Hold | None
    """What is set aside at this moment."""
    by_program: bool
    """Whether the model does by one program what is asked of files."""
    finish: str
    """Why the model that was asked last stopped, in OpenAI's terms; empty if unknown."""

    def foresee(self, view: View) -> Foreseen:
        """What thinking on this view may ask, and of which models; counts nothing, so it loads nothing."""
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

    async def draft(self, view: View, task: DraftTask, emit: Emit) -> Thought | str:
        """A parallel plan in the tool planning language, not looked at yet, or a thought where none is needed."""
        ...

    async def fill(self, view: View, task: FillTask, emit: Emit) -> Call:
        """The call of one node; raises ModelBroken where none can be made."""
        ...

    async def conclude(self, view: View, emit: Emit) -> str:
        """The answer from what there is, without further calls, paid from what was set aside."""
        ...

    async def release(self) -> None:
        """Give back what was set aside and not used."""
        ...


@dataclass(frozen=True, slots=True)
class CostBound:
    """The most that will be reserved."""

    nano: int | None
    """None when the price is unknown."""
    tokens: int

    def __add__(self, other: "CostBound") -> "CostBound":
        nano = None if self.nano is None or other.nano is None else self.nano + other.nano
        return CostBound(nano, self.tokens + other.tokens)

    def in_unit_of(self, cap: CapState) -> int | None:
        """What counts against this cap."""
        return self.nano if cap.unit == "usd" else self.tokens


NOTHING = CostBound(0, 0)


def of_step(foreseen: Foreseen) -> CostBound:
    """The largest of the calls that the next thought may take; a call that has to be repeated is a further one."""
    calls = [_of_call(call) for call in foreseen.steps]
    nano = [call.nano for call in calls if call.nano is not None]
    return CostBound(max(nano) if len(nano) == len(calls) else None, max(call.tokens for call in calls))


def of_conclusion(foreseen: Foreseen, *, counted: bool = False) -> CostBound:
    """What is set aside for the answer beside a step; `counted` as the hold will be, where that loads nothing.

    Counting may block.
    """
    call = foreseen.conclusion
    if call is None:
        return NOTHING
    return _of_call(call, foreseen.slack, counted=counted and call.model.loaded)


def _of_call(call: ForeseenCall, slack: int = 0, *, counted: bool = False) -> CostBound:
    request, traits = call.request, call.model.traits
    if counted:
        ask = call.model.reservation(request, call.role, slack)
        prompt, output = ask.prompt_tokens, ask.max_tokens
    else:
        prompt = call.model.bound(request) + slack
        output = request.max_tokens if traits.max_output is None else min(request.max_tokens, traits.max_output)
    return CostBound(None if traits.price is None else traits.price.worst(prompt, output), prompt + output)


def unpriced(foreseen: Foreseen, caps: Iterable[CapState]) -> PriceUnknown | None:
    """The refusal of a step one of whose calls nobody can price under a cap in dollars; None where it may be taken."""
    unknown = next((call.model.traits.name for call in foreseen.steps if call.model.traits.price is None), None)
    capped = next((cap for cap in caps if cap.unit == "usd" and cap.over(unknown or "")), None)
    return None if unknown is None or capped is None else price_unknown(unknown, capped)


def with_room(caps: Iterable[CapState], aside: Hold | None, wanted: CostBound) -> bool:
    """Whether every cap has room for this much once what is set aside now is given back."""
    needs = ((cap, wanted.in_unit_of(cap)) for cap in caps)
    return all(need is not None and need <= cap.limit - used(cap, aside) for cap, need in needs)


def used(cap: CapState, aside: Hold | None) -> int:
    """What is spent and held of a cap, without what is set aside now."""
    freed = 0 if aside is None else (aside.nano or 0) if cap.unit == "usd" else aside.tokens
    return cap.spent + cap.held - freed


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

    def capped_by(self, caps: Iterable[CapState]) -> tuple[CapState, ...]:
        """Those of the caps that stand over one of them at least."""
        return tuple(cap for cap in caps if any(cap.over(model.traits.name) for model in self.models))

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
        """The smallest context, as far as contexts are known."""
        known = [model.traits.context for model in self.models if model.traits.context is not None]
        return min(known, default=None)

    @property
    def price(self) -> Price | None:
        """The dearest price of a prompt; None where one is unknown."""
        prices = [model.traits.price for model in self.models]
        known = [price for price in prices if price is not None]
        return max(known, key=lambda price: price.worst(_PROMPT, 0)) if len(known) == len(prices) else None

    @property
    def calls_undeclared(self) -> bool:
        """Whether all may call a tool that their array does not hold."""
        return all(model.traits.calls_undeclared for model in self.models)

    @property
    def defers_tools(self) -> bool:
        """Whether the provider's own search can load tools: of one model that plays every role."""
        return not self.players and self.model.traits.defers_tools

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

    ask_servers: bool
    """Whether servers of this machine may be asked for their models from now on."""

    def make(
        self,
        name: str,
        mode: str = "single",
        *,
        roles: RoleModels = NO_ROLE_MODELS,
        at_hand: Iterable[MeteredModel] = (),
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

    async def aclose(self) -> None:
        """Let go of what the models shared."""
        ...


class ActiveModels:
    """The models that think now, and those chosen for the next turns; models that nobody uses any more are let go."""

    def __init__(
        self, factory: ModelFactory, session_model: str, *, mode: str, roles: RoleModels = NO_ROLE_MODELS
    ) -> None:
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
        """Why it does not matter which mode thinks: one adapter in all roles; empty where it does."""
        name = self.playing("single")
        if self.playing("umi") != name or self.current.model.traits.trained != "single":
            return ""
        if name == embedded.NAME and embedded.embedded_as("planner") != name:  # roles have their own
            return ""
        return f"{name} plays all roles as one in either mode, so they are the same"

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
        await self._go_over(model or self.session_model, thinks, self.roles if roles is None else roles, asked=mode)

    async def replace(self, model: str, by: str) -> None:
        """Have another model take over every role that this one plays; raises as `change` does."""
        roles = RoleModels(*(by if (own := self.roles.of(role)) == model else own for role in ROLES))
        session_model = by if self.session_model == model or roles == self.roles else self.session_model
        await self.change(model=session_model, roles=roles)

    async def choose(self, mode: str) -> None:
        """Have one of those think that AUTO chooses from; the models of the one before stay loaded beside it."""
        if self.current.mode.name != mode:
            await self._go_over(self.session_model, mode, self.roles, asked=AUTO, keep=True)

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

    async def _go_over(self, model: str, mode: str, roles: RoleModels, *, asked: str, keep: bool = False) -> None:
        """Have others think, as was `asked`; who does no more is let go or, with `keep`, idle."""
        before = (*self.current.models, *self.idle)
        self.current = await asyncio.to_thread(self.factory.make, model, mode, roles=roles, at_hand=before)
        self.mode, self.session_model, self.roles = asked, model, roles  # whatever becomes of those who are let go
        left = tuple(one for one in before if one not in self.current.models)
        self.idle = left if keep else ()
        for one in left if not keep else ():
            await one.aclose()
        for come in self.current.models:
            if come not in before:
                await come.warm()
