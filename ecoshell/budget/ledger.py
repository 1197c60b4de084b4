"""The ledger: reservations, settlements and caps in one SQLite file that all processes of the user share.

An entry counts for the local day of its reservation. A reservation whose process died counts until it is reconciled.
"""

import os
import sqlite3
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from ecoshell.budget import (
    MIN_CALL_MS,
    SCOPES,
    SLICE_MS,
    Account,
    Amount,
    Ask,
    CapState,
    Hold,
    Price,
    Scope,
    Settlement,
    ToolHold,
    amount_text,
    answer_ms,
    exchanged_output,
    fitting_ms,
    fitting_output,
    limit_reached,
    price_from_json,
    price_to_json,
)
from ecoshell.budget.database import Database
from ecoshell.errors import ModelDisabled, StoreError, UsageError
from ecoshell.messages import Usage

By = Literal["day", "session", "model", "role", "tool"]


@dataclass(frozen=True, slots=True)
class CostRow:
    """The sum of all entries with one key.

    `spent_nano` is the sum of the calls with a known price, None without any; `unpriced` counts the others. `ms` and
    `untimed` do the same for the working time of model and tool calls. As under caps, a call without a usage report
    counts with its whole reservation. The empty key means no tool.
    """

    key: str
    spent_nano: int | None
    held_nano: int
    usage: Usage
    calls: int
    unpriced: int
    ms: int | None = None
    untimed: int = 0
    estimate: Usage | None = None
    """The usage with tokenizer counts for calls without a report; None if all calls reported."""
    estimate_nano: int | None = None
    """The price with these estimates; None if it is equal to `spent_nano`."""

    @property
    def seconds(self) -> float | None:
        """The working time in seconds."""
        return None if self.ms is None else self.ms / 1_000

    @property
    def shown_nano(self) -> int | None:
        """The displayed price."""
        return self.spent_nano if self.estimate_nano is None else self.estimate_nano

    @property
    def shown_usage(self) -> Usage:
        """The displayed usage."""
        return self.estimate or self.usage


@dataclass(frozen=True, slots=True)
class Pace:
    """Tokens, prompts included, and working time of some steps of a model."""

    tokens: int
    ms: int
    steps: int

    @property
    def tokens_per_second(self) -> float:
        return 1_000 * self.tokens / self.ms

    @property
    def step_ms(self) -> int:
        """The mean duration of a step."""
        return self.ms // self.steps


_SUMS = """SUM(spent_nano) AS spent,
    COALESCE(SUM(CASE WHEN state IN ('held', 'aside') THEN held_nano END), 0) AS held,
    SUM(input) AS input, SUM(output) AS output, SUM(cached) AS cached, SUM(cache_write) AS cache_write,
    SUM(reasoning) AS reasoning, SUM(purpose != 'tool' AND state NOT IN ('aside', 'released')) AS calls,
    SUM(state IN ('settled', 'unreported') AND spent_nano IS NULL) AS unpriced,
    SUM({spent_ms}) AS ms,
    SUM(state IN ('settled', 'unreported') AND purpose != 'tool' AND {spent_ms} IS NULL) AS untimed,
    COUNT({estimate_input}) AS estimates, COUNT({estimate_nano}) AS estimates_nano,
    SUM(COALESCE({estimate_nano}, spent_nano)) AS likely_nano,
    SUM(COALESCE({estimate_input}, input)) AS likely_input, SUM(COALESCE({estimate_output}, output)) AS likely_output
FROM entries"""
_NEW_COLUMNS = ("spent_ms", "estimate_nano", "estimate_input", "estimate_output")
"""Columns that are missing in files of older versions."""


State = Literal["held", "aside", "settled", "unreported", "released"]

_VERSION = 5
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
_WITH_SECONDS = "ALTER TABLE entries ADD COLUMN seconds REAL"
"""Version 2: the duration of each call, replaced by `spent_ms` in version 5."""
_WITH_ESTIMATES = (
    "ALTER TABLE entries ADD COLUMN estimate_nano INTEGER;ALTER TABLE entries ADD COLUMN estimate_input INTEGER;"
    "ALTER TABLE entries ADD COLUMN estimate_output INTEGER"
)
"""Version 3: tokenizer counts of calls without a usage report, which no cap counts."""
_WITH_LEASES = "ALTER TABLE entries ADD COLUMN lease TEXT NOT NULL DEFAULT ''"
"""Version 4: the lease of a shared ledger that a call was reserved from; empty without one."""

_TIME_KEYS = {"turn": "session || '/' || turn", "session": "session", "day": "day", "month": "substr(day, 1, 7)"}
_WITH_MS = ";".join(
    (
        "ALTER TABLE entries ADD COLUMN held_ms INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE entries ADD COLUMN spent_ms INTEGER",
        "UPDATE entries SET spent_ms = CAST(ROUND(seconds * 1000) AS INTEGER) WHERE seconds >= 0",
        "CREATE INDEX entries_running ON entries (held_ms) WHERE held_ms > 0",
        "ALTER TABLE totals ADD COLUMN spent_ms INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE totals ADD COLUMN held_ms INTEGER NOT NULL DEFAULT 0",
        *(
            f"UPDATE totals SET spent_ms = sums.ms FROM (SELECT {key} AS key, SUM(COALESCE(spent_ms, 0)) AS ms "
            f"FROM entries GROUP BY {key}) AS sums WHERE totals.scope = '{scope}' AND totals.key = sums.key"
            for scope, key in _TIME_KEYS.items()
        ),
    )
)
"""Version 5: working time in milliseconds. `held_ms` counts while a call or tool runs, in every state of its entry."""

Counted = tuple[int, int, int, int, int, int]
"""The contribution of one row to the totals: spent and held nano-dollars, tokens and milliseconds."""

_NOTHING: Counted = (0, 0, 0, 0, 0, 0)


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
    estimate: Usage | None = None
    estimate_nano: int | None = None
    lease: str = ""
    held_ms: int = 0
    spent_ms: int | None = None

    @property
    def held_usage(self) -> Usage:
        """The worst case: the prompt bound and `max_tokens`."""
        return Usage(input=self.held_input, output=self.held_output)

    def arithmetic(self) -> tuple[str, ...]:
        """Return the calculation of the price, line by line."""
        if self.purpose == "tool":
            return (f"{self.tool}: {_usd(self.spent_nano)}",)
        if self.usage is None or self.state == "unreported":
            lines = (f"at most {self.held_input:,} input, {self.held_output:,} output", _usd(self.held_nano))
            if self.price is not None:
                lines = self.price.arithmetic(self.price.worst_parts(self.held_input, self.held_output))
            if self.usage is None:
                return (f"{self.state}: the worst case is reserved", *lines)
            lines = ("no usage was reported, so the whole reservation counts under the caps", *lines)
            if self.estimate is None:
                return lines
            counts = f"{self.estimate.input:,} input sent, {self.estimate.output:,} output received"
            price = "" if self.estimate_nano is None else f": ≈ {_usd(self.estimate_nano)}"
            return (*lines, f"≈ {counts}, by a tokenizer{price}")
        if self.price is None:
            return (f"{self.usage.input:,} input, {self.usage.output:,} output", _usd(self.spent_nano))
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
    settled = row["state"] in ("settled", "unreported")
    usage = Usage(row["input"], row["output"], row["cached"], row["cache_write"], row["reasoning"]) if settled else None
    names = ("id", "at", "day", "session", "turn", "role", "model", "purpose", "tool", "state", "pid", "held_nano")
    more = ("held_input", "held_output", "spent_nano", "overrun_nano", "overrun_tokens")
    price = None if row["price"] is None else price_from_json(row["price"])
    columns: dict[str, Any] = {**{name: row[name] for name in (*names, *more)}, "price": price, "usage": usage}
    if "estimate_nano" in row.keys():  # noqa: SIM118 - a read-only file may have an older version
        columns["estimate_nano"] = row["estimate_nano"]
        if row["estimate_input"] is not None:
            columns["estimate"] = Usage(row["estimate_input"], row["estimate_output"])
    columns |= {name: row[name] for name in ("lease", "held_ms", "spent_ms") if name in row.keys()}  # noqa: SIM118
    return Entry(**columns)


def _find(db: sqlite3.Connection, entry: int) -> sqlite3.Row:
    """Return the row with this number; raises UsageError if it does not exist."""
    row = db.execute("SELECT * FROM entries WHERE id = ?", (entry,)).fetchone()
    if row is None:
        raise UsageError(f"The ledger has no entry {entry}.", fix="List them with `ecoshell cost --by session`.")
    return row


def _insert(db: sqlite3.Connection, columns: Mapping[str, Any]) -> int:
    """Insert a row and add it to the totals; returns its number."""
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    cursor = db.execute(f"INSERT INTO entries ({names}) VALUES ({marks}) RETURNING *", tuple(columns.values()))
    row = cursor.fetchone()
    cursor.close()
    _add(db, row, _counted(row), _NOTHING)
    return row["id"]


def _change(db: sqlite3.Connection, row: sqlite3.Row, columns: Mapping[str, Any]) -> None:
    """Change a row and update the totals by the difference."""
    names = ", ".join(f"{name} = ?" for name in columns)
    cursor = db.execute(f"UPDATE entries SET {names} WHERE id = ? RETURNING *", (*columns.values(), row["id"]))
    changed = cursor.fetchone()
    cursor.close()
    _add(db, changed, _counted(changed), _counted(row))


def _counted(row: sqlite3.Row) -> Counted:
    """Return a row's contribution: the worst case if pending, the usage if settled, only its time if released."""
    time = (row["spent_ms"] or 0, row["held_ms"])
    if row["state"] in ("held", "aside"):
        return (0, row["held_nano"] or 0, 0, row["held_input"] + row["held_output"], *time)
    if row["state"] == "released":
        return (0, 0, 0, 0, *time)
    return (row["spent_nano"] or 0, 0, row["input"] + row["output"], 0, *time)


def _scope_keys(session: str, turn: int, day: str, lease: str) -> dict[str, str]:
    """Return the key of an entry's total in each scope."""
    keys = {"turn": f"{session}/{turn}", "session": session, "day": day, "month": day[:7]}
    return {**keys, LEASE: lease} if lease else keys


def _caps_over(db: sqlite3.Connection, session: str, turn: int, day: str, lease: str = "") -> tuple[CapState, ...]:
    """Return the caps over a call of this turn, day and lease, from the narrowest scope to the widest."""
    keys = {**_scope_keys(session, turn, day, ""), LEASE: lease}
    rows = db.execute(
        """SELECT c.scope, c.unit, c.amount,
            CASE c.unit WHEN 'usd' THEN t.spent_nano WHEN 'tokens' THEN t.spent_tokens ELSE t.spent_ms END AS spent,
            CASE c.unit WHEN 'usd' THEN t.held_nano WHEN 'tokens' THEN t.held_tokens ELSE t.held_ms END AS held
        FROM caps c LEFT JOIN totals t ON t.scope = c.scope AND t.key =
            CASE c.scope WHEN 'turn' THEN :turn WHEN 'session' THEN :session WHEN 'day' THEN :day
            WHEN 'month' THEN :month ELSE :lease END
        WHERE c.owner = CASE WHEN c.scope IN ('turn', 'session') THEN :session WHEN c.scope = 'lease' THEN :lease
            ELSE '' END""",
        keys,
    ).fetchall()
    caps = [CapState(row["scope"], row["unit"], row["amount"], row["spent"] or 0, row["held"] or 0) for row in rows]
    return tuple(sorted(caps, key=lambda cap: (_ORDER.index(cap.scope), _UNITS.index(cap.unit))))


def _add(db: sqlite3.Connection, row: sqlite3.Row, new: Counted, old: Counted) -> None:
    difference = tuple(new_count - old_count for new_count, old_count in zip(new, old, strict=True))
    if not any(difference):
        return
    keys = _scope_keys(row["session"], row["turn"], row["day"], row["lease"])
    db.executemany(
        """INSERT INTO totals (scope, key, spent_nano, held_nano, spent_tokens, held_tokens, spent_ms, held_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET
            spent_nano = spent_nano + excluded.spent_nano, held_nano = held_nano + excluded.held_nano,
            spent_tokens = spent_tokens + excluded.spent_tokens, held_tokens = held_tokens + excluded.held_tokens,
            spent_ms = spent_ms + excluded.spent_ms, held_ms = held_ms + excluded.held_ms""",
        [(scope, key, *difference) for scope, key in keys.items()],
    )


_NOT_SENT = "Nothing was reserved and nothing was sent."
_STILL_HELD = "The reservation counts in full until it is reconciled."
_UNCHANGED = "Nothing was changed."
LEASE = "lease"
"""Scope of the cap that limits a lease; its owner is the lease."""
_ORDER = (*SCOPES, LEASE)
_UNITS = ("usd", "tokens", "ms")
_RELEASED = {"state": "released", "held_ms": 0}
_FROM_SETTINGS = "(settings)"
"""Owner of the rows that record the caps last read from the settings; they limit nothing."""


class Ledger(Database):
    """Reserves and settles under the caps; every method is one transaction and may be called from any thread.

    Raises StoreError when the file is locked, full, read-only or damaged.
    """

    away: StoreError | None = None
    """Why the shared caps are unknown; None if they are known or do not exist."""

    def __init__(self, path: Path, *, clock: Callable[[], datetime] = datetime.now, busy_seconds: float = 10.0) -> None:
        super().__init__(
            path,
            schema=SCHEMA,
            version=_VERSION,
            upgrades=(_WITH_SECONDS, _WITH_ESTIMATES, _WITH_LEASES, _WITH_MS),
            busy_seconds=busy_seconds,
        )
        self._clock = clock
        if self.writable:  # Release what dead processes had set aside: nothing was sent for it.
            with self.writing(_UNCHANGED) as db:
                for row in db.execute("SELECT * FROM entries WHERE state = 'aside'").fetchall():
                    if not alive(row["pid"]):
                        _change(db, row, _RELEASED)

    def hold(self, ask: Ask) -> Hold:
        """Reserve the worst case of a call, with `max_tokens` lowered to what all caps allow.

        Raises LimitReached, PriceUnknown or ModelDisabled.
        """
        with self.writing(_NOT_SENT) as db:
            caps = self._caps_for(db, ask.account, self._today())
            return self._place(db, ask, fitting_output(ask, caps), "held", fitting_ms(SLICE_MS, caps))

    def set_aside(self, ask: Ask) -> Hold:
        """Reserve the price of the final answer; replaces the turn's earlier reservation for it."""
        account = ask.account
        with self.writing(_NOT_SENT) as db:
            mine = (account.session, account.turn, os.getpid())
            pending = "SELECT * FROM entries WHERE state = 'aside' AND session = ? AND turn = ? AND pid = ?"
            for row in db.execute(pending, mine).fetchall():
                _change(db, row, _RELEASED)
            caps = self._caps_for(db, account, self._today())
            return self._place(db, ask, fitting_output(ask, caps), "aside", answer_ms(caps))

    def exchange(self, old: Hold, ask: Ask) -> Hold:
        """Replace an unused reservation with a call; always fits if the call is not larger."""
        with self.writing(_NOT_SENT) as db:
            row = _find(db, old.entry)
            if row["state"] not in ("held", "aside"):  # already released, so there is nothing to replace
                caps = self._caps_for(db, ask.account, self._today())
                return self._place(db, ask, fitting_output(ask, caps), "held", fitting_ms(SLICE_MS, caps))
            _change(db, row, _RELEASED)
            caps = self._caps_for(db, ask.account, row["day"])
            ms = fitting_ms(max(SLICE_MS, row["held_ms"]), caps)
            return self._place(db, ask, exchanged_output(ask, caps, old), "held", ms, day=row["day"])

    def extend(self, entry: int) -> int:
        """Reserve more time for a running call or tool, and return how much the caps allow; 0 if it has ended."""
        with self.writing(_STILL_HELD) as db:
            row = _find(db, entry)
            if not row["held_ms"]:
                return 0
            caps = _caps_over(db, row["session"], row["turn"], row["day"], row["lease"])
            more = fitting_ms(SLICE_MS, caps)
            more = SLICE_MS if more is None else more  # the cap was removed
            if more:
                _change(db, row, {"held_ms": row["held_ms"] + more})
            return more

    def end_attempt(self, hold: Hold, ms: int) -> None:
        """Record the time of an attempt whose reservation the next attempt will use."""
        with self.writing(_STILL_HELD) as db:
            row = _find(db, hold.entry)
            _change(db, row, {"spent_ms": ms, "held_ms": 0})

    def settle(
        self,
        hold: Hold,
        usage: Usage | None,
        tool: str = "",
        *,
        ms: int | None = None,
        estimate: Usage | None = None,
    ) -> Settlement:
        """End a reservation with the reported usage; without usage all of it counts, and `estimate` is displayed.

        A report above the reservation is recorded as an overrun and bars the model. `ms` is the call's working time.
        """
        with self.writing(_STILL_HELD) as db:
            row = _find(db, hold.entry)
            if row["state"] != "held":
                raise StoreError(f"Entry {hold.entry} of the ledger is already {row['state']}.", kept=_UNCHANGED)
            if usage is None:
                worst = Usage(input=row["held_input"], output=row["held_output"])
                likely = estimate and Usage(min(estimate.input, worst.input), min(estimate.output, worst.output))
                nano = None if likely is None or hold.price is None else hold.price.cost(likely)
                nano = None if nano == hold.nano else nano
                settlement = Settlement(hold.entry, hold.nano, worst, False, estimate=likely, estimate_nano=nano)
            else:
                spent = None if hold.price is None else hold.price.cost(usage)
                over = 0 if spent is None or hold.nano is None else max(0, spent - hold.nano)
                settlement = Settlement(hold.entry, spent, usage, True, over, max(0, usage.total - hold.tokens))
            _change(db, row, {**_settled(settlement), "tool": tool, "spent_ms": ms})
            if settlement.overran:
                reason = f"it billed {settlement.overrun_text} more than its prompt and max_tokens allow"
                self._bar(db, hold.account.model, reason)
            return settlement

    def release(self, hold: Hold, ms: int | None = None) -> None:
        """Cancel a reservation because nothing was billed; does nothing if it is already settled or released.

        `ms` is the working time of a failed call.
        """
        with self.writing(_STILL_HELD) as db:
            row = _find(db, hold.entry)
            if row["state"] in ("held", "aside"):
                _change(db, row, {**_RELEASED, "spent_ms": row["spent_ms"] if ms is None else ms})

    def start_tool(self, account: Account, tool: str, nano: int, wanted_ms: int = SLICE_MS) -> ToolHold:
        """Charge one use of a tool and reserve its first working time.

        Raises LimitReached if a cap has too little left for the price, or no time. Nothing is booked yet for a free
        tool without a cap in time.
        """
        if not nano:
            with self.reading() as db:
                caps = _caps_over(db, account.session, account.turn, self._today(), account.lease)
            if fitting_ms(wanted_ms, caps) is None:
                return ToolHold(account, tool)
        with self.writing("Nothing was charged and the tool was not run.") as db:
            caps = _caps_over(db, account.session, account.turn, self._today(), account.lease)
            for cap in caps:
                need = {"usd": nano, "tokens": 0, "ms": min(wanted_ms, MIN_CALL_MS)}[cap.unit]
                if need > cap.left:
                    raise limit_reached(cap, need)
            ms = fitting_ms(wanted_ms, caps)
            return ToolHold(account, tool, self._insert_tool(db, account, tool, nano, {"held_ms": ms or 0}), ms)

    def end_tool(self, hold: ToolHold, ms: int) -> None:
        """Record the working time of a tool."""
        with self.writing(_STILL_HELD) as db:
            if hold.entry is None:
                self._insert_tool(db, hold.account, hold.tool, 0, {"spent_ms": ms})
            else:
                _change(db, _find(db, hold.entry), {"spent_ms": ms, "held_ms": 0})

    def _insert_tool(
        self, db: sqlite3.Connection, account: Account, tool: str, nano: int, time: Mapping[str, int]
    ) -> int:
        columns = self._columns(account, self._today())
        paid = {"purpose": "tool", "model": "", "tool": tool, "held_nano": nano, "spent_nano": nano}
        return _insert(db, {**columns, **paid, **time, "state": "settled", "held_input": 0, "held_output": 0})

    def caps(self, session: str, turn: int, *, at_rest: bool = False) -> tuple[CapState, ...]:
        """Return the user's own and the shared caps over a session's turn.

        With `at_rest`, reservations of the turn's running calls in this process are not counted.
        """
        shared = self.shared_caps()
        with self.reading() as db:
            caps = (*_caps_over(db, session, turn, self._today()), *shared)
            if not at_rest:
                return caps
            own = db.execute(
                """SELECT COALESCE(SUM(CASE state WHEN 'held' THEN held_nano END), 0) AS usd,
                COALESCE(SUM(CASE state WHEN 'held' THEN held_input + held_output END), 0) AS tokens,
                COALESCE(SUM(held_ms), 0) AS ms
                FROM entries WHERE state != 'aside' AND session = ? AND turn = ? AND pid = ?""",
                (session, turn, os.getpid()),
            ).fetchone()
        return tuple(replace(cap, held=max(0, cap.held - own[cap.unit])) for cap in caps)

    def own_caps(self, session: str, turn: int) -> tuple[CapState, ...]:
        """Return the caps that only this user spends under."""
        with self.reading() as db:
            return _caps_over(db, session, turn, self._today())

    def shared_caps(self) -> tuple[CapState, ...]:
        """Return the caps shared with other users; none in a local ledger."""
        return ()

    def shared_costs(self, by: str) -> tuple[CostRow, ...]:
        """Return the sums of a shared ledger by person, team or project; raises UsageError without one."""
        raise _not_shared()

    def import_calls(self) -> int:
        """Copy the user's own calls into the shared ledger; returns the number of new ones. Raises UsageError."""
        raise _not_shared()

    def end_dead_leases(self) -> int:
        """End the leases of this user's dead processes and return their number; raises UsageError."""
        raise _not_shared()

    def refresh_shared_caps(self) -> None:
        """Read the shared caps again, which may have been raised since the last request."""

    def set_cap(self, session: str, scope: Scope, amount: Amount | None) -> None:
        """Set or remove (None) a cap; day and month caps belong to the user, turn and session caps to the session."""
        if scope not in SCOPES:
            raise UsageError(
                f"{scope} is a team's cap.", fix=f"An administrator can set it: ecoshell budget set {scope} AMOUNT."
            )
        owner = session if scope in ("turn", "session") else ""
        with self.writing(_UNCHANGED) as db:
            if amount is None:
                db.execute("DELETE FROM caps WHERE scope = ? AND owner = ?", (scope, owner))
            else:
                values = (scope, owner, amount.unit, amount.value)
                db.execute("INSERT OR REPLACE INTO caps (scope, owner, unit, amount) VALUES (?, ?, ?, ?)", values)

    def adopt_cap(self, scope: Scope, amount: Amount | None) -> None:
        """Adopt a day or month cap from the settings if it has changed there.

        A cap set in a chat applies until the settings change.
        """
        configured = None if amount is None else (amount.unit, amount.value)
        remember = "INSERT OR REPLACE INTO caps (scope, owner, unit, amount) VALUES (?, ?, ?, ?)"
        with self.writing(_UNCHANGED) as db:
            query = "SELECT unit, amount FROM caps WHERE scope = ? AND owner = ?"
            row = db.execute(query, (scope, _FROM_SETTINGS)).fetchone()
            previous: tuple[str, int] | None = None if row is None else (row["unit"], row["amount"])
            if previous == configured:
                return
            db.execute("DELETE FROM caps WHERE scope = ? AND owner = ?", (scope, _FROM_SETTINGS))
            if configured is not None:
                db.execute("DELETE FROM caps WHERE scope = ? AND owner = ''", (scope,))
                db.executemany(remember, [(scope, _FROM_SETTINGS, *configured), (scope, "", *configured)])
            elif previous is not None:  # removed from the settings: keep a cap that was set in a chat
                removal = "DELETE FROM caps WHERE scope = ? AND owner = '' AND unit = ? AND amount = ?"
                db.execute(removal, (scope, *previous))

    def bar(self, model: str, reason: str) -> None:
        """Refuse calls of the model under any cap."""
        with self.writing(_UNCHANGED) as db:
            self._bar(db, model, reason)

    def unbar(self, model: str) -> None:
        """Allow the model again."""
        with self.writing(_UNCHANGED) as db:
            db.execute("DELETE FROM barred WHERE model = ?", (model,))

    def barred(self) -> dict[str, str]:
        """Return the reason by barred model."""
        with self.reading() as db:
            return {row["model"]: row["reason"] for row in db.execute("SELECT model, reason FROM barred ORDER BY at")}

    def reconcile(self, entry: int, actual: Amount | Usage) -> Settlement:
        """Replace the counted amount of a call with the actual one.

        Raises UsageError if the entry does not exist, is not a call that was sent, or its call is still running.
        """
        with self.writing(_UNCHANGED) as db:
            row = _find(db, entry)
            recorded = entry_from_row(row)
            is_tool = recorded.purpose == "tool"
            if recorded.state in ("aside", "released") or (is_tool and not recorded.held_ms):
                raise UsageError(f"Entry {entry} is not a call that was sent.", fix="Reconcile a held or settled call.")
            if (recorded.state == "held" or is_tool) and alive(recorded.pid):
                raise UsageError(f"The call of entry {entry} is still running.", fix="Wait until it ends, or stop it.")
            if isinstance(actual, Amount) and actual.unit == "ms":
                _change(db, row, {"spent_ms": actual.value, "held_ms": 0})
                usage = recorded.usage or recorded.held_usage
                return Settlement(entry, recorded.spent_nano, usage, reported=recorded.state == "settled")
            if is_tool:
                fix = f"Give the working time, such as --reconcile {entry}=2s."
                raise UsageError(f"Entry {entry} is a tool call, whose price is known.", fix=fix)
            counted = recorded.usage or recorded.held_usage
            spent = recorded.spent_nano if recorded.usage else recorded.held_nano
            if isinstance(actual, Usage):
                nano = None if recorded.price is None else recorded.price.cost(actual)
                settlement = Settlement(entry, nano, actual, reported=True)
            elif actual.unit == "usd":
                settlement = Settlement(entry, actual.value, counted, reported=True, estimate=recorded.estimate)
            else:
                tokens = Usage(input=actual.value)
                settlement = Settlement(entry, spent, tokens, reported=True, estimate_nano=recorded.estimate_nano)
            ms = (row["spent_ms"] or 0) + row["held_ms"] if row["held_ms"] else row["spent_ms"]
            _change(db, row, {**_settled(settlement), "spent_ms": ms})
            return settlement

    def unreconciled(self) -> tuple[Entry, ...]:
        """Return the calls that count in full because their usage was not reported or their process died."""
        with self.reading() as db:
            columns = {row["name"] for row in db.execute("PRAGMA table_info(entries)")}
            running = " OR held_ms > 0" if "held_ms" in columns else ""
            query = f"SELECT * FROM entries WHERE state IN ('held', 'unreported'){running} ORDER BY id"
            entries = [entry_from_row(row) for row in db.execute(query)]
        pending = (entry for entry in entries if entry.state != "aside")
        return tuple(entry for entry in pending if entry.state == "unreported" or not alive(entry.pid))

    def rows(self, by: By, session: str | None = None) -> tuple[CostRow, ...]:
        """Return the sums of all entries, or of one session, by this key in order of first appearance.

        By role and model, tools have a row (with an empty key) only if they cost something.
        """
        condition = "" if session is None else "AND session = :session"
        if by in ("role", "model"):
            condition += " AND (purpose != 'tool' OR spent_nano > 0)"
        grouped = f"(state != 'released' OR {{spent_ms}} > 0) {condition} GROUP BY {by} ORDER BY MIN(id)"
        return tuple(cost for _, cost in self._sums(by, grouped, session))

    def session_row(self, session: str) -> CostRow | None:
        """Return the sum of one session; None without a call."""
        return next(iter(self.rows("session", session)), None)

    def reasoning_nano(self, session: str) -> int:
        """Return the known price of a session's reasoning tokens, which is part of what was spent."""
        query = "SELECT * FROM entries WHERE session = ? AND state = 'settled' AND reasoning > 0 AND price IS NOT NULL"
        with self.reading() as db:
            entries = [entry_from_row(row) for row in db.execute(query, (session,))]
        return sum(entry.price.reasoning_cost(entry.usage) for entry in entries if entry.price and entry.usage)

    def pace(self, model: str) -> Pace | None:
        """Return the speed of a model's last steps; None without a timed step."""
        with self.reading() as db:
            columns = {row["name"] for row in db.execute("PRAGMA table_info(entries)")}
            if "spent_ms" not in columns:
                return None
            row = db.execute(
                """SELECT SUM(input + output), SUM(spent_ms), COUNT(*) FROM
                (SELECT * FROM entries WHERE model = ? AND state = 'settled' AND purpose = 'step' AND spent_ms > 0
                ORDER BY id DESC LIMIT 50)""",
                (model,),
            ).fetchone()
        return Pace(*row) if row[0] else None

    def turn_rows(self, session: str) -> dict[int, CostRow]:
        """Return the sum of each turn of a session, by turn number.

        Summaries of /compact are excluded because they are written after the turn they are booked under.
        """
        grouped = "(state != 'released' OR {spent_ms} > 0) AND role != 'compact' AND session = :session GROUP BY turn"
        return dict(self._sums("session", grouped, session, turn="turn"))

    def _sums(self, by: str, grouped: str, session: str | None, *, turn: str = "0") -> list[tuple[int, CostRow]]:
        """Return each group's sum and turn; columns missing in a read-only file of an older version count as NULL."""
        with self.reading() as db:
            columns = {row["name"] for row in db.execute("PRAGMA table_info(entries)")}
            present = {name: name if name in columns else "NULL" for name in _NEW_COLUMNS}
            query = f"SELECT {by} AS key, {turn} AS turn, {_SUMS} WHERE {grouped}".format(**present)
            rows = db.execute(query, {"session": session}).fetchall()
        sums: list[tuple[int, CostRow]] = []
        for row in rows:
            spent, ms = row["spent"], row["ms"]
            usage = Usage(row["input"], row["output"], row["cached"], row["cache_write"], row["reasoning"])
            likely = replace(usage, input=row["likely_input"], output=row["likely_output"])
            cost = CostRow(
                key=row["key"],
                spent_nano=0 if spent is None and not row["unpriced"] else spent,
                held_nano=row["held"],
                usage=usage,
                calls=row["calls"],
                unpriced=row["unpriced"],
                ms=0 if ms is None and not row["untimed"] else ms,
                untimed=row["untimed"],
                estimate=likely if row["estimates"] else None,
                estimate_nano=row["likely_nano"] if row["estimates_nano"] else None,
            )
            sums.append((row["turn"], cost))
        return sums

    def entry(self, entry: int) -> Entry:
        """Return one entry; raises UsageError if it does not exist."""
        with self.reading() as db:
            return entry_from_row(_find(db, entry))

    def last(self, session: str) -> Entry | None:
        """Return the last call of a session."""
        query = (
            "SELECT * FROM entries WHERE session = ? AND state NOT IN ('aside', 'released') ORDER BY id DESC LIMIT 1"
        )
        with self.reading() as db:
            row = db.execute(query, (session,)).fetchone()
        return None if row is None else entry_from_row(row)

    def last_session(self) -> str:
        """Return the session of the last call; empty without one."""
        query = "SELECT session FROM entries WHERE state NOT IN ('aside', 'released') ORDER BY id DESC LIMIT 1"
        with self.reading() as db:
            row = db.execute(query).fetchone()
        return "" if row is None else row["session"]

    def calls_within(self, session: str, seconds: float) -> int:
        """Return how many calls of a session began in the last seconds."""
        query = "SELECT COUNT(*) FROM entries WHERE session = ? AND at >= ? AND purpose != 'tool' AND state != 'aside'"
        with self.reading() as db:
            return db.execute(query, (session, self._clock().timestamp() - seconds)).fetchone()[0]

    def aside_nano(self, account: Account) -> int:
        """Return the amount that this process has set aside for the account's turn and lease."""
        query = """SELECT COALESCE(SUM(held_nano), 0) FROM entries
            WHERE state = 'aside' AND session = ? AND turn = ? AND pid = ? AND lease = ?"""
        with self.reading() as db:
            return db.execute(query, (account.session, account.turn, os.getpid(), account.lease)).fetchone()[0]

    def set_lease(self, lease: str, nano: int | None) -> None:
        """Set the cap of a lease to its total grant; None ends it."""
        with self.writing(_UNCHANGED) as db:
            if nano is None:
                db.execute("DELETE FROM caps WHERE scope = 'lease' AND owner = ?", (lease,))
            else:
                db.execute("INSERT OR REPLACE INTO caps VALUES ('lease', ?, 'usd', ?)", (lease, nano))

    def lease_cap(self, lease: str, *, lower: bool = False) -> CapState:
        """Return the grant of a lease, 0 for an unknown one, and its use.

        `lower` reduces the grant to its use, so that nothing more can be reserved from it.
        """
        with self.writing(_UNCHANGED) if lower else self.reading() as db:
            row = db.execute(
                """SELECT COALESCE((SELECT amount FROM caps WHERE scope = 'lease' AND owner = :lease), 0),
                COALESCE(SUM(spent_nano), 0), COALESCE(SUM(held_nano), 0)
                FROM totals WHERE scope = 'lease' AND key = :lease""",
                {"lease": lease},
            ).fetchone()
            cap = CapState(LEASE, "usd", *row)
            if lower:
                cap = replace(cap, limit=min(cap.limit, cap.spent + cap.held))
                db.execute("UPDATE caps SET amount = ? WHERE scope = 'lease' AND owner = ?", (cap.limit, lease))
            return cap

    def leases(self) -> tuple[str, ...]:
        """Return the open leases of all processes."""
        with self.reading() as db:
            return tuple(row["owner"] for row in db.execute("SELECT owner FROM caps WHERE scope = 'lease'"))

    def entries_of(self, lease: str, ids: Collection[int] | None = None) -> tuple[Entry, ...]:
        """Return the sent calls of a lease, optionally only these entries."""
        with self.reading() as db:
            query = "SELECT * FROM entries WHERE lease = ? AND state NOT IN ('aside', 'released')"
            if ids is None:
                rows = db.execute(query, (lease,)).fetchall()
            else:
                rows = db.execute(f"{query} AND id IN ({', '.join('?' * len(ids))})", (lease, *ids)).fetchall()
        return tuple(entry_from_row(row) for row in rows)

    def verify(self) -> tuple[str, ...]:
        """Recount all entries and describe each wrong total; empty if the ledger is consistent."""
        sums: dict[tuple[str, str], tuple[int, ...]] = {}
        with self.reading() as db:
            for row in db.execute("SELECT * FROM entries"):
                for key in _scope_keys(row["session"], row["turn"], row["day"], row["lease"]).items():
                    sums[key] = tuple(map(sum, zip(sums.get(key, _NOTHING), _counted(row), strict=True)))
            totals = {(row["scope"], row["key"]): tuple(row)[2:] for row in db.execute("SELECT * FROM totals")}
        return tuple(
            f"{scope} {name}: stored {totals.get((scope, name), _NOTHING)}, counted {sums.get((scope, name), _NOTHING)}"
            for scope, name in sorted({*sums, *totals})
            if totals.get((scope, name), _NOTHING) != sums.get((scope, name), _NOTHING)
        )

    def _today(self) -> str:
        return self._clock().date().isoformat()

    def _caps_for(self, db: sqlite3.Connection, account: Account, day: str) -> tuple[CapState, ...]:
        """Return the caps over this account; raises ModelDisabled if there are any and the model is barred."""
        caps = _caps_over(db, account.session, account.turn, day, account.lease)
        query, barring = "SELECT reason FROM barred WHERE model = ?", self._capped(caps)
        row = db.execute(query, (account.model,)).fetchone() if barring else None
        if row is not None:
            raise ModelDisabled(
                f"{account.model} is no longer allowed under a cap: {row['reason']}.",
                fix=f"Choose another model, or allow this one again: ecoshell models --unbar {account.model}",
            )
        return caps

    def _capped(self, caps: tuple[CapState, ...]) -> bool:
        """Return whether any cap applies."""
        return bool(caps)

    def _place(
        self, db: sqlite3.Connection, ask: Ask, output: int, state: State, ms: int | None, *, day: str = ""
    ) -> Hold:
        """Insert the reservation of a call with this output limit and working time."""
        nano = None if ask.price is None else ask.price.worst(ask.prompt_tokens, output)
        reserved = {
            "state": state,
            "price": None if ask.price is None else price_to_json(ask.price),
            "held_nano": nano,
            "held_input": ask.prompt_tokens,
            "held_output": output,
            "held_ms": ms or 0,
        }
        entry = _insert(db, {**self._columns(ask.account, day or self._today()), **reserved})
        tokens = ask.prompt_tokens + output
        return Hold(entry, nano, tokens, output, output < ask.max_tokens, ask.account, ask.price, ms)

    def _columns(self, account: Account, day: str) -> dict[str, Any]:
        return {
            "at": self._clock().timestamp(),
            "day": day,
            "session": account.session,
            "turn": account.turn,
            "role": account.role,
            "model": account.model,
            "purpose": account.purpose,
            "pid": os.getpid(),
            "lease": account.lease,
        }

    def _bar(self, db: sqlite3.Connection, model: str, reason: str) -> None:
        values = (model, self._clock().timestamp(), reason)
        db.execute("INSERT OR REPLACE INTO barred (model, at, reason) VALUES (?, ?, ?)", values)


def _not_shared() -> UsageError:
    fix = "Set [budget] ledger, or ECOSHELL_LEDGER, to its address: postgresql://PERSON@HOST/DATABASE."
    return UsageError("This needs a team ledger, and none is configured.", fix=fix)


def _settled(settlement: Settlement) -> dict[str, Any]:
    usage = settlement.usage
    return {
        "state": "settled" if settlement.reported else "unreported",
        "held_ms": 0,
        "spent_nano": settlement.spent_nano,
        "input": usage.input,
        "output": usage.output,
        "cached": usage.cached,
        "cache_write": usage.cache_write,
        "reasoning": usage.reasoning,
        "overrun_nano": settlement.overrun_nano,
        "overrun_tokens": settlement.overrun_tokens,
        "estimate_nano": settlement.estimate_nano,
        "estimate_input": settlement.estimate and settlement.estimate.input,
        "estimate_output": settlement.estimate and settlement.estimate.output,
    }


def alive(pid: int) -> bool:
    """Return whether a process with this number runs; a reused number only delays a cleanup."""
    if pid == os.getpid() or os.name == "nt":  # On Windows signal 0 is Ctrl-C, so no check is possible.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # It runs under another user.
    return True
