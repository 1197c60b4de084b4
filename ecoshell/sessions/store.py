"""The SQLite file with all sessions and their events, shared by all shells of a user."""

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Literal, TypeVar

from ecoshell.budget.database import Database, storable
from ecoshell.errors import UsageError
from ecoshell.events import Event, TextArrived, TurnFinished, TurnStarted, from_json, to_json
from ecoshell.messages import visible_line
from ecoshell.options import EFFORTS, NO_ROLE_MODELS, ROLES, Effort, RoleModels
from ecoshell.sessions.lock import SessionLock

T = TypeVar("T", bound=Event)

VERSION = 2
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

_WITH_PARENTS = "ALTER TABLE sessions ADD COLUMN parent TEXT NOT NULL DEFAULT ''"
"""Version 2: the session that a subagent works for; empty for sessions of the user."""

_IN_MEMORY = (
    "Later events are in memory only: they are written with the next event, or lost on exit."
)
_UNCHANGED = "Nothing was changed."
_ID_CHARACTERS = "23456789abcdefghjkmnpqrstuvwxyz"
"""Without characters that look alike."""
_USED = "parent = '' AND EXISTS (SELECT 1 FROM events WHERE session = id)"
"""Sessions of the user with events."""
_PAGE = 500
"""Events per read transaction, so that readers do not block writers for long."""
_decode = json.JSONDecoder().decode
_MAX_SEQ = 2**62
_TITLE_CHARACTERS = 60
_MATCHES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session in a list; times are seconds since 1970.

    `model` is the one of the last question, or of the start before the first question.
    """

    id: str
    title: str
    created: float
    updated: float
    workspace: str
    model: str
    parent: str = ""
    """The session whose agent started this one for a subagent; empty for others."""

    @property
    def updated_text(self) -> str:
        """The time of the last use, in local time."""
        return datetime.fromtimestamp(self.updated).strftime("%Y-%m-%d %H:%M")


@dataclass(frozen=True, slots=True)
class LastChoices:
    """Models, mode, workspace and effort of the last question; `mode` is empty before the first one."""

    model: str
    mode: str
    roles: RoleModels
    workspace: str
    advisor: str = ""
    effort: Effort | None = None


class SessionStore(Database):
    """Sessions and their events; every method is one short transaction and thread-safe.

    Raises StoreError if the file is locked, read-only or damaged, or the disk is full.
    """

    def __init__(
        self, path: Path, *, busy_seconds: float = 10.0, clock: Callable[[], float] = time.time
    ) -> None:
        upgrades = (_WITH_PARENTS,)
        super().__init__(
            path, schema=SCHEMA, version=VERSION, upgrades=upgrades, busy_seconds=busy_seconds
        )
        self._clock = clock
        self._empty_sessions: dict[str, tuple[str, str, float, float, str, str, str]] = {}
        """Rows of sessions without events, which are not written yet."""

    def create(self, *, workspace: str, model: str, parent: str = "") -> str:
        """Start a session and return its ID, such as `k3f9-2q`; its first event writes it.

        `parent` is the session that a subagent's session belongs to.
        """
        now = self._clock()
        with self.reading() as db:
            while True:
                letters = "".join(secrets.choice(_ID_CHARACTERS) for _ in range(6))
                session = f"{letters[:4]}-{letters[4:]}"
                row = db.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone()
                if row is None:
                    new = (session, "", now, now, storable(workspace), storable(model), parent)
                    self._empty_sessions[session] = new
                    return session

    def lock(self, session: str, *, fix: str = "Close it there first.") -> SessionLock:
        """Keep other shells from opening and deleting a session; raises UsageError if it is open in one."""
        return SessionLock(self.path.with_name(f"{self.path.stem}.locks"), session, fix=fix)

    def append(self, session: str, events: Sequence[Event]) -> None:
        """Write events in order, all or none.

        The first question becomes the title of a session without one; the model of the last
        question becomes its model.
        """
        now = self._clock()
        turns = [event for event in events if isinstance(event, TurnStarted)]
        title = visible_line(turns[0].question, _TITLE_CHARACTERS) if turns else ""
        model = storable(turns[-1].model) if turns else ""
        lines = [json.dumps(to_json(event), separators=(",", ":")) for event in events]
        with self.writing(_IN_MEMORY) as db:
            if session in self._empty_sessions:
                self._write_empty_session(db, session)
            db.execute(
                """INSERT INTO sessions VALUES (?, ?, ?, ?, '', ?, '') ON CONFLICT DO UPDATE
                SET updated = excluded.updated, title = CASE title WHEN '' THEN excluded.title ELSE title END,
                model = CASE excluded.model WHEN '' THEN model ELSE excluded.model END""",
                (session, title, now, now, model),
            )
            db.executemany(
                """INSERT INTO events SELECT ?1, COALESCE(MAX(seq), 0) + 1, ?2, ?3 FROM events
                WHERE session = ?1""",
                [(session, now, line) for line in lines],
            )
        self._empty_sessions.pop(session, None)

    def events(self, session: str) -> Iterator[tuple[float, Event]]:
        """Yield the time and the event; skips events that are unknown to this version."""
        return ((at, event) for _, at, event in self._read(session))

    def events_after(self, session: str, number: int) -> list[tuple[int, Event]]:
        """Return the events after the one with this number, with their numbers; 0 returns all."""
        return [(seq, event) for seq, _, event in self._read(session, first=number + 1)]

    def history(self, session: str) -> Sequence[Event]:
        """Return the events for resuming a session.

        Streamed pieces of text, most of a long session, are only included for turns without an
        answer, as their full texts were never written.
        """
        rows = [*self._read(session, "AND NOT json GLOB ?")]
        cut_short: list[tuple[int, int]] = []
        start: int | None = None
        for seq, _, event in rows:
            if isinstance(event, TurnStarted):
                if start is not None:
                    cut_short.append((start, seq))
                start = seq
            elif isinstance(event, TurnFinished) and start is not None:
                if not event.answer:
                    cut_short.append((start, seq))
                start = None
        if start is not None:
            cut_short.append((start, _MAX_SEQ))
        for first, last in cut_short:
            rows += self._read(session, "AND json GLOB ?", first, last)
        rows.sort(key=itemgetter(0))
        return [event for _, _, event in rows]

    def _read(
        self,
        session: str,
        text_condition: Literal["", "AND json GLOB ?", "AND NOT json GLOB ?"] = "",
        first: int = 0,
        last: int = _MAX_SEQ,
    ) -> Iterator[tuple[int, float, Event]]:
        """Yield events between two sequence numbers, with their number and time.

        `text_condition` selects only streamed pieces of text, or no such pieces.
        """
        query = f"""SELECT seq, at, json FROM events WHERE session = ? AND seq BETWEEN ? AND ? {text_condition}
            ORDER BY seq LIMIT {_PAGE}"""
        pattern = (_json_pattern(TextArrived),) if text_condition else ()
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

    def damaged_events(self, session: str) -> tuple[int, ...]:
        """Return the numbers of events that are not valid JSON; the first event has number 1."""
        query = "SELECT seq FROM events WHERE session = ? AND NOT json_valid(json) ORDER BY seq"
        with self.reading() as db:
            return tuple(row["seq"] for row in db.execute(query, (session,)).fetchall())

    def list(self, limit: int = 50) -> tuple[SessionInfo, ...]:
        """Return the sessions with events, most recently used first, without those of subagents."""
        query = f"SELECT * FROM sessions WHERE {_USED} ORDER BY updated DESC, id LIMIT ?"
        with self.reading() as db:
            rows = db.execute(query, (min(limit, _MAX_SEQ),)).fetchall()
        return tuple(SessionInfo(**dict(row)) for row in rows)

    def sessions_with(self, kind: type[Event]) -> tuple[str, ...]:
        """Return the IDs of sessions that contain such an event, earliest first."""
        query = "SELECT session FROM events WHERE json GLOB ? GROUP BY session ORDER BY MIN(at), session"
        with self.reading() as db:
            rows = db.execute(query, (_json_pattern(kind),)).fetchall()
            return tuple(row["session"] for row in rows)

    def events_of(self, kind: type[T], session: str | None = None) -> Sequence[tuple[str, T]]:
        """Return the events of one kind with their sessions, of one session or of all, oldest first."""
        query = "SELECT session, json FROM events WHERE (?1 IS NULL OR session = ?1) AND json GLOB ?2 ORDER BY at, seq"
        with self.reading() as db:
            rows = db.execute(query, (session, _json_pattern(kind))).fetchall()
        events = ((str(row["session"]), _event(row["json"])) for row in rows)
        return [(session, event) for session, event in events if isinstance(event, kind)]

    def find(self, prefix: str) -> str:
        """Return the ID with this prefix; raises UsageError unless exactly one matches."""
        start = prefix.strip().lower()
        query = "SELECT id FROM sessions WHERE substr(id, 1, ?) = ? ORDER BY updated DESC LIMIT ?"
        with self.reading() as db:
            values = (len(start), storable(start), _MATCHES_SHOWN + 1)
            rows = db.execute(query, values).fetchall()
        ids = [str(row["id"]) for row in rows]
        if start in ids:
            return start
        if not start or not ids:
            raise _unknown_session(prefix)
        if len(ids) > 1:
            more = ", …" if len(ids) > _MATCHES_SHOWN else ""
            message = (
                f"{prefix!r} matches several sessions: {', '.join(ids[:_MATCHES_SHOWN])}{more}."
            )
            raise UsageError(message, fix="Type more characters.")
        return ids[0]

    def info(self, session: str) -> SessionInfo:
        """Return the session's entry; raises UsageError if the ID is unknown."""
        with self.reading() as db:
            row = db.execute("SELECT * FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is not None:
            return SessionInfo(**dict(row))
        if session in self._empty_sessions:
            return SessionInfo(*self._empty_sessions[session])
        raise _unknown_session(session)

    def last_choices(self, session: str) -> LastChoices:
        """Return the choices to resume with; raises UsageError if the ID is unknown."""
        info = self.info(session)
        query = (
            "SELECT json FROM events WHERE session = ? AND json GLOB ? ORDER BY seq DESC LIMIT 1"
        )
        with self.reading() as db:
            row = db.execute(query, (session, _json_pattern(TurnStarted))).fetchone()
        turn = _event(row["json"]) if row else None
        if not isinstance(turn, TurnStarted):
            return LastChoices(info.model, "", NO_ROLE_MODELS, info.workspace)
        roles = RoleModels(**dict(zip(ROLES, turn.roles, strict=False)))
        model = turn.session_model or turn.model
        efforts: Sequence[Effort] = [level for level in EFFORTS if level == turn.effort]
        effort = efforts[0] if efforts else None
        return LastChoices(model, turn.mode, roles, info.workspace, turn.advisor, effort)

    def latest(self, workspace: str) -> str:
        """Return the ID of the last used session of a folder; raises UsageError without one."""
        query = f"SELECT id FROM sessions WHERE workspace = ? AND {_USED} ORDER BY updated DESC, id"
        with self.reading() as db:
            row = db.execute(query, (storable(workspace),)).fetchone()
        if row is None:
            fix = "Start without --continue; `ecoshell sessions` lists all."
            raise UsageError(f"No session was started in {workspace}.", fix=fix)
        return str(row["id"])

    def title(self, session: str) -> str:
        """Return the session's title; empty before the first question."""
        return self.info(session).title

    def rename(self, session: str, title: str) -> None:
        """Change a session's title; raises UsageError if it is empty or the ID is unknown."""
        if not title.strip():
            raise UsageError("The title is empty.", fix="Type a title, such as: fix the readme.")
        with self.writing(_UNCHANGED) as db:
            self._write_empty_session(db, session)
            line = visible_line(title, _TITLE_CHARACTERS)
            result = db.execute("UPDATE sessions SET title = ? WHERE id = ?", (line, session))
        if not result.rowcount:
            raise _unknown_session(session)

    def _write_empty_session(self, db: sqlite3.Connection, session: str) -> None:
        """Write the row of a session without events, unless another thread has done so."""
        if row := self._empty_sessions.get(session):
            db.execute("INSERT OR IGNORE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def delete(self, session: str) -> None:
        """Delete a session, those of its subagents, and their events.

        Raises UsageError if the ID is unknown or a shell has the session open.
        """
        lock = self.lock(session)
        try:
            self._delete(session)
        finally:
            lock.release()

    def _delete(self, session: str) -> None:
        family = """WITH RECURSIVE family (id) AS (
            SELECT ? UNION SELECT s.id FROM sessions s JOIN family f ON s.parent = f.id) SELECT id FROM family"""
        with self.writing(_UNCHANGED) as db:
            ids = [(row["id"],) for row in db.execute(family, (session,)).fetchall()]
            result = db.executemany("DELETE FROM sessions WHERE id = ?", ids)
            db.executemany("DELETE FROM events WHERE session = ?", ids)
        if not result.rowcount:
            raise _unknown_session(session)


def _unknown_session(name: str) -> UsageError:
    return UsageError(f"Unknown session {name!r}.", fix="`ecoshell sessions` lists all sessions.")


def _json_pattern(kind: type[Event]) -> str:
    """Return a GLOB pattern for the JSON of this kind of event."""
    return f'{{"type":"{kind.type}"*'


def _event(line: str) -> Event | None:
    """Return the event, or None if it is damaged or from another version."""
    try:
        return from_json(_decode(line))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
