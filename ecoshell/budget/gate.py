"""The gate: the ledger for asynchronous callers, with nothing lost when a waiting task is cancelled.

Calls made side by side share the room under the caps. What a call may cost at most is held while it is under way, and
mostly not spent; so a call that finds no room beside such holds has not reached a limit yet, and waits for them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ParamSpec, TypeVar

from ecoshell.budget import SCOPES, Account, Ask, CapState, Hold, Settlement, limit_reached
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import LimitReached, StoreError
from ecoshell.messages import Usage

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(eq=False)
class Sharing:
    """The line in which calls of one parallel plan wait for room, and what those hold that have found it."""

    _line: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The first in line tries, and waits; the others come after it, so that nobody is passed over for ever."""
    _held: set[int] = field(default_factory=set[int])
    """Entries of the ledger."""
    _freed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced by another, at the next end of a hold."""

    async def fit(self, attempt: Callable[[], Awaitable[T]], last: Callable[[], Awaitable[T]] | None = None) -> T:
        """Do what raises LimitReached where there is no room as soon as there is; `last` where no call holds any."""
        async with self._line:
            while True:
                freed = self._freed
                try:
                    done = await attempt()
                except LimitReached:
                    if self._held or freed.is_set():
                        await freed.wait()
                    elif last is None:
                        raise
                    else:
                        attempt, last = last, None
                    continue
                if isinstance(done, Hold):
                    self._held.add(done.entry)
                return done

    def ended(self, hold: Hold, by: Hold | None = None) -> None:
        """A call is over, and what it had held is spent or free again; `by` has taken the hold's place."""
        if hold.entry in self._held:
            self._held.remove(hold.entry)
            if by is not None:
                self._held.add(by.entry)
            self._freed.set()
            self._freed = asyncio.Event()


_present: ContextVar[Sharing | None] = ContextVar("sharing", default=None)


@contextmanager
def sharing() -> Generator[None]:
    """Let all calls that begin within this, in whatever task, wait for one another's room."""
    token = _present.set(Sharing())
    try:
        yield
    finally:
        _present.reset(token)


def shared() -> Sharing:
    """The line that the present call waits in: one of its own, where it is made alone."""
    return _present.get() or Sharing()


class Gate:
    """What every model call passes: reserve, clamp, settle.

    The ledger's transactions run in threads. A cancelled reservation is given back; a settlement is always finished.
    Calls that share their room wait for one another before a limit is reached.
    """

    def __init__(self, ledger: Ledger, *, logged: Callable[[], Awaitable[None]] | None = None) -> None:
        """`logged` returns when what was told so far is on disk; a bench that keeps no sessions has none."""
        self.ledger = ledger
        self._logged = logged

    async def logged(self) -> None:
        """Return when every event so far is on disk, which a call waits for before it is sent; raises StoreError."""
        if self._logged is None:
            return
        try:
            await self._logged()
        except StoreError as failure:
            message = f"The model was not asked, because that could not be written down: {failure.message}"
            raise StoreError(message, kept=failure.kept, fix=failure.fix) from failure

    async def hold(self, ask: Ask) -> Hold:
        """Reserve the worst case of a call; raises LimitReached, PriceUnknown, ModelBarred or StoreError."""
        reserve, uncut = partial(self._reserve, self.ledger.hold), replace(ask, min_tokens=ask.max_tokens)
        return await shared().fit(partial(reserve, uncut), partial(reserve, ask))

    async def set_aside(self, ask: Ask) -> Hold:
        """Reserve the price of the final answer, in place of what the same turn had set aside before."""
        return await self._reserve(self.ledger.set_aside, ask)

    async def hold_final(self, aside: Hold, ask: Ask) -> Hold:
        """Turn what was set aside into the final call; always fits when that call is no larger."""
        hold = await self._reserve(self.ledger.exchange, aside, ask)
        shared().ended(aside, by=hold)
        return hold

    async def settle(
        self,
        hold: Hold,
        usage: Usage | None,
        *,
        tool: str = "",
        seconds: float | None = None,
        estimate: Usage | None = None,
    ) -> Settlement:
        """End a hold with the reported usage; without one the whole hold counts as spent, and `estimate` is shown."""
        ended = partial(self.ledger.settle, hold, usage, tool, seconds=seconds, estimate=estimate)
        try:
            return await finished(asyncio.to_thread(ended))
        finally:
            shared().ended(hold)

    async def release(self, hold: Hold) -> None:
        """Give a hold back in full, because nothing was sent."""
        try:
            await finished(asyncio.to_thread(self.ledger.release, hold))
        finally:
            shared().ended(hold)

    async def charge_tool(
        self, account: Account, tool: str, nano: int, paid: Callable[[], None] = lambda: None
    ) -> None:
        """Pay for one use of a tool; raises LimitReached when a cap does not leave that much.

        `paid` is called once it is, also where whoever waits for it is cancelled meanwhile.
        """

        def charge() -> None:
            self.ledger.charge_tool(account, tool, nano)
            paid()

        await shared().fit(lambda: finished(asyncio.to_thread(charge)))

    async def require(self, account: Account, nano: int) -> None:
        """Raise LimitReached when a cap does not leave this much for a tool; nothing is reserved by asking."""

        def tight() -> CapState | None:
            caps = self.ledger.caps(account.session, account.turn)
            return next((cap for cap in caps if cap.unit == "usd" and cap.over("") and nano > cap.left), None)

        async def look() -> None:
            cap = await asyncio.to_thread(tight)
            if cap is not None and cap.scope not in SCOPES:
                await asyncio.to_thread(self.ledger.ask_anew)
                cap = await asyncio.to_thread(tight)
            if cap is not None:
                raise limit_reached(cap, nano)

        await shared().fit(look)

    async def _reserve(self, operation: Callable[P, Hold], *args: P.args, **kwargs: P.kwargs) -> Hold:
        working = asyncio.ensure_future(asyncio.to_thread(operation, *args, **kwargs))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            await finished(self._undo(working))
            raise

    async def _undo(self, working: asyncio.Future[Hold]) -> None:
        """Give back a reservation that nobody waits for any more."""
        # What cannot be given back keeps counting and is listed among the unreconciled; the cancellation goes first.
        with suppress(StoreError):
            await asyncio.wait([working])
            if working.exception() is None:
                await asyncio.to_thread(self.ledger.release, working.result())


async def finished(work: Awaitable[T]) -> T:
    """The result of a piece of work that runs to its end even when the waiting task is cancelled."""
    working = asyncio.ensure_future(work)
    cancelled = False
    while not working.done():
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: BLE001 - raised again below, by `result`
            break
    if cancelled:
        working.exception()  # looked at, so that a failure beside a cancellation is not reported as forgotten
        raise asyncio.CancelledError
    return working.result()
