"""Plain text that commands print: tables with aligned columns, and money."""

from collections.abc import Iterable, Sequence

from ecoshell.budget.caps import CapState
from ecoshell.budget.costs import CostRow
from ecoshell.budget.money import about, amount_text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns padded to their widest cell."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def dollars(nano: int | None) -> str:
    """An amount for people; what is not known says so."""
    return "unknown" if nano is None else amount_text(nano, "usd")


def amount(value: int, unit: str) -> str:
    """Nano-dollars or tokens for people."""
    return amount_text(value, "usd" if unit == "usd" else "tokens")


def spent_text(row: CostRow) -> str:
    """What was spent, marked where calls reported no usage, and of how many calls nobody knows the price."""
    spent = about(dollars(row.shown_nano), estimated=row.estimate_nano is not None)
    return spent if not row.unpriced or row.shown_nano is None else f"{spent} + {row.unpriced} unknown"


def roles_table(rows: Iterable[CostRow]) -> str:
    """What each role has cost; tools that are paid for are nobody's."""
    cells = [
        (
            row.key or "-",
            f"{row.calls:,}",
            about(f"{row.shown_usage.input:,}", estimated=row.estimate is not None),
            f"{row.usage.cached:,}",
            about(f"{row.shown_usage.output:,}", estimated=row.estimate is not None),
            spent_text(row) if not row.unpriced else "unknown",
            "unknown" if row.seconds is None or row.untimed else f"{row.seconds:,.1f}",
        )
        for row in rows
    ]
    return table(("role", "calls", "in", "cached", "out", "spent", "seconds"), cells)


def caps_table(caps: Iterable[CapState]) -> str:
    """The caps with what is used of them; says how to set one when there is none."""
    rows = [
        (cap.scope, *(amount(value, cap.unit) for value in (cap.limit, cap.spent, cap.held, cap.left))) for cap in caps
    ]
    if not rows:
        return "No cap is set. /budget 0.50 caps this session at 50 cents, /budget 20000tok at 20,000 tokens."
    return table(("cap", "limit", "spent", "held", "left"), rows)
