"""What `bench umi` says on standard error while it measures: standard output is for the figures."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from ecoshell.untrusted import visible_line


@contextmanager
def progress(total: int, done: int = 0) -> Generator[Callable[[], None]]:
    """A bar where standard error is a terminal; what it gives is called after each step."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda: bar.advance(task)


def note(text: str) -> None:
    """Say a line."""
    sys.stderr.write(f"{visible_line(text)}\n")
