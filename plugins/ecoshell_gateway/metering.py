"""Reserves the worst case of each request in the ledger, and settles it with the reported usage."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from ecoshell.budget import SCOPES, Account, Ask, CapState, Hold, amount_text, time_is_up
from ecoshell.budget.gate import finished
from ecoshell.budget.ledger import Ledger
from ecoshell.budget.working_time import WorkingTime
from ecoshell.errors import BudgetError, LimitReached, PriceUnknown, StoreError
from ecoshell.messages import Usage
from ecoshell_gateway.errors import Refused
from ecoshell_gateway.prices import Prices
from ecoshell_gateway.prompts import CountedPrompts
from ecoshell_gateway.protocols import Format, Report, RequestFacts

T = TypeVar("T")
ROLE = "gateway"
TURN = 1
_WAIT_SECONDS = 5.0
"""How long a request waits for room that other running requests hold."""
_AMPLE_TOKENS = 8192
"""Output for which a request without an output limit does not wait."""
_IMPLAUSIBLE_FACTOR = 10
"""A report of this many times the reservation is discarded."""
_ANSWER_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Reserved:
    """A request's reservation; `limit` is the output limit to set, None to leave the request unchanged."""

    hold: Hold
    facts: RequestFacts
    limit: int | None
    time: WorkingTime


@dataclass(frozen=True, slots=True)
class Status:
    """What was spent and reserved in a run, in nano-dollars; `left` is None without a cap in dollars."""

    spent: int
    reserved: int
    left: int | None


class Meter:
    """Accounts for the requests of one run; all ledger calls share one thread."""

    def __init__(
        self, ledger: Ledger, session: str, prices: Prices, *, ask_seconds: float = 0.0
    ) -> None:
        """`ask_seconds` is how long a request at the limit waits for a user to raise the cap."""
        self.session = session
        self._ledger = ledger
        self._prices = prices
        self._ask_seconds = ask_seconds
        self._counted = CountedPrompts()
        self._thread = ThreadPoolExecutor(1, "ledger")
        self._running: set[int] = set()
        """Ledger entries of the running requests."""
        self._freed = asyncio.Event()
        """Set and replaced when a reservation ends."""

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def name(self, wire: Format, model: str) -> str:
        """Return the model's name in the ledger."""
        return self._prices.name(wire.provider, model)

    async def reserve(
        self,
        wire: Format,
        facts: RequestFacts,
        *,
        max_nano: int | None = None,
        may_wait: bool = True,
    ) -> Reserved:
        """Reserve a request, with its output lowered to what the caps and `max_nano` allow; raises Refused.

        With `may_wait`, it waits for room that other requests hold, and for a user to raise the cap.
        """
        name = self.name(wire, facts.model)
        ask = within(self._ask(name, facts), max_nano, facts)
        try:
            hold = await (self._hold_with_patience(ask, facts) if may_wait else self._hold(ask))
        except LimitReached as refusal:
            raise await self._limit_refusal(refusal) from refusal
        except PriceUnknown as refusal:
            fix = f'Set it in the configuration under [models."{name}".price], or use --allow-unpriced.'
            raise Refused("cap", f"{refusal.message} {fix}") from refusal
        except BudgetError as refusal:
            raise Refused("cap", f"{refusal}") from refusal
        except StoreError as failure:
            raise Refused("store", f"{failure}") from failure
        self._running.add(hold.entry)
        limit = (
            hold.max_tokens // facts.choices
            if hold.max_tokens < facts.choices * (facts.max_tokens or 0)
            else None
        )
        if facts.max_tokens is None and hold.clamped:
            limit = hold.max_tokens // facts.choices
        return Reserved(hold, facts, limit, WorkingTime(hold.ms, lambda: self._extend(hold)))

    def count(self, wire: Format, facts: RequestFacts, tokens: int) -> None:
        """Remember the provider's count of a prompt, which bounds it more closely than its size."""
        self._counted.record(self.name(wire, facts.model), facts.prompt, tokens)

    async def settle(self, reserved: Reserved, report: Report, received_tokens: int) -> None:
        """End a reservation with the reported usage; without one, the whole reservation counts."""
        hold, usage = reserved.hold, report.settled_usage()
        if usage is not None and usage.total > _IMPLAUSIBLE_FACTOR * hold.tokens:
            usage = None
        estimate = None
        if usage is None:
            estimate = Usage(reserved.facts.prompt.bound // 4, received_tokens)
        else:
            self._counted.record(hold.account.model, reserved.facts.prompt, usage.input)
        settle = partial(self._ledger.settle, hold, usage, ms=reserved.time.ms, estimate=estimate)
        await self._end(hold, settle)

    async def release(self, reserved: Reserved) -> None:
        """Cancel the reservation of a request that certainly caused no work."""
        await self._end(
            reserved.hold, partial(self._ledger.release, reserved.hold, reserved.time.ms or None)
        )

    async def time_refusal(self) -> Refused:
        """Return the refusal of a request that a cap in time stopped."""
        return Refused("cap", str(time_is_up(await self.caps())))

    async def bar(self, reserved: Reserved, reason: str) -> None:
        """Refuse further requests to a model that ignores its output limit."""
        with suppress(StoreError):
            await finished(
                self._in_thread(partial(self._ledger.bar, reserved.hold.account.model, reason))
            )

    async def status(self) -> Status:
        """Return what was spent and reserved, and what the tightest cap leaves."""
        return await self._in_thread(self._status)

    async def caps(self) -> tuple[CapState, ...]:
        """Return the caps over the run."""
        return await self._in_thread(partial(self._ledger.caps, self.session, TURN))

    def _status(self) -> Status:
        row = self._ledger.session_row(self.session)
        lefts = [cap.left for cap in self._ledger.caps(self.session, TURN) if cap.unit == "usd"]
        spent, reserved = (0, 0) if row is None else (row.spent_nano or 0, row.held_nano)
        return Status(spent, reserved, min(lefts, default=None))

    def _ask(self, name: str, facts: RequestFacts) -> Ask:
        limits = self._prices.limits(name)
        prompt = self._counted.bound(name, facts.prompt)
        if facts.prompt.is_open:
            if limits.context is None:
                message = "The request refers to files or earlier responses, and the context of its model is unknown"
                raise Refused("cap", f"{message}, so no cap can hold.")
            prompt = max(prompt, limits.context)
        price, limit = self._prices.price(name, facts), facts.limit_fields[0]
        max_tokens = facts.max_tokens or limits.max_output or limits.context
        if max_tokens is None:
            fix = f"Set {limit} in the request"
            if price is None:
                fix += f' and the price of the model under [models."{name}".price]'
            message = (
                f"The request has no {limit}, and {facts.model} is unknown, so no cap can hold"
            )
            raise Refused("cap", f"{message}. {fix}.")
        account = Account(self.session, TURN, ROLE, name, "request")
        ask = Ask(price, prompt, max_tokens, account)
        least = min(ask.floor + facts.reasoning_tokens, max_tokens)
        return replace(ask, max_tokens=max_tokens * facts.choices, min_tokens=least * facts.choices)

    async def _hold_with_patience(self, ask: Ask, facts: RequestFacts) -> Hold:
        """Wait a moment for other requests to end before the output is lowered, and for a user to raise the cap."""
        ample = min(ask.max_tokens, max(ask.floor, _AMPLE_TOKENS))
        sufficient = ample if facts.max_tokens is None else ask.max_tokens
        deadline = time.monotonic() + _WAIT_SECONDS
        while self._running and time.monotonic() < deadline:
            freed = self._freed
            try:
                return await self._hold(replace(ask, min_tokens=sufficient))
            except LimitReached:
                if not self._running:
                    break
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline - time.monotonic()):
                    await freed.wait()
        deadline = time.monotonic() + self._ask_seconds
        while True:
            try:
                return await self._hold(ask)
            except LimitReached:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_ANSWER_POLL_SECONDS)

    async def _hold(self, ask: Ask) -> Hold:
        """Reserve; the reservation of a cancelled request is released."""
        task = asyncio.ensure_future(self._in_thread(partial(self._ledger.hold, ask)))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await finished(self._undo(task))
            raise

    async def _extend(self, hold: Hold) -> int:
        return await self._in_thread(partial(self._ledger.extend, hold.entry))

    async def _undo(self, task: asyncio.Future[Hold]) -> None:
        with suppress(StoreError):  # it stays reserved and is listed as unreconciled
            await asyncio.wait([task])
            if task.exception() is None:
                await self._in_thread(partial(self._ledger.release, task.result()))

    async def _end(self, hold: Hold, operation: Callable[[], object]) -> None:
        try:
            with suppress(StoreError):  # the reservation keeps counting
                await finished(self._in_thread(operation))
        finally:
            self._running.discard(hold.entry)
            self._freed.set()
            self._freed = asyncio.Event()

    async def _limit_refusal(self, refusal: LimitReached) -> Refused:
        caps = await self.caps()
        cap = next(
            (cap for cap in caps if cap.scope == refusal.scope and cap.unit == refusal.unit), None
        )
        if cap is None:
            return Refused("cap", f"{refusal}")
        return Refused("cap", limit_text(cap, refusal.need))

    def _in_thread(self, operation: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, operation)


def limit_text(cap: CapState, need: int) -> str:
    """Return the message for a request that does not fit under a cap."""
    owner = "" if cap.scope == "session" else f" of the {cap.scope}"
    limit, spent, held, needed = (
        amount_text(value, cap.unit) for value in (cap.limit, cap.spent, cap.held, need)
    )
    scope = "" if cap.scope == "session" else f"{cap.scope}="
    fix = f"raise it with `ecoshell budget raise {scope}AMOUNT`"
    if cap.scope not in SCOPES:  # a team's cap
        fix = f"ask an administrator: `ecoshell budget set {cap.scope} AMOUNT`"
    return f"cap of {limit}{owner} reached, {spent} spent, {held} reserved, and this request may need {needed}; {fix}."


def within(ask: Ask, max_nano: int | None, facts: RequestFacts) -> Ask:
    """Lower the output of a request to a limit per request; raises Refused if not even the least output fits."""
    if max_nano is None or ask.price is None:
        return ask
    room = ask.price.affordable_output(ask.prompt_tokens, max_nano)
    if room < ask.floor:
        need, limit = ask.price.worst(ask.prompt_tokens, ask.floor), amount_text(max_nano, "usd")
        text = f"This request may need {amount_text(need, 'usd')}, and the cap of each request is {limit}."
        raise Refused("cap", f"{text} Start a shorter conversation, or raise --max-request.")
    return (
        ask
        if room >= ask.max_tokens
        else replace(ask, max_tokens=room // facts.choices * facts.choices)
    )
