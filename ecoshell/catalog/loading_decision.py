"""Which tools are loaded at the start of a turn, and why (SPEC §1)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ecoshell.catalog.presentation import (
    DEFERRED,
    GROW,
    LOCAL_ARRAY,
    PLAIN,
    STABLE,
    TEXT,
    Presentation,
    few_words,
)
from ecoshell.messages import ToolSchema

LIKELY_IN_ARRAY = 0.5
"""Chance of use from which a tool outside the array of a local model is loaded."""
LIKELY_AS_TEXT = 0.25
"""Chance of use from which a tool is loaded as text, after the part that sessions share (`ecoshell bench ecoact`)."""
LIKELY_AS_TEXT_LATER = 0.1
"""The same in later turns, where registering a tool costs one more reading of a longer conversation."""
SMALL_ARRAY_TOKENS = 2_000
"""Tokens of schemas up to which a model without a core set has all tools loaded."""
SMALL_REST_TOKENS = 500
"""Tokens of schemas beyond the core set up to which all tools are loaded.

Listing their names and registering one costs as much.
"""
SMALL_TEXT_TOKENS = 1_200
"""The same for schemas as text of a model without native calls (`ecoshell bench ecoact`)."""
SMALL_LOCAL_ARRAY_TOKENS = 1_000
"""Tokens of short schemas that a local model reads whole, whichever tools they are."""
DESCRIPTION_TOKENS = 400
"""Tokens that short descriptions of the listed names may take.

They help to choose a tool, and with the core set and the system prompt they pass 1,024 tokens, the
usual minimum of prompt caches.
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool that could be registered: the size of its schema as models read it, and the probability of use."""

    name: str
    tokens: int
    chance: float


@dataclass(frozen=True, slots=True)
class LoadingPolicy:
    """The user's choices, and the limits of the model and the catalog.

    - `has_all_tools`: the candidates are all tools, so that loading everything is possible.
    - `is_first`: the session has no presentation and no registered tool yet.
    - `room`: tokens that loaded schemas may take, None without a limit.
    - `prefers_array`: all tools go into the tool array, the form that weak models were trained on.
    - `native`: the model has native tool calls, so tools are never shown as text.
    - `core`: tools that are always registered.
    - `declared`: tools of the session's constant array of short schemas, empty before its first
      turn, None if the model reads no such array.
    - `is_open`: tools may appear during the session, or the user unregistered some, so there must
      be a way to register them.
    """

    registration: Literal["auto", "names", "all", "all_text"] = "auto"
    presentation: Literal["auto", "grow", "deferred", "stable"] = "auto"
    has_all_tools: bool = True
    is_first: bool = True
    room: int | None = None
    prefers_array: bool = False
    native: bool = False
    core: frozenset[str] = frozenset()
    declared: frozenset[str] | None = None
    is_open: bool = False

    @property
    def as_text(self) -> bool:
        """Whether schemas are text in the conversation."""
        if self.presentation != "auto":
            return self.presentation == "stable"
        return not (self.native or self.prefers_array)

    @property
    def least_chance(self) -> float:
        """Chance of use from which a tool beyond the core set is loaded.

        A model with native calls starts with the core set, so that its array, and with it a provider's
        prompt cache, is the same in every session.
        """
        if self.native and not self.as_text:
            return math.inf
        if not self.as_text:
            return LIKELY_IN_ARRAY
        return LIKELY_AS_TEXT if self.is_first else LIKELY_AS_TEXT_LATER

    @property
    def declares_array(self) -> bool:
        """Whether the session has a constant array of short schemas, which are compared as text."""
        return self.declared is not None and self.presentation == "auto" and self.has_all_tools


@dataclass(frozen=True, slots=True)
class LoadingDecision:
    """The presentation, the tools to load in catalog order, and a summary of the reason.

    `declared` are the tools of the constant array of short schemas, loaded or known by name.
    """

    presentation: Presentation
    loaded: tuple[str, ...]
    summary: str
    has_descriptions: bool = False
    """Whether listed names are described, as far as there is room; see `short_descriptions`."""
    declared: frozenset[str] = frozenset()
    chances: Mapping[str, float] | None = None
    """The chance of use of each tool, if it was a reason."""

    def why(self, name: str) -> str:
        """Explain why this tool is loaded or not."""
        if self.chances is None or name not in self.chances:
            return self.summary
        state = "loaded" if name in self.loaded else "name only"
        return f"{name}, used with a chance of {self.chances[name]:.0%}: {state}. {self.summary}"


def candidates_of(
    schemas: Iterable[ToolSchema],
    chances: Mapping[str, float],
    sizes: Callable[[Iterable[str]], Sequence[int]],
    policy: LoadingPolicy,
) -> tuple[Candidate, ...]:
    """Return the tools as candidates; `sizes` counts the tokens of texts."""
    schemas, as_text = tuple(schemas), policy.as_text or policy.declares_array
    counts = sizes([schema.as_text() if as_text else schema.entry for schema in schemas])
    return tuple(
        [
            Candidate(schema.name, tokens, chances.get(schema.name, 0.0))
            for schema, tokens in zip(schemas, counts, strict=True)
        ]
    )


def short_descriptions(
    schemas: Iterable[ToolSchema], sizes: Callable[[Iterable[str]], Sequence[int]]
) -> dict[str, str]:
    """Return short descriptions of tools by name; none if they take too many tokens."""
    words = {schema.name: few_words(schema) for schema in schemas}
    text = "".join([f" ({description})" for description in words.values()])
    return words if sum(sizes([text])) <= DESCRIPTION_TOKENS else {}


def decide_loading(candidates: Sequence[Candidate], policy: LoadingPolicy) -> LoadingDecision:
    """Load the core set and the likely tools that fit, or all tools of a small catalog."""
    names = tuple([tool.name for tool in candidates])
    if policy.registration in ("all", "all_text"):
        as_text = policy.registration == "all_text" or policy.presentation == "stable"
        return LoadingDecision(TEXT if as_text else PLAIN, names, "Every tool is loaded, as set.")
    if policy.registration == "names":
        presentation = _presentation_of_names(policy)
        summary = "Names only, as set."
        return LoadingDecision(presentation, (), summary, chances=_chances(candidates))
    if policy.declares_array:
        return _core_and_declared(candidates, policy, policy.declared or frozenset())
    if not candidates:
        presentation = _presentation_of_everything(policy)
        return LoadingDecision(presentation, (), "No further tool could be loaded.")
    if policy.is_first and policy.has_all_tools and _is_small(candidates, policy):
        presentation = _presentation_of_everything(policy)
        summary = "Every tool is loaded: listing names saves too little."
        return LoadingDecision(presentation, names, summary)
    return _core_and_likely(candidates, policy)


def _core_and_likely(candidates: Sequence[Candidate], policy: LoadingPolicy) -> LoadingDecision:
    """Load the core set and the likely tools that fit, likeliest first; list the others by name."""
    names = {tool.name for tool in candidates if tool.name in policy.core}
    room, has_room, least_chance = policy.room, True, policy.least_chance
    for tool in sorted(candidates, key=lambda tool: tool.chance, reverse=True):
        if tool.name in names or tool.chance < least_chance:
            continue
        if room is not None and tool.tokens > room:
            has_room = False
            continue
        room = None if room is None else room - tool.tokens
        names.add(tool.name)
    limit = "" if has_room else " that fit"
    counted = "1 tool is loaded" if len(names) == 1 else f"{len(names)} tools are loaded"
    groups = ["the core set"] if policy.core else []
    if least_chance <= 1:
        groups.append(f"those with a chance of {least_chance:.0%}{limit}")
    summary = f"{counted}: {' and '.join(groups)}. The others are known by name."
    if policy.core and not names:  # loaded in an earlier turn
        summary = "The other tools are known by name."
    return LoadingDecision(
        _presentation_of_names(policy),
        tuple([tool.name for tool in candidates if tool.name in names]),
        summary,
        has_descriptions=policy.native,
        chances=_chances(candidates),
    )


def _core_and_declared(
    candidates: Sequence[Candidate], policy: LoadingPolicy, declared: frozenset[str]
) -> LoadingDecision:
    """Load the core set; a local model reads the constant array, and its first call loads another tool.

    Likely tools outside of the array are loaded as text.
    """
    if not declared:
        is_small = sum([tool.tokens for tool in candidates]) <= SMALL_LOCAL_ARRAY_TOKENS
        constant = {*LOCAL_ARRAY, *policy.core}
        declared = frozenset(tool.name for tool in candidates if is_small or tool.name in constant)

    def is_loaded(tool: Candidate) -> bool:
        return tool.name in policy.core if tool.name in declared else tool.chance >= LIKELY_IN_ARRAY

    return LoadingDecision(
        Presentation("direct", as_text=True, registers=False, declared=declared),
        tuple([tool.name for tool in candidates if is_loaded(tool)]),
        "The core set is loaded; the first call of another tool registers it.",
        declared=declared,
        chances=_chances(candidates),
    )


def _chances(candidates: Sequence[Candidate]) -> dict[str, float]:
    return {tool.name: tool.chance for tool in candidates}


def _is_small(candidates: Sequence[Candidate], policy: LoadingPolicy) -> bool:
    """Whether all tools are loaded: fewer schemas would cost more than they save."""
    sizes = {tool.name: tool.tokens for tool in candidates}
    if policy.room is not None and sum(sizes.values()) > policy.room:
        return False
    if policy.core and not policy.as_text:
        return sum([sizes[name] for name in sizes if name not in policy.core]) <= SMALL_REST_TOKENS
    return sum(sizes.values()) <= (SMALL_TEXT_TOKENS if policy.as_text else SMALL_ARRAY_TOKENS)


def _presentation_of_names(policy: LoadingPolicy) -> Presentation:
    if policy.presentation == "deferred":
        return DEFERRED
    return STABLE if policy.as_text else GROW


def _presentation_of_everything(policy: LoadingPolicy) -> Presentation:
    """How a small catalog is presented; an open one keeps a way to register further tools."""
    if policy.is_open or policy.presentation == "deferred":
        return _presentation_of_names(policy)
    return TEXT if policy.as_text else PLAIN
