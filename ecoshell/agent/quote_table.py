"""Quotes and bills side by side, as rows and as records."""

from collections.abc import Sequence
from typing import Any

from ecoshell.agent.command_table import table
from ecoshell.events import Bill
from ecoshell.events.figures import duration, span_text, usd_text

KINDS = {"graph": "tool graph", "tasks": "subagents", "plan": "written plan"}
_ROWS = 10
"""The latest bills that are shown."""


def quote_table(bills: Sequence[Bill]) -> str:
    """The latest bills and their quotes, and how many quotes held; empty without bills."""
    if not bills:
        return ""
    rows = [
        (
            f"{KINDS[bill.kind]} {bill.id}",
            span_text(bill.low_usd, bill.high_usd, usd_text) or "unknown",
            "unknown" if bill.spent_usd is None else usd_text(float(bill.spent_usd)),
            span_text(bill.low_seconds, bill.high_seconds, duration) or "unknown",
            duration(bill.seconds),
        )
        for bill in bills[-_ROWS:]
    ]
    verdicts = [bill.is_within for bill in bills if bill.is_within is not None]
    summary = (
        f"\n{sum(verdicts)} of {len(verdicts)} bills are within their quote." if verdicts else ""
    )
    return (
        f"{table(('quoted work', 'price quoted', 'bill', 'time quoted', 'taken'), rows)}{summary}"
    )


def bill_record(session: str, bill: Bill) -> dict[str, Any]:
    """A bill as a JSON object."""
    return {
        "session": session,
        "id": bill.id,
        "kind": bill.kind,
        "low_usd": bill.low_usd,
        "high_usd": bill.high_usd,
        "spent_usd": bill.spent_usd,
        "low_seconds": bill.low_seconds,
        "high_seconds": bill.high_seconds,
        "seconds": bill.seconds,
        "within": bill.is_within,
    }
