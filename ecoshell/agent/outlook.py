"""What a step may take of a model, at most: bounds for which no tokenizer is loaded and nothing is sent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ecoshell.agent.memory import Memory, opening_text
from ecoshell.agent.mode import Foreseen, ForeseenCall, View
from ecoshell.budget.caps import CapState
from ecoshell.budget.holds import Hold
from ecoshell.budget.limits import price_unknown
from ecoshell.catalog.catalog import Catalog
from ecoshell.errors import PriceUnknown
from ecoshell.models.tokens import request_bound
from ecoshell.strategies.base import Path

_QUESTION = "x" * 200
"""Stands for a question of usual length."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The most that will be reserved."""

    nano: int | None
    """None when the price is unknown."""
    tokens: int

    def __add__(self, other: "Outlook") -> "Outlook":
        nano = None if self.nano is None or other.nano is None else self.nano + other.nano
        return Outlook(nano, self.tokens + other.tokens)

    def in_unit_of(self, cap: CapState) -> int | None:
        """What counts against this cap."""
        return self.nano if cap.unit == "usd" else self.tokens


NOTHING = Outlook(0, 0)


def of_step(foreseen: Foreseen) -> Outlook:
    """The largest of the calls that the next thought may take; a call that has to be repeated is a further one."""
    calls = [_of_call(call) for call in foreseen.steps]
    nano = [call.nano for call in calls if call.nano is not None]
    return Outlook(max(nano) if len(nano) == len(calls) else None, max(call.tokens for call in calls))


def of_conclusion(foreseen: Foreseen) -> Outlook:
    """What is set aside for the answer beside a step."""
    return NOTHING if foreseen.conclusion is None else _of_call(foreseen.conclusion, foreseen.slack)


def of_aside(foreseen: Foreseen) -> Outlook:
    """The same as it will be held: counted as the hold is, where that loads nothing. May block."""
    call = foreseen.conclusion
    if call is None or not call.model.loaded:
        return of_conclusion(foreseen)
    ask = call.model.reservation(call.request, call.role, foreseen.slack)
    return Outlook(ask.worst_nano, ask.prompt_tokens + ask.max_tokens)


def unpriced(foreseen: Foreseen, caps: Iterable[CapState]) -> PriceUnknown | None:
    """The refusal of a step one of whose calls nobody can price under a cap in dollars; None where it may be taken."""
    unknown = next((call.traits.name for call in foreseen.steps if call.traits.price is None), None)
    capped = next((cap for cap in caps if cap.unit == "usd"), None)
    return None if unknown is None or capped is None else price_unknown(unknown, capped)


def next_view(
    memory: Memory,
    catalog: Catalog,
    question: str = _QUESTION,
    *,
    names: Sequence[str] | None = None,
    context: str = "",
) -> View:
    """What a model would be shown if this question, or one of usual length, came now.

    `names` are listed, else all; `context` is what it would be told of where it works.
    """
    documents = [catalog.document(name) for name in memory.library.names if name in catalog]
    untold = [name for name in (catalog.names if names is None else names) if name not in memory.shown.names]
    unseen = [document for document in documents if document.name not in memory.shown.documents]
    listing = memory.presentation.opening(untold, unseen)
    return View(
        path=Path(question),
        opening=opening_text(listing, question, context=context),
        history=memory.messages,
        contexts=memory.contexts,
        known=catalog.names,
        registered=tuple(documents),
        presentation=memory.presentation,
    )


def with_room(caps: Iterable[CapState], aside: Hold | None, wanted: Outlook) -> bool:
    """Whether every cap has room for this much once what is set aside now is given back."""
    needs = ((cap, wanted.in_unit_of(cap)) for cap in caps)
    return all(need is not None and need <= cap.limit - used(cap, aside) for cap, need in needs)


def used(cap: CapState, aside: Hold | None) -> int:
    """What is spent and held of a cap, without what is set aside now."""
    freed = 0 if aside is None else (aside.nano or 0) if cap.unit == "usd" else aside.tokens
    return cap.spent + cap.held - freed


def _of_call(call: ForeseenCall, slack: int = 0) -> Outlook:
    request, traits = call.request, call.traits
    prompt = request_bound(request, native_tools=traits.native_tools) + slack
    output = request.max_tokens if traits.max_output is None else min(request.max_tokens, traits.max_output)
    return Outlook(None if traits.price is None else traits.price.worst(prompt, output), prompt + output)
