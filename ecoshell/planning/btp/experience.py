"""The experience of one user: every use of a tool, in one SQLite file that all shells write to (BTP §2.2, U)."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ecoshell.budget.database import Database
from ecoshell.errors import StoreError, UsageError
from ecoshell.planning.btp.base import Use

VERSION = 1
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
CREATE TABLE vectors (query INTEGER NOT NULL, encoder TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (query, encoder));
CREATE TABLE state (generation INTEGER NOT NULL);
INSERT INTO state VALUES (1)
"""
MARKED = "you"
"""Who judged what the person marked."""

_LARGEST = 2**63 - 1
"""SQLite's largest whole number."""
_NAMED = "session != '' AND session = ? AND turn = ? AND call = ?"
"""With the words of the index, without which it would not be used."""
_NOT_KEPT = "The turn goes on; what it has learned is tried again with the next use."
_AS_BEFORE = "Everything stays as it was."
_TYPES: dict[str, Any] = {spec.name: spec.type for spec in fields(Use)}
_KEPT = tuple(spec.name for spec in fields(Use) if spec.name != "query")
_COLUMNS = f"query, {', '.join(_KEPT)}"
_AS_JUDGED = {
    "helpful": "COALESCE(mark, helpful) AS helpful",
    "judged_by": f"CASE WHEN mark IS NULL THEN judged_by ELSE '{MARKED}' END AS judged_by",
}
_READ = ", ".join(_AS_JUDGED.get(name, name) for name in _KEPT)
_SELECT = f"SELECT uses.id AS id, text AS query, {_READ} FROM uses JOIN queries ON queries.id = uses.query"


@dataclass(frozen=True, slots=True)
class KeptUse:
    """A use under the number it is kept by."""

    id: int
    use: Use


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many uses were removed, and whether nothing of them is left in the file's log."""

    uses: int
    erased: bool


@dataclass(frozen=True, slots=True)
class Columns:
    """Uses as parallel columns, the earliest first; `query` holds ids."""

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


_COLUMN_NAMES = tuple(spec.name for spec in fields(Columns))


@dataclass(frozen=True, slots=True)
class Choice:
    """Which uses are meant; what is empty says nothing."""

    ids: Sequence[int] = ()
    tool: str = ""
    text: str = ""
    """Somewhere in the question."""
    before: str = ""
    """UTC, ISO 8601; uses of unknown time are not meant."""

    def condition(self) -> tuple[str, list[Any]]:
        """The choice as SQL over uses and queries."""
        parts: list[tuple[str, list[Any]]] = []
        if self.ids:
            parts.append((f"uses.id IN ({', '.join('?' * len(self.ids))})", [*self.ids]))
        if self.tool:
            parts.append(("tool = ?", [self.tool]))
        if self.text:
            parts.append(("instr(lower(text), lower(?)) > 0", [self.text]))
        if self.before:
            parts.append(("at != '' AND at < ?", [self.before]))
        return " AND ".join(part for part, _ in parts) or "1", [value for _, values in parts for value in values]


class ExperienceStore:
    """Uses and the questions they were made for; every method is one short transaction, and any thread may call it.

    Raises StoreError when the file is locked, full, read-only or damaged.
    """

    def __init__(self, path: Path, *, busy_seconds: float = 10.0) -> None:
        self._database = Database(path, schema=SCHEMA, version=VERSION, busy_seconds=busy_seconds)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @property
    def generation(self) -> int:
        """Changes when a use that was there is judged anew, replaced or forgotten, by whichever process."""
        with self._database.reading() as db:
            return int(db.execute("SELECT generation FROM state").fetchone()[0])

    def add(self, uses: Iterable[Use]) -> None:
        """Keep uses; one that is there already, by session, turn and call, is replaced, and keeps its mark."""
        with self._database.writing(_NOT_KEPT) as db:
            for use in uses:
                there = db.execute(f"SELECT id, mark FROM uses WHERE {_NAMED}", _name(use)).fetchone()
                if there is None:
                    _insert(db, use)
                    continue
                db.execute("DELETE FROM uses WHERE id = ?", (there["id"],))
                _insert(db, use, there["mark"])
                _drop_what_nothing_needs(db)
                _count_up(db)

    def add_new(self, uses: Iterable[Use]) -> int:
        """Keep those uses that are not there yet; gives how many these were.

        One without a session is there when one is equal in every field; as many equal ones as come are kept.
        """
        with self._database.writing(_AS_BEFORE) as db:
            unnamed = Counter(_kept(row).use for row in db.execute(f"{_SELECT} WHERE session = ''"))
            added = 0
            for use in map(_as_stored, uses):
                if use.session:
                    there = db.execute(f"SELECT 1 FROM uses WHERE {_NAMED}", _name(use)).fetchone() is not None
                else:
                    there = unnamed[use] > 0
                    unnamed[use] -= 1
                if not there:
                    _insert(db, use)
                    added += 1
            return added

    def mark(self, session: str, turn: int, call: str, helpful: bool | None) -> bool:
        """Keep the person's word on a use, None takes it back; False when no such use is kept."""
        with self._database.writing("The mark stands in the session, and is not used for planning.") as db:
            told = (helpful, _storable(session), turn, _storable(call))
            marked = db.execute(f"UPDATE uses SET mark = ? WHERE {_NAMED}", told).rowcount
            if marked:
                _count_up(db)
            return marked > 0

    def find(self, choice: Choice = Choice(), limit: int = -1) -> list[KeptUse]:
        """The uses that are meant, the latest first."""
        condition, values = choice.condition()
        with self._database.reading() as db:
            query = f"{_SELECT} WHERE {condition} ORDER BY uses.id DESC LIMIT ?"
            return [_kept(row) for row in db.execute(query, (*values, min(limit, _LARGEST))).fetchall()]

    def use(self, number: int) -> KeptUse:
        """The use of this number; raises UsageError when there is none."""
        found = self.find(Choice(ids=(number,))) if 0 < number <= _LARGEST else []
        if not found:
            raise UsageError(f"There is no use {number}.", fix="`ecoshell experience` lists them.")
        return found[0]

    def uses(self) -> Iterator[Use]:
        """All uses, the earliest first."""
        with self._database.reading() as db:
            rows = db.execute(f"{_SELECT} ORDER BY uses.id").fetchall()
        return (_kept(row).use for row in rows)

    def forget(self, choice: Choice) -> Forgotten:
        """Remove the uses that are meant, and what only they needed, from the file itself.

        Also what an earlier forgetting had to leave in the log.
        """
        condition, values = choice.condition()
        with self._database.writing(_AS_BEFORE) as db:
            db.execute("PRAGMA secure_delete = ON")  # holds also when what follows is cut short
            meant = f"SELECT uses.id FROM uses JOIN queries ON queries.id = uses.query WHERE {condition}"
            forgotten = db.execute(f"DELETE FROM uses WHERE id IN ({meant})", values).rowcount
            _drop_what_nothing_needs(db)
            if forgotten:
                _count_up(db)
        return Forgotten(forgotten, erased=self._database.rewrite())

    def queries(self, after: int = 0) -> list[tuple[int, str]]:
        """Questions by id, those that came after one."""
        with self._database.reading() as db:
            return [*map(tuple, db.execute("SELECT id, text FROM queries WHERE id > ? ORDER BY id", (after,)))]

    def columns(self, after: int = 0) -> Columns:
        """Uses that came after one, as they are judged now."""
        chosen = ", ".join(_AS_JUDGED.get(name, name) for name in _COLUMN_NAMES)
        with self._database.reading() as db:
            db.row_factory, usual = None, db.row_factory
            try:
                rows = db.execute(f"SELECT {chosen} FROM uses WHERE id > ? ORDER BY id", (after,)).fetchall()
            finally:
                db.row_factory = usual
        return Columns(*map(list, zip(*rows, strict=True))) if rows else Columns()

    def vectors(self, encoder: str, after: int = 0) -> list[tuple[int, bytes]]:
        """Vectors of questions by their ids, as this encoder made them."""
        with self._database.reading() as db:
            query = """SELECT query, data FROM vectors WHERE encoder = ? AND query > ? AND typeof(data) = 'blob'
                ORDER BY query"""
            return [*map(tuple, db.execute(query, (encoder, after)))]

    def keep_vectors(self, encoder: str, rows: Iterable[tuple[int, bytes]]) -> None:
        """Keep vectors of questions that are still there."""
        with self._database.writing(_AS_BEFORE) as db:
            db.executemany(
                "INSERT OR REPLACE INTO vectors SELECT id, ?, ? FROM queries WHERE id = ?",
                ((encoder, data, query) for query, data in rows),
            )


def _insert(db: sqlite3.Connection, use: Use, mark: int | None = None) -> None:
    """Keep a use that is not there."""
    text = _storable(use.query)
    db.execute("INSERT OR IGNORE INTO queries (text) VALUES (?)", (text,))
    query = db.execute("SELECT id FROM queries WHERE text = ?", (text,)).fetchone()[0]
    values = [getattr(use, name) for name in _KEPT]
    stored = [_storable(value) if isinstance(value, str) else value for value in values]
    places = ", ".join("?" * (len(_KEPT) + 2))
    db.execute(f"INSERT INTO uses ({_COLUMNS}, mark) VALUES ({places})", (query, *stored, mark))


def _drop_what_nothing_needs(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM queries WHERE id NOT IN (SELECT query FROM uses)")
    db.execute("DELETE FROM vectors WHERE query NOT IN (SELECT id FROM queries)")


def _name(use: Use) -> tuple[str, int, str]:
    return _storable(use.session), use.turn, _storable(use.call)


def _count_up(db: sqlite3.Connection) -> None:
    db.execute("UPDATE state SET generation = generation + 1")


def _kept(row: sqlite3.Row) -> KeptUse:
    """Raises StoreError for a value that no use can have: SQLite keeps any value in any column."""
    values = {name: row[name] for name in ("query", *_KEPT)}
    for name in ("ok", "helpful"):
        values[name] = {0: False, 1: True}.get(values[name], values[name])
    for name, value in values.items():
        if not isinstance(value, _TYPES[name]):
            fix = f"Forget it with `ecoshell experience forget {row['id']}`."
            raise StoreError(f"The experience is damaged: use {row['id']} has no valid `{name}`.", fix=fix)
    return KeptUse(int(row["id"]), Use(**values))


def _as_stored(use: Use) -> Use:
    texts = {name: _storable(getattr(use, name)) for name, kind in _TYPES.items() if kind is str}
    return replace(use, **texts)


def _storable(text: str) -> str:
    """The text without what SQLite cannot keep: halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode()
