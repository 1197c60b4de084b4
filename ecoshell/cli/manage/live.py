"""`ecoshell cost --live`: the spending of a session while it runs, by model, with what its caps leave."""

import sys
import time
from typing import TYPE_CHECKING

from ecoshell.agent.command_table import dollars, spent_text
from ecoshell.budget import amount_text
from ecoshell.budget.ledger import Ledger
from ecoshell.messages import visible_line

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESH_SECONDS = 1.0
_MINUTE = 60.0


def show_live(ledger: Ledger, session: str | None) -> None:
    """Redraw until Ctrl-C; without a terminal, print once. The session is the one with the last call by default."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not sys.stdout.isatty():
        console.print(_table(ledger, session))
        return
    with Live(console=console, auto_refresh=False) as screen:
        try:
            while True:
                screen.update(_table(ledger, session), refresh=True)
                time.sleep(REFRESH_SECONDS)
        except KeyboardInterrupt:
            return


def _table(ledger: Ledger, session: str | None) -> "RenderableType":
    """Return the costs as a table with the caps below it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    session = ledger.last_session() if session is None else session
    rows = ledger.rows("model", session)
    if not rows:
        return Text("No call yet.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("model", "spent", "reserved", "input", "cached", "output", "calls"):
        table.add_column(Text(name), justify="left" if name == "model" else "right")
    for row in rows:
        usage = row.shown_usage
        cached = f"{usage.cached / usage.input:.0%}" if usage.input else "–"
        tokens = (f"{usage.input:,}", cached, f"{usage.output:,}")
        amounts = (spent_text(row), dollars(row.held_nano))
        table.add_row(
            *map(Text, (visible_line(row.key or "-"), *amounts, *tokens, f"{row.calls:,}"))
        )
    calls = ledger.calls_within(session, _MINUTE)
    lines = [f"{calls:,} calls in the last minute, session {session}"]
    last = ledger.last(session)
    for cap in ledger.caps(session, last.turn if last else 0):
        left, limit = amount_text(cap.left, cap.unit), amount_text(cap.limit, cap.unit)
        lines.append(f"{cap.scope}: {left} of {limit} left")
    return Group(table, *map(Text, lines))
