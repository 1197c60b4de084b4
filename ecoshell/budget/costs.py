"""What was spent, by session, model, role, tool and day."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from ecoshell.budget.database import Database
from ecoshell.budget.entries import Entry, alive, entry_from_row, find, usage_of
from ecoshell.messages import Usage

By = Literal["day", "session", "model", "role", "tool"]
_SUMS = """SUM(spent_nano) AS spent,
    COALESCE(SUM(CASE WHEN state IN ('held', 'aside') THEN held_nano END), 0) AS held,
    SUM(input) AS input, SUM(output) AS output, SUM(cached) AS cached, SUM(cache_write) AS cache_write,
    SUM(reasoning) AS reasoning, SUM(purpose != 'tool' AND state NOT IN ('aside', 'released')) AS calls,
    SUM(state IN ('settled', 'unreported') AND spent_nano IS NULL) AS unpriced,
    SUM(spent_ms) AS ms,
    SUM(state IN ('settled', 'unreported') AND purpose != 'tool' AND spent_ms IS NULL) AS untimed,
    COUNT(estimate_input) AS estimates, COUNT(estimate_nano) AS estimates_nano,
    SUM(COALESCE(estimate_nano, spent_nano)) AS likely_nano,
    SUM(COALESCE(estimate_input, input)) AS likely_input, SUM(COALESCE(estimate_output, output)) AS likely_output
FROM entries"""
_SENT = "state NOT IN ('aside', 'released')"
_COUNTED = "(state != 'released' OR spent_ms > 0)"


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


class Costs(Database):
    """The entries of the ledger's file, read and added up."""

    _clock: Callable[[], datetime]

    def unreconciled(self) -> tuple[Entry, ...]:
        """Return the calls that count in full because their usage was not reported or their process died."""
        query = """SELECT * FROM entries WHERE state IN ('held', 'unreported') OR (held_ms > 0 AND state != 'aside')
            ORDER BY id"""
        with self.reading() as db:
            entries = [entry_from_row(row) for row in db.execute(query)]
        return tuple(
            entry for entry in entries if entry.state == "unreported" or not alive(entry.pid)
        )

    def rows(self, by: By, session: str | None = None) -> tuple[CostRow, ...]:
        """Return the sums of all entries, or of one session, by this key in order of first appearance.

        By role and model, tools have a row (with an empty key) only if they cost something.
        """
        condition = "" if session is None else "AND session = :key"
        if by in ("role", "model"):
            condition += " AND (purpose != 'tool' OR spent_nano > 0)"
        grouped = f"{_COUNTED} {condition} GROUP BY {by} ORDER BY MIN(id)"
        return tuple(cost for _, cost in self._sums(by, grouped, session))

    def session_row(self, session: str) -> CostRow | None:
        """Return the sum of one session; None without a call."""
        return next(iter(self.rows("session", session)), None)

    def task_row(self, task: str) -> CostRow | None:
        """Return the sum of a subagent's task and of those it delegated; None without a call."""
        grouped = f"{_COUNTED} AND task || '/' GLOB :key || '/*' GROUP BY session"
        return next((cost for _, cost in self._sums("session", grouped, task)), None)

    def reasoning_nano(self, session: str) -> int:
        """Return the known price of a session's reasoning tokens, which is part of what was spent."""
        query = "SELECT * FROM entries WHERE session = ? AND state = 'settled' AND reasoning > 0 AND price IS NOT NULL"
        with self.reading() as db:
            entries = [entry_from_row(row) for row in db.execute(query, (session,))]
        priced = ((entry.price, entry.usage) for entry in entries)
        return sum(price.reasoning_cost(usage) for price, usage in priced if price and usage)

    def pace(self, model: str) -> Pace | None:
        """Return the speed of a model's last steps; None without a timed step."""
        with self.reading() as db:
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
        grouped = f"{_COUNTED} AND role != 'compact' AND session = :key GROUP BY turn"
        return dict(self._sums("session", grouped, session, turn="turn"))

    def _sums(
        self, by: str, grouped: str, key: str | None, *, turn: str = "0"
    ) -> list[tuple[int, CostRow]]:
        """Return each group's sum and turn."""
        query = f"SELECT {by} AS key, {turn} AS turn, {_SUMS} WHERE {grouped}"
        with self.reading() as db:
            rows = db.execute(query, {"key": key}).fetchall()
        sums: list[tuple[int, CostRow]] = []
        for row in rows:
            spent, ms = row["spent"], row["ms"]
            usage = usage_of(row)
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
            return entry_from_row(find(db, entry))

    def last(self, session: str) -> Entry | None:
        """Return the last call of a session."""
        query = f"SELECT * FROM entries WHERE session = ? AND {_SENT} ORDER BY id DESC LIMIT 1"
        with self.reading() as db:
            row = db.execute(query, (session,)).fetchone()
        return None if row is None else entry_from_row(row)

    def last_session(self) -> str:
        """Return the session of the last call; empty without one."""
        query = f"SELECT session FROM entries WHERE {_SENT} ORDER BY id DESC LIMIT 1"
        with self.reading() as db:
            row = db.execute(query).fetchone()
        return "" if row is None else row["session"]

    def calls_within(self, session: str, seconds: float) -> int:
        """Return how many calls of a session began in the last seconds, without released reservations."""
        query = f"SELECT COUNT(*) FROM entries WHERE session = ? AND at >= ? AND purpose != 'tool' AND {_SENT}"
        with self.reading() as db:
            return db.execute(query, (session, self._clock().timestamp() - seconds)).fetchone()[0]
