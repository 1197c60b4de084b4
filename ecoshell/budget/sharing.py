"""Calls made side by side share the room under the caps: one waits for what another holds and will give back.

What a call may cost at most is held while it is under way, and mostly not spent. So a call that finds no room beside
such holds has not reached a limit yet.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from ecoshell.budget.holds import Hold
from ecoshell.errors import LimitReached

T = TypeVar("T")


class Sharing:
    """The line in which calls of one parallel plan wait for room, and what those hold that have found it."""

    def __init__(self) -> None:
        self._line = asyncio.Lock()
        """The first in line tries, and waits; the others come after it, so that nobody is passed over for ever."""
        self._held = set[int]()
        """Entries of the ledger."""
        self._freed = asyncio.Event()
        """Set, and replaced by another, at the next end of a hold."""

    async def hold(self, whole: Callable[[], Awaitable[Hold]], cut: Callable[[], Awaitable[Hold]]) -> Hold:
        """Reserve the whole of a call, or what there is room for when no other call holds anything."""
        async with self._line:
            hold = await self._as_soon_as_it_fits(whole, cut)
            self._held.add(hold.entry)
            return hold

    async def pay(self, pay: Callable[[], Awaitable[T]]) -> T:
        """Do what raises LimitReached where there is no room, once there is or no other call holds anything."""
        async with self._line:
            return await self._as_soon_as_it_fits(pay, pay)

    def ended(self, hold: Hold) -> None:
        """A call is over: what it had held is spent or free again."""
        if hold.entry in self._held:
            self._held.remove(hold.entry)
            self._freed.set()
            self._freed = asyncio.Event()

    def replaced(self, hold: Hold, by: Hold) -> None:
        """A hold has taken another's place."""
        if hold.entry in self._held:
            self._held.add(by.entry)
            self.ended(hold)

    async def _as_soon_as_it_fits(self, attempt: Callable[[], Awaitable[T]], last: Callable[[], Awaitable[T]]) -> T:
        """Try whenever a hold has ended; when there is none, `last` tells how it is."""
        while True:
            freed = self._freed
            try:
                return await attempt()
            except LimitReached:
                if not self._held and not freed.is_set():
                    break
            await freed.wait()
        return await last()


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
