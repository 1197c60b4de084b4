"""The ledger: every call's hold and settlement and the caps over them, in one SQLite file for all the user's processes.

An entry counts for the local day on which it was reserved. A hold whose process died counts until it is reconciled.
"""

import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ecoshell.budget import entries
from ecoshell.budget.caps import CapState, Scope
from ecoshell.budget.costs import By, CostRow, cost_rows, turn_rows
from ecoshell.budget.database import Database
from ecoshell.budget.entries import Entry, entry_from_row
from ecoshell.budget.holds import Account, Ask, Hold, Settlement
from ecoshell.budget.limits import exchanged_output, fitting_output, limit_reached
from ecoshell.budget.money import Amount, amount_text
from ecoshell.budget.price import price_to_json
from ecoshell.errors import ModelBarred, StoreError, UsageError
from ecoshell.messages import Usage

_NOT_SENT = "Nothing was reserved and nothing was sent."
_STILL_HELD = "The reservation keeps counting in full until it is reconciled."
_AS_BEFORE = "Everything stays as it was."
_FROM_SETTINGS = "(settings)"
"""Owner of the caps that remember what the settings last said; they limit nothing themselves."""

Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now().astimezone()


class Ledger:
    """Reserves and settles under the caps; every method is one transaction and may be called from any thread.

    Raises StoreError when the file is locked, full, read-only or damaged.
    """

    def __init__(self, path: Path, *, clock: Clock = _now, busy_seconds: float = 10.0) -> None:
        self._database = Database(
            path,
            schema=entries.SCHEMA,
            version=entries.VERSION,
            upgrades=(entries.WITH_SECONDS, entries.WITH_ESTIMATES),
            busy_seconds=busy_seconds,
        )
        self._clock = clock
        if self._database.writable:
            self._release_abandoned_asides()

    @property
    def writable(self) -> bool:
        """Whether calls can be reserved; costs and caps of a file that cannot be written can still be read."""
        return self._database.writable

    def require_writable(self, kept: str = "") -> None:
        """Raise StoreError when a reservation made now would not be found again."""
        self._database.require_writable(kept)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def hold(self, ask: Ask) -> Hold:
        """Reserve the worst case of a call, with `max_tokens` lowered to what every cap leaves.

        Raises LimitReached, PriceUnknown or ModelBarred.
        """
        with self._database.writing(_NOT_SENT) as db:
            caps = self._caps_for(db, ask.account, self._today())
            return self._place(db, ask, fitting_output(ask, caps), "held")

    def set_aside(self, ask: Ask) -> Hold:
        """Reserve what the turn's final answer may cost, in place of what this turn had set aside before."""
        account = ask.account
        with self._database.writing(_NOT_SENT) as db:
            mine = (account.session, account.turn, os.getpid())
            pending = "SELECT * FROM entries WHERE state = 'aside' AND session = ? AND turn = ? AND pid = ?"
            for row in db.execute(pending, mine).fetchall():
                entries.change(db, row, {"state": "released"})
            caps = self._caps_for(db, account, self._today())
            return self._place(db, ask, fitting_output(ask, caps), "aside")

    def exchange(self, old: Hold, ask: Ask) -> Hold:
        """Put a call in the place of a hold for which nothing was sent; it always fits when it is no larger."""
        with self._database.writing(_NOT_SENT) as db:
            row = entries.find(db, old.entry)
            if row["state"] not in ("held", "aside"):  # released meanwhile, so there is no place to take
                caps = self._caps_for(db, ask.account, self._today())
                return self._place(db, ask, fitting_output(ask, caps), "held")
            entries.change(db, row, {"state": "released"})
            caps = self._caps_for(db, ask.account, row["day"])
            return self._place(db, ask, exchanged_output(ask, caps, old), "held", day=row["day"])

    def settle(
        self,
        hold: Hold,
        usage: Usage | None,
        tool: str = "",
        *,
        seconds: float | None = None,
        estimate: Usage | None = None,
    ) -> Settlement:
        """End a hold with the reported usage; without one the whole hold counts as spent, and `estimate` is shown.

        A report of more than was held is recorded as an overrun and bars the model. `seconds` is what the call took.
        """
        with self._database.writing(_STILL_HELD) as db:
            row = entries.find(db, hold.entry)
            if row["state"] != "held":
                raise StoreError(f"Entry {hold.entry} of the ledger is {row['state']} already.", kept=_AS_BEFORE)
            settlement = _settlement(row, hold, usage, estimate)
            entries.change(db, row, {**_settled(settlement), "tool": tool, "seconds": seconds})
            if settlement.overran:
                self._bar(db, hold.account.model, _overrun_reason(settlement))
            return settlement

    def release(self, hold: Hold) -> None:
        """Give a hold back in full, because nothing was sent; does nothing when it is settled or given back already."""
        with self._database.writing(_STILL_HELD) as db:
            row = entries.find(db, hold.entry)
            if row["state"] in ("held", "aside"):
                entries.change(db, row, {"state": "released"})

    def charge_tool(self, account: Account, tool: str, nano: int) -> None:
        """Pay for one use of a tool; raises LimitReached when a cap does not leave that much."""
        with self._database.writing("Nothing was charged and the tool was not run.") as db:
            for cap in entries.caps_over(db, account.session, account.turn, self._today()):
                if cap.unit == "usd" and nano > cap.left:
                    raise limit_reached(cap, nano)
            columns = self._columns(account, self._today())
            paid = {"purpose": "tool", "model": "", "tool": tool, "held_nano": nano, "spent_nano": nano}
            entries.insert(db, {**columns, **paid, "state": "settled", "held_input": 0, "held_output": 0})

    def attribute(self, entry: int, tool: str) -> None:
        """Note which tool a settled call was about."""
        with self._database.writing(_AS_BEFORE) as db:
            db.execute("UPDATE entries SET tool = ? WHERE id = ?", (tool, entry))

    def caps(self, session: str, turn: int) -> tuple[CapState, ...]:
        """The caps that stand over a session's turn now."""
        with self._database.reading() as db:
            return entries.caps_over(db, session, turn, self._today())

    def caps_at_rest(self, session: str, turn: int) -> tuple[CapState, ...]:
        """The same, as if the turn's calls that are under way here took nothing."""
        with self._database.reading() as db:
            caps = entries.caps_over(db, session, turn, self._today())
            nano, tokens = entries.under_way(db, session, turn, os.getpid())
        held = {"usd": nano, "tokens": tokens}
        return tuple(replace(cap, held=max(0, cap.held - held[cap.unit])) for cap in caps)

    def set_cap(self, session: str, scope: Scope, amount: Amount | None) -> None:
        """Set a cap, or remove the scope's with None; day and month are the user's, turn and session the session's."""
        owner = session if scope in ("turn", "session") else ""
        with self._database.writing(_AS_BEFORE) as db:
            if amount is None:
                db.execute("DELETE FROM caps WHERE scope = ? AND owner = ?", (scope, owner))
            else:
                values = (scope, owner, amount.unit, amount.value)
                db.execute("INSERT OR REPLACE INTO caps (scope, owner, unit, amount) VALUES (?, ?, ?, ?)", values)

    def adopt_cap(self, scope: Scope, amount: Amount | None) -> None:
        """Take over the user's cap for a day or a month from the settings, where it is new there or has changed.

        A cap that was set live stands until the settings change.
        """
        wanted = None if amount is None else (amount.unit, amount.value)
        remember = "INSERT OR REPLACE INTO caps (scope, owner, unit, amount) VALUES (?, ?, ?, ?)"
        with self._database.writing(_AS_BEFORE) as db:
            query = "SELECT unit, amount FROM caps WHERE scope = ? AND owner = ?"
            found = db.execute(query, (scope, _FROM_SETTINGS)).fetchone()
            before: tuple[str, int] | None = None if found is None else (found["unit"], found["amount"])
            if before == wanted:
                return
            db.execute("DELETE FROM caps WHERE scope = ? AND owner = ?", (scope, _FROM_SETTINGS))
            if wanted is not None:
                db.execute("DELETE FROM caps WHERE scope = ? AND owner = ''", (scope,))
                db.executemany(remember, [(scope, _FROM_SETTINGS, *wanted), (scope, "", *wanted)])
            elif before is not None:  # no longer in the settings: only what came from there goes
                gone = "DELETE FROM caps WHERE scope = ? AND owner = '' AND unit = ? AND amount = ?"
                db.execute(gone, (scope, *before))

    def bar(self, model: str, reason: str) -> None:
        """Refuse the model under every cap from now on."""
        with self._database.writing(_AS_BEFORE) as db:
            self._bar(db, model, reason)

    def unbar(self, model: str) -> None:
        """Allow the model again."""
        with self._database.writing(_AS_BEFORE) as db:
            db.execute("DELETE FROM barred WHERE model = ?", (model,))

    def barred(self) -> dict[str, str]:
        """The barred models, and why."""
        with self._database.reading() as db:
            return {row["model"]: row["reason"] for row in db.execute("SELECT model, reason FROM barred ORDER BY at")}

    def reconcile(self, entry: int, actual: Amount | Usage) -> Settlement:
        """Put what a call really took in the place of what was counted for it.

        Raises UsageError when there is no such entry, it never was a call, or its call is still running.
        """
        with self._database.writing(_AS_BEFORE) as db:
            row = entries.find(db, entry)
            kept = entry_from_row(row)
            if kept.state in ("aside", "released") or kept.purpose == "tool":
                raise UsageError(f"Entry {entry} is not a call that was sent.", fix="Reconcile a held or settled call.")
            if kept.state == "held" and _alive(kept.pid):
                raise UsageError(f"The call of entry {entry} is still running.", fix="Wait for its end, or stop it.")
            settlement = _reconciled(kept, actual)
            entries.change(db, row, _settled(settlement))
            return settlement

    def unreconciled(self) -> tuple[Entry, ...]:
        """Calls that count in full because nobody knows what they took: no usage reported, or their process died."""
        with self._database.reading() as db:
            found = db.execute("SELECT * FROM entries WHERE state IN ('held', 'unreported') ORDER BY id").fetchall()
        listed = (entry_from_row(row) for row in found)
        return tuple(entry for entry in listed if entry.state == "unreported" or not _alive(entry.pid))

    def rows(self, by: By, session: str | None = None) -> tuple[CostRow, ...]:
        """What was spent and is held, added up by this key; in all, or in one session."""
        with self._database.reading() as db:
            return cost_rows(db, by, session)

    def session_row(self, session: str) -> CostRow | None:
        """What one session spent and holds; None when it has made no call."""
        with self._database.reading() as db:
            return next(iter(cost_rows(db, "session", session)), None)

    def turn_rows(self, session: str) -> dict[int, CostRow]:
        """What each turn of a session spent and holds, by its number."""
        with self._database.reading() as db:
            return turn_rows(db, session)

    def entry(self, entry: int) -> Entry:
        """One entry; raises UsageError when there is none with this number."""
        with self._database.reading() as db:
            return entry_from_row(entries.find(db, entry))

    def last(self, session: str) -> Entry | None:
        """The session's last call."""
        query = (
            "SELECT * FROM entries WHERE session = ? AND state NOT IN ('aside', 'released') ORDER BY id DESC LIMIT 1"
        )
        with self._database.reading() as db:
            row = db.execute(query, (session,)).fetchone()
        return None if row is None else entry_from_row(row)

    def verify(self) -> tuple[str, ...]:
        """Recount every entry and name each total that disagrees; empty when the ledger is sound."""
        with self._database.reading() as db:
            return entries.disagreements(db)

    def _today(self) -> str:
        return self._clock().date().isoformat()

    def _caps_for(self, db: sqlite3.Connection, account: Account, day: str) -> tuple[CapState, ...]:
        """The caps over this account; raises ModelBarred when there are any and the model is barred."""
        caps = entries.caps_over(db, account.session, account.turn, day)
        row = db.execute("SELECT reason FROM barred WHERE model = ?", (account.model,)).fetchone() if caps else None
        if row is not None:
            raise ModelBarred(
                f"{account.model} is not called under a cap any more: {row['reason']}.",
                fix="Choose another model, or remove the caps with /budget off.",
            )
        return caps

    def _place(self, db: sqlite3.Connection, ask: Ask, output: int, state: entries.State, *, day: str = "") -> Hold:
        """Write the reservation of a call with this many output tokens."""
        nano = None if ask.price is None else ask.price.worst(ask.prompt_tokens, output)
        reserved = {
            "state": state,
            "price": None if ask.price is None else price_to_json(ask.price),
            "held_nano": nano,
            "held_input": ask.prompt_tokens,
            "held_output": output,
        }
        entry = entries.insert(db, {**self._columns(ask.account, day or self._today()), **reserved})
        tokens = ask.prompt_tokens + output
        return Hold(entry, nano, tokens, output, output < ask.max_tokens, ask.account, ask.price)

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
        }

    def _bar(self, db: sqlite3.Connection, model: str, reason: str) -> None:
        values = (model, self._clock().timestamp(), reason)
        db.execute("INSERT OR REPLACE INTO barred (model, at, reason) VALUES (?, ?, ?)", values)

    def _release_abandoned_asides(self) -> None:
        """Give back what dead processes had set aside: for an aside nothing was ever sent."""
        with self._database.writing(_AS_BEFORE) as db:
            for row in db.execute("SELECT * FROM entries WHERE state = 'aside'").fetchall():
                if not _alive(row["pid"]):
                    entries.change(db, row, {"state": "released"})


def _settlement(row: sqlite3.Row, hold: Hold, usage: Usage | None, estimate: Usage | None) -> Settlement:
    if usage is None:
        worst = Usage(input=row["held_input"], output=row["held_output"])
        likely = estimate and Usage(min(estimate.input, worst.input), min(estimate.output, worst.output))
        nano = None if likely is None or hold.price is None else hold.price.cost(likely)
        likely_nano = None if nano == hold.nano else nano
        return Settlement(hold.entry, hold.nano, worst, reported=False, estimate=likely, estimate_nano=likely_nano)
    spent = None if hold.price is None else hold.price.cost(usage)
    over = 0 if spent is None or hold.nano is None else max(0, spent - hold.nano)
    return Settlement(hold.entry, spent, usage, True, over, max(0, usage.total - hold.tokens))


def _settled(settlement: Settlement) -> dict[str, Any]:
    usage = settlement.usage
    return {
        "state": "settled" if settlement.reported else "unreported",
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


def _reconciled(kept: Entry, actual: Amount | Usage) -> Settlement:
    counted = kept.usage or kept.held_usage
    spent = kept.spent_nano if kept.usage else kept.held_nano
    if isinstance(actual, Usage):
        return Settlement(kept.id, None if kept.price is None else kept.price.cost(actual), actual, reported=True)
    if actual.unit == "usd":
        return Settlement(kept.id, actual.value, counted, reported=True, estimate=kept.estimate)
    tokens = Usage(input=actual.value)
    return Settlement(kept.id, spent, tokens, reported=True, estimate_nano=kept.estimate_nano)


def _overrun_reason(settlement: Settlement) -> str:
    over = settlement.overrun_nano
    amount = amount_text(over, "usd") if over else amount_text(settlement.overrun_tokens, "tokens")
    return f"it billed {amount} more than its prompt and max_tokens allow"


def _alive(pid: int) -> bool:
    """Whether a process with this number runs; a number in use again only delays what waits for its end."""
    if pid == os.getpid() or os.name == "nt":  # on Windows signal 0 is Ctrl-C, so nobody is asked
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, so it runs
    return True
