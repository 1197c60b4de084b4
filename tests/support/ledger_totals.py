"""A consistency check of ledgers: their totals are the sums of their entries."""

from ecoshell.budget.entries import NOTHING, counted, scope_keys
from ecoshell.budget.ledger import Ledger


def wrong_totals(ledger: Ledger) -> tuple[str, ...]:
    """Recount all entries and describe each wrong total; empty if the ledger is consistent."""
    sums: dict[tuple[str, str], tuple[int, ...]] = {}
    with ledger.reading() as db:
        for row in db.execute("SELECT * FROM entries"):
            place = (row["session"], row["turn"], row["day"], row["lease"], row["task"])
            for key in scope_keys(*place):
                pairs = zip(sums.get(key, NOTHING), counted(row), strict=True)
                sums[key] = tuple(map(sum, pairs))
        rows = db.execute("SELECT * FROM totals")
        totals = {(row["scope"], row["key"]): tuple(row)[2:] for row in rows}
    return tuple(
        f"{scope} {name}: stored {totals.get((scope, name), NOTHING)}, counted {sums.get((scope, name), NOTHING)}"
        for scope, name in sorted({*sums, *totals})
        if totals.get((scope, name), NOTHING) != sums.get((scope, name), NOTHING)
    )
