"""Where a turn pauses for money: before an expensive step, and at a limit. The person chooses how to go on."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.mode import ForeseenCall, Mode, View, of_conclusion, of_step, unpriced, used, with_room
from ecoshell.agent.model_set import ModelSet
from ecoshell.agent.person import CostChoice, LimitChoice, Nobody
from ecoshell.budget.caps import CapState, Scope
from ecoshell.budget.limits import fitting_output
from ecoshell.budget.money import Unit, parse_amount, rounded_up
from ecoshell.errors import BudgetError, EcoshellError, LimitReached
from ecoshell.events import BudgetChanged, CostChosen, CostWanted, Emit, LimitChosen, LimitHit, ModelOffer, Notice
from ecoshell.messages import Usage

MOST = 5
"""Models offered at once."""
SHORT_ANSWER = 64
"""Tokens of output in the low end of an estimate: a call with its arguments, or a sentence."""


async def alternatives(deps: Dependencies, view: View, caps: Sequence[CapState]) -> tuple[ModelOffer, ...]:
    """Models for which the caps have room, or that are cheaper than the present one; the cheapest first."""
    casts = await asyncio.to_thread(_others, deps)
    try:
        return await asyncio.to_thread(_offers, deps, casts, view, caps)
    finally:
        for other in casts:
            await other.aclose()


def _others(deps: Dependencies) -> list[ModelSet]:
    """Other models that can be had, each to do everything there is; nothing of them is loaded.

    Of several that play now, each could go on alone.
    """
    casts: list[ModelSet] = []
    own = [model.traits.name for model in deps.models.current.models] if deps.models.current.players else []
    for name in dict.fromkeys((*own, *deps.models.factory.substitutes(deps.models.name))):
        try:
            casts.append(deps.models.factory.cast(name, deps.models.current.mode.name))
        except EcoshellError:  # a file that is gone or a missing key: one offer less
            continue
    return casts


def _offers(
    deps: Dependencies, casts: Sequence[ModelSet], view: View, caps: Sequence[CapState]
) -> tuple[ModelOffer, ...]:
    present = of_step(deps.models.current.mode.foresee(view)).nano
    offers = [_offer(other, deps, view, caps) for other in casts]
    useful = [offer for offer in offers if offer.fits or _cheaper(offer.most_nano, present)]
    return tuple(sorted(useful, key=_rank)[:MOST])


def _offer(other: ModelSet, deps: Dependencies, view: View, caps: Sequence[CapState]) -> ModelOffer:
    traits, foreseen = other.model.traits, other.mode.foresee(view)
    step = of_step(foreseen)
    fits = with_room(caps, deps.models.current.mode.aside, step + of_conclusion(foreseen))
    return ModelOffer(traits.name, traits.local, step.nano, step.tokens, fits)


def _cheaper(nano: int | None, present: int | None) -> bool:
    return nano is not None and (present is None or nano < present)


def _rank(offer: ModelOffer) -> tuple[bool, bool, int, str]:
    return not offer.fits, offer.most_nano is None, offer.most_nano or 0, offer.name


class AnswerNow(Exception):
    """No further steps: answer from what there is."""


class StopNow(Exception):
    """Stop without an answer."""


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a call may cost, in nano-dollars."""

    call: ForeseenCall
    low: int
    high: int


class Cashier:
    """Carries questions of money to the person, and the choices back into the turn. One session has one cashier."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._trusted: set[str] = set()
        """Models whose expensive steps go on unasked in this session."""
        self._asking = asyncio.Lock()
        self._ending: AnswerNow | StopNow | None = None
        """How the person wants the turn to end, said beside a call; the next step does it."""

    def begin(self) -> None:
        """A turn begins."""
        self._ending = None

    @property
    def mode(self) -> Mode:
        """Who thinks from now on: another than before, once the person has chosen another model."""
        return self._deps.models.current.mode

    async def before_step(self, view: View, emit: Emit) -> None:
        """Ask before the next step where it is expensive; raises AnswerNow, StopNow or PriceUnknown."""
        if self._ending is not None:
            raise self._ending
        await self._require_prices(view)
        while (wanted := await self._costly(view)) is not None:
            emit(wanted)
            choice = await self._deps.user.at_cost(wanted)
            emit(CostChosen(choice.kind))
            if choice.kind == "always":
                self._trusted.add(wanted.model)
            if choice.kind in ("go", "always"):
                break
            await self._carry_out(choice, emit)

    async def at_limit(self, hit: LimitReached, view: View, emit: Emit) -> None:
        """Ask what to do, and do it; raises AnswerNow or StopNow."""
        caps = await self._deps.budget.caps()
        wanted = LimitHit(
            hit.scope,
            cast("Unit", hit.unit),
            hit.need,
            hit.left,
            str(hit),
            offers=await alternatives(self._deps, view, caps),
            enough=await asyncio.to_thread(self._enough, hit, view, caps),
        )
        done = False
        while not done:
            emit(wanted)
            choice = await self._deps.user.at_limit(wanted)
            emit(LimitChosen(choice.kind))
            done = await self._carry_out(choice, emit, scope=cast("Scope", wanted.scope))

    async def for_tool(self, hit: LimitReached, view: View, emit: Emit) -> bool:
        """Ask as at a limit about a tool that is refused for money while some is left; true where it may be tried anew.

        Where nobody is there it stays refused. Calls that run side by side ask one after another, and none of them ends
        the turn under the others: the next step does.
        """
        async with self._asking:
            if isinstance(self._deps.user, Nobody) or self._ending is not None or hit.left <= 0:
                return False
            try:
                await self.at_limit(hit, view, emit)
            except (AnswerNow, StopNow) as ending:
                self._ending = ending
                return False
            return True

    async def _carry_out(self, choice: LimitChoice | CostChoice, emit: Emit, scope: Scope = "session") -> bool:
        """Do as the person chose; false when that cannot be done, and they are to be asked once more."""
        if choice.kind == "answer":
            raise AnswerNow
        if choice.kind == "stop":
            raise StopNow
        try:
            if choice.kind == "model":
                several = len(self._deps.models.current.models) > 1
                await self._deps.models.use_only(choice.value)
                if several:
                    emit(Notice(f"{self._deps.models.name} plays every role from now on."))
            else:
                await self._deps.budget.set_cap(scope, parse_amount(choice.value))
                emit(BudgetChanged(await self._deps.budget.caps()))
        except EcoshellError as refused:  # a mistyped amount or model is no reason to lose the turn
            emit(Notice(str(refused)))
            return False
        return True

    async def _require_prices(self, view: View) -> None:
        """Refuse before anything is paid where a later call of the step would be refused: its price is not known."""
        foreseen = self._deps.models.current.mode.foresee(view)
        if any(call.traits.price is None for call in foreseen.steps):  # else the ledger need not be asked
            refused = unpriced(foreseen, await self._deps.budget.caps())
            if refused is not None:
                raise refused

    async def _costly(self, view: View) -> CostWanted | None:
        """The question that the next step is worth; None when it goes on unasked, as where no price is known."""
        deps, above = self._deps, self._deps.settings.ask_above_nano
        if above is None:
            return None
        calls = [call for call in deps.models.current.mode.foresee(view).steps if call.traits.name not in self._trusted]
        caps = await deps.budget.caps()
        cost = await asyncio.to_thread(self._cost, calls, caps)
        if cost is None or cost.high <= above:
            return None
        offers = await alternatives(deps, view, caps)
        cheaper = tuple(offer for offer in offers if offer.most_nano is not None and offer.most_nano < cost.high)
        return CostWanted(cost.call.role, cost.call.traits.name, cost.low, cost.high, above, cheaper)

    def _cost(self, calls: Sequence[ForeseenCall], caps: Sequence[CapState]) -> _Cost | None:
        """What the dearest of these calls may cost; None when the gate would refuse them, which is for it to say."""
        costs: list[_Cost] = []
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
            low, high = call.traits.price.cost(short), call.traits.price.worst(ask.prompt_tokens, output)
            costs.append(_Cost(call, low, high))
        return max(costs, key=lambda cost: cost.high, default=None)

    def _enough(self, hit: LimitReached, view: View, caps: Sequence[CapState]) -> int:
        """A cap under which the step fits at its longest, and the answer after it."""
        cap = next((cap for cap in caps if (cap.scope, cap.unit) == (hit.scope, hit.unit)), None)
        if cap is None:
            return 0
        mode = self._deps.models.current.mode
        foreseen = mode.foresee(view)
        wanted = (of_step(foreseen) + of_conclusion(foreseen)).in_unit_of(cap) or 0
        return rounded_up(max(used(cap, mode.aside) + wanted, cap.limit - cap.left + hit.need))
