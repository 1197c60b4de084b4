"""Plain text that commands print: tables with aligned columns, and money as people read it."""

from collections.abc import Iterable, Sequence

from ecoshell.budget.caps import CapState
from ecoshell.budget.money import nano_to_usd_text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns padded to their widest cell."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def dollars(nano: int | None) -> str:
    """An amount for people; what is not known says so."""
    return "unknown" if nano is None else f"${nano_to_usd_text(nano)}"


def amount(value: int, unit: str) -> str:
    """Nano-dollars or tokens for people."""
    return dollars(value) if unit == "usd" else f"{value:,} tokens"


def caps_table(caps: Iterable[CapState]) -> str:
    """The caps with what is used of them; says how to set one when there is none."""
    rows = [
        (cap.scope, *(amount(value, cap.unit) for value in (cap.limit, cap.spent, cap.held, cap.left))) for cap in caps
    ]
    if not rows:
        return "No cap is set. /budget 0.50 caps this session at 50 cents, /budget 20000tok at 20,000 tokens."
    return table(("cap", "limit", "spent", "held", "left"), rows)
