"""The experience of one user: every use of a tool, in one SQLite file that all shells write to (BTP §2.2, U).

Beside the uses it keeps attempts: what came of each question in each mode. Each stands in a row whose question stands
in a table of its own.
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
from ecoshell.messages import ToolDocument

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
"""What version 2 has beside version 1."""
_WITHOUT_VECTORS = "DROP TABLE vectors"
"""Questions are encoded when they are read, which takes no longer than reading what was kept of them."""
_WITH_PREDICTIONS = """
CREATE TABLE predictions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, tool TEXT NOT NULL, model TEXT NOT NULL, alike INTEGER NOT NULL,
    spent_nano INTEGER
)
"""
"""What version 4 has beside version 3."""
MARKED = "you"
"""Who judged what the person marked."""
_LARGEST = 2**63 - 1
"""SQLite's largest whole number."""
_NOT_KEPT = "The turn goes on; what it has learned is tried again with the next use."
_AS_BEFORE = "Everything stays as it was."
_DROP_QUESTIONS = "DELETE FROM queries WHERE id NOT IN (SELECT query FROM uses UNION SELECT query FROM attempts)"
"""What nothing needs any more."""
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
    """One use of one tool, U = ⟨q, d(t), p, r⟩ (BTP §2.2), as it is kept; texts are redacted before they come here."""

    query: str
    tool: str
    document_hash: str
    arguments: str
    """JSON text, shortened."""
    result: str
    """The beginning of what came back."""
    result_hash: str
    ok: bool
    helpful: bool | None
    """None when nobody could tell."""
    judged_by: str
    """`rules`, `classifier`, `model` or `you`; empty when nobody judged."""
    model: str
    price_nano: int
    """Of the tool itself."""
    step_nano: int | None
    """Of the model step that made the call; None when its price is unknown."""
    step_tokens: int
    """Tokens of that step, read and written."""
    seconds: float
    """Of the tool and of that step."""
    size_level: int
    """0 to 3, by the length of the arguments."""
    session: str = ""
    turn: int = 0
    call: str = ""
    """The call's id within its turn; with session and turn it names the use."""
    at: str = ""
    """UTC, ISO 8601."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one question in one mode, as it is kept; the question is redacted before it comes here.

    A turn in which one mode goes on where another gave up is two attempts.
    """

    query: str
    mode: str
    """`single` or `umi`."""
    models: str
    """Who played: one name, or those of the roles joined by `+`."""
    strategy: str
    outcome: str
    """`answered`, `gave_up` or `limit`."""
    price_nano: int | None
    """Of models and tools; None when a part of it is unknown."""
    tokens: int
    """Read and written."""
    seconds: float
    """Of models and tools, without waiting for a person."""
    session: str = ""
    turn: int = 0
    """With session and mode it names the attempt."""
    at: str = ""
    """UTC, ISO 8601."""


Experienced = Use | Attempt
"""What an experience is made of."""

T = TypeVar("T", Use, Attempt)


class Table(Generic[T]):
    """One kind of experience: where it stands, and what names a row of it."""

    def __init__(
        self, name: str, kind: type[T], *, noun: str, sign: str, key: str, read: Mapping[str, str] | None = None
    ) -> None:
        """`sign` stands before its numbers, `key` is the column that, with session and turn, names a row, and `read`
        has columns that are read in the place of others."""
        self.name, self.kind, self.noun, self.sign, self.key = name, kind, noun, sign, key
        self.read = read or {}
        self.columns = tuple(spec.name for spec in fields(kind) if spec.name != "query")
        """Its columns, but for the question."""
        self.joined = f"{name} JOIN queries ON queries.id = {name}.query"
        """The table beside the questions."""
        columns = ", ".join(self.read.get(column, column) for column in self.columns)
        self.select = f"SELECT {name}.id AS id, text AS query, {columns} FROM {self.joined}"
        """All rows, each with its number and its question."""
        self.named = f"session != '' AND session = ? AND turn = ? AND {key} = ?"
        """The row of a name, with the words of the index, without which it would not be used."""

    def there(self, db: sqlite3.Connection, item: T) -> sqlite3.Row | None:
        """The row that is there under its name, where it has a session."""
        name = (storable(item.session), item.turn, storable(getattr(item, self.key)))
        return db.execute(f"SELECT * FROM {self.name} WHERE {self.named}", name).fetchone()

    def insert(self, db: sqlite3.Connection, item: T, **beside: object) -> None:
        """Keep one that is not there, with what stands `beside` it in columns of its own."""
        text = storable(item.query)
        db.execute("INSERT OR IGNORE INTO queries (text) VALUES (?)", (text,))
        query = db.execute("SELECT id FROM queries WHERE text = ?", (text,)).fetchone()[0]
        values = [getattr(item, name) for name in self.columns]
        stored = [storable(value) if isinstance(value, str) else value for value in values]
        columns = ("query", *self.columns, *beside)
        places = ", ".join("?" * len(columns))
        db.execute(
            f"INSERT INTO {self.name} ({', '.join(columns)}) VALUES ({places})", (query, *stored, *beside.values())
        )

    def kept(self, row: sqlite3.Row) -> T:
        """Raises StoreError for a value that cannot be there: SQLite keeps any value in any column."""
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
class Kept(Generic[T]):
    """A use or an attempt under the number it is kept by."""

    id: int
    item: T


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was removed, and whether nothing of it is left in the file's log."""

    uses: int
    attempts: int
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
_ATTEMPT_NAMES = ", ".join(spec.name for spec in fields(AttemptRow))


@dataclass(frozen=True, slots=True)
class Prediction:
    """Whether an apprentice made a call as the paid model did."""

    tool: str
    model: str
    """The apprentice."""
    alike: bool
    spent_nano: int | None
    """What the paid model's call cost; None is unknown."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which uses and attempts are meant; what is empty says nothing."""

    ids: Sequence[int] = ()
    """Of uses; then no attempts are meant that are not named themselves."""
    attempts: Sequence[int] = ()
    """The numbers of attempts; then no uses are meant that are not named themselves."""
    tool: str = ""
    """Which only uses have."""
    text: str = ""
    """Somewhere in the question."""
    before: str = ""
    """UTC, ISO 8601; what is of unknown time is not meant."""

    def condition(self, table: Table[Any]) -> tuple[str, list[Any]]:
        """The choice as SQL over a table and the questions."""
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
    """Uses, attempts and their questions; every method is one short transaction, and any thread may call it.

    Raises StoreError when the file is locked, full, read-only or damaged.
    """

    def __init__(self, path: Path, *, busy_seconds: float = 10.0) -> None:
        upgrades = (_WITH_ATTEMPTS, _WITHOUT_VECTORS, _WITH_PREDICTIONS)
        self._database = Database(
            path, schema=SCHEMA, version=VERSION, upgrades=upgrades, busy_seconds=busy_seconds, checked=False
        )
        with self._database.reading() as db:  # a file of version 1 that cannot be written is read as it is
            there = {str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._without_attempts = ATTEMPTS.name not in there
        self._without_predictions = "predictions" not in there

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @property
    def generation(self) -> int:
        """Changes when what was there is judged anew, replaced or forgotten, by whichever process."""
        with self._database.reading() as db:
            return int(db.execute("SELECT generation FROM state").fetchone()[0])

    def add(self, items: Iterable[Experienced]) -> None:
        """Keep uses and attempts; one that is there already, by its name, is replaced, and keeps its mark.

        A use is named by session, turn and call, an attempt by session, turn and mode.
        """
        with self._database.writing(_NOT_KEPT) as db:
            for item in items:
                table: Table[Any] = USES if isinstance(item, Use) else ATTEMPTS
                there = table.there(db, item)
                if there is None:
                    table.insert(db, item)
                    continue
                db.execute(f"DELETE FROM {table.name} WHERE id = ?", (there["id"],))
                table.insert(db, item, **({"mark": there["mark"]} if table is USES else {}))
                db.execute(_DROP_QUESTIONS)
                db.execute(_COUNT_UP)

    def add_prediction(self, use: "Prediction") -> None:
        """Keep whether an apprentice made a call as the paid model did."""
        with self._database.writing(_NOT_KEPT) as db:
            row = (storable(use.tool), storable(use.model), use.alike, use.spent_nano)
            db.execute("INSERT INTO predictions (tool, model, alike, spent_nano) VALUES (?, ?, ?, ?)", row)

    def predictions(self, model: str | None = None) -> "list[Prediction]":
        """Those of one apprentice, or of all, the earliest first."""
        if self._without_predictions:
            return []
        query = "SELECT * FROM predictions WHERE ?1 IS NULL OR model = ?1 ORDER BY id"
        with self._database.reading() as db:
            rows = db.execute(query, (None if model is None else storable(model),)).fetchall()
        return [Prediction(row["tool"], row["model"], bool(row["alike"]), row["spent_nano"]) for row in rows]

    def add_new(self, items: Iterable[Experienced]) -> int:
        """Keep those uses and attempts that are not there yet; gives how many these were.

        One without a session is there when one is equal in every field; as many equal ones as come are kept.
        """
        found, added, unnamed = [*items], 0, dict[str, Counter[Experienced]]()
        with self._database.writing(_AS_BEFORE) as db:
            for given in found:
                table: Table[Any] = USES if isinstance(given, Use) else ATTEMPTS
                texts = {spec.name: storable(getattr(given, spec.name)) for spec in fields(given) if spec.type is str}
                item = replace(given, **texts)  # as it is read again
                if item.session:
                    there = table.there(db, item) is not None
                else:
                    if table.name not in unnamed:
                        rows = db.execute(f"{table.select} WHERE session = ''")
                        unnamed[table.name] = Counter(map(table.kept, rows))
                    there = unnamed[table.name][item] > 0
                    unnamed[table.name][item] -= 1
                if not there:
                    table.insert(db, item)
                    added += 1
        return added

    def mark(self, session: str, turn: int, call: str, helpful: bool | None) -> bool:
        """Keep the person's word on a use, None takes it back; False when no such use is kept."""
        with self._database.writing("The mark stands in the session, and is not used for planning.") as db:
            told = (helpful, storable(session), turn, storable(call))
            marked = db.execute(f"UPDATE uses SET mark = ? WHERE {USES.named}", told).rowcount
            if marked:
                db.execute(_COUNT_UP)
            return marked > 0

    def find(self, table: Table[T], choice: Choice = Choice(), limit: int = -1) -> list[Kept[T]]:
        """The uses or the attempts that are meant, the latest first."""
        if table is ATTEMPTS and self._without_attempts:
            return []
        condition, values = choice.condition(table)
        with self._database.reading() as db:
            query = f"{table.select} WHERE {condition} ORDER BY {table.name}.id DESC LIMIT ?"
            rows = db.execute(query, (*values, min(limit, _LARGEST))).fetchall()
        return [Kept(int(row["id"]), table.kept(row)) for row in rows]

    def one(self, table: Table[T], number: int) -> Kept[T]:
        """The use or the attempt of this number; raises UsageError when there is none."""
        choice = Choice(ids=(number,)) if table is USES else Choice(attempts=(number,))
        found = self.find(table, choice) if 0 < number <= _LARGEST else []
        if not found:
            listing = "ecoshell experience" if table is USES else "ecoshell experience list --attempts"
            raise UsageError(f"There is no {table.noun} {table.sign}{number}.", fix=f"`{listing}` lists them.")
        return found[0]

    def uses(self) -> Iterator[Use]:
        """All uses, the earliest first."""
        return (kept.item for kept in reversed(self.find(USES)))

    def attempts(self) -> Iterator[Attempt]:
        """All attempts, the earliest first."""
        return (kept.item for kept in reversed(self.find(ATTEMPTS)))

    def forget(self, choice: Choice) -> Forgotten:
        """Remove what is meant, and what only that needed, from the file itself.

        With the last use of a question its attempts go, too. Also what an earlier forgetting had to leave in the log.
        """
        with self._database.writing(_AS_BEFORE) as db:
            db.execute("PRAGMA secure_delete = ON")  # holds also when what follows is cut short
            asked, uses = _meant(db, USES, choice, "query"), _meant(db, USES, choice, "id")
            db.executemany("DELETE FROM uses WHERE id = ?", [(number,) for number in uses])
            asked -= {row[0] for row in db.execute("SELECT query FROM uses")}
            attempts = _meant(db, ATTEMPTS, choice, "id")
            attempts |= {row[0] for row in db.execute("SELECT id, query FROM attempts") if row[1] in asked}
            db.executemany("DELETE FROM attempts WHERE id = ?", [(number,) for number in attempts])
            db.execute(_DROP_QUESTIONS)
            if uses or attempts:
                db.execute(_COUNT_UP)
        return Forgotten(len(uses), len(attempts), erased=self._database.rewrite())

    def queries(self, after: int = 0) -> list[tuple[int, str]]:
        """Questions by id, those that came after one."""
        with self._database.reading() as db:
            return [*map(tuple, db.execute("SELECT id, text FROM queries WHERE id > ? ORDER BY id", (after,)))]

    def attempts_after(self, after: int = 0) -> list[AttemptRow]:
        """Attempts that came after one, the earliest first."""
        if self._without_attempts:
            return []
        with self._database.reading() as db:
            rows = db.execute(f"SELECT {_ATTEMPT_NAMES} FROM attempts WHERE id > ? ORDER BY id", (after,)).fetchall()
        return [AttemptRow(*row) for row in rows]

    def columns(self, after: int = 0) -> Columns:
        """Uses that came after one, as they are judged now."""
        chosen = ", ".join(USES.read.get(name, name) for name in _COLUMN_NAMES)
        with self._database.reading() as db:
            db.row_factory, usual = None, db.row_factory
            try:
                rows = db.execute(f"SELECT {chosen} FROM uses WHERE id > ? ORDER BY id", (after,)).fetchall()
            finally:
                db.row_factory = usual
        return Columns(*map(list, zip(*rows, strict=True))) if rows else Columns()


def _meant(db: sqlite3.Connection, table: Table[Any], choice: Choice, column: str) -> set[int]:
    """A column of the rows that are meant."""
    condition, values = choice.condition(table)
    rows = db.execute(f"SELECT {table.name}.{column} FROM {table.joined} WHERE {condition}", values)
    return {row[0] for row in rows}


def storable(text: str) -> str:
    """The text without what SQLite cannot keep: halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode()


def document_hash(document: ToolDocument) -> str:
    """Sixteen hex digits that change when the tool's description or parameters do."""
    text = json.dumps([document.description, document.parameters], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
