"""The tables of the ledger's file, and how files of older versions are upgraded."""

VERSION = 6
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

_TIME_KEYS = {
    "turn": "session || '/' || turn",
    "session": "session",
    "day": "day",
    "month": "substr(day, 1, 7)",
}
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

_WITH_TASKS = "ALTER TABLE entries ADD COLUMN task TEXT NOT NULL DEFAULT ''"
"""Version 6: the subagent that made the call, as the path of its task; empty for the session's own agent."""

UPGRADES = (_WITH_SECONDS, _WITH_ESTIMATES, _WITH_LEASES, _WITH_MS, _WITH_TASKS)
"""What each version adds to the one before."""
