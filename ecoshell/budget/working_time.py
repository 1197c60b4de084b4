"""The working time of one model or tool call: measured, reserved in slices, and stopped when a cap leaves no more."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from ecoshell.errors import StoreError

T = TypeVar("T")
_AHEAD = 1.0
"""Seconds before the end of a slice when the next one is reserved."""
_RETRY = 0.1
"""Seconds until a refused slice is requested again: another call may have ended."""


class TimeUp(Exception):
    """A cap in time leaves nothing for the running call."""


class WorkingTime:
    """Measures a call, and stops it when its reservation is used up and `extend` reserves no more.

    `held_ms` is None without a cap in time: then the call is only measured. Time in which the call waits for the user
    or for another measured call does not count.
    """

    def __init__(self, held_ms: int | None, extend: Callable[[], Awaitable[int]]) -> None:
        self._held_ms = held_ms
        self._extend = extend
        self._seconds = 0.0
        self._since: float | None = None
        self._pauses = 0
        self._deadline: asyncio.Timeout | None = None

    @property
    def ms(self) -> int:
        """The working time so far, at most what is reserved."""
        ms = round(1_000 * self._elapsed)
        return ms if self._held_ms is None else min(ms, self._held_ms)

    @property
    def _elapsed(self) -> float:
        return self._seconds + (0.0 if self._since is None else time.monotonic() - self._since)

    async def spend(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work; raises TimeUp when no time is left."""
        self._since = time.monotonic()
        try:
            if self._held_ms is None:
                return await work()
            async with asyncio.timeout(None) as self._deadline:
                self._schedule()
                extending = asyncio.create_task(self._keep_ahead(self._held_ms))
                try:
                    return await work()
                finally:
                    extending.cancel()
        except TimeoutError:
            if self._deadline is not None and self._deadline.expired():
                raise TimeUp from None
            raise
        finally:
            self._stop()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stop the clock, for example while the user answers a question."""
        if self._pauses == 0:
            self._stop()
            self._schedule()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._since = time.monotonic()
                self._schedule()

    def _stop(self) -> None:
        self._seconds = self._elapsed
        self._since = None

    def _schedule(self) -> None:
        """Move the deadline to the end of the reservation; without one while the clock is stopped."""
        if self._deadline is None or self._held_ms is None or self._deadline.expired():
            return
        left = self._held_ms / 1_000 - self._elapsed
        self._deadline.reschedule(
            None if self._since is None else asyncio.get_running_loop().time() + left
        )

    async def _keep_ahead(self, held_ms: int) -> None:
        """Reserve more shortly before the reservation is used up."""
        while True:
            await asyncio.sleep(max(_RETRY, held_ms / 1_000 - _AHEAD - self._elapsed))
            if held_ms / 1_000 - self._elapsed > _AHEAD:
                continue
            try:
                held_ms += await self._extend()
            except StoreError:  # The ledger is locked; the deadline stands.
                continue
            self._held_ms = held_ms
            self._schedule()


_current: ContextVar[WorkingTime | None] = ContextVar("working_time", default=None)


def current_time() -> WorkingTime | None:
    """Return the clock of the running tool; None outside of one."""
    return _current.get()


@contextmanager
def measuring(clock: WorkingTime) -> Generator[None]:
    """Make this the clock of the tool that runs in this context."""
    token = _current.set(clock)
    try:
        yield
    finally:
        _current.reset(token)
