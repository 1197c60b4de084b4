"""How uses and attempts stand in the experience's file: a row each, whose question stands in a table of its own."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from ecoshell.errors import StoreError
from ecoshell.planning.btp.base import Attempt, Use

MARKED = "you"
"""Who judged what the person marked."""

T = TypeVar("T", Use, Attempt)


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """One kind of experience: where it stands, and what names a row of it."""

    name: str
    kind: type[T]
    noun: str
    sign: str
    """What stands before its numbers, so that they are told from those of another kind."""
    key: str
    """The column that, with session and turn, names a row."""
    read: Mapping[str, str] = field(default_factory=dict[str, str])
    """Columns that are read in the place of others."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns, but for the question."""
        return tuple(spec.name for spec in fields(self.kind) if spec.name != "query")

    @property
    def select(self) -> str:
        """All rows, each with its number and its question."""
        read = ", ".join(self.read.get(name, name) for name in self.columns)
        return f"SELECT {self.name}.id AS id, text AS query, {read} FROM {self.joined}"

    @property
    def joined(self) -> str:
        """The table beside the questions."""
        return f"{self.name} JOIN queries ON queries.id = {self.name}.query"

    @property
    def named(self) -> str:
        """The row of a name, with the words of the index, without which it would not be used."""
        return f"session != '' AND session = ? AND turn = ? AND {self.key} = ?"

    def name_of(self, item: T) -> tuple[str, int, str]:
        """What names it, where it has a session."""
        return storable(item.session), item.turn, storable(getattr(item, self.key))

    def there(self, db: sqlite3.Connection, item: T) -> sqlite3.Row | None:
        """The row that is there under its name."""
        return db.execute(f"SELECT * FROM {self.name} WHERE {self.named}", self.name_of(item)).fetchone()

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

    def as_stored(self, item: T) -> T:
        """As it is read again."""
        texts = {spec.name: storable(getattr(item, spec.name)) for spec in fields(item) if spec.type is str}
        return replace(item, **texts)

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


def storable(text: str) -> str:
    """The text without what SQLite cannot keep: halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode()
