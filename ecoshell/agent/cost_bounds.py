"""The worst case of a step and of the answer, and whether the caps have room for it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from ecoshell.agent.mode import CallForecast, StepForecast
from ecoshell.budget import MIN_CALL_MS, CapState, Hold, price_unknown
from ecoshell.errors import PriceUnknown

_LARGE_PART = 4
"""The divisor of what a cap has left, above which a step's bound is large."""


@dataclass(frozen=True, slots=True)
class CostBound:
    """The largest amount that will be reserved."""

    nano: int | None
    """None if the price is unknown."""
    tokens: int

    def __add__(self, other: "CostBound") -> "CostBound":
        nano = None if self.nano is None or other.nano is None else self.nano + other.nano
        return CostBound(nano, self.tokens + other.tokens)

    def in_unit_of(self, cap: CapState) -> int | None:
        """The amount that counts against this cap; of working time, the least that a call needs."""
        return {"usd": self.nano, "tokens": self.tokens, "ms": MIN_CALL_MS if self.tokens else 0}[
            cap.unit
        ]


NOTHING = CostBound(0, 0)


def of_step(forecast: StepForecast) -> CostBound:
    """The largest of the step's calls; a call that has to be repeated is not included."""
    bounds = [_of_call(call) for call in forecast.steps]
    nano = [bound.nano for bound in bounds if bound.nano is not None]
    return CostBound(
        max(nano) if len(nano) == len(bounds) else None, max(bound.tokens for bound in bounds)
    )


async def count_prompts(forecast: StepForecast, caps: Iterable[CapState]) -> None:
    """Let providers count the prompts of a step whose bound takes a large part of what a cap has left.

    Bounds without a count are several times what is billed, which a small cap cannot hold.
    """
    caps = tuple(caps)
    for call in forecast.steps:
        bound = await asyncio.to_thread(_of_call, call)
        needs = ((cap, bound.in_unit_of(cap)) for cap in caps if cap.unit != "ms")
        if any(
            need is not None and need * _LARGE_PART > cap.limit - cap.spent - cap.held
            for cap, need in needs
        ):
            await call.model.count_prompt(call.request)


def of_conclusion(forecast: StepForecast, *, counted: bool = False) -> CostBound:
    """The reservation for the answer.

    With `counted`, tokens are counted as for the real reservation if the model is loaded; this may block.
    """
    call = forecast.conclusion
    if call is None:
        return NOTHING
    return _of_call(call, forecast.slack, counted=counted and call.model.loaded)


def _of_call(call: CallForecast, slack: int = 0, *, counted: bool = False) -> CostBound:
    request, traits = call.request, call.model.traits
    if counted:
        ask = call.model.reservation(request, call.role, slack)
        prompt, output = ask.prompt_tokens, ask.max_tokens
    else:
        prompt = call.model.bound(request) + slack
        output = (
            request.max_tokens
            if traits.max_output is None
            else min(request.max_tokens, traits.max_output)
        )
    return CostBound(
        None if traits.price is None else traits.price.worst(prompt, output), prompt + output
    )


def unpriced(forecast: StepForecast, caps: Iterable[CapState]) -> PriceUnknown | None:
    """The error for a step with a model of unknown price under a cap in dollars; None if the step is allowed."""
    name = next(
        (call.model.traits.name for call in forecast.steps if call.model.traits.price is None), None
    )
    cap = next((cap for cap in caps if cap.unit == "usd" and cap.over(name or "")), None)
    return None if name is None or cap is None else price_unknown(name, cap)


def with_room(caps: Iterable[CapState], answer_hold: Hold | None, bound: CostBound) -> bool:
    """Whether every cap has room for this amount once the reservation for the answer is released."""
    needs = ((cap, bound.in_unit_of(cap)) for cap in caps)
    return all(
        need is not None and need <= cap.limit - used(cap, answer_hold) for cap, need in needs
    )


def used(cap: CapState, answer_hold: Hold | None) -> int:
    """The spent and reserved part of a cap, without the reservation for the answer."""
    return cap.spent + cap.held - (answer_hold.amount(cap.unit) if answer_hold else 0)
