"""The sessions there are: listed, renamed, deleted and exported, off the event loop."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ecoshell.budget.ledger import Ledger
from ecoshell.errors import UsageError
from ecoshell.sessions.export import as_json, as_markdown, write_new
from ecoshell.sessions.store import SessionInfo, SessionStore
from ecoshell.tools.undo import UndoLog


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session and what it has cost, as people are shown it; `spent_nano` is None when no price of it is known."""

    info: SessionInfo
    spent_nano: int | None
    calls: int
    """Model calls."""
    current: bool
    """Whether it is the one being talked in."""
    estimated: bool = False
    """Whether a part of what it has cost is an estimate."""


class Archive:
    """All sessions of the user; `current` gives the id of the one being talked in. Raises StoreError and UsageError."""

    def __init__(self, store: SessionStore, ledger: Ledger, *, undo: UndoLog, current: Callable[[], str]) -> None:
        self._store = store
        self._ledger = ledger
        self._undo = undo
        self._current = current

    async def rows(self, limit: int = 1000) -> list[SessionRow]:
        """The sessions in which anything happened, the last used first."""
        return await asyncio.to_thread(self._rows, limit)

    async def rename(self, session: str, title: str) -> None:
        """Give a session another title."""
        await asyncio.to_thread(self._store.rename, session, title)

    async def delete(self, session: str) -> None:
        """Remove a session and all that happened in it; what it cost stays in the ledger."""
        if session == self._current():
            raise UsageError("This is the session you are in.", fix="Begin or resume another one, then delete it.")
        await asyncio.to_thread(self._store.delete, session)
        await asyncio.to_thread(self._undo.forget_session, session)

    async def export(self, session: str, file: Path, *, running: bool = False) -> None:
        """Write a session into a new file: as JSON where the name ends so, else as Markdown; see `as_markdown`."""
        await asyncio.to_thread(self._export, session, file, running)

    def _rows(self, limit: int) -> list[SessionRow]:
        costs = {row.key: row for row in self._ledger.rows("session")}
        current = self._current()
        return [
            SessionRow(info, cost.shown_nano, cost.calls, info.id == current, cost.estimate_nano is not None)
            if (cost := costs.get(info.id))
            else SessionRow(info, 0, 0, info.id == current)
            for info in self._store.list(limit)
        ]

    def _export(self, session: str, file: Path, running: bool) -> None:
        write = as_json if file.suffix == ".json" else partial(as_markdown, running=running)
        write_new(file, write(self._store.events(session), self._store.info(session)))
