"""The experience of one user: uses of tools (BTP §2.2, U), in one SQLite file for all shells."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ecoshell.budget.database import Database, storable
from ecoshell.errors import StoreError, UsageError

VERSION = 7
SCHEMA = """
CREATE TABLE queries (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL UNIQUE);
CREATE TABLE uses (
    id INTEGER PRIMARY KEY AUTOINCREMENT, query INTEGER NOT NULL, tool TEXT NOT NULL, document_hash TEXT NOT NULL,
    arguments TEXT NOT NULL, result TEXT NOT NULL, result_hash TEXT NOT NULL, ok INTEGER NOT NULL, helpful INTEGER,
    judged_by TEXT NOT NULL, mark INTEGER, model TEXT NOT NULL, price_nano INTEGER NOT NULL, step_nano INTEGER,
    step_tokens INTEGER NOT NULL, seconds REAL NOT NULL, size_level INTEGER NOT NULL, session TEXT NOT NULL,
    turn INTEGER NOT NULL, call TEXT NOT NULL, at TEXT NOT NULL
);
CREATE UNIQUE INDEX uses_once ON uses (session, turn, call) WHERE session != '';
CREATE INDEX uses_of_query ON uses (query);
CREATE TABLE state (generation INTEGER NOT NULL);
INSERT INTO state VALUES (1)
"""
_UPGRADES = (
    *("", "", "", ""),
    "DROP TABLE IF EXISTS vectors; DROP TABLE IF EXISTS attempts; DROP TABLE IF EXISTS predictions",
    "ALTER TABLE uses ADD COLUMN subagent_model TEXT NOT NULL DEFAULT ''",
)
"""Earlier versions differed by these tables and this column."""
MARKED = "you"
"""The judge of uses that the user marked."""
_MAX_INTEGER = 2**63 - 1
_NOT_STORED = "The turn continues, and this use is not stored."
_UNCHANGED = "Nothing was changed."
_DROP_QUESTIONS = "DELETE FROM queries WHERE id NOT IN (SELECT query FROM uses)"
_COUNT_UP = "UPDATE state SET generation = generation + 1"


@dataclass(frozen=True, slots=True)
class Use:
    """One use of one tool, U = ⟨q, d(t), p, r⟩ (BTP §2.2), with redacted texts."""

    query: str
    tool: str
    document_hash: str
    arguments: str
    """JSON text, truncated."""
    result: str
    """The beginning of the result."""
    result_hash: str
    ok: bool
    helpful: bool | None
    """None if undecided."""
    judged_by: str
    """`rules`, `classifier`, `model`, `plugin` or `you`; empty if not judged."""
    model: str
    price_nano: int
    """The price of the tool itself."""
    step_nano: int | None
    """The price of the model step that made the call; None if unknown."""
    step_tokens: int
    """Input and output tokens of that step."""
    seconds: float
    """Duration of the tool and of that step."""
    size_level: int
    """0 to 3, by length of the arguments."""
    session: str = ""
    turn: int = 0
    call: str = ""
    """The call's ID within its turn; session, turn and call identify a use."""
    at: str = ""
    """UTC, ISO 8601."""
    subagent_model: str = ""
    """The model of the subagent that the call started; empty if it started none."""


_COLUMNS = tuple(spec.name for spec in fields(Use) if spec.name != "query")
_READ = {
    "helpful": "COALESCE(mark, helpful) AS helpful",
    "judged_by": f"CASE WHEN mark IS NULL THEN judged_by ELSE '{MARKED}' END AS judged_by",
}
"""The expressions that read columns which the user's mark replaces."""
_JOINED = "uses JOIN queries ON queries.id = uses.query"
_SELECT = f"SELECT uses.id AS id, text AS query, {', '.join(_READ.get(name, name) for name in _COLUMNS)} FROM {_JOINED}"
_SAME_CALL = "session != '' AND session = ? AND turn = ? AND call = ?"
"""Condition that identifies a use, with the terms of the partial index."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A use with its row number."""

    id: int
    use: Use


@dataclass(frozen=True, slots=True)
class Removal:
    """The number of removed rows, and whether the file's log is free of them, too."""

    uses: int
    erased: bool


@dataclass(frozen=True, slots=True)
class Columns:
    """Uses as parallel columns, oldest first; `query` holds IDs."""

    id: list[int] = field(default_factory=list[int])
    query: list[int] = field(default_factory=list[int])
    session: list[str] = field(default_factory=list[str])
    turn: list[int] = field(default_factory=list[int])
    tool: list[str] = field(default_factory=list[str])
    document_hash: list[str] = field(default_factory=list[str])
    helpful: list[int | None] = field(default_factory=list[int | None])
    price_nano: list[int] = field(default_factory=list[int])
    step_nano: list[int | None] = field(default_factory=list[int | None])
    step_tokens: list[int] = field(default_factory=list[int])
    seconds: list[float] = field(default_factory=list[float])
    model: list[str] = field(default_factory=list[str])
    subagent_model: list[str] = field(default_factory=list[str])


_COLUMN_NAMES = tuple(spec.name for spec in fields(Columns))


@dataclass(frozen=True, slots=True)
class Choice:
    """A selection of uses; empty fields do not restrict it."""

    ids: Sequence[int] = ()
    tool: str = ""
    text: str = ""
    """Substring of the question."""
    before: str = ""
    """UTC, ISO 8601; excludes rows without a time."""

    def condition(self) -> tuple[str, list[Any]]:
        """Return the selection as an SQL condition with its values."""
        parts: list[tuple[str, list[Any]]] = []
        if self.ids:
            parts.append((f"uses.id IN ({', '.join('?' * len(self.ids))})", [*self.ids]))
        if self.tool:
            parts.append(("tool = ?", [self.tool]))
        if self.text:
            parts.append(("instr(lower(text), lower(?)) > 0", [self.text]))
        if self.before:
            parts.append(("at != '' AND at < ?", [self.before]))
        condition = " AND ".join(part for part, _ in parts) or "1"
        return condition, [value for _, values in parts for value in values]


class ExperienceStore:
    """Stores uses and their questions; every method is one short transaction and thread-safe.

    Raises StoreError when the file is locked, full, read-only or damaged.
    """

    def __init__(self, path: Path, *, busy_seconds: float = 10.0) -> None:
        self._database = Database(
            path,
            schema=SCHEMA,
            version=VERSION,
            upgrades=_UPGRADES,
            busy_seconds=busy_seconds,
            checked=False,
        )

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @property
    def generation(self) -> int:
        """Changes when any process marks, replaces or removes existing rows."""
        with self._database.reading() as db:
            return int(db.execute("SELECT generation FROM state").fetchone()[0])

    def add(self, uses: Iterable[Use]) -> None:
        """Store uses; one of the same session, turn and call replaces the stored one, but keeps its mark."""
        with self._database.writing(_NOT_STORED) as db:
            for use in uses:
                key = (storable(use.session), use.turn, storable(use.call))
                stored = db.execute(f"SELECT id, mark FROM uses WHERE {_SAME_CALL}", key).fetchone()
                if stored is not None:
                    db.execute("DELETE FROM uses WHERE id = ?", (stored["id"],))
                _insert(db, use, mark=None if stored is None else stored["mark"])
                if stored is not None:
                    db.execute(_DROP_QUESTIONS)
                    db.execute(_COUNT_UP)

    def mark(self, session: str, turn: int, call: str, helpful: bool | None) -> bool:
        """Store the user's mark of a use, None to remove it; returns False if the use is not stored."""
        with self._database.writing(
            "The mark is stored in the session, but not used for planning."
        ) as db:
            values = (helpful, storable(session), turn, storable(call))
            marked = db.execute(f"UPDATE uses SET mark = ? WHERE {_SAME_CALL}", values).rowcount
            if marked:
                db.execute(_COUNT_UP)
            return marked > 0

    def find(self, choice: Choice = Choice(), limit: int = -1) -> list[Stored]:
        """Return the selected uses, latest first."""
        condition, values = choice.condition()
        with self._database.reading() as db:
            query = f"{_SELECT} WHERE {condition} ORDER BY uses.id DESC LIMIT ?"
            rows = db.execute(query, (*values, min(limit, _MAX_INTEGER))).fetchall()
        return [Stored(int(row["id"]), _use(row)) for row in rows]

    def get(self, number: int) -> Stored:
        """Return a use by number; raises UsageError if it does not exist."""
        rows = self.find(Choice(ids=(number,))) if 0 < number <= _MAX_INTEGER else []
        if not rows:
            raise UsageError(f"There is no use {number}.", fix="`ecoshell experience` lists them.")
        return rows[0]

    def uses(self) -> list[Use]:
        """Return all uses, oldest first."""
        return [stored.use for stored in reversed(self.find())]

    def forget(self, choice: Choice) -> Removal:
        """Erase the selected uses and unused questions from the file, including its log."""
        with self._database.writing(_UNCHANGED) as db:
            db.execute("PRAGMA secure_delete = ON")  # also if the transaction is interrupted
            condition, values = choice.condition()
            uses = db.execute(f"SELECT uses.id FROM {_JOINED} WHERE {condition}", values).fetchall()
            db.executemany("DELETE FROM uses WHERE id = ?", map(tuple, uses))
            db.execute(_DROP_QUESTIONS)
            if uses:
                db.execute(_COUNT_UP)
        return Removal(len(uses), erased=self._database.rewrite())

    def queries(self, after: int = 0) -> list[tuple[int, str]]:
        """Return questions with IDs after `after`."""
        with self._database.reading() as db:
            rows = db.execute("SELECT id, text FROM queries WHERE id > ? ORDER BY id", (after,))
            return [(row["id"], row["text"]) for row in rows]

    def columns(self, after: int = 0) -> Columns:
        """Return uses with IDs after `after`, with their present judgments."""
        chosen = ", ".join(_READ.get(name, name) for name in _COLUMN_NAMES)
        with self._database.reading() as db:
            db.row_factory, usual = None, db.row_factory
            try:
                query = f"SELECT {chosen} FROM uses WHERE id > ? ORDER BY id"
                rows = db.execute(query, (after,)).fetchall()
            finally:
                db.row_factory = usual
        return Columns(*map(list, zip(*rows, strict=True))) if rows else Columns()


def _insert(db: sqlite3.Connection, use: Use, *, mark: object) -> None:
    text = storable(use.query)
    db.execute("INSERT OR IGNORE INTO queries (text) VALUES (?)", (text,))
    query = db.execute("SELECT id FROM queries WHERE text = ?", (text,)).fetchone()[0]
    values = [getattr(use, name) for name in _COLUMNS]
    stored = [storable(value) if isinstance(value, str) else value for value in values]
    columns = ("query", *_COLUMNS, "mark")
    places = ", ".join("?" * len(columns))
    db.execute(f"INSERT INTO uses ({', '.join(columns)}) VALUES ({places})", (query, *stored, mark))


def _use(row: sqlite3.Row) -> Use:
    """Return the use of a row; raises StoreError for invalid values, because SQLite accepts any value."""
    values: dict[str, Any] = {}
    for spec in fields(Use):
        value, kind = row[spec.name], spec.type
        if kind in (bool, bool | None):
            value = {0: False, 1: True}.get(value, value)
        if not isinstance(value, kind):  # pyright: ignore[reportArgumentType]
            raise StoreError(
                f"The experience is damaged: use {row['id']} has no valid `{spec.name}`.",
                fix=f"Forget it with `ecoshell experience forget {row['id']}`.",
            )
        values[spec.name] = value
    return Use(**values)
