"""The ledger: reservations and settlements in one SQLite file that all processes of the user share.

An entry counts for the local day of its reservation. A call whose process died counts in full until it is reconciled.
"""

import os
import sqlite3
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ecoshell.budget import (
    MIN_CALL_MS,
    SLICE_MS,
    Account,
    Amount,
    Ask,
    Hold,
    Settlement,
    ToolHold,
    answer_ms,
    fitting_output,
    limit_reached,
    reserved_output,
)
from ecoshell.budget.cap_store import CapStore
from ecoshell.budget.caps import exchanged_output, fitting_ms
from ecoshell.budget.costs import CostRow
from ecoshell.budget.entries import Entry, State, alive, change, entry_from_row, find, insert
from ecoshell.budget.price import price_to_json
from ecoshell.errors import StoreError, UsageError
from ecoshell.messages import Usage

_NOT_SENT = "Nothing was reserved and nothing was sent."
_STILL_HELD = "The reservation counts in full until it is reconciled."
_UNCHANGED = "Nothing was changed."
_RELEASED = {"state": "released", "held_ms": 0}
_ASIDE = "FROM entries WHERE state = 'aside' AND session = ? AND turn = ? AND task = ? AND pid = ?"
"""The reservation for the final answer of a turn or a task in a process."""
_PENDING = "SELECT * FROM entries WHERE state IN ('aside', 'held')"


class Ledger(CapStore):
    """Reserves and settles under the caps; every method is one transaction and may be called from any thread.

    Raises StoreError when the file is locked, full, read-only or damaged.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], datetime] = datetime.now,
        busy_seconds: float = 10.0,
    ) -> None:
        super().__init__(path, clock=clock, busy_seconds=busy_seconds)
        if self.writable:
            with self.writing(_UNCHANGED) as db:
                for row in db.execute(_PENDING).fetchall():
                    if not alive(row["pid"]):
                        change(db, row, _ended(row))

    def hold(self, ask: Ask) -> Hold:
        """Reserve the worst case of a call, with `max_tokens` lowered to what leaves room under all caps.

        Raises LimitReached, PriceUnknown or ModelDisabled.
        """
        with self.writing(_NOT_SENT) as db:
            return self._hold(db, ask)

    def set_aside(self, ask: Ask) -> Hold:
        """Reserve the price of the final answer; replaces the turn's earlier reservation for it."""
        account = ask.account
        with self.writing(_NOT_SENT) as db:
            mine = (account.session, account.turn, account.task, os.getpid())
            for row in db.execute(f"SELECT * {_ASIDE}", mine).fetchall():
                change(db, row, _RELEASED)
            day = self._today()
            caps = self._caps_for(db, account, day)
            return self._place(db, ask, fitting_output(ask, caps), "aside", answer_ms(caps), day)

    def exchange(self, old: Hold, ask: Ask) -> Hold:
        """Replace an unused reservation with a call; always fits if the call is not larger."""
        with self.writing(_NOT_SENT) as db:
            row = find(db, old.entry)
            if row["state"] not in ("held", "aside"):  # already released: nothing to replace
                return self._hold(db, ask)
            change(db, row, _RELEASED)
            caps = self._caps_for(db, ask.account, row["day"])
            ms = fitting_ms(max(SLICE_MS, row["held_ms"]), caps)
            output = exchanged_output(ask, caps, old)
            return self._place(db, ask, output, "held", ms, row["day"])

    def extend(self, entry: int) -> int:
        """Reserve more time for a running call or tool, and return how much the caps allow; 0 if it has ended."""
        with self.writing(_STILL_HELD) as db:
            row = find(db, entry)
            if not row["held_ms"]:
                return 0
            account = Account(
                row["session"], row["turn"], "", "", "", lease=row["lease"], task=row["task"]
            )
            caps = self._caps_over(db, account, row["day"])
            more = fitting_ms(SLICE_MS, caps)
            more = SLICE_MS if more is None else more  # the cap was removed
            if more:
                change(db, row, {"held_ms": row["held_ms"] + more})
            return more

    def end_attempt(self, hold: Hold, ms: int) -> None:
        """Record the time of an attempt whose reservation the next attempt will use."""
        with self.writing(_STILL_HELD) as db:
            row = find(db, hold.entry)
            change(db, row, {"spent_ms": ms, "held_ms": 0})

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
            row = find(db, hold.entry)
            if row["state"] not in (
                "held",
                "unreported",
            ):  # another container may not see this process
                message = f"Entry {hold.entry} of the ledger is already {row['state']}."
                raise StoreError(message, kept=_UNCHANGED)
            if usage is None:
                worst = Usage(row["held_input"], row["held_output"])
                settlement = _unreported(hold, worst, estimate)
            else:
                settlement = _reported(hold, usage)
            change(db, row, {**_settled(settlement), "tool": tool, "spent_ms": ms})
            if settlement.overran:
                amount = settlement.overrun_text
                reason = f"it billed {amount} more than its prompt and max_tokens allow"
                self._bar(db, hold.account.model, reason)
            return settlement

    def release(self, hold: Hold, ms: int | None = None) -> None:
        """Cancel a reservation because nothing was billed; does nothing if it is already settled or released.

        `ms` is the working time of a failed call.
        """
        with self.writing(_STILL_HELD) as db:
            row = find(db, hold.entry)
            if row["state"] in ("held", "aside"):
                change(db, row, {**_RELEASED, "spent_ms": row["spent_ms"] if ms is None else ms})

    def start_tool(
        self, account: Account, tool: str, nano: int, wanted_ms: int = SLICE_MS
    ) -> ToolHold:
        """Charge one use of a tool and reserve its first working time.

        Raises LimitReached if a cap has too little left for the price, or no time. Nothing is booked yet for a free
        tool without a cap in time.
        """
        if not nano:
            with self.reading() as db:
                caps = self._caps_over(db, account, self._today())
            if fitting_ms(wanted_ms, caps) is None:
                return ToolHold(account, tool)
        with self.writing("Nothing was charged and the tool was not run.") as db:
            caps = self._caps_over(db, account, self._today())
            for cap in caps:
                need = {"usd": nano, "tokens": 0, "ms": min(wanted_ms, MIN_CALL_MS)}[cap.unit]
                if need > cap.left:
                    raise limit_reached(cap, need)
            ms = fitting_ms(wanted_ms, caps)
            entry = self._insert_tool(db, account, tool, nano, {"held_ms": ms or 0})
            return ToolHold(account, tool, entry, ms)

    def end_tool(self, hold: ToolHold, ms: int) -> None:
        """Record the working time of a tool."""
        with self.writing(_STILL_HELD) as db:
            if hold.entry is None:
                self._insert_tool(db, hold.account, hold.tool, 0, {"spent_ms": ms})
            else:
                change(db, find(db, hold.entry), {"spent_ms": ms, "held_ms": 0})

    def _insert_tool(
        self,
        db: sqlite3.Connection,
        account: Account,
        tool: str,
        nano: int,
        time: Mapping[str, int],
    ) -> int:
        columns = self._columns(account, self._today())
        paid = {"purpose": "tool", "model": "", "tool": tool, "held_nano": nano, "spent_nano": nano}
        settled = {"state": "settled", "held_input": 0, "held_output": 0}
        return insert(db, {**columns, **paid, **time, **settled})

    def shared_costs(self, by: str) -> tuple[CostRow, ...]:
        """Return the sums of a shared ledger by person, team or project; raises UsageError without one."""
        raise _not_shared()

    def import_calls(self) -> int:
        """Copy the user's own calls into the shared ledger; returns the number of new ones. Raises UsageError."""
        raise _not_shared()

    def end_dead_leases(self) -> int:
        """End the leases of this user's dead processes and return their number; a local ledger has none."""
        return 0

    def reconcile(self, entry: int, actual: Amount | Usage) -> Settlement:
        """Replace the counted amount of a call with the actual one.

        Raises UsageError if the entry does not exist, is not a call that was sent, or its call is still running.
        """
        with self.writing(_UNCHANGED) as db:
            row = find(db, entry)
            recorded = entry_from_row(row)
            is_tool = recorded.purpose == "tool"
            if recorded.state in ("aside", "released") or (is_tool and not recorded.held_ms):
                message = f"Entry {entry} is not a call that was sent."
                raise UsageError(message, fix="Reconcile a held or settled call.")
            if (recorded.state == "held" or is_tool) and alive(recorded.pid):
                message = f"The call of entry {entry} is still running."
                raise UsageError(message, fix="Wait until it ends, or stop it.")
            counted = recorded.usage or recorded.held_usage
            if isinstance(actual, Amount) and actual.unit == "ms":
                change(db, row, {"spent_ms": actual.value, "held_ms": 0})
                is_reported = recorded.state == "settled"
                return Settlement(entry, recorded.spent_nano, counted, is_reported)
            if is_tool:
                fix = f"Give the working time, such as {entry}=2s."
                raise UsageError(f"Entry {entry} is a tool call, whose price is known.", fix=fix)
            if isinstance(actual, Usage):
                nano = None if recorded.price is None else recorded.price.cost(actual)
                settlement = Settlement(entry, nano, actual, True)
            elif actual.unit == "usd":
                estimate = recorded.estimate
                settlement = Settlement(entry, actual.value, counted, True, estimate=estimate)
            else:
                spent = recorded.spent_nano if recorded.usage else recorded.held_nano
                nano, tokens = recorded.estimate_nano, Usage(input=actual.value)
                settlement = Settlement(entry, spent, tokens, True, estimate_nano=nano)
            change(db, row, {**_settled(settlement), "spent_ms": _counted_ms(row)})
            return settlement

    def aside_nano(self, account: Account) -> int:
        """Return the amount that this process has set aside for the account's turn and lease."""
        query = f"SELECT COALESCE(SUM(held_nano), 0) {_ASIDE} AND lease = ?"
        key = (account.session, account.turn, account.task, os.getpid(), account.lease)
        with self.reading() as db:
            return db.execute(query, key).fetchone()[0]

    def entries_of(self, lease: str, ids: Collection[int] | None = None) -> tuple[Entry, ...]:
        """Return the sent calls of a lease, optionally only these entries."""
        query = "SELECT * FROM entries WHERE lease = ? AND state NOT IN ('aside', 'released')"
        if ids is not None:
            query += f" AND id IN ({', '.join('?' * len(ids))})"
        with self.reading() as db:
            rows = db.execute(query, (lease, *(ids or ()))).fetchall()
        return tuple(entry_from_row(row) for row in rows)

    def _hold(self, db: sqlite3.Connection, ask: Ask) -> Hold:
        """Insert the reservation of a call."""
        day = self._today()
        caps = self._caps_for(db, ask.account, day)
        ms = fitting_ms(SLICE_MS, caps)
        return self._place(db, ask, reserved_output(ask, caps), "held", ms, day)

    def _place(
        self, db: sqlite3.Connection, ask: Ask, output: int, state: State, ms: int | None, day: str
    ) -> Hold:
        """Insert the reservation of a call with this output limit and working time."""
        nano = price = None
        if ask.price is not None:
            nano = ask.price.worst(ask.prompt_tokens, output)
            price = price_to_json(ask.price)
        tokens = {"held_input": ask.prompt_tokens, "held_output": output}
        reserved = {"state": state, "price": price, "held_nano": nano, **tokens, "held_ms": ms or 0}
        entry = insert(db, {**self._columns(ask.account, day), **reserved})
        total, clamped = ask.prompt_tokens + output, output < ask.usual_tokens
        return Hold(entry, nano, total, output, clamped, ask.account, ask.price, ms)

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
            "task": account.task,
        }


def _not_shared() -> UsageError:
    fix = "Set [budget] ledger, or ECOSHELL_LEDGER, to its address: postgresql://PERSON@HOST/DATABASE."
    return UsageError("This needs a team ledger, and none is configured.", fix=fix)


def _reported(hold: Hold, usage: Usage) -> Settlement:
    spent = None if hold.price is None else hold.price.cost(usage)
    over = 0 if spent is None or hold.nano is None else max(0, spent - hold.nano)
    return Settlement(hold.entry, spent, usage, True, over, max(0, usage.total - hold.tokens))


def _unreported(hold: Hold, worst: Usage, estimate: Usage | None) -> Settlement:
    """Count the whole reservation, and show the estimate within it."""
    if estimate is None:
        return Settlement(hold.entry, hold.nano, worst, False)
    likely = Usage(min(estimate.input, worst.input), min(estimate.output, worst.output))
    nano = None if hold.price is None else hold.price.cost(likely)
    nano = None if nano == hold.nano else nano
    return Settlement(hold.entry, hold.nano, worst, False, estimate=likely, estimate_nano=nano)


def _ended(row: sqlite3.Row) -> dict[str, Any]:
    """The columns of a dead process's reservation: a call counts in full, and nothing was sent for an answer."""
    if row["state"] == "aside":
        return _RELEASED
    worst = Usage(row["held_input"], row["held_output"])
    settlement = Settlement(row["id"], row["held_nano"], worst, False)
    return {**_settled(settlement), "spent_ms": _counted_ms(row)}


def _counted_ms(row: sqlite3.Row) -> int | None:
    return (row["spent_ms"] or 0) + row["held_ms"] if row["held_ms"] else row["spent_ms"]


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
