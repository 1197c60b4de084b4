"""The rows of the ledger: their schema, and the one way to change a row so that the totals always agree with it."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ecoshell.budget.caps import SCOPES, CapState
from ecoshell.budget.money import amount_text
from ecoshell.budget.price import Price, price_from_json
from ecoshell.errors import UsageError
from ecoshell.messages import Usage

State = Literal["held", "aside", "settled", "unreported", "released"]

VERSION = 3
SCHEMA = """
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, day TEXT NOT NULL,
    session TEXT NOT NULL, turn INTEGER NOT NULL, role TEXT NOT NULL, model TEXT NOT NULL, purpose TEXT NOT NULL,
    tool TEXT NOT NULL DEFAULT '', state TEXT NOT NULL, pid INTEGER NOT NULL, price TEXT,
    held_nano INTEGER, held_input INTEGER NOT NULL, held_output INTEGER NOT NULL,
    spent_nano INTEGER, input INTEGER NOT NULL DEFAULT 0, output INTEGER NOT NULL DEFAULT 0,
    cached INTEGER NOT NULL DEFAULT 0, cache_write INTEGER NOT NULL DEFAULT 0, reasoning INTEGER NOT NULL DEFAULT 0,
    overrun_nano INTEGER NOT NULL DEFAULT 0, overrun_tokens INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX entries_of_session ON entries (session);
CREATE INDEX entries_pending ON entries (state) WHERE state IN ('held', 'aside');
CREATE TABLE totals (
    scope TEXT NOT NULL, key TEXT NOT NULL,
    spent_nano INTEGER NOT NULL DEFAULT 0, held_nano INTEGER NOT NULL DEFAULT 0,
    spent_tokens INTEGER NOT NULL DEFAULT 0, held_tokens INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE TABLE caps (
    scope TEXT NOT NULL, owner TEXT NOT NULL, unit TEXT NOT NULL, amount INTEGER NOT NULL,
    PRIMARY KEY (scope, owner, unit)
) WITHOUT ROWID;
CREATE TABLE barred (model TEXT PRIMARY KEY, at REAL NOT NULL, reason TEXT NOT NULL) WITHOUT ROWID
"""
WITH_SECONDS = "ALTER TABLE entries ADD COLUMN seconds REAL"
"""How long each call took; unknown of those that were made before version 2."""
WITH_ESTIMATES = (
    "ALTER TABLE entries ADD COLUMN estimate_nano INTEGER;ALTER TABLE entries ADD COLUMN estimate_input INTEGER;"
    "ALTER TABLE entries ADD COLUMN estimate_output INTEGER"
)
"""What calls that reported no usage have likely taken: shown to people, never counted for a cap."""

Counted = tuple[int, int, int, int]
"""Nano-dollars spent and held, tokens spent and held: what one row adds to the totals."""

_NOTHING: Counted = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the ledger; `usage` is None until the call is settled, amounts are None when the price is unknown."""

    id: int
    at: float
    day: str
    session: str
    turn: int
    role: str
    model: str
    purpose: str
    tool: str
    state: State
    pid: int
    price: Price | None
    held_nano: int | None
    held_input: int
    held_output: int
    spent_nano: int | None
    usage: Usage | None
    overrun_nano: int
    overrun_tokens: int
    estimate: Usage | None = None
    estimate_nano: int | None = None

    @property
    def held_usage(self) -> Usage:
        """The worst case as a usage: the prompt's bound and `max_tokens`."""
        return Usage(input=self.held_input, output=self.held_output)

    def arithmetic(self) -> tuple[str, ...]:
        """The row's own sum, line by line, as a person can check it."""
        if self.purpose == "tool":
            return (f"{self.tool}: {_usd(self.spent_nano)}",)
        if self.usage is None:
            return (f"{self.state}: the worst case is reserved", *self._worst_case())
        if self.state == "unreported":
            head = "no usage was reported, so under the caps the whole reservation counts"
            return (head, *self._worst_case(), *self._likely())
        if self.price is None:
            return (f"{self.usage.input:,} input, {self.usage.output:,} output", _usd(self.spent_nano))
        lines = self.price.arithmetic(self.usage)
        if self.spent_nano != self.price.cost(self.usage):
            lines = (*lines, f"set by hand to {_usd(self.spent_nano)}")
        if self.overrun_nano or self.overrun_tokens:
            lines = (*lines, f"more than the {_usd(self.held_nano)} held, by {_usd(self.overrun_nano)}")
        return lines

    def _likely(self) -> tuple[str, ...]:
        if self.estimate is None:
            return ()
        counts = f"{self.estimate.input:,} input sent, {self.estimate.output:,} output received"
        price = "" if self.estimate_nano is None else f": ≈ {_usd(self.estimate_nano)}"
        return (f"≈ {counts}, by a tokenizer{price}",)

    def _worst_case(self) -> tuple[str, ...]:
        if self.price is None:
            return (f"at most {self.held_input:,} input, {self.held_output:,} output", _usd(self.held_nano))
        return self.price.worst_arithmetic(self.held_input, self.held_output)


def _usd(nano: int | None) -> str:
    return "at an unknown price" if nano is None else amount_text(nano, "usd")


def entry_from_row(row: sqlite3.Row) -> Entry:
    """The entry a row stands for."""
    settled = row["state"] in ("settled", "unreported")
    usage = Usage(row["input"], row["output"], row["cached"], row["cache_write"], row["reasoning"]) if settled else None
    names = ("id", "at", "day", "session", "turn", "role", "model", "purpose", "tool", "state", "pid", "held_nano")
    more = ("held_input", "held_output", "spent_nano", "overrun_nano", "overrun_tokens")
    price = None if row["price"] is None else price_from_json(row["price"])
    columns: dict[str, Any] = {**{name: row[name] for name in (*names, *more)}, "price": price, "usage": usage}
    if "estimate_nano" in row.keys():  # noqa: SIM118 - a file that cannot be written may be of an older version
        columns["estimate_nano"] = row["estimate_nano"]
        if row["estimate_input"] is not None:
            columns["estimate"] = Usage(row["estimate_input"], row["estimate_output"])
    return Entry(**columns)


def find(db: sqlite3.Connection, entry: int) -> sqlite3.Row:
    """The row with this number; raises UsageError when there is none."""
    row = db.execute("SELECT * FROM entries WHERE id = ?", (entry,)).fetchone()
    if row is None:
        raise UsageError(f"The ledger has no entry {entry}.", fix="List them with `ecoshell cost --by session`.")
    return row


def insert(db: sqlite3.Connection, columns: Mapping[str, Any]) -> int:
    """Write a new row and add it to the totals; returns its number."""
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    cursor = db.execute(f"INSERT INTO entries ({names}) VALUES ({marks}) RETURNING *", tuple(columns.values()))
    row = cursor.fetchone()
    cursor.close()
    _add(db, row, counted(row), _NOTHING)
    return row["id"]


def change(db: sqlite3.Connection, row: sqlite3.Row, columns: Mapping[str, Any]) -> None:
    """Change a row and move the totals by exactly the difference."""
    names = ", ".join(f"{name} = ?" for name in columns)
    cursor = db.execute(f"UPDATE entries SET {names} WHERE id = ? RETURNING *", (*columns.values(), row["id"]))
    changed = cursor.fetchone()
    cursor.close()
    _add(db, changed, counted(changed), counted(row))


def counted(row: sqlite3.Row) -> Counted:
    """What a row counts for: a pending one its worst case, a settled one what was spent, a released one nothing."""
    if row["state"] in ("held", "aside"):
        return (0, row["held_nano"] or 0, 0, row["held_input"] + row["held_output"])
    if row["state"] == "released":
        return _NOTHING
    return (row["spent_nano"] or 0, 0, row["input"] + row["output"], 0)


def scope_keys(session: str, turn: int, day: str) -> dict[str, str]:
    """Under which key each scope adds up an entry."""
    return {"turn": f"{session}/{turn}", "session": session, "day": day, "month": day[:7]}


def caps_over(db: sqlite3.Connection, session: str, turn: int, day: str) -> tuple[CapState, ...]:
    """The caps that stand over a call of this turn on this day, from the narrowest scope to the widest."""
    keys = scope_keys(session, turn, day)
    rows = db.execute(
        """SELECT c.scope, c.unit, c.amount,
            CASE c.unit WHEN 'usd' THEN t.spent_nano ELSE t.spent_tokens END AS spent,
            CASE c.unit WHEN 'usd' THEN t.held_nano ELSE t.held_tokens END AS held
        FROM caps c LEFT JOIN totals t ON t.scope = c.scope AND t.key =
            CASE c.scope WHEN 'turn' THEN :turn WHEN 'session' THEN :session WHEN 'day' THEN :day ELSE :month END
        WHERE c.owner = CASE WHEN c.scope IN ('turn', 'session') THEN :session ELSE '' END""",
        keys,
    ).fetchall()
    caps = [CapState(row["scope"], row["unit"], row["amount"], row["spent"] or 0, row["held"] or 0) for row in rows]
    return tuple(sorted(caps, key=lambda cap: (SCOPES.index(cap.scope), cap.unit != "usd")))


def under_way(db: sqlite3.Connection, session: str, turn: int, pid: int) -> tuple[int, int]:
    """Nano-dollars and tokens that calls of a turn hold which this process has under way."""
    row = db.execute(
        """SELECT COALESCE(SUM(held_nano), 0), COALESCE(SUM(held_input + held_output), 0) FROM entries
        WHERE state = 'held' AND session = ? AND turn = ? AND pid = ?""",
        (session, turn, pid),
    ).fetchone()
    return row[0], row[1]


def disagreements(db: sqlite3.Connection) -> tuple[str, ...]:
    """Recount every row and name each total that differs; empty when the ledger is sound."""
    sums: dict[tuple[str, str], Counted] = {}
    for row in db.execute("SELECT * FROM entries"):
        for key in scope_keys(row["session"], row["turn"], row["day"]).items():
            sums[key] = _plus(sums.get(key, _NOTHING), counted(row))
    kept = {(row["scope"], row["key"]): tuple(row)[2:] for row in db.execute("SELECT * FROM totals")}
    return tuple(
        f"{scope} {name}: kept {kept.get((scope, name), _NOTHING)}, counted {sums.get((scope, name), _NOTHING)}"
        for scope, name in sorted({*sums, *kept})
        if kept.get((scope, name), _NOTHING) != sums.get((scope, name), _NOTHING)
    )


def _plus(one: Counted, other: Counted) -> Counted:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3])


def _add(db: sqlite3.Connection, row: sqlite3.Row, now: Counted, before: Counted) -> None:
    difference = tuple(new - old for new, old in zip(now, before, strict=True))
    if not any(difference):
        return
    keys = scope_keys(row["session"], row["turn"], row["day"])
    db.executemany(
        """INSERT INTO totals (scope, key, spent_nano, held_nano, spent_tokens, held_tokens) VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET
            spent_nano = spent_nano + excluded.spent_nano, held_nano = held_nano + excluded.held_nano,
            spent_tokens = spent_tokens + excluded.spent_tokens, held_tokens = held_tokens + excluded.held_tokens""",
        [(scope, key, *difference) for scope, key in keys.items()],
    )
