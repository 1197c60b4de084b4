"""What a turn offers the model: which names, which documents up front, in which presentation, and why (SPEC §1)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ecoshell.agent.kit import Kit
from ecoshell.agent.memory import Shown
from ecoshell.agent.plan.live import LivePlan
from ecoshell.catalog.presentation import PLAIN, Direct, Presentation, presentation_of
from ecoshell.catalog.registration import Decision, Policy, Workload, candidates_of, decide, rates_of
from ecoshell.catalog.search import shortlist
from ecoshell.catalog.skills import Skill, SkillLibrary
from ecoshell.events import ToolsOffered
from ecoshell.messages import Message, ToolDocument

_DOCUMENTS_SHARE = 2
"""Documents put up front take at most this part (a half) of a model's context."""
_CHARACTERS_PER_TOKEN = 4
_SMALL = "Names only: a small model is asked one thing at a time, so registering costs it nothing more."


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools' side of a turn's beginning; token counts are this model's."""

    listing: str
    """What stands before the question: names to register, and documents where the array does not hold them."""
    listed: tuple[str, ...]
    """Names the turn is about, those among them that a strict plan forbids as yet."""
    names: tuple[str, ...]
    """Names that are offered."""
    upfront: tuple[Skill, ...]
    """Registered by this offer; what was registered before is not among them."""
    presentation: Presentation
    large: bool
    """Whether a name is hidden, so that `tool_search` is offered."""
    context_tokens: int
    everything_tokens: int
    exact: bool
    decision: Decision
    advice: str = ""
    """What the plan says of costs and of what may not be used."""

    def event(self) -> ToolsOffered:
        """The offer as the event that tells of it."""
        return ToolsOffered(
            names=self.names,
            upfront=tuple(skill.name for skill in self.upfront),
            presentation=self.presentation.name,
            context_tokens=self.context_tokens,
            everything_tokens=self.everything_tokens,
            exact=self.exact,
            why=self.decision.summary,
            listing=self.listing,
            advice=self.advice,
        )


def make_offer(plan: LivePlan, kit: Kit, *, library: SkillLibrary, shown: Shown, told: Sequence[Message]) -> Offer:
    """The offer for the plan's question, given what is registered and was shown before; counts tokens, so may block.

    Only the context shortens the names, and a strict plan. `told` is all the model reads besides: earlier turns, and
    the question with what goes along with it.
    """
    question = plan.outset.question
    cast, catalog = kit.cast, kit.catalog
    name_sizes = dict(zip(catalog.names, cast.sizes(f", {name}" for name in catalog.names), strict=True))
    listed = shortlist(question, kit.ranker, name_sizes, _names_room(kit))
    names = tuple(name for name in listed if name in library or name not in plan.hidden)
    whole, large = len(listed) == len(catalog), len(names) < len(catalog)

    callable_now = (name for name in names if name not in library and name not in plan.forbidden)
    unregistered = [catalog.document(name) for name in callable_now]
    decision = _decide(plan, kit, unregistered, _policy(kit, shown, whole=whole), told)
    presentation = _presentation(kit, shown, decision, (*library.names, *decision.upfront))
    sizes = dict(zip(catalog.names, cast.sizes(map(presentation.shown, catalog.documents)), strict=True))
    skills = tuple(Skill(name, sizes[name], "upfront") for name in decision.upfront)
    registered = library.including(skills)
    untold = [name for name in names if name not in shown.names]
    unseen = [catalog.document(name) for name in registered.names if name in catalog and name not in shown.documents]
    return Offer(
        listing=presentation.opening(untold, unseen, large=large),
        listed=listed,
        names=names,
        upfront=skills,
        presentation=presentation,
        large=large,
        context_tokens=sum(name_sizes[name] for name in names) + registered.tokens,
        everything_tokens=sum(sizes.values()),
        exact=cast.exact,
        decision=decision,
        advice=plan.advice(names),
    )


def _decide(
    plan: LivePlan, kit: Kit, documents: Sequence[ToolDocument], policy: Policy, told: Sequence[Message]
) -> Decision:
    """Whose documents are worth having from the start, at this model's prices."""
    cast = kit.cast
    characters = sum(len(message.text) for message in told)
    usual = Workload()
    work = replace(usual, base=usual.base + characters // _CHARACTERS_PER_TOKEN)
    candidates = candidates_of(documents, plan.outset.chances, lambda text: cast.sizes([text])[0])
    decision = decide(candidates, rates_of(cast.price, work.base), work, policy)
    return replace(decision, summary=_SMALL) if _registers_by_itself(kit) else decision


def _policy(kit: Kit, shown: Shown, *, whole: bool) -> Policy:
    """What the user settled, what the session began with, and what the models can hold."""
    context = kit.cast.context
    policy = Policy(kit.registration, kit.presentation, whole=whole)
    if context is not None:
        policy = replace(policy, room=context // _DOCUMENTS_SHARE)
    before = shown.presentation
    if before is not None and before.name in ("grow", "stable"):
        policy = replace(policy, presentation=before.name)
    if _registers_by_itself(kit):
        policy = replace(policy, registration="names")
    return policy


def _registers_by_itself(kit: Kit) -> bool:
    """Whether names alone are offered because registering costs nothing."""
    return kit.registers_freely and kit.registration == "auto"


def _presentation(kit: Kit, shown: Shown, decision: Decision, registered: Sequence[str]) -> Presentation:
    """The session's presentation, while the models can take it; `plain` only while nothing is left to register."""
    before, complete = shown.presentation, set(registered).issuperset(kit.catalog.names)
    if isinstance(before, Direct):
        return before if kit.cast.calls_undeclared else decision.presentation
    if before is not None and (complete or before.name != PLAIN.name):
        return before
    if kit.presentation == "auto" and kit.cast.calls_undeclared and not kit.registers_freely:
        return presentation_of("direct", registered, kit.catalog.names) or decision.presentation
    return decision.presentation


def _names_room(kit: Kit) -> int:
    """Tokens that names may take before only a shortlist is shown: as many as the context has room for."""
    context = kit.cast.context
    return 1 << 30 if context is None else int(context * kit.names_share)
