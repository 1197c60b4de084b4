"""The rows of the ledger, their totals, and the caps over them."""

import os
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from ecoshell.budget import (
    SCOPES,
    TASK,
    Account,
    Amount,
    CapState,
    Price,
    Scope,
    amount_text,
)
from ecoshell.budget.price import price_from_json
from ecoshell.errors import UsageError
from ecoshell.messages import Usage

State = Literal["held", "aside", "settled", "unreported", "released"]
Counted = tuple[int, int, int, int, int, int]
"""The contribution of one row to the totals: spent and held nano-dollars, tokens and milliseconds."""
NOTHING: Counted = (0, 0, 0, 0, 0, 0)
LEASE = "lease"
"""Scope of the cap that limits a lease; its owner is the lease."""
_ORDER = (TASK, *SCOPES, LEASE)
_UNITS = ("usd", "tokens", "ms")


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the ledger; `usage` is None until the call is settled, amounts are None if the price is unknown."""

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
    estimate: Usage | None
    estimate_nano: int | None
    lease: str
    held_ms: int
    spent_ms: int | None
    task: str

    @property
    def held_usage(self) -> Usage:
        """The worst case: the prompt bound and `max_tokens`."""
        return Usage(input=self.held_input, output=self.held_output)

    def arithmetic(self) -> tuple[str, ...]:
        """Return the calculation of the price, line by line."""
        if self.purpose == "tool":
            return (f"{self.tool}: {_usd(self.spent_nano)}",)
        if self.usage is None or self.state == "unreported":
            text = f"at most {self.held_input:,} input, {self.held_output:,} output"
            lines = (text, _usd(self.held_nano))
            if self.price is not None:
                parts = self.price.worst_parts(self.held_input, self.held_output)
                lines = self.price.arithmetic(parts)
            if self.usage is None:
                return (f"{self.state}: the worst case is reserved", *lines)
            text = "no usage was reported, so the whole reservation counts under the caps"
            if self.estimate is None:
                return (text, *lines)
            counts = f"{self.estimate.input:,} input sent, {self.estimate.output:,} output received"
            price = "" if self.estimate_nano is None else f": ≈ {_usd(self.estimate_nano)}"
            return (text, *lines, f"≈ {counts}, by a tokenizer{price}")
        if self.price is None:
            text = f"{self.usage.input:,} input, {self.usage.output:,} output"
            return (text, _usd(self.spent_nano))
        lines = self.price.arithmetic(self.price.parts(self.usage))
        if self.spent_nano != self.price.cost(self.usage):
            lines = (*lines, f"reconciled to {_usd(self.spent_nano)}")
        if self.overrun_nano or self.overrun_tokens:
            lines = (*lines, f"{_usd(self.overrun_nano)} more than the {_usd(self.held_nano)} held")
        return lines


def _usd(nano: int | None) -> str:
    return "at an unknown price" if nano is None else amount_text(nano, "usd")


def entry_from_row(row: sqlite3.Row) -> Entry:
    """Convert a row to an entry."""
    columns: dict[str, Any] = {
        field.name: row[field.name]
        for field in fields(Entry)
        if field.name not in ("price", "usage", "estimate")
    }
    usage, estimate = None, None
    if row["state"] in ("settled", "unreported"):
        usage = usage_of(row)
    if row["estimate_input"] is not None:
        estimate = Usage(row["estimate_input"], row["estimate_output"])
    price = None if row["price"] is None else price_from_json(row["price"])
    return Entry(**columns, price=price, usage=usage, estimate=estimate)


def usage_of(row: sqlite3.Row) -> Usage:
    """Return the usage in a row, or in a sum of rows."""
    return Usage(row["input"], row["output"], row["cached"], row["cache_write"], row["reasoning"])


def find(db: sqlite3.Connection, entry: int) -> sqlite3.Row:
    """Return the row with this number; raises UsageError if it does not exist."""
    row = db.execute("SELECT * FROM entries WHERE id = ?", (entry,)).fetchone()
    if row is None:
        raise UsageError(
            f"The ledger has no entry {entry}.", fix="List them with `ecoshell cost --by session`."
        )
    return row


def insert(db: sqlite3.Connection, columns: Mapping[str, Any]) -> int:
    """Insert a row and add it to the totals; returns its number."""
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    query = f"INSERT INTO entries ({names}) VALUES ({marks}) RETURNING *"
    (row,) = db.execute(query, tuple(columns.values())).fetchall()
    _add(db, row, counted(row), NOTHING)
    return row["id"]


def change(db: sqlite3.Connection, row: sqlite3.Row, columns: Mapping[str, Any]) -> None:
    """Change a row and update the totals by the difference."""
    names = ", ".join(f"{name} = ?" for name in columns)
    query = f"UPDATE entries SET {names} WHERE id = ? RETURNING *"
    (changed,) = db.execute(query, (*columns.values(), row["id"])).fetchall()
    _add(db, changed, counted(changed), counted(row))


def counted(row: sqlite3.Row) -> Counted:
    """Return a row's contribution: the worst case if pending, the usage if settled, only its time if released."""
    time = (row["spent_ms"] or 0, row["held_ms"])
    if row["state"] in ("held", "aside"):
        return (0, row["held_nano"] or 0, 0, row["held_input"] + row["held_output"], *time)
    if row["state"] == "released":
        return (0, 0, 0, 0, *time)
    return (row["spent_nano"] or 0, 0, row["input"] + row["output"], 0, *time)


def scope_keys(
    session: str, turn: int, day: str, lease: str, task: str
) -> tuple[tuple[str, str], ...]:
    """Return the scopes that an entry counts in, with the key of each total; a task counts in those around it, too."""
    parts = task.split("/") if task else []
    tasks = ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return (
        ("turn", f"{session}/{turn}"),
        ("session", session),
        ("day", day),
        ("month", day[:7]),
        *[(TASK, owner) for owner in tasks],
        *([(LEASE, lease)] if lease else ()),
    )


def caps_over(
    db: sqlite3.Connection, account: Account, day: str, limits: Iterable[Amount] = ()
) -> tuple[CapState, ...]:
    """Return the caps over a call of this account on this day, from the narrowest scope to the widest.

    `limits` cap the turn as well; of several caps on the turn in one unit, the lowest applies.
    """
    session, turn = account.session, f"{account.session}/{account.turn}"
    keys = scope_keys(session, account.turn, day, account.lease, account.task)
    owners = {"turn": session, "day": "", "month": ""}
    places = [value for scope, key in keys for value in (scope, owners.get(scope, key), key)]
    rows = db.execute(
        f"""WITH places (scope, owner, key) AS (VALUES {", ".join(["(?, ?, ?)"] * len(keys))})
        SELECT c.scope, c.unit, c.amount, c.owner,
            CASE c.unit WHEN 'usd' THEN t.spent_nano WHEN 'tokens' THEN t.spent_tokens ELSE t.spent_ms END AS spent,
            CASE c.unit WHEN 'usd' THEN t.held_nano WHEN 'tokens' THEN t.held_tokens ELSE t.held_ms END AS held
        FROM places p CROSS JOIN caps c ON c.scope = p.scope AND c.owner = p.owner
        LEFT JOIN totals t ON t.scope = p.scope AND t.key = p.key""",
        places,
    ).fetchall()
    rows.sort(
        key=lambda row: (_ORDER.index(row["scope"]), -len(row["owner"]), _UNITS.index(row["unit"]))
    )
    caps = tuple(
        CapState(row["scope"], row["unit"], row["amount"], row["spent"] or 0, row["held"] or 0)
        for row in rows
    )
    return _limited(db, caps, turn, limits)


def cap_state(db: sqlite3.Connection, scope: Scope, key: str, amount: Amount) -> CapState:
    """Return a cap of this amount with what counts under the key of its scope."""
    query = "SELECT * FROM totals WHERE scope = ? AND key = ?"
    row = db.execute(query, (scope, key)).fetchone()
    kind = {"usd": "nano", "tokens": "tokens", "ms": "ms"}[amount.unit]
    used = (0, 0) if row is None else (row[f"spent_{kind}"], row[f"held_{kind}"])
    return CapState(scope, amount.unit, amount.value, *used)


def _limited(
    db: sqlite3.Connection, caps: tuple[CapState, ...], turn: str, limits: Iterable[Amount]
) -> tuple[CapState, ...]:
    """Return the caps with the limits of a turn; each replaces a higher cap on the turn in the same unit."""
    for limit in limits:
        own = [cap for cap in caps if (cap.scope, cap.unit) == ("turn", limit.unit)]
        if own and own[0].limit <= limit.value:
            continue
        added = cap_state(db, "turn", turn, limit)
        other_caps = [cap for cap in caps if cap not in own]
        caps = tuple(sorted((added, *other_caps), key=lambda cap: _ORDER.index(cap.scope)))
    return caps


def _add(db: sqlite3.Connection, row: sqlite3.Row, new: Counted, old: Counted) -> None:
    difference = tuple(new_count - old_count for new_count, old_count in zip(new, old, strict=True))
    if not any(difference):
        return
    keys = scope_keys(row["session"], row["turn"], row["day"], row["lease"], row["task"])
    db.executemany(
        """INSERT INTO totals (scope, key, spent_nano, held_nano, spent_tokens, held_tokens, spent_ms, held_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET
            spent_nano = spent_nano + excluded.spent_nano, held_nano = held_nano + excluded.held_nano,
            spent_tokens = spent_tokens + excluded.spent_tokens, held_tokens = held_tokens + excluded.held_tokens,
            spent_ms = spent_ms + excluded.spent_ms, held_ms = held_ms + excluded.held_ms""",
        [(*place, *difference) for place in keys],
    )


def alive(pid: int) -> bool:
    """Return whether a process with this number runs; a reused number only delays a cleanup."""
    # On Windows signal 0 is Ctrl-C, so no check is possible.
    if pid == os.getpid() or os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # It runs under another user.
    return True
