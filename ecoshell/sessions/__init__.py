"""Sessions: every event in one SQLite file that all shells write to, without stalling a screen; exports beside it."""

import asyncio
import json
import secrets
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Literal

from ecoshell.budget.database import Database
from ecoshell.errors import UsageError
from ecoshell.events import Event, TextArrived, TurnFinished, TurnStarted, from_json, to_json
from ecoshell.messages import visible_line
from ecoshell.options import NO_ROLE_MODELS, ROLES, RoleModels

VERSION = 1
SCHEMA = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, title TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
    workspace TEXT NOT NULL, model TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_updated ON sessions (updated);
CREATE TABLE events (
    session TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (session, seq)
)
"""

_IN_MEMORY = "What happened since is in memory only: it is written with the next event, or lost when ecoshell ends."
_AS_BEFORE = "Everything stays as it was."
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"
"""No letters that are read as one another."""
_PAGE = 500
"""Events read at a time, so that a reader holds up no writer for long."""
_decode = json.JSONDecoder().decode
_LAST = 2**62
"""A place behind every event."""
_LONGEST_TITLE = 60
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as a list shows it; times are seconds since 1970."""

    id: str
    title: str
    created: float
    updated: float
    workspace: str
    model: str
    """The one last asked; before the first question, the one the session was begun with."""

    @property
    def updated_text(self) -> str:
        """When the session was last used, in local time."""
        return datetime.fromtimestamp(self.updated).strftime("%Y-%m-%d %H:%M")


@dataclass(frozen=True, slots=True)
class SessionChoices:
    """What a session was last asked with, and where."""

    model: str
    mode: str
    """Empty before the first question."""
    roles: RoleModels
    workspace: str


class SessionStore(Database):
    """Sessions and their events; every method is one short transaction and may be called from any thread.

    Raises StoreError when the file is locked, full, read-only or damaged.
    """

    def __init__(self, path: Path, *, busy_seconds: float = 10.0, clock: Callable[[], float] = time.time) -> None:
        super().__init__(path, schema=SCHEMA, version=VERSION, busy_seconds=busy_seconds)
        self._clock = clock
        self._begun: dict[str, tuple[str, str, float, float, str, str]] = {}
        """Rows of sessions in which nothing has happened yet."""

    def create(self, *, workspace: str, model: str) -> str:
        """Begin a session; returns its id, such as `k3f9-2q`. It is written with the first thing that happens in it."""
        now = self._clock()
        with self.reading() as db:
            while True:
                letters = "".join(secrets.choice(_LETTERS) for _ in range(6))
                session = f"{letters[:4]}-{letters[4:]}"
                if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is None:
                    self._begun[session] = (session, "", now, now, _storable(workspace), _storable(model))
                    return session

    def append(self, session: str, events: Sequence[Event]) -> None:
        """Write events in their order, all or none.

        The first question becomes the title of a session that has none; the model asked last becomes its model.
        """
        now = self._clock()
        started = [event for event in events if isinstance(event, TurnStarted)]
        question, model = (started[0].question, _storable(started[-1].model)) if started else ("", "")
        lines = [json.dumps(to_json(event), separators=(",", ":")) for event in events]
        with self.writing(_IN_MEMORY) as db:
            self._write_begun(db, session)
            db.execute(
                """INSERT INTO sessions VALUES (?, ?, ?, ?, '', ?) ON CONFLICT DO UPDATE
                SET updated = excluded.updated, title = CASE title WHEN '' THEN excluded.title ELSE title END,
                model = CASE excluded.model WHEN '' THEN model ELSE excluded.model END""",
                (session, visible_line(question, _LONGEST_TITLE), now, now, model),
            )
            query = "SELECT COALESCE(MAX(seq), 0) AS seq FROM events WHERE session = ?"
            last = db.execute(query, (session,)).fetchone()["seq"]
            rows = [(session, seq, now, line) for seq, line in enumerate(lines, start=last + 1)]
            db.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        self._begun.pop(session, None)

    def events(self, session: str) -> Iterator[tuple[float, Event]]:
        """When each event was written, and the event; those that only another version knows are left out."""
        return ((at, event) for _, at, event in self._read(session))

    def past(self, session: str) -> Sequence[Event]:
        """The events to go on from: without the pieces of texts that are there whole, which are most of a long session.

        Of a turn that was cut short all pieces are there: nothing else has what was said until then.
        """
        found = [*self._read(session, "AND NOT json GLOB ?")]
        cut_short: list[tuple[int, int]] = []
        began: int | None = None
        for place, _, event in found:
            if isinstance(event, TurnStarted):
                if began is not None:
                    cut_short.append((began, place))
                began = place
            elif isinstance(event, TurnFinished) and began is not None:
                if event.status in ("interrupted", "error"):
                    cut_short.append((began, place))
                began = None
        if began is not None:
            cut_short.append((began, _LAST))
        for first, last in cut_short:
            found += self._read(session, "AND json GLOB ?", first, last)
        found.sort(key=itemgetter(0))
        return [event for _, _, event in found]

    def _read(
        self,
        session: str,
        pieces: Literal["", "AND json GLOB ?", "AND NOT json GLOB ?"] = "",
        first: int = 0,
        last: int = _LAST,
    ) -> Iterator[tuple[int, float, Event]]:
        """Events between two places, each with its own and its time; all, only pieces of streamed texts, or no such."""
        query = f"""SELECT seq, at, json FROM events WHERE session = ? AND seq BETWEEN ? AND ? {pieces}
            ORDER BY seq LIMIT {_PAGE}"""
        pattern = (_written(TextArrived),) if pieces else ()
        while True:
            with self.reading() as db:
                rows = db.execute(query, (session, first, last, *pattern)).fetchall()
            for row in rows:
                event = _event(row["json"])
                if event is not None:
                    yield row["seq"], row["at"], event
            if len(rows) < _PAGE:
                return
            first = rows[-1]["seq"] + 1

    def damaged(self, session: str) -> tuple[int, ...]:
        """The places of events that cannot be read as JSON any more; the first event has place 1."""
        query = "SELECT seq FROM events WHERE session = ? AND NOT json_valid(json) ORDER BY seq"
        with self.reading() as db:
            return tuple(row["seq"] for row in db.execute(query, (session,)).fetchall())

    def list(self, limit: int = 50) -> tuple[SessionInfo, ...]:
        """The sessions in which anything happened, the last used first."""
        with self.reading() as db:
            rows = db.execute(
                """SELECT * FROM sessions WHERE EXISTS (SELECT 1 FROM events WHERE session = id)
                ORDER BY updated DESC, id LIMIT ?""",
                (min(limit, _LAST),),
            ).fetchall()
        return tuple(SessionInfo(**dict(row)) for row in rows)

    def with_any(self, kind: type[Event]) -> tuple[str, ...]:
        """The ids of the sessions in which such an event has happened, the earliest first."""
        query = "SELECT session FROM events WHERE json GLOB ? GROUP BY session ORDER BY MIN(at), session"
        with self.reading() as db:
            return tuple(row["session"] for row in db.execute(query, (_written(kind),)).fetchall())

    def find(self, beginning: str) -> str:
        """The id that begins like this; raises UsageError when there is none, or more than one."""
        wanted = beginning.strip().lower()
        with self.reading() as db:
            rows = db.execute(
                "SELECT id FROM sessions WHERE substr(id, 1, ?) = ? ORDER BY updated DESC LIMIT ?",
                (len(wanted), _storable(wanted), _MOST_NAMED + 1),
            ).fetchall()
        ids = [str(row["id"]) for row in rows]
        if wanted in ids:
            return wanted
        if not wanted or not ids:
            raise _no_session(beginning)
        if len(ids) > 1:
            more = ", …" if len(ids) > _MOST_NAMED else ""
            raise UsageError(
                f"{beginning!r} is the beginning of several sessions: {', '.join(ids[:_MOST_NAMED])}{more}.",
                fix="Type more of it.",
            )
        return ids[0]

    def info(self, session: str) -> SessionInfo:
        """What is known of a session; raises UsageError when there is none with this id."""
        with self.reading() as db:
            row = db.execute("SELECT * FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None and session not in self._begun:
            raise _no_session(session)
        return SessionInfo(*self._begun[session]) if row is None else SessionInfo(**dict(row))

    def choices(self, session: str) -> SessionChoices:
        """What to go on with; raises UsageError when there is no such session."""
        info = self.info(session)
        query = "SELECT json FROM events WHERE session = ? AND json GLOB ? ORDER BY seq DESC LIMIT 1"
        with self.reading() as db:
            row = db.execute(query, (session, _written(TurnStarted))).fetchone()
        last = _event(row["json"]) if row else None
        if not isinstance(last, TurnStarted):
            return SessionChoices(info.model, "", NO_ROLE_MODELS, info.workspace)
        named = dict(zip(ROLES, last.roles, strict=False))
        return SessionChoices(last.session_model or last.model, last.mode, RoleModels(**named), info.workspace)

    def latest(self, workspace: str) -> str:
        """The id of the session last used in a folder; raises UsageError when there is none."""
        query = """SELECT id FROM sessions WHERE workspace = ? AND EXISTS (SELECT 1 FROM events WHERE session = id)
            ORDER BY updated DESC, id LIMIT 1"""
        with self.reading() as db:
            row = db.execute(query, (_storable(workspace),)).fetchone()
        if row is None:
            told = f"There is no session in {workspace} yet."
            raise UsageError(told, fix="Start without --continue; `ecoshell sessions` lists all.")
        return str(row["id"])

    def title(self, session: str) -> str:
        """The session's title; empty before the first question."""
        return self.info(session).title

    def rename(self, session: str, title: str) -> None:
        """Give a session another title; raises UsageError when it is empty or there is no such session."""
        if not title.strip():
            raise UsageError("The title is empty.", fix="Give one, such as: fix the readme.")
        with self.writing(_AS_BEFORE) as db:
            self._write_begun(db, session)
            line = visible_line(title, _LONGEST_TITLE)
            renamed = db.execute("UPDATE sessions SET title = ? WHERE id = ?", (line, session)).rowcount
        if not renamed:
            raise _no_session(session)

    def _write_begun(self, db: sqlite3.Connection, session: str) -> None:
        """Write the row of a session that was only begun; another writer of this process may have done so."""
        if row := self._begun.get(session):
            db.execute("INSERT OR IGNORE INTO sessions VALUES (?, ?, ?, ?, ?, ?)", row)

    def delete(self, session: str) -> None:
        """Remove a session and all its events; raises UsageError when there is no such session."""
        with self.writing(_AS_BEFORE) as db:
            deleted = db.execute("DELETE FROM sessions WHERE id = ?", (session,)).rowcount
            db.execute("DELETE FROM events WHERE session = ?", (session,))
        if not deleted:
            raise _no_session(session)


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

    async def record(self, session: str, event: Event) -> None:
        """Return when this event, and all before it, are written; raises StoreError when they cannot be.

        Cancelling it does not take the event back.
        """
        self.keep(session, event)
        await self.flush()

    def keep(self, session: str, event: Event) -> None:
        """Keep an event in memory; the next write takes it along."""
        self._pending.append((session, event))

    async def flush(self) -> None:
        """Return when what is in memory now is written, and wait for nothing that comes later; raises StoreError."""
        wanted = self._written + len(self._pending)
        while self._written < wanted:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write_next())
                # a failure whose waiter is gone is taken note of; its events are still queued, and met again
                self._writing.add_done_callback(lambda task: task.cancelled() or task.exception())
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


def _no_session(name: str) -> UsageError:
    return UsageError(f"There is no session {name!r}.", fix="`ecoshell sessions` lists them.")


def _written(kind: type[Event]) -> str:
    """How an event of this kind begins in the file, as a pattern."""
    return f'{{"type":"{kind.type}"*'


def _event(line: str) -> Event | None:
    try:
        return from_json(_decode(line))
    except (ValueError, TypeError, KeyError, RecursionError):  # an unknown type, fields of another version, or damage
        return None


def _storable(text: str) -> str:
    """The text without what SQLite cannot keep: halves of surrogate pairs, as file names may have."""
    return text.encode("utf-8", "backslashreplace").decode()
