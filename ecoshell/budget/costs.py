"""What was spent, added up by day, session, model, role or tool."""

import sqlite3
from dataclasses import dataclass, replace
from typing import Literal

from ecoshell.messages import Usage

By = Literal["day", "session", "model", "role", "tool"]


@dataclass(frozen=True, slots=True)
class CostRow:
    """The sum of one key's entries.

    `spent_nano` adds up the calls whose price is known and is None when there are only others; `unpriced` says how many
    others there are. `seconds` and `untimed` are the same of the time that calls took. `usage` and `spent_nano` count
    the whole reservation of a call that reported no usage, as caps do. An empty key means: no tool.
    """

    key: str
    spent_nano: int | None
    held_nano: int
    usage: Usage
    calls: int
    unpriced: int
    seconds: float | None = None
    untimed: int = 0
    estimate: Usage | None = None
    """The usage with calls that reported none as a tokenizer counts them; None where all have."""
    estimate_nano: int | None = None
    """The price with these as they are estimated; None where that makes no difference."""

    @property
    def shown_nano(self) -> int | None:
        """What a person is shown as spent."""
        return self.spent_nano if self.estimate_nano is None else self.estimate_nano

    @property
    def shown_usage(self) -> Usage:
        """What a person is shown as used."""
        return self.estimate or self.usage


_SUMS = """SUM(spent_nano) AS spent,
    COALESCE(SUM(CASE WHEN state IN ('held', 'aside') THEN held_nano END), 0) AS held,
    SUM(input) AS input, SUM(output) AS output, SUM(cached) AS cached, SUM(cache_write) AS cache_write,
    SUM(reasoning) AS reasoning, SUM(purpose != 'tool' AND state != 'aside') AS calls,
    SUM(state IN ('settled', 'unreported') AND spent_nano IS NULL) AS unpriced,
    SUM({seconds}) AS seconds,
    SUM(state IN ('settled', 'unreported') AND purpose != 'tool' AND {seconds} IS NULL) AS untimed,
    COUNT({estimate_input}) AS estimates, COUNT({estimate_nano}) AS estimates_nano,
    SUM(COALESCE({estimate_nano}, spent_nano)) AS likely_nano,
    SUM(COALESCE({estimate_input}, input)) AS likely_input, SUM(COALESCE({estimate_output}, output)) AS likely_output
FROM entries"""
_ADDED = ("seconds", "estimate_nano", "estimate_input", "estimate_output")
"""Columns that later versions have added."""


def cost_rows(db: sqlite3.Connection, by: By, session: str | None = None) -> tuple[CostRow, ...]:
    """One row for each key, of all entries or of one session's, in the order in which the keys first appear."""
    only = "" if session is None else "AND session = :session"
    found = db.execute(
        f"SELECT {by} AS key, {_sums(db)} WHERE state != 'released' {only} GROUP BY {by} ORDER BY MIN(id)",
        {"session": session},
    )
    return tuple(_row(row) for row in found)


def turn_rows(db: sqlite3.Connection, session: str) -> dict[int, CostRow]:
    """One row for each turn of a session, by its number; the key is the session's.

    What a summary of /compact cost is left out: it was written after the turn it is booked under.
    """
    found = db.execute(
        f"""SELECT session AS key, turn, {_sums(db)} WHERE state != 'released' AND role != 'compact'
        AND session = ? GROUP BY turn""",
        (session,),
    )
    return {row["turn"]: _row(row) for row in found}


def _sums(db: sqlite3.Connection) -> str:
    """What is added up; of a file that only an older version could write, nothing of the columns added since."""
    columns = {row["name"] for row in db.execute("PRAGMA table_info(entries)")}
    return _SUMS.format(**{name: name if name in columns else "NULL" for name in _ADDED})


def _row(row: sqlite3.Row) -> CostRow:
    spent, seconds = row["spent"], row["seconds"]
    usage = Usage(row["input"], row["output"], row["cached"], row["cache_write"], row["reasoning"])
    likely = replace(usage, input=row["likely_input"], output=row["likely_output"]) if row["estimates"] else None
    return CostRow(
        key=row["key"],
        spent_nano=0 if spent is None and not row["unpriced"] else spent,
        held_nano=row["held"],
        usage=usage,
        calls=row["calls"],
        unpriced=row["unpriced"],
        seconds=0.0 if seconds is None and not row["untimed"] else seconds,
        untimed=row["untimed"],
        estimate=likely,
        estimate_nano=row["likely_nano"] if row["estimates_nano"] else None,
    )
