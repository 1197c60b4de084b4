"""What a turn offers the model: which tools by name, which with schemas, in which presentation, and why (SPEC §1)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.past_turn import Shown
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.budget import CapState, Unit
from ecoshell.catalog import (
    CORE,
    DEFERRED,
    GROW,
    PLAIN,
    STABLE,
    TEXT,
    Catalog,
    LoadingDecision,
    LoadingPolicy,
    Presentation,
    RegisteredTool,
    RegisteredTools,
    candidates_of,
    decide_loading,
    listing_text,
    presentation_of,
    short_descriptions,
)
from ecoshell.catalog.catalog import LISTED_SKILLS
from ecoshell.catalog.catalog import listing as skills_listing
from ecoshell.catalog.search import shortlist
from ecoshell.events import ToolsOffered
from ecoshell.messages import ToolSchema, Usage
from ecoshell.tools.builtin.advisor import ASK_ADVISOR

_MAX_NAMES_TOKENS = 5_000
"""Tokens of names, however large the context is."""
_CONTEXT_PER_SCHEMAS = 2
"""Loaded schemas take at most one token for so many of the context."""
_UNKNOWN_CONTEXT = 32_768
"""The assumed context of a model of unknown context."""
_BUDGET_PER_SCHEMAS = 4
"""Over a turn, they cost at most one part in so many of the remaining budget."""
_RATE_TOKENS = 1_000
"""The number of tokens from whose price a rate is computed."""
_CALLS_PER_TURN = 7
"""The usual number of model calls of a turn with tools."""


Sizes = Callable[[Iterable[str]], list[int]]
"""Counts the tokens of texts."""


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """The tools that a turn begins with; token counts are those of its model."""

    event: ToolsOffered
    listed: tuple[str, ...]
    """Names for this question, including those that a strict plan forbids now."""
    callable_names: tuple[str, ...]
    """Offered names that the model may call now; a small local model knows no others."""
    upfront: tuple[RegisteredTool, ...]
    """Tools that this offer registers; tools registered earlier are excluded."""
    deferrable: tuple[ToolSchema, ...]
    """All tools, if the provider's search loads them or the presentation declares some."""
    large: bool
    """Whether a name is hidden now or may be later, so that `tool_search` is offered."""
    decision: LoadingDecision
    loads_skills: bool
    """Whether the session has skills for this model, even if none fits the question."""


def make_offer(
    plan: TurnPlan, deps: Dependencies, *, library: RegisteredTools, shown: Shown
) -> ToolOffer:
    """The offer for the plan's question; counts tokens, so it may block.

    `library` is registered and `shown` was shown in earlier turns. The names shrink only for the context or a strict
    plan.
    """
    models, catalog = deps.models.current, deps.catalog
    listed = _listed_names(plan, deps)
    hidden = plan.forbidden if plan.strict else ()
    names = tuple([name for name in listed if name in library.tools or name not in hidden])
    is_large = catalog.is_open or len(names) < len(catalog) or len(catalog.skills) > LISTED_SKILLS
    decision, upfront, sizes = _loaded(
        plan, deps, names, library, shown, lists_all=len(listed) == len(catalog)
    )
    presentation, registered = decision.presentation, library.including(upfront)
    declared = presentation.declared - set(registered.names)
    # A small model reads its array, and likely tools as text.
    is_small = models.reads_only_array(presentation)
    by_name = [name for name in names if name not in registered.tools and name not in declared]
    others = () if is_small else set(catalog.names) - set(hidden)
    deferrable: tuple[ToolSchema, ...] = ()
    if presentation.deferred or presentation.declared:
        visible = {*registered.names, *presentation.declared, *others}
        deferrable = catalog.schemas_of([name for name in catalog.names if name in visible])
    callable_names = tuple([schema.name for schema in deferrable]) if is_small else names
    new_names = [name for name in names if name not in shown.names and not is_small]
    opening = _opening(deps, decision, new_names, registered, shown, is_large=is_large)
    skills = () if is_small else catalog.skills.shortlist(plan.inputs.question)
    skills_text, skills_tokens = _skills_text(deps, skills, library, shown)
    loaded = registered.names
    event = ToolsOffered(
        names=names,
        core=tuple([name for name in CORE if name in loaded]),
        loaded=loaded,
        known=tuple([name for name in names if name not in loaded]),
        declared=tuple(sorted(presentation.declared)),
        upfront=tuple([tool.name for tool in upfront]),
        presentation=presentation.name,
        context_tokens=names_tokens(deps, () if is_small else by_name, models.sizes)
        + skills_tokens
        + sum([tool.tokens for tool in registered.tools.values()])
        + sum([sizes[name] for name in declared if name in sizes]),
        everything_tokens=sum(sizes.values()),
        exact=models.model.exact,
        why=decision.summary,
        listing="\n".join(filter(None, (opening, skills_text))),
        advice=plan.advice(callable_names, lists_forbidden=not is_small),
        skills=skills,
    )
    if is_small:
        listed = tuple([name for name in listed if name in callable_names])
    loads_skills = bool(catalog.skills) and not is_small
    return ToolOffer(
        event, listed, callable_names, upfront, deferrable, is_large, decision, loads_skills
    )


def first_load(
    deps: Dependencies, library: RegisteredTools, caps: Iterable[CapState]
) -> tuple[Presentation, tuple[str, ...]]:
    """The presentation of a session without a turn, and the tools that its first question loads, whatever it asks.

    Loads no model. A strict plan may forbid any tool under a cap, so no tool is certain then.
    """
    catalog, models = deps.catalog, deps.models.current
    caps = models.capped_by(caps)

    def sizes(texts: Iterable[str]) -> list[int]:
        return models.sizes_at_hand(texts)[0]

    lists_all = names_tokens(deps, catalog.names, sizes) <= names_room(deps)
    room = _schemas_room(deps, [(cap.unit, cap.left) for cap in caps])
    policy = _policy(deps, Shown(), library, sizes, room, lists_all=lists_all)
    listed = catalog.names if lists_all else CORE
    schemas = catalog.schemas_of(_loadable(listed, library))
    decision = decide_loading(candidates_of(schemas, {}, sizes, policy), policy)
    names = (*library.names, *decision.loaded)
    presentation = _presentation(deps, Shown(), policy, decision, names)
    is_uncertain = deps.settings.strict and bool(caps)
    return presentation, () if is_uncertain else decision.loaded


def _opening(
    deps: Dependencies,
    decision: LoadingDecision,
    new_names: Sequence[str],
    registered: RegisteredTools,
    shown: Shown,
    *,
    is_large: bool,
) -> str:
    """The text before the question: new names, described if there is room, and new schemas as text."""
    catalog, about = deps.catalog, dict[str, str]()
    schemas = catalog.schemas_of([name for name in registered.tools if name not in shown.schemas])
    if decision.has_descriptions:
        described = [name for name in new_names if name not in registered.tools]
        about = short_descriptions(catalog.schemas_of(described), deps.models.current.sizes)
    return decision.presentation.opening(
        new_names, schemas, large=is_large, descriptions=about, servers=catalog.servers
    )


def _listed_names(plan: TurnPlan, deps: Dependencies) -> tuple[str, ...]:
    """All names, or the core set and those that fit the question if all take too many tokens."""
    models, names, room = deps.models.current, deps.catalog.names, names_room(deps)
    if names_tokens(deps, names, models.sizes) <= room:
        return names
    sizes = dict(zip(names, models.sizes(f", {name}" for name in names), strict=True))
    core = [name for name in CORE if name in sizes]
    room -= sum([sizes[name] for name in core])
    fitting = shortlist(plan.inputs.question, deps.ranker, sizes, room)
    return tuple(dict.fromkeys((*core, *fitting)))


def _loaded(
    plan: TurnPlan,
    deps: Dependencies,
    names: Sequence[str],
    library: RegisteredTools,
    shown: Shown,
    *,
    lists_all: bool,
) -> tuple[LoadingDecision, tuple[RegisteredTool, ...], Mapping[str, int]]:
    """The decision what to load in which presentation, the tools to load, and the tokens of all tools."""
    models, catalog = deps.models.current, deps.catalog
    remaining, forbidden = plan.priced.remaining, plan.forbidden
    room = _schemas_room(deps, () if remaining is None else [(remaining.unit, remaining.budget)])
    policy = _policy(deps, shown, library, models.sizes, room, lists_all=lists_all)
    loadable = [name for name in _loadable(names, library) if name not in forbidden]
    schemas = catalog.schemas_of(loadable)
    candidates = candidates_of(schemas, plan.inputs.chances, models.sizes, policy)
    decision = decide_loading(candidates, policy)
    presentation = _presentation(deps, shown, policy, decision, (*library.names, *decision.loaded))
    prompt_sizes = models.sizes(presentation.prompt_texts(catalog.schemas))
    sizes = dict(zip(catalog.names, prompt_sizes, strict=True))
    # Core tools come first in the array, so that sessions with other tools share its beginning in prompt caches.
    order = {name: place for place, name in enumerate(CORE) if name in policy.core}
    upfront = sorted(decision.loaded, key=lambda name: order.get(name, len(CORE)))
    tools = tuple([RegisteredTool(name, sizes[name], "upfront") for name in upfront])
    return replace(decision, presentation=presentation), tools, sizes


def _loadable(names: Iterable[str], library: RegisteredTools) -> list[str]:
    """The names that are not registered and that the user has not unregistered."""
    return [name for name in names if name not in library.tools and name not in library.removed]


def _skills_text(
    deps: Dependencies, names: Sequence[str], library: RegisteredTools, shown: Shown
) -> tuple[str, int]:
    """What the model reads of skills before the question, and the tokens of all names known in this turn."""
    skills, sizes = deps.catalog.skills, deps.models.current.sizes
    texts = [
        tool.text for tool in library.tools.values() if tool.text and tool.name not in shown.schemas
    ]
    new_names = [name for name in names if name not in shown.names and name not in library]
    described = new_names if len(skills) <= LISTED_SKILLS else ()
    about = short_descriptions([skills[name].schema for name in described], sizes)
    unloaded = [name for name in names if name not in library]
    listing = skills_listing(new_names, about, total=len(skills))
    tokens = sum(sizes(f", {name}" for name in unloaded))
    return "\n\n".join(filter(None, (listing, *texts))), tokens


def names_room(deps: Dependencies) -> int:
    """Tokens available for the names in a listing."""
    context = deps.models.current.context
    if context is None:
        return _MAX_NAMES_TOKENS
    return min(_MAX_NAMES_TOKENS, int(context * deps.settings.names_share))


def names_tokens(deps: Dependencies, names: Iterable[str], sizes: Sizes) -> int:
    """The tokens of these names in a listing, grouped by server; may block."""
    return sum(sizes([listing_text(names, deps.catalog.servers)]))


def _policy(
    deps: Dependencies,
    shown: Shown,
    library: RegisteredTools,
    sizes: Sizes,
    room: int,
    *,
    lists_all: bool,
) -> LoadingPolicy:
    """The policy from the settings, the session's presentation and the models' limits."""
    models, traits = deps.models.current, deps.models.current.model.traits
    native_calls = traits.native_tools and not traits.calls_undeclared
    presentation: Literal["auto", "grow", "deferred", "stable"] = deps.settings.presentation
    if shown.presentation in (TEXT, STABLE):
        presentation = "stable"
    elif (
        presentation == "auto"
        and models.defers_tools
        and sum(sizes(_entries(deps.catalog))) <= room
    ):
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
        has_all_tools=lists_all,
        is_first=not library.tools and shown.presentation is None,
        room=room,
        prefers_array=traits.price is None or not traits.price.worst(1, 1),
        native=native_calls,
        core=frozenset((*CORE, ASK_ADVISOR))
        if native_calls or declared is not None
        else frozenset(),
        declared=declared,
        is_open=deps.catalog.is_open or bool(library.removed),
    )


def _schemas_room(deps: Dependencies, budgets: Iterable[tuple[Unit, int]]) -> int:
    """Tokens available for loaded schemas, by the context and the rest of each cap."""
    models = deps.models.current
    rate = 0 if models.price is None else models.price.cost(Usage(input=_RATE_TOKENS))
    room = (_UNKNOWN_CONTEXT if models.context is None else models.context) // _CONTEXT_PER_SCHEMAS
    for unit, budget in budgets:
        share = max(0, budget) // (_BUDGET_PER_SCHEMAS * _CALLS_PER_TURN)
        if unit == "tokens":
            room = min(room, share)
        elif unit == "usd" and rate:
            room = min(room, share * _RATE_TOKENS // rate)
    return room


def _entries(catalog: Catalog) -> list[str]:
    return [schema.entry for schema in catalog.schemas]


def _presentation(
    deps: Dependencies,
    shown: Shown,
    policy: LoadingPolicy,
    decision: LoadingDecision,
    registered: Sequence[str],
) -> Presentation:
    """The session's presentation if the models support it, otherwise the one decided.

    A presentation that shows all schemas is kept only while all tools are registered.
    """
    previous, is_complete = shown.presentation, deps.catalog.is_all(registered)
    if previous in (GROW, DEFERRED):
        return DEFERRED if policy.presentation == "deferred" else GROW
    if previous is not None and previous.name == "direct":
        return previous if deps.models.current.calls_undeclared else decision.presentation
    if previous is not None and (is_complete or previous not in (PLAIN, TEXT)):
        return previous
    if decision.declared:
        return decision.presentation
    models = deps.models.current
    if deps.settings.presentation == "auto" and models.calls_undeclared:
        return (
            presentation_of("direct", registered, registers=not is_complete)
            or decision.presentation
        )
    return decision.presentation
