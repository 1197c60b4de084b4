"""What a turn offers the model: which tools by name, which with schemas, in which presentation, and why (SPEC §1)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.memory import Condensed, Shown
from ecoshell.agent.mode import View
from ecoshell.agent.turn_plan import TurnPlan
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
    few_words,
    listed_parts,
    presentation_of,
)
from ecoshell.catalog.loading import DESCRIPTION_TOKENS
from ecoshell.catalog.search import shortlist
from ecoshell.catalog.skills import LISTED
from ecoshell.catalog.skills import listing as skills_listing
from ecoshell.events import ToolsOffered
from ecoshell.messages import ToolSchema, Usage
from ecoshell.strategies import Path, Sibling
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


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """The tools that a turn begins with; token counts are those of its model."""

    listing: str
    """The text before the question: names to register, and schemas if the tool array does not contain them."""
    listed: tuple[str, ...]
    """Names for this question, including those that a strict plan forbids now."""
    names: tuple[str, ...]
    """The offered names."""
    callable_names: tuple[str, ...]
    """Offered names that the model may call now; a small local model knows no others."""
    loaded: tuple[str, ...]
    """All registered tools, those of earlier turns included."""
    upfront: tuple[RegisteredTool, ...]
    """Tools that this offer registers; tools registered earlier are excluded."""
    presentation: Presentation
    deferrable: tuple[ToolSchema, ...]
    """All tools, if the provider's search loads them or the presentation declares some."""
    large: bool
    """Whether a name is hidden now or may be later, so that `tool_search` is offered."""
    context_tokens: int
    """Tokens of the registered schemas and of the names of the other tools."""
    everything_tokens: int
    exact: bool
    decision: LoadingDecision
    skills: tuple[str, ...] = ()
    """Skills that the model knows by name."""
    loads_skills: bool = False
    """Whether the session has skills for this model, even if none fits the question."""
    advice: str = ""
    """The plan's text about costs and forbidden tools."""
    budget: str = ""

    def event(self) -> ToolsOffered:
        """The offer as an event."""
        return ToolsOffered(
            names=self.names,
            core=tuple(name for name in CORE if name in self.loaded),
            loaded=self.loaded,
            known=tuple(name for name in self.names if name not in self.loaded),
            declared=tuple(sorted(self.presentation.declared)),
            upfront=tuple(tool.name for tool in self.upfront),
            presentation=self.presentation.name,
            context_tokens=self.context_tokens,
            everything_tokens=self.everything_tokens,
            exact=self.exact,
            why=self.decision.summary,
            listing=self.listing,
            advice=self.advice,
            budget=self.budget,
            skills=self.skills,
        )


@dataclass(slots=True)
class TurnContext:
    """The parts of a turn that only compaction changes, and what a mode sees of them on a path."""

    beginning: View
    """The view at the beginning of the turn, without the plan's refusals and the registered tools."""
    catalog: Catalog
    base: RegisteredTools
    """The tools registered before the first step."""
    plan: TurnPlan
    costs: str = ""
    """The costs of tools for the author of a tool graph; empty if not shown."""
    condensed: Condensed = field(default_factory=Condensed)

    def registered(self, path: Path) -> tuple[str, ...]:
        """Names that the path may call, in the order of registration."""
        return tuple(
            [
                name
                for name in self._names(path)
                if name in self.catalog or name in self.catalog.skills
            ]
        )

    def _names(self, path: Path) -> Iterable[str]:
        """What was registered before this turn and on this path, by name or by a first call."""
        return dict.fromkeys((*self.base.tools, *path.registered, *path.called))

    def view(self, path: Path, siblings: tuple[Sibling, ...] = ()) -> View:
        """What a mode sees on this path; `siblings` are the steps already tried from its end."""
        forbidden = frozenset(self.plan.forbidden)
        return replace(
            self.beginning,
            path=replace(self.condensed.path(path), images=self.beginning.path.images),
            opening=self.condensed.opening(self.beginning.opening, path),
            registered=self.catalog.schemas_of(self._names(path)),
            forbidden=forbidden,
            closed=bool(forbidden) and len(forbidden) == len(self.catalog),
            siblings=siblings,
        )


def make_offer(
    plan: TurnPlan, deps: Dependencies, *, library: RegisteredTools, shown: Shown
) -> ToolOffer:
    """The offer for the plan's question; counts tokens, so it may block.

    `library` is registered and `shown` was shown in earlier turns. The names shrink only for the context or a strict
    plan.
    """
    question = plan.inputs.question
    models, catalog = deps.models.current, deps.catalog
    listed, room = catalog.names, names_room(deps)
    if names_tokens(deps, listed, models.sizes) > room:
        name_sizes = dict(zip(listed, models.sizes(f", {name}" for name in listed), strict=True))
        listed = shortlist(question, deps.ranker, name_sizes, room)
    registered_before, forbidden = library.tools, plan.forbidden
    hidden = forbidden if plan.strict else ()
    names = tuple([name for name in listed if name in registered_before or name not in hidden])
    is_large = catalog.is_open or len(names) < len(catalog) or len(catalog.skills) > LISTED

    unregistered = [
        name for name in names if name not in registered_before and name not in forbidden
    ]
    candidates = candidates_of(catalog.schemas_of(unregistered), plan.inputs.chances, models.sizes)
    policy = _policy(
        plan, deps, shown, is_first=not registered_before, lists_all=len(listed) == len(catalog)
    )
    decision = decide_loading(candidates, policy)
    presentation = _presentation(deps, shown, policy, decision, (*library.names, *decision.loaded))
    sizes = dict(
        zip(
            catalog.names, models.sizes(map(presentation.prompt_text, catalog.schemas)), strict=True
        )
    )
    # Core tools come first in the array, so that sessions with other tools share its beginning in prompt caches.
    order = {name: place for place, name in enumerate(CORE) if name in policy.core}
    upfront = sorted(decision.loaded, key=lambda name: order.get(name, len(CORE)))
    upfront_tools = tuple([RegisteredTool(name, sizes[name], "upfront") for name in upfront])
    registered = library.including(upfront_tools)
    declared = presentation.declared - set(registered.names)
    # Names of further tools distract a small model: it reads its array, and likely tools as text.
    is_small = presentation.by_call and not models.model.traits.capable
    by_name = (
        []
        if is_small
        else [name for name in names if name not in registered.tools and name not in declared]
    )
    new_names = [name for name in names if name not in shown.names and not is_small]
    new_schemas = catalog.schemas_of(
        [name for name in registered.tools if name not in shown.schemas]
    )
    about = (
        {name: few_words(catalog.schema(name)) for name in new_names}
        if decision.has_descriptions
        else {}
    )
    listed_schemas: tuple[ToolSchema, ...] = ()
    if presentation.deferred or presentation.declared:
        visible = {*registered.names, *presentation.declared}
        others = () if is_small else set(catalog.names) - set(hidden)
        listed_schemas = catalog.schemas_of(
            [name for name in catalog.names if name in visible or name in others]
        )
    callable_names = tuple([schema.name for schema in listed_schemas]) if is_small else names
    opening = presentation.opening(
        new_names, new_schemas, large=is_large, descriptions=about, servers=catalog.servers
    )
    skills = () if is_small else catalog.skills.shortlist(question)
    skills_text, skills_tokens = _skills_text(deps, skills, library, shown)
    return ToolOffer(
        listing="\n".join(filter(None, (opening, skills_text))),
        listed=tuple([name for name in listed if name in callable_names]) if is_small else listed,
        names=names,
        callable_names=callable_names,
        loaded=registered.names,
        upfront=upfront_tools,
        presentation=presentation,
        deferrable=listed_schemas,
        large=is_large,
        context_tokens=names_tokens(deps, by_name, models.sizes)
        + skills_tokens
        + registered.tokens
        + sum([sizes[name] for name in declared if name in sizes]),
        everything_tokens=sum(sizes.values()),
        exact=models.exact,
        decision=decision,
        skills=skills,
        loads_skills=bool(catalog.skills) and not is_small,
        advice=plan.advice(callable_names),
    )


def _skills_text(
    deps: Dependencies, names: Sequence[str], library: RegisteredTools, shown: Shown
) -> tuple[str, int]:
    """What the model reads of skills before the question, and the tokens of all names known in this turn."""
    skills, sizes = deps.catalog.skills, deps.models.current.sizes
    texts = [
        tool.text for tool in library.tools.values() if tool.text and tool.name not in shown.schemas
    ]
    new_names = [name for name in names if name not in shown.names and name not in library]
    about = {name: few_words(skills[name].schema) for name in new_names if len(skills) <= LISTED}
    if sum(sizes(f" ({words})" for words in about.values())) > DESCRIPTION_TOKENS:
        about = {}
    unloaded = [name for name in names if name not in library]
    listing = skills_listing(new_names, about, total=len(skills))
    tokens = sum(sizes(f", {name}" for name in unloaded))
    return "\n\n".join(filter(None, (listing, *texts))), tokens


def names_room(deps: Dependencies) -> int:
    """Tokens available for the names in a listing."""
    context = deps.models.current.context
    return (
        _MAX_NAMES_TOKENS
        if context is None
        else min(_MAX_NAMES_TOKENS, int(context * deps.settings.names_share))
    )


def names_tokens(
    deps: Dependencies, names: Iterable[str], sizes: Callable[[Iterable[str]], list[int]]
) -> int:
    """The tokens of these names in a listing, grouped by server; may block."""
    return sum(sizes(listed_parts(names, deps.catalog.servers)))


def _policy(
    plan: TurnPlan, deps: Dependencies, shown: Shown, *, is_first: bool, lists_all: bool
) -> LoadingPolicy:
    """The policy from the settings, the session's presentation and the models' limits."""
    models, traits = deps.models.current, deps.models.current.model.traits
    room = _schemas_room(plan, deps)
    native_calls = traits.native_tools and not traits.calls_undeclared
    presentation: Literal["auto", "grow", "deferred", "stable"] = deps.settings.presentation
    if shown.presentation in (TEXT, STABLE):
        presentation = "stable"
    elif (
        presentation == "auto"
        and models.defers_tools
        and sum(models.sizes(_entries(deps.catalog))) <= room
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
        is_first=is_first and shown.presentation is None,
        room=room,
        prefers_array=traits.price is None or not traits.price.worst(1, 1),
        native=native_calls,
        core=frozenset((*CORE, ASK_ADVISOR))
        if native_calls or declared is not None
        else frozenset(),
        declared=declared,
        is_open=deps.catalog.is_open,
    )


def _schemas_room(plan: TurnPlan, deps: Dependencies) -> int:
    """Tokens available for loaded schemas, by the context and by the caps."""
    models, remaining = deps.models.current, plan.priced.remaining
    room = (_UNKNOWN_CONTEXT if models.context is None else models.context) // _CONTEXT_PER_SCHEMAS
    if remaining is None or remaining.unit == "ms":
        return room
    share = max(0, remaining.budget) // (_BUDGET_PER_SCHEMAS * _CALLS_PER_TURN)
    if remaining.unit == "tokens":
        return min(room, share)
    rate = 0 if models.price is None else models.price.cost(Usage(input=_RATE_TOKENS))
    return min(room, share * _RATE_TOKENS // rate) if rate else room


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
