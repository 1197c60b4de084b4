"""The experience of one user: uses of tools (BTP §2.2, U) and attempts of modes, in one SQLite file for all shells.

Questions have their own table, shared by uses and attempts.
"""

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from ecoshell.budget.database import Database
from ecoshell.errors import StoreError, UsageError
from ecoshell.messages import ToolSchema

VERSION = 4
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
_WITH_ATTEMPTS = """
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, query INTEGER NOT NULL, mode TEXT NOT NULL, models TEXT NOT NULL,
    strategy TEXT NOT NULL, outcome TEXT NOT NULL, price_nano INTEGER, tokens INTEGER NOT NULL, seconds REAL NOT NULL,
    session TEXT NOT NULL, turn INTEGER NOT NULL, at TEXT NOT NULL
);
CREATE UNIQUE INDEX attempts_once ON attempts (session, turn, mode) WHERE session != '';
CREATE INDEX attempts_of_query ON attempts (query)
"""
"""The upgrade to version 2."""
_WITHOUT_VECTORS = "DROP TABLE vectors"
"""The upgrade to version 3: encoding questions on reading is as fast as reading stored vectors."""
_WITH_PREDICTIONS = """
CREATE TABLE predictions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, tool TEXT NOT NULL, model TEXT NOT NULL, alike INTEGER NOT NULL,
    spent_nano INTEGER
)
"""
"""The upgrade to version 4."""
MARKED = "you"
"""The judge of uses that the user marked."""
_MAX_INTEGER = 2**63 - 1
_NOT_STORED = "The turn continues; its experience is stored with the next use."
_UNCHANGED = "Nothing was changed."
_DROP_QUESTIONS = "DELETE FROM queries WHERE id NOT IN (SELECT query FROM uses UNION SELECT query FROM attempts)"
_COUNT_UP = "UPDATE state SET generation = generation + 1"


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt as the experience store reads it; `query` is the question's id."""

    id: int
    query: int
    mode: str
    models: str
    outcome: str
    price_nano: int | None
    tokens: int
    seconds: float


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


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of one question in one mode, with a redacted question.

    A turn in which one mode continues after another gave up is two attempts.
    """

    query: str
    mode: str
    """`single` or `umi`."""
    models: str
    """One model name, or those of the roles joined by `+`."""
    strategy: str
    outcome: str
    """`answered`, `gave_up` or `limit`."""
    price_nano: int | None
    """The price of models and tools; None if any part is unknown."""
    tokens: int
    """Input and output tokens."""
    seconds: float
    """Duration of models and tools, without waiting for the user."""
    session: str = ""
    turn: int = 0
    """Session, turn and mode identify an attempt."""
    at: str = ""
    """UTC, ISO 8601."""


ExperienceRecord = Use | Attempt

T = TypeVar("T", Use, Attempt)


class Table(Generic[T]):
    """The table of one kind of experience."""

    def __init__(
        self, name: str, kind: type[T], *, noun: str, sign: str, key: str, read: Mapping[str, str] | None = None
    ) -> None:
        """`sign` prefixes row numbers, `key` identifies a row together with session and turn, and `read` maps columns
        to the expressions that read them."""
        self.name, self.kind, self.noun, self.sign, self.key = name, kind, noun, sign, key
        self.read = read or {}
        self.columns = tuple(spec.name for spec in fields(kind) if spec.name != "query")
        """All columns except the question."""
        self.joined = f"{name} JOIN queries ON queries.id = {name}.query"
        """The table joined with the questions."""
        columns = ", ".join(self.read.get(column, column) for column in self.columns)
        self.select = f"SELECT {name}.id AS id, text AS query, {columns} FROM {self.joined}"
        """Query for all rows with number and question."""
        self.named = f"session != '' AND session = ? AND turn = ? AND {key} = ?"
        """Condition that identifies a row, with the terms of the partial index."""

    def existing(self, db: sqlite3.Connection, item: T) -> sqlite3.Row | None:
        """Return the stored row of an item with a session."""
        name = (storable(item.session), item.turn, storable(getattr(item, self.key)))
        return db.execute(f"SELECT * FROM {self.name} WHERE {self.named}", name).fetchone()

    def insert(self, db: sqlite3.Connection, item: T, **extra: object) -> None:
        """Insert an item, with `extra` columns."""
        text = storable(item.query)
        db.execute("INSERT OR IGNORE INTO queries (text) VALUES (?)", (text,))
        query = db.execute("SELECT id FROM queries WHERE text = ?", (text,)).fetchone()[0]
        values = [getattr(item, name) for name in self.columns]
        stored = [storable(value) if isinstance(value, str) else value for value in values]
        columns = ("query", *self.columns, *extra)
        places = ", ".join("?" * len(columns))
        db.execute(
            f"INSERT INTO {self.name} ({', '.join(columns)}) VALUES ({places})", (query, *stored, *extra.values())
        )

    def item(self, row: sqlite3.Row) -> T:
        """Return the item of a row; raises StoreError for invalid values, because SQLite accepts any value."""
        values: dict[str, Any] = {}
        for spec in fields(self.kind):
            value, kind = row[spec.name], spec.type
            if kind in (bool, bool | None):
                value = {0: False, 1: True}.get(value, value)
            if not isinstance(value, kind):  # pyright: ignore[reportArgumentType]
                number = f"{self.sign}{row['id']}"
                raise StoreError(
                    f"The experience is damaged: {self.noun} {number} has no valid `{spec.name}`.",
                    fix=f"Forget it with `ecoshell experience forget {number}`.",
                )
            values[spec.name] = value
        return self.kind(**values)


USES = Table(
    "uses",
    Use,
    noun="use",
    sign="",
    key="call",
    read={
        "helpful": "COALESCE(mark, helpful) AS helpful",
        "judged_by": f"CASE WHEN mark IS NULL THEN judged_by ELSE '{MARKED}' END AS judged_by",
    },
)
ATTEMPTS = Table("attempts", Attempt, noun="attempt", sign="a", key="mode")


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """A use or an attempt with its row number."""

    id: int
    item: T


@dataclass(frozen=True, slots=True)
class Removal:
    """The number of removed rows, and whether the file's log is free of them, too."""

    uses: int
    attempts: int
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


_COLUMN_NAMES = tuple(spec.name for spec in fields(Columns))
_ATTEMPT_NAMES = ", ".join(spec.name for spec in fields(AttemptRow))


@dataclass(frozen=True, slots=True)
class Prediction:
    """Whether an apprentice made the same call as the paid model."""

    tool: str
    model: str
    """The apprentice's model."""
    alike: bool
    spent_nano: int | None
    """The cost of the paid model's call; None if unknown."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A selection of uses and attempts; empty fields do not restrict it."""

    ids: Sequence[int] = ()
    """Row numbers of uses; excludes attempts that are not listed."""
    attempts: Sequence[int] = ()
    """Row numbers of attempts; excludes uses that are not listed."""
    tool: str = ""
    """Selects uses only."""
    text: str = ""
    """Substring of the question."""
    before: str = ""
    """UTC, ISO 8601; excludes rows without a time."""

    def condition(self, table: Table[Any]) -> tuple[str, list[Any]]:
        """Return the selection as an SQL condition with its values."""
        parts: list[tuple[str, list[Any]]] = []
        numbers = self.ids if table is USES else self.attempts
        if self.ids or self.attempts:
            parts.append((f"{table.name}.id IN ({', '.join('?' * len(numbers))})", [*numbers]))
        if self.tool:
            parts.append(("tool = ?", [self.tool]) if table is USES else ("0", []))
        if self.text:
            parts.append(("instr(lower(text), lower(?)) > 0", [self.text]))
        if self.before:
            parts.append(("at != '' AND at < ?", [self.before]))
        return " AND ".join(part for part, _ in parts) or "1", [value for _, values in parts for value in values]


class ExperienceStore:
    """Stores uses, attempts and their questions; every method is one short transaction and thread-safe.

    Raises StoreError when the file is locked, full, read-only or damaged.
    """

    def __init__(self, path: Path, *, busy_seconds: float = 10.0) -> None:
        upgrades = (_WITH_ATTEMPTS, _WITHOUT_VECTORS, _WITH_PREDICTIONS)
        self._database = Database(
            path, schema=SCHEMA, version=VERSION, upgrades=upgrades, busy_seconds=busy_seconds, checked=False
        )
        with self._database.reading() as db:  # a read-only file of version 1 is not upgraded
            tables = {str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._without_attempts = ATTEMPTS.name not in tables
        self._without_predictions = "predictions" not in tables

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @property
    def generation(self) -> int:
        """Changes when any process marks, replaces or removes existing rows."""
        with self._database.reading() as db:
            return int(db.execute("SELECT generation FROM state").fetchone()[0])

    def add(self, items: Iterable[ExperienceRecord]) -> None:
        """Store uses and attempts; replaces existing ones, which keep their marks.

        Session, turn and call identify a use; session, turn and mode identify an attempt.
        """
        with self._database.writing(_NOT_STORED) as db:
            for item in items:
                table: Table[Any] = USES if isinstance(item, Use) else ATTEMPTS
                existing = table.existing(db, item)
                if existing is None:
                    table.insert(db, item)
                    continue
                db.execute(f"DELETE FROM {table.name} WHERE id = ?", (existing["id"],))
                table.insert(db, item, **({"mark": existing["mark"]} if table is USES else {}))
                db.execute(_DROP_QUESTIONS)
                db.execute(_COUNT_UP)

    def add_prediction(self, use: "Prediction") -> None:
        """Store a prediction."""
        with self._database.writing(_NOT_STORED) as db:
            row = (storable(use.tool), storable(use.model), use.alike, use.spent_nano)
            db.execute("INSERT INTO predictions (tool, model, alike, spent_nano) VALUES (?, ?, ?, ?)", row)

    def predictions(self, model: str | None = None) -> "list[Prediction]":
        """Return the predictions of one apprentice, or of all, oldest first."""
        if self._without_predictions:
            return []
        query = "SELECT * FROM predictions WHERE ?1 IS NULL OR model = ?1 ORDER BY id"
        with self._database.reading() as db:
            rows = db.execute(query, (None if model is None else storable(model),)).fetchall()
        return [Prediction(row["tool"], row["model"], bool(row["alike"]), row["spent_nano"]) for row in rows]

    def add_new(self, items: Iterable[ExperienceRecord]) -> int:
        """Add uses and attempts that are not stored yet, and return their number.

        Without a session, items are compared by all fields, and each stored row matches one item.
        """
        new_items, added, without_session = [*items], 0, dict[str, Counter[ExperienceRecord]]()
        with self._database.writing(_UNCHANGED) as db:
            for new in new_items:
                table: Table[Any] = USES if isinstance(new, Use) else ATTEMPTS
                texts = {spec.name: storable(getattr(new, spec.name)) for spec in fields(new) if spec.type is str}
                item = replace(new, **texts)  # as the database returns it
                if item.session:
                    exists = table.existing(db, item) is not None
                else:
                    if table.name not in without_session:
                        rows = db.execute(f"{table.select} WHERE session = ''")
                        without_session[table.name] = Counter(map(table.item, rows))
                    exists = without_session[table.name][item] > 0
                    without_session[table.name][item] -= 1
                if not exists:
                    table.insert(db, item)
                    added += 1
        return added

    def mark(self, session: str, turn: int, call: str, helpful: bool | None) -> bool:
        """Store the user's mark of a use, None to remove it; returns False if the use is not stored."""
        with self._database.writing("The mark is stored in the session, but not used for planning.") as db:
            values = (helpful, storable(session), turn, storable(call))
            marked = db.execute(f"UPDATE uses SET mark = ? WHERE {USES.named}", values).rowcount
            if marked:
                db.execute(_COUNT_UP)
            return marked > 0

    def find(self, table: Table[T], choice: Choice = Choice(), limit: int = -1) -> list[Stored[T]]:
        """Return the selected uses or attempts, latest first."""
        if table is ATTEMPTS and self._without_attempts:
            return []
        condition, values = choice.condition(table)
        with self._database.reading() as db:
            query = f"{table.select} WHERE {condition} ORDER BY {table.name}.id DESC LIMIT ?"
            rows = db.execute(query, (*values, min(limit, _MAX_INTEGER))).fetchall()
        return [Stored(int(row["id"]), table.item(row)) for row in rows]

    def get(self, table: Table[T], number: int) -> Stored[T]:
        """Return a use or an attempt by number; raises UsageError if it does not exist."""
        choice = Choice(ids=(number,)) if table is USES else Choice(attempts=(number,))
        rows = self.find(table, choice) if 0 < number <= _MAX_INTEGER else []
        if not rows:
            listing = "ecoshell experience" if table is USES else "ecoshell experience list --attempts"
            raise UsageError(f"There is no {table.noun} {table.sign}{number}.", fix=f"`{listing}` lists them.")
        return rows[0]

    def uses(self) -> Iterator[Use]:
        """Return all uses, oldest first."""
        return (record.item for record in reversed(self.find(USES)))

    def attempts(self) -> Iterator[Attempt]:
        """Return all attempts, oldest first."""
        return (record.item for record in reversed(self.find(ATTEMPTS)))

    def forget(self, choice: Choice) -> Removal:
        """Erase the selected rows and unused questions from the file, including its log.

        Removing the last use of a question also removes its attempts.
        """
        with self._database.writing(_UNCHANGED) as db:
            db.execute("PRAGMA secure_delete = ON")  # also if the transaction is interrupted
            questions, uses = _selected(db, USES, choice, "query"), _selected(db, USES, choice, "id")
            db.executemany("DELETE FROM uses WHERE id = ?", [(number,) for number in uses])
            questions -= {row[0] for row in db.execute("SELECT query FROM uses")}
            attempts = _selected(db, ATTEMPTS, choice, "id")
            attempts |= {row[0] for row in db.execute("SELECT id, query FROM attempts") if row[1] in questions}
            db.executemany("DELETE FROM attempts WHERE id = ?", [(number,) for number in attempts])
            db.execute(_DROP_QUESTIONS)
            if uses or attempts:
                db.execute(_COUNT_UP)
        return Removal(len(uses), len(attempts), erased=self._database.rewrite())

    def queries(self, after: int = 0) -> list[tuple[int, str]]:
        """Return questions with IDs after `after`."""
        with self._database.reading() as db:
            return [*map(tuple, db.execute("SELECT id, text FROM queries WHERE id > ? ORDER BY id", (after,)))]

    def attempts_after(self, after: int = 0) -> list[AttemptRow]:
        """Return attempts with IDs after `after`, oldest first."""
        if self._without_attempts:
            return []
        with self._database.reading() as db:
            rows = db.execute(f"SELECT {_ATTEMPT_NAMES} FROM attempts WHERE id > ? ORDER BY id", (after,)).fetchall()
        return [AttemptRow(*row) for row in rows]

    def columns(self, after: int = 0) -> Columns:
        """Return uses with IDs after `after`, with their present judgments."""
        chosen = ", ".join(USES.read.get(name, name) for name in _COLUMN_NAMES)
        with self._database.reading() as db:
            db.row_factory, usual = None, db.row_factory
            try:
                rows = db.execute(f"SELECT {chosen} FROM uses WHERE id > ? ORDER BY id", (after,)).fetchall()
            finally:
                db.row_factory = usual
        return Columns(*map(list, zip(*rows, strict=True))) if rows else Columns()


def _selected(db: sqlite3.Connection, table: Table[Any], choice: Choice, column: str) -> set[int]:
    """Return a column of the selected rows."""
    condition, values = choice.condition(table)
    rows = db.execute(f"SELECT {table.name}.{column} FROM {table.joined} WHERE {condition}", values)
    return {row[0] for row in rows}


def storable(text: str) -> str:
    """Escape lone surrogates, which SQLite cannot store."""
    return text.encode("utf-8", "backslashreplace").decode()


def document_hash(schema: ToolSchema) -> str:
    """Return sixteen hex digits that change with the tool's description or parameters."""
    text = json.dumps([schema.description, schema.parameters], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
