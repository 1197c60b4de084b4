"""The user's sessions: listing, renaming, deleting and exporting them."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ecoshell.budget.ledger import Ledger
from ecoshell.errors import UsageError
from ecoshell.paths import expanded
from ecoshell.sessions import SessionInfo, SessionStore


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session with its model calls and their cost."""

    info: SessionInfo
    spent_nano: int | None
    """None if all its prices are unknown."""
    calls: int
    current: bool
    estimated: bool = False
    """Whether the cost is partly an estimate."""


@dataclass(frozen=True, slots=True)
class Archive:
    """All sessions of the user. Raises StoreError and UsageError."""

    store: SessionStore
    ledger: Ledger
    forget: Iterable[Callable[[str], None]]
    """Each removes other data of a session, and may block."""
    current: Callable[[], str]
    """Returns the ID of the open session."""
    workspace: str = ""

    def file(self, name: str) -> Path:
        """The file with this name, quoted or not; a relative name is in the workspace."""
        name = name.strip()
        if len(name) > 2 and name[0] == name[-1] and name[0] in "\"'":
            name = name[1:-1]
        return Path(self.workspace, expanded(name))

    async def rows(self, limit: int = 1000) -> list[SessionRow]:
        """The sessions that are not empty, the last used first."""
        costs = {row.key: row for row in await asyncio.to_thread(self.ledger.rows, "session")}
        current, rows = self.current(), list[SessionRow]()
        for info in await asyncio.to_thread(self.store.list, limit):
            cost = costs.get(info.id)
            figures = (cost.shown_nano, cost.calls) if cost else (0, 0)
            is_estimated = cost is not None and cost.estimate_nano is not None
            rows.append(SessionRow(info, *figures, info.id == current, is_estimated))
        return rows

    async def rename(self, session: str, title: str) -> None:
        await asyncio.to_thread(self.store.rename, session, title)

    async def delete(self, session: str) -> None:
        """Delete a session and its data; its costs stay in the ledger."""
        if session == self.current():
            fix = "Start or resume another session, then delete this one."
            raise UsageError("This session is open.", fix=fix)
        await asyncio.to_thread(self.store.delete, session)
        for forget in self.forget:
            await asyncio.to_thread(forget, session)

    async def export(self, session: str, file: Path, *, running: bool = False) -> None:
        """Write a session to a new file, as JSON if its suffix is `.json`, otherwise as Markdown.

        `running` says whether a turn is running, as in `as_markdown`.
        """
        from ecoshell.sessions.export import as_json, as_markdown, write_new

        write = as_json if file.suffix == ".json" else partial(as_markdown, running=running)
        store = self.store
        await asyncio.to_thread(
            lambda: write_new(file, write(store.events(session), store.info(session)))
        )
