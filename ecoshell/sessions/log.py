"""The queue of events that are written to the session store in the background."""

import asyncio
from collections import deque
from itertools import takewhile

from ecoshell.events import Event
from ecoshell.sessions.store import SessionStore


class EventLog:
    """Writes events in order; events of a failed write stay queued and precede later ones."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._pending: deque[tuple[str, Event]] = deque()
        self._write_count = 0
        self._writing: asyncio.Task[None] | None = None

    @property
    def pending(self) -> int:
        """Number of events in memory only."""
        return len(self._pending)

    async def record(self, session: str, event: Event) -> None:
        """Queue an event, and return when it is written; raises StoreError.

        The event stays queued if this call is cancelled.
        """
        self.queue(session, event)
        await self.flush()

    def queue(self, session: str, event: Event) -> None:
        """Add an event to the next write."""
        self._pending.append((session, event))

    async def flush(self) -> None:
        """Return when all events queued so far are written; raises StoreError."""
        target = self._write_count + len(self._pending)
        while self._write_count < target:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write_next())
                # Retrieve the exception of a task whose caller was cancelled; its events stay queued.
                self._writing.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._writing)

    async def _write_next(self) -> None:
        """Write the first events that belong to one session."""
        session = self._pending[0][0]
        batch = [event for _, event in takewhile(lambda item: item[0] == session, self._pending)]
        await asyncio.to_thread(self._store.append, session, batch)
        for _ in batch:
            self._pending.popleft()
        self._write_count += len(batch)
