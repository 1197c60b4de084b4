"""What a turn may spend on tools: the caps, less what is used, less what ending with an answer takes (SPEC §2, R)."""

from collections.abc import Sequence
from dataclasses import dataclass

from ecoshell.agent.mode import Foreseen, ForeseenCall, of_aside, used
from ecoshell.budget.caps import CapState
from ecoshell.budget.holds import Hold
from ecoshell.budget.money import Unit
from ecoshell.budget.price import Price
from ecoshell.messages import Usage
from ecoshell.models.base import Request
from ecoshell.planning.btp.costs import Step

STEP_OUTPUT = 200
"""Tokens a step is expected to write: thought and call, a round mean of recorded runs (catalog/registration)."""
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Means:
    """What the tightest cap of one unit leaves, and what of it is reserved for the prompts and the answer."""

    unit: Unit
    cap: int
    reserved: int

    @property
    def budget(self) -> int:
        """R, in the unit; below 0 when even the answer may not fit."""
        return self.cap - self.reserved


def means(caps: Sequence[CapState], aside: Hold | None, foreseen: Foreseen) -> dict[Unit, Means]:
    """What the caps leave, by unit; what is set aside for the answer counts as reserved, not as used."""
    found: dict[Unit, Means] = {}
    for cap in caps:
        left = cap.limit - used(cap, aside)
        if cap.unit not in found or left < found[cap.unit].cap:
            found[cap.unit] = Means(cap.unit, max(0, left), _reserved(cap, aside, foreseen))
    return found


def expected_step(foreseen: Foreseen) -> Step:
    """What a step that calls a tool is expected to take, estimated without a tokenizer."""
    return _expected([call for call in foreseen.steps if call.request.purpose != "answer"])


def expected_answer(foreseen: Foreseen) -> Step:
    """What a step that answers at once is expected to take."""
    return _expected(foreseen.ending or foreseen.steps[-1:])


def _reserved(cap: CapState, aside: Hold | None, foreseen: Foreseen) -> int:
    if aside is not None:
        return (aside.nano or 0) if cap.unit == "usd" else aside.tokens
    return of_aside(foreseen).in_unit_of(cap) or 0


def _expected(calls: Sequence[ForeseenCall]) -> Step:
    """All of these calls, each at the price of the model it would go to; unknown where one price is."""
    usages = [_usage(call.request) for call in calls]
    costs = [_cost(call.traits.price, usage) for call, usage in zip(calls, usages, strict=True)]
    known = [cost for cost in costs if cost is not None]
    return Step(sum(known) if len(known) == len(costs) else None, sum(usage.total for usage in usages))


def _usage(request: Request) -> Usage:
    texts = [message.text for message in request.messages]
    texts += [document.as_entry() for document in request.tools]
    return Usage(input=sum(map(len, texts)) // _CHARACTERS_PER_TOKEN, output=min(request.max_tokens, STEP_OUTPUT))


def _cost(price: Price | None, usage: Usage) -> int | None:
    return None if price is None else price.cost(usage)
