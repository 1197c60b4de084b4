"""Writes events from an event loop: in order, off the loop, several at a time, and never half."""

import asyncio
from collections import deque
from collections.abc import Sequence

from ecoshell.events import Event
from ecoshell.sessions.store import SessionStore


class EventLog:
    """The queue before the store. What could not be written stays in it and goes first the next time."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._pending: deque[tuple[str, Event]] = deque()
        self._written = 0
        """Events that were ever written."""
        self._writing: asyncio.Task[None] | None = None

    @property
    def pending(self) -> int:
        """How many events are in memory only."""
        return len(self._pending)

    async def record(self, session: str, events: Sequence[Event]) -> None:
        """Return when these events, and all before them, are written; raises StoreError when they cannot be.

        Cancelling it does not take the events back.
        """
        self.keep(session, events)
        await self.flush()

    def keep(self, session: str, events: Sequence[Event]) -> None:
        """Keep events in memory; the next write takes them along."""
        self._pending.extend((session, event) for event in events)

    async def flush(self) -> None:
        """Return when what is in memory now is written, and wait for nothing that comes later; raises StoreError."""
        wanted = self._written + len(self._pending)
        while self._written < wanted:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write_next())
                self._writing.add_done_callback(_look_at)
            await asyncio.shield(self._writing)

    async def _write_next(self) -> None:
        """Write the events at the head of the queue that belong to one session."""
        session = self._pending[0][0]
        batch: list[Event] = []
        for owner, event in self._pending:
            if owner != session:
                break
            batch.append(event)
        await asyncio.to_thread(self._store.append, session, batch)
        for _ in batch:
            self._pending.popleft()
        self._written += len(batch)


def _look_at(task: "asyncio.Task[None]") -> None:
    """Take note of a failure whose waiter is gone; its events are still queued and the next writer meets it again."""
    if not task.cancelled():
        task.exception()
