"""Which tools are loaded at the start of a turn, and why (SPEC §1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter

from ecoshell.budget import Rates
from ecoshell.catalog.forecast import (
    Candidate,
    Forecast,
    LoadingPlan,
    LoadingPolicy,
    Workload,
    sized_for,
)
from ecoshell.catalog.presentation import (
    DEFERRED,
    GROW,
    LOCAL_ARRAY,
    PLAIN,
    STABLE,
    TEXT,
    Presentation,
)

MIN_SAVING = Decimal("0.05")
"""The share that listing names must save, as its cost is less certain than that of loading all."""
MIN_SAVING_SMALL_SET = Decimal("0.1")
SMALL_SET_SHARE = Decimal("0.04")
"""Share of the context up to which a set of tools counts as small."""
MIN_SAVING_UNLUCKY = Decimal("0.03")
"""The share that listing names must save in the unlucky case, so that single tasks do not lose.

Chosen with the 36 successful runs of LiveMCPBench in pools of 10 and 20.
"""
LIKELY_CHANCE = Decimal("0.5")
"""Chance of use from which a tool beyond the core set is loaded.

Loading changes the tool array, so that the request shares no prompt cache with other sessions. That
costs about half as much as registering a tool later.
"""
SMALL_ARRAY_TOKENS = 2_000
"""Tokens of schemas up to which a model with native calls has all tools loaded."""
DESCRIPTION_TOKENS = 400
"""Tokens that short descriptions of the listed names may take.

They help to choose a tool, and with the core set and the system prompt they pass 1,024 tokens, the
usual minimum of prompt caches.
"""
SMALL_LOCAL_ARRAY_TOKENS = 1_000
"""Tokens of short schemas that a local model reads whole, whichever tools they are."""


@dataclass(frozen=True, slots=True)
class LoadingDecision:
    """The chosen plan and a summary of the reason.

    `declared` are the tools of the constant array of short schemas, loaded or known by name.
    """

    plan: LoadingPlan
    summary: str
    declared: frozenset[str] = frozenset()

    def why(self, name: str) -> str:
        """Explain why this tool is loaded or not."""
        forecast, registration_cost = self.plan.forecast, self.plan.registration_cost
        tools = forecast.candidates if forecast else ()
        tool = next((tool for tool in tools if tool.name == name), None)
        if forecast is None or tool is None:
            return self.summary
        is_loaded = name in self.plan.loaded
        used = f"{name}, used with a chance of {tool.chance:.0%}:"
        if not registration_cost:
            return f"{used} {'loaded' if is_loaded else 'name only'}. {self.summary}"
        waste = (1 - tool.chance) * forecast.carry(tool.tokens, forecast.work.calls)
        saves = tool.chance * registration_cost > waste
        if is_loaded and saves:
            return f"{used} loaded; registering it later would cost more than its size."
        if is_loaded:
            return f"{used} loaded; a few tasks would pay much more otherwise."
        if saves:
            return f"{used} name only, although loading it would save (by choice, or no room)."
        return f"{used} name only; its size ({tool.tokens} tokens) costs more than registering it."


def decide_loading(
    candidates: Sequence[Candidate], rates: Rates, work: Workload, policy: LoadingPolicy
) -> LoadingDecision:
    """Return the plan of the lowest expected cost, failed tasks included.

    Loaded tools are always the likeliest, however large they are. A plan that lists names must save
    a margin compared with loading everything, and must not cost more in the unlucky case.
    """
    presentation = _presentation_of_everything(policy, candidates)
    sized = sized_for(presentation, candidates)
    everything = Forecast(rates, work, sized).everything(presentation)
    if policy.registration in ("all", "all_text"):
        return LoadingDecision(everything, "Every tool is loaded, as set.")
    if policy.declared is not None and policy.registration == policy.presentation == "auto" and policy.has_all_tools:
        return _core_and_declared(candidates, rates, work, policy, policy.declared)
    if policy.core and policy.registration == "auto" and policy.presentation != "stable":
        return _core_and_likely(candidates, rates, work, policy, everything)
    failure_cost = everything.cost * policy.failure_rate
    plans = [
        plan
        for presentation in _presentations_of_names(policy)
        for plan in Forecast(rates, work, sized_for(presentation, candidates)).by_name(
            presentation, policy, failure_cost
        )
    ]
    best = min(plans, key=attrgetter("cost"))
    if policy.registration == "names":
        return LoadingDecision(best, f"Names only, as set; presentation {best.presentation.name}.")
    tokens = sum([tool.tokens for tool in sized])
    if not policy.has_all_tools or (policy.room is not None and tokens > policy.room):
        return LoadingDecision(best, _summary(best, None))
    text_tokens = sum([tool.tokens for tool in sized_for(TEXT, candidates)])
    is_small = text_tokens <= policy.small_tokens
    limit = everything.cost * (1 - (MIN_SAVING_SMALL_SET if is_small else MIN_SAVING))
    unlucky_limit = everything.cost * (1 - MIN_SAVING_UNLUCKY)
    saving = [
        plan
        for plan in plans
        if len(plan.loaded) < len(candidates) and plan.cost < limit and plan.unlucky_cost <= unlucky_limit
    ]
    best = min(saving, key=attrgetter("cost"), default=everything)
    return LoadingDecision(best, _summary(best, everything))


def _core_and_likely(
    candidates: Sequence[Candidate],
    rates: Rates,
    work: Workload,
    policy: LoadingPolicy,
    everything: LoadingPlan,
) -> LoadingDecision:
    """Load the core set and the likely tools that fit; list the others by name.

    All tools of a small catalog are loaded: below the minimum of prompt caches, fewer schemas cost
    more than they save.
    """
    is_first = any(tool.name in policy.core for tool in candidates)
    total = sum([tool.tokens for tool in candidates])
    fits = total <= SMALL_ARRAY_TOKENS and (policy.room is None or total <= policy.room)
    is_small = is_first and policy.has_all_tools and fits and policy.presentation != "grow"
    if not candidates or (is_small and not policy.is_open):
        return LoadingDecision(everything, "Every tool is loaded: listing names saves too little.")
    room, has_room = policy.room, True
    names = {tool.name for tool in candidates if tool.name in policy.core}
    for tool in candidates:
        if tool.name in names or not (is_small or tool.chance >= LIKELY_CHANCE):
            continue
        if room is not None and tool.tokens > room:
            has_room = False
            continue
        room = None if room is None else room - tool.tokens
        names.add(tool.name)
    presentation = DEFERRED if policy.presentation == "deferred" else GROW
    loaded = [tool for tool in candidates if tool.name in names]
    cost = Forecast(rates, work, loaded).everything(presentation).cost
    described = sum([tool.description_tokens for tool in candidates if tool.name not in names])
    plan = LoadingPlan(
        presentation,
        tuple([tool.name for tool in loaded]),
        cost,
        unlucky_cost=cost,
        has_descriptions=described <= DESCRIPTION_TOKENS,
        forecast=Forecast(rates, work, candidates),
    )
    reason = "" if has_room else " (no room for more)"
    return LoadingDecision(
        plan,
        f"{len(names)} tools are loaded: the core set and likely ones. The others are known by name{reason}.",
    )


def _core_and_declared(
    candidates: Sequence[Candidate],
    rates: Rates,
    work: Workload,
    policy: LoadingPolicy,
    declared: frozenset[str],
) -> LoadingDecision:
    """Load the core set; a local model reads the constant array, and its first call loads another tool.

    Likely tools outside of the array are loaded as text.
    """
    if not declared:
        total = sum([tool.tokens if tool.text_tokens is None else tool.text_tokens for tool in candidates])
        is_small = total <= SMALL_LOCAL_ARRAY_TOKENS
        constant = {*LOCAL_ARRAY, *policy.core}
        declared = frozenset(tool.name for tool in candidates if is_small or tool.name in constant)

    def is_loaded(tool: Candidate) -> bool:
        return tool.name in policy.core if tool.name in declared else tool.chance >= LIKELY_CHANCE

    presentation = Presentation("direct", as_text=True, registers=False, declared=declared)
    forecast = Forecast(rates, work, candidates)
    cost = forecast.everything(presentation).cost
    loaded = tuple([tool.name for tool in candidates if is_loaded(tool)])
    plan = LoadingPlan(presentation, loaded, cost, unlucky_cost=cost, forecast=forecast)
    return LoadingDecision(plan, "The core set is loaded; the first call of another tool registers it.", declared)


def _presentations_of_names(policy: LoadingPolicy) -> tuple[Presentation, ...]:
    match policy.presentation:
        case "grow":
            return (GROW,)
        case "deferred":
            return (DEFERRED,)
        case "stable":
            return (STABLE,)
        case "auto":
            return (GROW,) if policy.array_only else (GROW, STABLE)


def _presentation_of_everything(policy: LoadingPolicy, candidates: Sequence[Candidate]) -> Presentation:
    """Return how everything is presented if all tools are loaded.

    Text takes about two thirds of the tokens. The overhead of `tool_call` is ignored: on recorded
    runs the array was at most 1 % cheaper, and text up to 10 %.
    """
    if policy.registration == "all_text":
        return TEXT
    if policy.is_open and policy.registration != "all":
        if policy.presentation == "deferred":
            return DEFERRED
        return GROW if policy.presentation == "grow" or policy.array_only else STABLE
    if policy.presentation != "auto":
        return TEXT if policy.presentation == "stable" else PLAIN
    if policy.registration == "all" or policy.array_only:
        return PLAIN
    tokens = sum(tool.tokens for tool in candidates)
    fits = policy.room is None or tokens <= policy.room
    return PLAIN if policy.prefers_array and fits else TEXT


def _summary(best: LoadingPlan, everything: LoadingPlan | None) -> str:
    """Explain the choice; `everything` is None if not all tools can be loaded."""
    count = len(best.loaded)
    loaded = f"{count} schema{'' if count == 1 else 's'} loaded"
    by_name = f"Names by {best.presentation.name}, {loaded}"
    if everything is None:
        return f"{by_name}: loading every tool does not fit."
    if best is everything:
        form = " as text" if best.presentation in (TEXT, STABLE) else ""
        return f"Every tool is loaded{form}: listing names is not expected to save enough."
    saving = 1 - best.cost / everything.cost
    return f"{by_name}: expected to save {saving:.0%} compared with loading every tool."
