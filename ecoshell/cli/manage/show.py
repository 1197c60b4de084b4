"""Output of the management commands: aligned tables for users, JSON for programs."""

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ecoshell.errors import UsageError
from ecoshell.messages import visible_line

_PIPE_COLUMNS = 10_000
"""Wide enough that nothing wraps in a pipe or a file."""


def print_json(value: Any) -> None:
    """Print one JSON value, indented, in ASCII."""
    print(json.dumps(value, indent=2))


def require_positive(limit: int) -> None:
    """Raise UsageError unless `--limit` is positive."""
    if limit < 1:
        fix = "Give a whole number, such as 20."
        raise UsageError(f"--limit {limit} is not positive.", fix=fix)


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str] = ()
) -> None:
    """Print a table that fits the terminal; columns in `right` are right-aligned, and cells are shown as data."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(Text(name), justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible_line(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())
