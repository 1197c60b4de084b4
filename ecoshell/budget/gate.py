"""The ledger for asynchronous callers; reservations of cancelled tasks are released.

Concurrent calls share the room under the caps. A running call holds its worst case and usually spends less, so a call
that does not fit while others run waits for them before it reports a limit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from ecoshell.budget import (
    SCOPES,
    Account,
    Ask,
    CapState,
    Hold,
    Settlement,
    ToolHold,
    limit_reached,
)
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import LimitReached, StoreError
from ecoshell.messages import Usage

T = TypeVar("T")
Counted = Callable[[], Ask]
"""Counts the prompt of a call, which may block, and returns what to reserve for it."""


@dataclass(eq=False)
class Sharing:
    """The queue of concurrent calls that wait for room under the caps, and their reservations."""

    _queue: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the first waiter, so that no call is overtaken forever."""
    _entries: set[int] = field(default_factory=set[int])
    """Ledger entries of the running calls."""
    _freed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set and replaced whenever a reservation ends."""

    async def fit(
        self, attempt: Callable[[], Awaitable[T]], last: Callable[[], Awaitable[T]] | None = None
    ) -> T:
        """Retry `attempt` until it no longer raises LimitReached; use `last` when no other call holds a reservation."""
        async with self._queue:
            while True:
                freed = self._freed
                try:
                    result = await attempt()
                except LimitReached:
                    if self._entries or freed.is_set():
                        await freed.wait()
                    elif last is None:
                        raise
                    else:
                        attempt, last = last, None
                    continue
                if isinstance(result, Hold | ToolHold) and result.entry is not None:
                    self._entries.add(result.entry)
                return result

    def ended(self, hold: Hold | ToolHold, by: Hold | None = None) -> None:
        """Record the end of a reservation, optionally replaced by another, and wake the waiting call."""
        if hold.entry is not None and hold.entry in self._entries:
            self._entries.remove(hold.entry)
            if by is not None:
                self._entries.add(by.entry)
            self._freed.set()
            self._freed = asyncio.Event()


_current: ContextVar[Sharing | None] = ContextVar("sharing", default=None)


@contextmanager
def sharing() -> Generator[None]:
    """Let all calls that begin in this context wait for each other's reservations."""
    token = _current.set(Sharing())
    try:
        yield
    finally:
        _current.reset(token)


def shared() -> Sharing:
    """Return the queue of the current call; a new one outside of `sharing`."""
    return _current.get() or Sharing()


class Gate:
    """What every model call passes: reserve, clamp, settle.

    Prompts are counted, and the ledger's transactions run, in threads. A cancelled reservation is released; a
    settlement is always finished. Calls that share their room wait for one another before a limit is reached.
    """

    def __init__(
        self, ledger: Ledger, *, logged: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`logged` waits until all events are on disk; None without a session store."""
        self.ledger = ledger
        self._logged = logged

    async def logged(self) -> None:
        """Wait until all events are on disk, as required before a call is sent; raises StoreError."""
        if self._logged is None:
            return
        try:
            await self._logged()
        except StoreError as failure:
            message = f"The model was not called because the session could not be saved: {failure.message}"
            raise StoreError(message, kept=failure.kept, fix=failure.fix) from failure

    async def hold(self, counted: Counted) -> Hold:
        """Reserve the worst case of a call; raises LimitReached, PriceUnknown, ModelDisabled or StoreError."""

        def reserve(*, cut: bool) -> Hold:
            ask = counted()
            return self.ledger.hold(ask if cut else replace(ask, min_tokens=ask.usual_tokens))

        return await shared().fit(
            lambda: _reserved(partial(reserve, cut=False), self.ledger.release),
            lambda: _reserved(partial(reserve, cut=True), self.ledger.release),
        )

    async def set_aside(self, counted: Counted) -> Hold:
        """Reserve the price of the final answer; replaces the turn's earlier reservation for it."""
        return await _reserved(lambda: self.ledger.set_aside(counted()), self.ledger.release)

    async def hold_final(self, aside: Hold, counted: Counted) -> Hold:
        """Replace the reservation of the final answer with its call; always fits if the call is not larger."""
        hold = await _reserved(lambda: self.ledger.exchange(aside, counted()), self.ledger.release)
        shared().ended(aside, by=hold)
        return hold

    async def settle(
        self,
        hold: Hold,
        usage: Usage | None,
        *,
        tool: str = "",
        ms: int | None = None,
        estimate: Usage | None = None,
    ) -> Settlement:
        """End a reservation with the reported usage; without usage all of it counts, and `estimate` is displayed."""
        settle = partial(self.ledger.settle, hold, usage, tool, ms=ms, estimate=estimate)
        return await _ended(hold, settle)

    async def release(self, hold: Hold, ms: int | None = None) -> None:
        """Cancel a reservation because nothing was billed; `ms` is the working time of a failed call."""
        await _ended(hold, partial(self.ledger.release, hold, ms))

    async def end_attempt(self, hold: Hold, ms: int) -> None:
        """Record the time of a failed attempt whose reservation the next attempt will use."""
        await finished(asyncio.to_thread(self.ledger.end_attempt, hold, ms))

    async def extend(self, entry: int) -> int:
        """Reserve more time for a running call or tool, and return how much."""
        return await asyncio.to_thread(self.ledger.extend, entry)

    async def start_tool(
        self, account: Account, tool: str, nano: int, paid: Callable[[], None] = lambda: None
    ) -> ToolHold:
        """Charge one use of a tool and reserve its first time; raises LimitReached if a cap has too little left.

        `paid` is called after the charge, even if the waiting task is cancelled.
        """

        def start() -> ToolHold:
            hold = self.ledger.start_tool(account, tool, nano)
            paid()
            return hold

        def undo(hold: ToolHold) -> None:
            self.ledger.end_tool(hold, 0)

        return await shared().fit(lambda: _reserved(start, undo))

    async def end_tool(self, hold: ToolHold, ms: int) -> None:
        """Record the working time of a tool."""
        await _ended(hold, partial(self.ledger.end_tool, hold, ms))

    async def require(self, account: Account, nano: int) -> None:
        """Raise LimitReached if a cap does not have this much left for a tool; reserves nothing."""

        def tight() -> CapState | None:
            for cap in self.ledger.caps(account.session, account.turn, task=account.task):
                if cap.unit == "usd" and cap.over("") and nano > cap.left:
                    return cap
            return None

        async def look() -> None:
            cap = await asyncio.to_thread(tight)
            if cap is not None and cap.scope not in SCOPES:
                await asyncio.to_thread(self.ledger.refresh_shared_caps)
                cap = await asyncio.to_thread(tight)
            if cap is not None:
                raise limit_reached(cap, nano)

        await shared().fit(look)


async def _reserved(reserve: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Reserve in a thread; the reservation of a cancelled task is undone."""
    task = asyncio.ensure_future(asyncio.to_thread(reserve))

    async def undone() -> None:
        # A reservation that cannot be released stays counted and is listed as unreconciled.
        with suppress(StoreError):
            await asyncio.wait([task])
            if task.exception() is None:
                await asyncio.to_thread(undo, task.result())

    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await finished(undone())
        raise


async def _ended(hold: Hold | ToolHold, end: Callable[[], T]) -> T:
    """End a reservation in a thread, even if the waiting task is cancelled, and wake the waiting call."""
    try:
        return await finished(asyncio.to_thread(end))
    finally:
        shared().ended(hold)


async def finished(work: Awaitable[T]) -> T:
    """Run to completion even if the waiting task is cancelled, then return the result or raise CancelledError."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: BLE001 - `result` raises it again below
            break
    if cancelled:
        task.exception()  # Retrieve it so that asyncio does not log it as never retrieved.
        raise asyncio.CancelledError
    return task.result()
