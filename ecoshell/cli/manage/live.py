"""`ecoshell cost --live`: the spending of a session while it runs, by model, with what its caps leave."""

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ecoshell.agent.command_table import dollars, spent_text
from ecoshell.budget import CapState, amount_text
from ecoshell.budget.costs import CostRow
from ecoshell.budget.ledger import Ledger
from ecoshell.messages import visible_line

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESH_SECONDS = 1.0
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class LiveState:
    """A session's costs by model, its caps, and its calls of the last minute."""

    session: str
    rows: tuple[CostRow, ...]
    caps: tuple[CapState, ...]
    calls_per_minute: int


def show_live(ledger: Ledger, session: str | None) -> None:
    """Redraw until Ctrl-C; without a terminal, print once. The session is the one with the last call by default."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not sys.stdout.isatty():
        console.print(live_table(live_state(ledger, session)))
        return
    with Live(console=console, auto_refresh=False) as screen:
        try:
            while True:
                screen.update(live_table(live_state(ledger, session)), refresh=True)
                time.sleep(REFRESH_SECONDS)
        except KeyboardInterrupt:
            return


def live_state(ledger: Ledger, session: str | None) -> LiveState:
    """Read the ledger."""
    chosen = ledger.last_session() if session is None else session
    last = ledger.last(chosen)
    caps = ledger.caps(chosen, last.turn if last else 0)
    return LiveState(
        chosen, ledger.rows("model", chosen), caps, ledger.calls_within(chosen, _MINUTE)
    )


def live_table(state: LiveState) -> "RenderableType":
    """Return the costs as a table with the caps below it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if not state.rows:
        return Text("No call yet.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("model", "spent", "reserved", "input", "cached", "output", "calls"):
        table.add_column(Text(name), justify="left" if name == "model" else "right")
    for row in state.rows:
        usage = row.shown_usage
        cached = f"{usage.cached / usage.input:.0%}" if usage.input else "–"
        cells = (
            spent_text(row),
            dollars(row.held_nano),
            f"{usage.input:,}",
            cached,
            f"{usage.output:,}",
        )
        table.add_row(*map(Text, (visible_line(row.key or "-"), *cells, f"{row.calls:,}")))
    lines = [f"{state.calls_per_minute:,} calls in the last minute, session {state.session}"]
    for cap in state.caps:
        left, limit = amount_text(cap.left, cap.unit), amount_text(cap.limit, cap.unit)
        lines.append(f"{cap.scope}: {left} of {limit} left")
    return Group(table, *map(Text, lines))
