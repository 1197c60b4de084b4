"""The queue of events that are written to the session store in the background."""

import asyncio

from ecoshell.events import CallArriving, Event, SubagentProgressed
from ecoshell.sessions.store import SessionStore


class EventLog:
    """Writes each session's events in order; events of a failed write stay queued and precede later ones."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._pending: list[tuple[int, str, Event]] = []
        """Number, session and event, oldest first."""
        self._number = 0
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
        """Add an event to the next write, unless it matters only to those who watch."""
        if isinstance(event, CallArriving | SubagentProgressed):
            return
        self._number += 1
        self._pending.append((self._number, session, event))

    async def start(self, *, workspace: str, model: str, parent: str) -> str:
        """Start a subagent's session; see `SessionStore.create`."""
        return await asyncio.to_thread(
            self._store.create, workspace=workspace, model=model, parent=parent
        )

    async def flush(self) -> None:
        """Return when all events queued so far are written; raises StoreError."""
        last = self._number
        while self._pending and self._pending[0][0] <= last:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write_next())
                # Retrieve the exception of a task whose caller was cancelled; its events stay queued.
                self._writing.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._writing)

    async def _write_next(self) -> None:
        """Write the events of the session whose event is the oldest."""
        session, number = self._pending[0][1], self._number
        batch = [event for _, owner, event in self._pending if owner == session]
        await asyncio.to_thread(self._store.append, session, batch)
        self._pending = [
            entry for entry in self._pending if entry[1] != session or entry[0] > number
        ]
