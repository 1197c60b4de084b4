"""How the management commands print: aligned tables for people, JSON for programs."""

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ecoshell.messages import visible_line

_UNWRAPPED = 10_000
"""Columns of a pipe or a file: nothing is wrapped there."""


def print_json(value: Any) -> None:
    """One JSON value, indented, in ASCII."""
    print(json.dumps(value, indent=2))


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str] = ()) -> None:
    """A table that fits the terminal, with the columns in `right` aligned there; its cells are shown, not obeyed."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(Text(name), justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible_line(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else _UNWRAPPED)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())
