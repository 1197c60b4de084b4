"""Where a turn pauses for money: before an expensive step, and at a limit. The person chooses how to go on."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from ecoshell.agent import CostChoice, LimitChoice, NonInteractive
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.model_set import (
    NOTHING,
    CostBound,
    ForeseenCall,
    Mode,
    View,
    of_conclusion,
    of_step,
    unpriced,
    used,
    with_room,
)
from ecoshell.budget import CapState, Scope, Unit, fitting_output, parse_amount, rounded_up
from ecoshell.errors import BudgetError, EcoshellError, LimitReached
from ecoshell.events import BudgetChanged, CostChosen, CostWanted, Emit, LimitChosen, LimitHit, ModelOffer, Notice
from ecoshell.messages import Usage
from ecoshell.options import ALL_ONE

MOST = 5
"""Models offered at once."""
SHORT_ANSWER = 64
"""Tokens of output in the low end of an estimate: a call with its arguments, or a sentence."""


class AnswerNow(Exception):
    """No further steps: answer from what there is."""


class StopNow(Exception):
    """Stop without an answer."""


@dataclass(slots=True)
class SpendApproval:
    """Carries questions of money to the person, and the choices back into the turn. One session has one."""

    deps: Dependencies
    ending: AnswerNow | StopNow | None = None
    """How the person wants the turn to end, said beside a call; the next step does it. None as a turn begins."""
    _trusted: set[str] = field(default_factory=set[str])
    """Models whose expensive steps go on unasked in this session."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def mode(self) -> Mode:
        """Who thinks from now on: another than before, once the person has chosen another model."""
        return self.deps.models.current.mode

    async def before_step(self, view: View, emit: Emit) -> None:
        """Ask before the next step where it is expensive; raises AnswerNow, StopNow or PriceUnknown.

        A step one of whose later calls would be refused, as its price is not known, is refused before anything is paid.
        """
        if self.ending is not None:
            raise self.ending
        foreseen = self.mode.foresee(view)
        if any(call.traits.price is None for call in foreseen.steps):  # else the ledger need not be asked
            refused = unpriced(foreseen, await self.deps.budget.caps())
            if refused is not None:
                raise refused
        while (wanted := await self._costly(view)) is not None:
            emit(wanted)
            choice = await self.deps.user.at_cost(wanted)
            emit(CostChosen(choice.kind))
            if choice.kind == "always":
                self._trusted.add(wanted.model)
            if choice.kind in ("go", "always"):
                break
            await self._carry_out(choice, emit)

    async def at_limit(self, hit: LimitReached, view: View, emit: Emit) -> None:
        """Ask what to do, and do it; raises AnswerNow or StopNow."""
        caps = await self.deps.budget.caps()
        offers, enough = await self._offers(view, caps), 0
        cap = next((cap for cap in caps if (cap.scope, cap.unit) == (hit.scope, hit.unit)), None)
        if cap is not None:  # a cap under which the step fits at its longest, and the answer after it
            most = sum(await asyncio.to_thread(_most, self.mode, view), NOTHING).in_unit_of(cap) or 0
            enough = rounded_up(max(used(cap, self.mode.aside) + most, cap.limit - cap.left + hit.need))
        wanted = LimitHit(hit.scope, cast("Unit", hit.unit), hit.need, hit.left, str(hit), offers=offers, enough=enough)
        while True:
            emit(wanted)
            choice = await self.deps.user.at_limit(wanted)
            emit(LimitChosen(choice.kind))
            if await self._carry_out(choice, emit, scope=cast("Scope", wanted.scope)):
                return

    async def for_tool(self, hit: LimitReached, view: View, emit: Emit) -> bool:
        """Ask as at a limit about a tool that is refused for money while some is left; true where it may be tried anew.

        Where nobody is there it stays refused. Calls that run side by side ask one after another, and none of them ends
        the turn under the others: the next step does.
        """
        async with self._asking:
            if isinstance(self.deps.user, NonInteractive) or self.ending is not None or hit.left <= 0:
                return False
            try:
                await self.at_limit(hit, view, emit)
            except (AnswerNow, StopNow) as ending:
                self.ending = ending
                return False
            return True

    async def _carry_out(self, choice: LimitChoice | CostChoice, emit: Emit, scope: Scope = "session") -> bool:
        """Do as the person chose; false when that cannot be done, and they are to be asked once more."""
        if choice.kind == "answer":
            raise AnswerNow
        if choice.kind == "stop":
            raise StopNow
        models, budget = self.deps.models, self.deps.budget
        try:
            if choice.kind == "model":
                several = len(models.current.models) > 1
                await models.change(model=choice.value, roles=ALL_ONE if models.current.players else None)
                if several:
                    emit(Notice(f"{models.name} plays every role from now on."))
            else:
                await budget.set_cap(scope, parse_amount(choice.value))
                emit(BudgetChanged(await budget.caps()))
        except EcoshellError as refused:  # a mistyped amount or model is no reason to lose the turn
            emit(Notice(str(refused)))
            return False
        return True

    async def _costly(self, view: View) -> CostWanted | None:
        """The question that the next step is worth; None when it goes on unasked, as where no price is known."""
        above = self.deps.settings.ask_above_nano
        if above is None:
            return None
        calls = [call for call in self.mode.foresee(view).steps if call.traits.name not in self._trusted]
        caps = await self.deps.budget.caps()
        dearest = await asyncio.to_thread(_dearest, calls, caps)
        if dearest is None or dearest[2] <= above:
            return None
        call, low, high = dearest
        offers = await self._offers(view, caps)
        cheaper = tuple(offer for offer in offers if offer.most_nano is not None and offer.most_nano < high)
        return CostWanted(call.role, call.traits.name, low, high, above, cheaper)

    async def _offers(self, view: View, caps: Sequence[CapState]) -> tuple[ModelOffer, ...]:
        """Models for which the caps have room, or that are cheaper than the present one; the cheapest first.

        Each is to do everything there is; of several that play now, each could go on alone. Nothing of them is loaded.
        """
        models, mode, offers = self.deps.models, self.mode, list[ModelOffer]()
        own = [model.traits.name for model in models.current.models] if models.current.players else []
        present, _ = await asyncio.to_thread(_most, mode, view)
        for name in dict.fromkeys((*own, *await asyncio.to_thread(models.factory.substitutes, models.name))):
            try:
                other = await asyncio.to_thread(models.factory.make, name, mode.name)
            except EcoshellError:  # a file that is gone or a missing key: one offer less
                continue
            try:
                step, conclusion = await asyncio.to_thread(_most, other.mode, view)
            finally:
                for one in other.models:
                    await one.aclose()
            traits, fits = other.model.traits, with_room(caps, mode.aside, step + conclusion)
            if fits or (step.nano is not None and (present.nano is None or step.nano < present.nano)):
                offers.append(ModelOffer(traits.name, traits.local, step.nano, step.tokens, fits))
        offers.sort(key=lambda offer: (not offer.fits, offer.most_nano is None, offer.most_nano or 0, offer.name))
        return tuple(offers[:MOST])


def _most(mode: Mode, view: View) -> tuple[CostBound, CostBound]:
    """What the next step takes at its longest, and the answer after it; may block."""
    foreseen = mode.foresee(view)
    return of_step(foreseen), of_conclusion(foreseen)


def _dearest(calls: Sequence[ForeseenCall], caps: Sequence[CapState]) -> tuple[ForeseenCall, int, int] | None:
    """The call that may cost most, with the nano-dollars it takes if it is short and at most.

    None where no price is known, and when the gate would refuse a call, which is for it to say.
    """
    costs: list[tuple[ForeseenCall, int, int]] = []
    for call in calls:
        if call.traits.price is None:
            continue
        ask = call.model.reservation(call.request, call.role)
        try:
            output = fitting_output(ask, caps)
        except BudgetError:
            return None
        prompt = call.model.size(call.request).count
        short = Usage(input=prompt, output=min(SHORT_ANSWER, output), cached=prompt)
        costs.append((call, call.traits.price.cost(short), call.traits.price.worst(ask.prompt_tokens, output)))
    return max(costs, key=lambda cost: cost[2], default=None)
