"""Correcting the amounts that count for calls of unknown cost, for `ecoshell cost` and `/cost`."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from ecoshell.agent.command_table import dollars
from ecoshell.budget import about, counted, duration_text, parse_spent
from ecoshell.budget.entries import Entry
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import UsageError
from ecoshell.events import BudgetReconciled

UNRECONCILED = (
    "The cost of these calls is unknown, so their whole reservation counts against the caps:"
)
UNRECONCILED_HEAD = (
    "entry", "at", "session", "model or tool", "state", "counted", "time", "estimate",
)  # fmt: skip
_MAX_ENTRY_DIGITS = 18
"""More digits do not fit SQLite's integers."""


def unreconciled_rows(entries: Sequence[Entry]) -> Iterator[tuple[str, ...]]:
    """The rows of a table of calls whose cost is unknown."""
    for entry in entries:
        estimate = "unknown"
        if entry.estimate is not None:  # counted by a tokenizer
            nano = entry.estimate_nano
            text = dollars(nano) if nano is not None else counted(entry.estimate.total, "token")
            estimate = about(text, estimated=True)
        state, subject = entry.state, entry.model
        if entry.purpose == "tool":
            state, subject = "stopped", entry.tool
        identity = (str(entry.id), entry_time(entry), entry.session, subject, state)
        yield (
            *identity,
            dollars(counted_nano(entry)),
            duration_text(counted_ms(entry)),
            estimate,
        )


def reconcile(
    ledger: Ledger, typed: str, command: str, *, session: str | None = None
) -> BudgetReconciled:
    """Set the cost of an entry, typed as ENTRY=AMOUNT, and return its event; `command` precedes examples.

    With a `session`, only its calls can be set. May block. Raises UsageError and StoreError.
    """
    number, equals, cost = typed.partition("=")
    if not equals or not (number.isascii() and number.isdecimal()):
        raise UsageError(
            f"{command} {typed!r} is not ENTRY=AMOUNT.",
            fix=f"Give the entry's number and the call's cost or time, such as {command} 12=0.0031, 12=0 or 12=3s.",
        )
    entry, amount = int(number[:_MAX_ENTRY_DIGITS]), parse_spent(cost)
    if session is not None and (entry, session) not in [
        (each.id, each.session) for each in ledger.unreconciled()
    ]:
        message = f"Entry {entry} is not a call of this session whose cost is unknown."
        fix = f"{command} lists them; `ecoshell cost --reconcile` sets those of other sessions."
        raise UsageError(message, fix=fix)
    settled = ledger.reconcile(entry, amount)
    return BudgetReconciled(
        entry,
        settled.spent_nano,
        settled.usage,
        settled.estimate,
        settled.estimate_nano,
        amount.value / 1_000 if amount.unit == "ms" else None,
    )


def counted_nano(entry: Entry) -> int | None:
    """What counts against the caps."""
    return entry.held_nano if entry.usage is None else entry.spent_nano


def counted_ms(entry: Entry) -> int:
    """The working time that counts against the caps."""
    return (entry.spent_ms or 0) + entry.held_ms


def entry_time(entry: Entry) -> str:
    """When the call was reserved, in local time."""
    return datetime.fromtimestamp(entry.at).strftime("%Y-%m-%d %H:%M")
