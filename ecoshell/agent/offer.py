"""What a turn offers the model: which names, which schemas up front, in which presentation, and why (SPEC §1)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Literal

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.memory import Condensed, Shown
from ecoshell.agent.mode import View
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.catalog import (
    CORE,
    DEFERRED,
    FAILURE_RATE,
    GROW,
    PLAIN,
    SMALL_SET_SHARE,
    SMALL_SET_TOKENS,
    STABLE,
    TEXT,
    TOKEN_WEIGHTS,
    Catalog,
    LoadingDecision,
    LoadingPolicy,
    Presentation,
    Skill,
    SkillLibrary,
    Workload,
    candidates_of,
    decide_loading,
    few_words,
    listed_parts,
    presentation_of,
    rates_of,
)
from ecoshell.catalog.search import shortlist
from ecoshell.events import ToolsOffered
from ecoshell.messages import Message, ToolSchema, Usage
from ecoshell.strategies import Path, Tried

_NAMES = 5_000
"""Tokens that names take at most, however large the context is."""
_DOCUMENTS_SHARE = 2
"""Documents put up front take at most this part (a half) of a model's context."""
_CONTEXT = 32_768
"""What the context of a model is taken to hold, where nobody says."""
_DOCUMENTS_PART = 4
"""Over a turn they take at most this part (a quarter) of what a cap leaves for it."""
_TOKENS = 1_000
"""By which a rate is taken from a price."""
_FORGOTTEN_LOCALLY = Decimal("0.25")
"""What `FAILURE_RATE` is taken to be of a model on this machine: most are small, and call what they see."""
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """The tools' side of a turn's beginning; token counts are this model's."""

    listing: str
    """What stands before the question: names to register, and documents where the array does not hold them."""
    listed: tuple[str, ...]
    """Names the turn is about, those among them that a strict plan forbids as yet."""
    names: tuple[str, ...]
    """Names that are offered."""
    loaded: tuple[str, ...]
    """All registered tools, those of earlier turns included."""
    upfront: tuple[Skill, ...]
    """Registered by this offer; what was registered before is not among them."""
    presentation: Presentation
    deferrable: tuple[ToolSchema, ...]
    """All tools, if the provider's search loads them or the presentation declares some."""
    large: bool
    """Whether a name is hidden, or may be later, so that `tool_search` is offered."""
    context_tokens: int
    """Tokens of the registered schemas and of the names of the other tools."""
    everything_tokens: int
    exact: bool
    decision: LoadingDecision
    advice: str = ""
    """What the plan says of costs and of what may not be used."""
    budget: str = ""

    def event(self) -> ToolsOffered:
        """The offer as the event that tells of it."""
        return ToolsOffered(
            names=self.names,
            core=tuple(name for name in CORE if name in self.loaded),
            loaded=self.loaded,
            known=tuple(name for name in self.names if name not in self.loaded),
            declared=tuple(sorted(self.presentation.declared)),
            upfront=tuple(skill.name for skill in self.upfront),
            presentation=self.presentation.name,
            context_tokens=self.context_tokens,
            everything_tokens=self.everything_tokens,
            exact=self.exact,
            why=self.decision.summary,
            listing=self.listing,
            advice=self.advice,
            budget=self.budget,
        )


@dataclass(slots=True)
class TurnContext:
    """What stands still during a turn unless its context is compacted, and what a mode sees of it from a path."""

    beginning: View
    """What a mode sees where the turn begins, apart from what the plan forbids and what is registered."""
    catalog: Catalog
    base: SkillLibrary
    """What was registered before the turn's first step."""
    plan: TurnPlan
    costs: str = ""
    """What tools cost, as a text for whoever plans branches; empty where nothing is told of it."""
    condensed: Condensed = field(default_factory=Condensed)

    def registered(self, path: Path) -> tuple[str, ...]:
        """Names the path may call, in the order of registration."""
        return tuple([schema.name for schema in self._schemas(path)])

    def _schemas(self, path: Path) -> tuple[ToolSchema, ...]:
        """The tools registered before this turn and on this path, by name or by a first call."""
        return self.catalog.schemas_of(dict.fromkeys((*self.base.skills, *path.registered, *path.called)))

    def view(self, path: Path, tried: tuple[Tried, ...] = ()) -> View:
        """What a mode sees on this path, and beside siblings that were tried."""
        forbidden = frozenset(self.plan.forbidden)
        return replace(
            self.beginning,
            path=replace(self.condensed.path(path), images=self.beginning.path.images),
            opening=self.condensed.opening(self.beginning.opening, path),
            registered=self._schemas(path),
            forbidden=forbidden,
            closed=bool(forbidden) and len(forbidden) == len(self.catalog),
            tried=tried,
        )


def make_offer(
    plan: TurnPlan, deps: Dependencies, *, library: SkillLibrary, shown: Shown, told: Sequence[Message]
) -> ToolOffer:
    """The offer for the plan's question, given what is registered and was shown before; counts tokens, so may block.

    Only the context shortens the names, and a strict plan. `told` is all the model reads besides: earlier turns, and
    the question with what goes along with it.
    """
    question = plan.inputs.question
    models, catalog = deps.models.current, deps.catalog
    listed, room = catalog.names, names_room(deps)
    if names_tokens(deps, listed, models.sizes) > room:
        alone = dict(zip(listed, models.sizes(f", {name}" for name in listed), strict=True))
        listed = shortlist(question, deps.ranker, alone, room)
    there, forbidden = library.skills, plan.forbidden
    hidden = forbidden if plan.strict else ()
    names = tuple([name for name in listed if name in there or name not in hidden])
    whole, large = len(listed) == len(catalog), catalog.is_open or len(names) < len(catalog)

    unregistered = catalog.schemas_of([name for name in names if name not in there and name not in forbidden])
    work = Workload(base=Workload().base + sum(len(message.text) for message in told) // _CHARACTERS_PER_TOKEN)
    candidates = candidates_of(unregistered, plan.inputs.chances, models.sizes)
    policy = _policy(plan, deps, shown, whole=whole)
    decision = decide_loading(candidates, rates_of(models.price, work.base), work, policy)
    presentation = _presentation(deps, shown, policy, decision, (*library.names, *decision.plan.loaded))
    sizes = dict(zip(catalog.names, models.sizes(map(presentation.prompt_text, catalog.schemas)), strict=True))
    # Core tools stand first in the array, so that sessions with other tools share its beginning in prompt caches.
    upfront = sorted(decision.plan.loaded, key=lambda name: CORE.index(name) if name in policy.core else len(CORE))
    skills = tuple([Skill(name, sizes[name], "upfront") for name in upfront])
    registered = library.including(skills)
    declared = presentation.declared - set(registered.names)
    by_name = [name for name in names if name not in registered.skills and name not in declared]
    untold = [name for name in names if name not in shown.names]
    unseen = catalog.schemas_of([name for name in registered.skills if name not in shown.schemas])
    about = {name: few_words(catalog.schema(name)) for name in untold} if decision.plan.has_descriptions else {}
    listed_schemas: tuple[ToolSchema, ...] = ()
    if presentation.deferred or presentation.declared:
        always = {*there, *presentation.declared}
        listed_schemas = catalog.schemas_of([name for name in catalog.names if name in always or name not in hidden])
    return ToolOffer(
        listing=presentation.opening(untold, unseen, large=large, descriptions=about, servers=catalog.servers),
        listed=listed,
        names=names,
        loaded=registered.names,
        upfront=skills,
        presentation=presentation,
        deferrable=listed_schemas,
        large=large,
        context_tokens=names_tokens(deps, by_name, models.sizes)
        + registered.tokens
        + sum([sizes[name] for name in declared if name in sizes]),
        everything_tokens=sum(sizes.values()),
        exact=models.exact,
        decision=decision,
        advice=plan.advice(names),
    )


def names_room(deps: Dependencies) -> int:
    """Tokens that names may take in a listing."""
    context = deps.models.current.context
    return _NAMES if context is None else min(_NAMES, int(context * deps.settings.names_share))


def names_tokens(deps: Dependencies, names: Iterable[str], sizes: Callable[[Iterable[str]], list[int]]) -> int:
    """What these names take in a listing, by their servers; may block."""
    return sum(sizes(listed_parts(names, deps.catalog.servers)))


def _policy(plan: TurnPlan, deps: Dependencies, shown: Shown, *, whole: bool) -> LoadingPolicy:
    """What the user settled, what the session began with, what the models can hold, and how they do by names."""
    models, found, traits = deps.models.current, plan.priced.remaining, deps.models.current.model.traits
    context, price, unpriced = models.context, models.price, rates_of(traits.price, 0) is TOKEN_WEIGHTS
    # Tokens that documents may take up front, by the context and by the caps.
    rooms = [(_CONTEXT if context is None else context) // _DOCUMENTS_SHARE]
    if found is not None:
        share = max(0, found.budget) // (_DOCUMENTS_PART * Workload().calls)
        rate = _TOKENS if found.unit == "tokens" else 0 if price is None else price.cost(Usage(input=_TOKENS))
        rooms += [share * _TOKENS // rate] if rate else []
    # How often a task is taken to fail for a needed tool that is a name alone: half of what the model has failed, as
    # nobody knows why, with two tasks that were answered beside it, so that one failure says little.
    record = plan.inputs.record
    failed = (record.weight - record.answered_weight) / (record.weight + 2)
    forgotten = _FORGOTTEN_LOCALLY if traits.local and unpriced else FAILURE_RATE
    native_calls = traits.native_tools and not traits.calls_undeclared
    presentation: Literal["auto", "grow", "deferred", "stable"] = deps.settings.presentation
    if shown.presentation in (TEXT, STABLE):
        presentation = "stable"
    elif presentation == "auto" and models.defers_tools and sum(models.sizes(_entries(deps.catalog))) <= min(rooms):
        presentation = "deferred"
    elif shown.presentation in (GROW, DEFERRED):
        presentation = "grow"
    # A session that began with schemas in the array or as text continues so.
    declared = None
    if models.calls_undeclared and (shown.presentation is None or shown.presentation.by_call):
        declared = shown.presentation.declared if shown.presentation else frozenset[str]()
    return LoadingPolicy(
        deps.settings.registration,
        presentation,
        whole,
        min(rooms),
        small_tokens=SMALL_SET_TOKENS if context is None else int(context * SMALL_SET_SHARE),
        failure_rate=forgotten + Decimal(str(round(failed / 2, 3))),
        prefers_array=unpriced,
        array_only=native_calls,
        core=frozenset(CORE) if native_calls or declared is not None else frozenset(),
        declared=declared,
        is_open=deps.catalog.is_open,
    )


def _entries(catalog: Catalog) -> list[str]:
    return [schema.entry for schema in catalog.schemas]


def _presentation(
    deps: Dependencies, shown: Shown, policy: LoadingPolicy, decision: LoadingDecision, registered: Sequence[str]
) -> Presentation:
    """The session's presentation, while the models can take it; one that shows everything while nothing is left."""
    before, complete = shown.presentation, deps.catalog.is_all(registered)
    if before in (GROW, DEFERRED):
        return DEFERRED if policy.presentation == "deferred" else GROW
    if before is not None and before.name == "direct":
        return before if deps.models.current.calls_undeclared else decision.plan.presentation
    if before is not None and (complete or before not in (PLAIN, TEXT)):
        return before
    if decision.declared:
        return decision.plan.presentation
    models = deps.models.current
    if deps.settings.presentation == "auto" and models.calls_undeclared:
        return presentation_of("direct", registered, registers=not complete) or decision.plan.presentation
    return decision.plan.presentation
