"""What a session may spend: the account of its calls, and the user's decisions at a cost and at a limit."""

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import cast

from ecoshell.agent import CostChoice, LimitChoice, NonInteractive, UserInterface, enough_text
from ecoshell.agent.mode import (
    NOTHING,
    USUAL_OUTPUT,
    CallForecast,
    CostBound,
    Mode,
    of_conclusion,
    of_step,
    unpriced,
    used,
    with_room,
)
from ecoshell.agent.model_set import ActiveModels
from ecoshell.agent.session_settings import SessionSettings
from ecoshell.agent.view import View
from ecoshell.budget import (
    ASSUMED_FREE,
    Account,
    Amount,
    CapState,
    Scope,
    Unit,
    amount_text,
    parse_amount,
    price_unknown,
    reserved_output,
    rounded_up,
)
from ecoshell.budget.gate import Gate, finished
from ecoshell.errors import BudgetError, EcoshellError, LimitReached, ModelDisabled, UsageError
from ecoshell.events import (
    BudgetChanged,
    BudgetSettled,
    Consumption,
    CostChosen,
    CostWanted,
    Emit,
    Event,
    LimitChosen,
    LimitHit,
    ModelOffer,
    Notice,
    Reasoned,
    TextArrived,
)
from ecoshell.messages import Usage
from ecoshell.models.metered import MeteredModel
from ecoshell.options import NO_ROLE_MODELS

_subagent_account: ContextVar[Account | None] = ContextVar("subagent_account", default=None)


@contextmanager
def charging(account: Account) -> Generator[None]:
    """Charge all calls that begin in this context to a subagent's account."""
    token = _subagent_account.set(account)
    try:
        yield
    finally:
        _subagent_account.reset(token)


@dataclass(eq=False)
class SessionBudget:
    """The gate, with the session and turn to which calls are charged, except those of subagents (`charging`)."""

    gate: Gate
    counted: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
    """Reported usage of the calls before the session was resumed, by the digest of their prompts."""
    _session: str = ""
    _turn: int = 0

    def enter(self, session: str, turn: int) -> None:
        """Charge all further calls to this turn."""
        self._session, self._turn = session, turn

    def account(self) -> Account:
        """The account of the current turn or subagent, without role, model and purpose."""
        return _subagent_account.get() or Account(
            session=self._session, turn=self._turn, role="", model="", purpose=""
        )

    async def caps(self, *, at_rest: bool = False) -> tuple[CapState, ...]:
        """The caps of the current account; `at_rest` excludes the reservations of running calls."""
        account, read = self.account(), self.gate.ledger.caps
        return await asyncio.to_thread(
            read, account.session, account.turn, task=account.task, at_rest=at_rest
        )

    async def require_allowed(self, models: Iterable[MeteredModel]) -> None:
        """Raise PriceUnknown or ModelDisabled for a model that the gate would refuse under the caps."""
        caps, barred = await self.caps(), await asyncio.to_thread(self.gate.ledger.barred)
        for traits in (model.traits for model in models):
            own = [cap for cap in caps if cap.over(traits.name)]
            in_dollars = next((cap for cap in own if cap.unit == "usd"), None)
            if traits.price is None and in_dollars is not None:
                raise price_unknown(traits.name, in_dollars)
            if own and traits.name in barred:
                raise ModelDisabled(
                    f"{traits.name} is disabled under a cap: {barred[traits.name]}."
                )

    @property
    def limits(self) -> tuple[Amount, ...]:
        """The caps that hold for the running turn only, such as that of a custom command."""
        return self.gate.ledger.turn_limits(self._session, self._turn)

    async def set_cap(self, scope: Scope, amount: Amount | None) -> None:
        """Set the cap of a scope; None removes it. One for turns replaces the running turn's own in its unit."""
        await finished(asyncio.to_thread(self.gate.ledger.set_cap, self._session, scope, amount))
        if scope == "turn":
            self.limit_turn(*(own for own in self.limits if amount and own.unit != amount.unit))

    def limit_turn(self, *amounts: Amount) -> None:
        """Cap the running turn, in addition to the caps of the session; no amounts end it."""
        self.gate.ledger.limit_turn(self._session, self._turn, amounts)

    async def raise_cap(self, scope: Scope, amount: Amount) -> None:
        """Set the cap that was reached; the running turn's own is raised for this turn only."""
        others = tuple(own for own in self.limits if own.unit != amount.unit)
        if scope != "turn" or others == self.limits:
            await self.set_cap(scope, amount)
            return
        self.limit_turn(*others, amount)
        caps = [cap for cap in await self.caps() if (cap.scope, cap.unit) == (scope, amount.unit)]
        if caps[0].limit < amount.value:  # the session's cap on turns
            await self.set_cap(scope, amount)


class TaskBudget(SessionBudget):
    """The budget of a subagent, whose turns are part of its parent's."""

    def enter(self, session: str, turn: int) -> None: ...


@dataclass(slots=True)
class QuietSpending:
    """Forwards the events of model calls that are not steps of the turn, without their text; adds up their price."""

    emit: Emit
    consumption: Consumption = field(default_factory=Consumption)

    def hear(self, event: Event) -> None:
        if isinstance(event, BudgetSettled):
            self.consumption += event.consumption
        if not isinstance(event, (TextArrived, Reasoned)):
            self.emit(event)


_OFFER_LIMIT = 5
"""Models offered at once."""
SHORT_ANSWER = 64
"""Output tokens in the lower estimate of a step: a call with its arguments, or a sentence."""


class AnswerNow(Exception):
    """Take no further steps, and answer with the results so far."""


class StopNow(Exception):
    """Stop without an answer."""


@dataclass(slots=True)
class SpendApproval:
    """Asks the user about money, and carries out the choices. Each session has one."""

    settings: SessionSettings
    models: ActiveModels
    budget: SessionBudget
    user: UserInterface
    ending: AnswerNow | StopNow | None = None
    """The user's choice to end the turn, made during a call, which the next step carries out."""
    _trusted: set[str] = field(default_factory=set[str])
    """Models whose expensive steps run without asking in this session."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def mode(self) -> Mode:
        """The current mode, which changes when the user chooses another model."""
        return self.models.current.mode

    async def before_step(self, view: View, emit: Emit) -> None:
        """Ask before an expensive step; raises AnswerNow, StopNow or PriceUnknown.

        A step with a call of unknown price under a cap in dollars is refused before anything is paid.
        """
        if self.ending is not None:
            raise self.ending
        if any(model.traits.price is None for model in self.models.current.models):
            refusal = unpriced(self.mode.forecast(view), await self.budget.caps())
            if refusal is not None:
                raise refusal
        while (question := await self._cost_question(view)) is not None:
            emit(question)
            choice = await self.user.at_cost(question)
            if choice.kind == "always":
                self._trusted.add(question.model)
            await self._carry_out(choice, emit)
            if choice.kind in ("go", "always"):
                break

    async def at_limit(self, hit: LimitReached, view: View, emit: Emit) -> None:
        """Ask what to do at a limit, and do it; raises AnswerNow or StopNow."""
        caps = await self.budget.caps()
        offers, enough = await self._offers(view, caps), 0
        cap = next((cap for cap in caps if (cap.scope, cap.unit) == (hit.scope, hit.unit)), None)
        if cap is not None and cap.unit == "ms":  # how long a step takes is not known in advance
            enough = 2 * cap.limit
        elif cap is not None:  # room for a step and the answer
            needed = await self._needed(cap, view)
            enough = rounded_up(max(needed, cap.limit - cap.left + hit.need, cap.limit + 1))
        unit = cast("Unit", hit.unit)
        event = LimitHit(
            hit.scope, unit, hit.need, hit.left, str(hit), offers=offers, enough=enough
        )
        while True:
            emit(event)
            choice = await self.user.at_limit(event)
            if await self._carry_out(choice, emit, event):
                return

    async def has_room(self, view: View) -> bool:
        """Whether every cap has room for a step and the answer, as much as `at_limit` proposes."""
        caps = [cap for cap in await self.budget.caps() if cap.unit != "ms"]
        return all([await self._needed(cap, view) <= cap.limit for cap in caps])

    async def _needed(self, cap: CapState, view: View) -> int:
        """What is used of a cap, with a step and the answer, in the cap's unit."""
        bounds = await asyncio.to_thread(proposed_bounds, self.mode, view)
        return used(cap, self.mode.answer_hold) + (sum(bounds, NOTHING).in_unit_of(cap) or 0)

    async def for_tool(self, hit: LimitReached, view: View, emit: Emit) -> bool:
        """Ask about a tool that is refused for its cost while budget is left; returns whether to try it again.

        Without a user it stays refused. Concurrent calls ask one at a time, and no decision ends the turn: the next
        step does.
        """
        async with self._asking:
            if isinstance(self.user, NonInteractive) or self.ending is not None or hit.left <= 0:
                return False
            try:
                await self.at_limit(hit, view, emit)
            except (AnswerNow, StopNow) as ending:
                self.ending = ending
                return False
            return True

    async def _carry_out(
        self, choice: LimitChoice | CostChoice, emit: Emit, hit: LimitHit | None = None
    ) -> bool:
        """Carry out and report the user's choice; False if it is impossible, so that the user can decide again.

        `hit` is the limit to decide about, None for an expensive step. Raises AnswerNow or StopNow.
        """
        chosen = CostChosen if hit is None else LimitChosen
        notice, changed = "", None
        try:
            if choice.kind == "model":
                notice = await self._change_model(choice.value)
            elif choice.kind == "raise" and hit is not None:
                changed = await self._raise_cap(hit, choice.value)
        except EcoshellError as error:  # such as a mistyped amount or model
            emit(Notice(str(error)))
            emit(chosen("again"))
            return False
        emit(chosen(choice.kind))
        if choice.kind == "answer":
            raise AnswerNow
        if choice.kind == "stop":
            raise StopNow
        if notice:
            emit(Notice(notice))
        if changed is not None:
            emit(changed)
        return True

    async def _change_model(self, name: str) -> str:
        """Let a model play every role; returns a notice if there were several. Raises EcoshellError."""
        models = self.models
        several = len(models.current.models) > 1
        roles = NO_ROLE_MODELS if models.current.players else None
        await models.change(model=name, roles=roles, check=self.budget.require_allowed)
        return f"{models.name} plays every role from now on." if several else ""

    async def _raise_cap(self, hit: LimitHit, typed: str) -> BudgetChanged:
        """Raise the cap that was reached; raises UsageError for another unit or an amount that is not higher."""
        amount = parse_amount(typed)
        caps = await self.budget.caps()
        limits = [cap.limit for cap in caps if (cap.scope, cap.unit) == (hit.scope, hit.unit)]
        if amount.unit != hit.unit or amount.value <= max(limits, default=0):
            limit = amount_text(max(limits, default=0), hit.unit)
            example = enough_text(hit)
            raise UsageError(
                f"A cap of {amount} does not raise the {hit.scope}'s cap of {limit}.",
                fix=f"Type a higher one, such as {example}." if example else "Type a higher one.",
            )
        await self.budget.raise_cap(cast("Scope", hit.scope), amount)
        return BudgetChanged(await self.budget.caps())

    async def _cost_question(self, view: View) -> CostWanted | None:
        """The question about an expensive step; None if it needs no approval, or if no price is known."""
        threshold = self.settings.ask_above_nano
        if threshold is None:
            return None
        steps, caps = self.mode.forecast(view).steps, await self.budget.caps()
        calls = [call for call in steps if call.model.traits.name not in self._trusted]
        dearest = await asyncio.to_thread(_dearest, calls, caps)
        if dearest is None or dearest[2] <= threshold:
            return None
        call, low, high = dearest
        offers = await self._offers(view, caps)
        cheaper = tuple(
            offer for offer in offers if offer.most_nano is not None and offer.most_nano < high
        )
        return CostWanted(call.role, call.model.traits.name, low, high, threshold, cheaper)

    async def _offers(self, view: View, caps: Sequence[CapState]) -> tuple[ModelOffer, ...]:
        """Models that fit the caps or are cheaper than the current one, cheapest first.

        Each would play every role, so the models of several roles are offered as well. No model is loaded.
        """
        models, mode, offers = self.models, self.mode, list[ModelOffer]()
        names = {*await asyncio.to_thread(models.factory.substitutes, models.name)}
        if models.current.players:
            names |= {model.traits.name for model in models.current.models}
        current, _ = await asyncio.to_thread(_bounds, mode, view)
        barred = await asyncio.to_thread(self.budget.gate.ledger.barred)
        for name in names - barred.keys():
            try:
                other = await asyncio.to_thread(models.factory.make, name, mode.name)
            except EcoshellError:  # such as a missing file or key
                continue
            try:
                step, conclusion = await asyncio.to_thread(_bounds, other.mode, view)
            finally:
                for model in other.models:
                    await model.aclose()
            traits, nano = other.model.traits, step.nano
            fits = with_room(other.capped_by(caps), mode.answer_hold, step + conclusion)
            if fits or (nano is not None and (current.nano is None or nano < current.nano)):
                is_local = traits.local or traits.price is ASSUMED_FREE
                offers.append(ModelOffer(traits.name, is_local, nano, step.tokens, fits))

        def rank(offer: ModelOffer) -> tuple[bool, bool, int, str]:
            nano = offer.most_nano
            return not offer.fits, nano is None, nano or 0, offer.name

        return tuple(sorted(offers, key=rank)[:_OFFER_LIMIT])


def _bounds(mode: Mode, view: View) -> tuple[CostBound, CostBound]:
    """The worst case of the next step and of the answer; may block."""
    forecast = mode.forecast(view)
    return of_step(forecast), of_conclusion(forecast)


def proposed_bounds(mode: Mode, view: View) -> tuple[CostBound, CostBound]:
    """The same with replies of usual length; may block."""

    def shortened(call: CallForecast) -> CallForecast:
        output = min(call.request.max_tokens, USUAL_OUTPUT)
        return replace(call, request=replace(call.request, max_tokens=output))

    forecast = mode.forecast(view)
    conclusion = None if forecast.conclusion is None else shortened(forecast.conclusion)
    forecast = replace(forecast, steps=tuple(map(shortened, forecast.steps)), conclusion=conclusion)
    return of_step(forecast), of_conclusion(forecast)


def _dearest(
    calls: Sequence[CallForecast], caps: Sequence[CapState]
) -> tuple[CallForecast, int, int] | None:
    """The call with the highest worst case, with its price if short and at most, in nano-dollars.

    None if no price is known, or if the gate would refuse a call.
    """
    costs: list[tuple[CallForecast, int, int]] = []
    for call in calls:
        price = call.model.traits.price
        if price is None:
            continue
        ask = call.model.reservation(call.request, call.role)
        try:
            output = reserved_output(ask, caps)
        except BudgetError:
            return None
        prompt = call.model.size(call.request).count
        short = Usage(input=prompt, output=min(SHORT_ANSWER, output), cached=prompt)
        costs.append((call, price.cost(short), price.worst(ask.prompt_tokens, output)))
    return max(costs, key=lambda cost: cost[2], default=None)
