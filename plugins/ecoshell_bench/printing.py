"""What the benchmarks say: figures on standard output, everything else on standard error; and what counts tokens."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache

from ecoshell.untrusted import visible


def show(text: str) -> None:
    """Print figures."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Say a line on standard error."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


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


@contextmanager
def counting(model: str) -> Generator[tuple[Callable[[str], int], str]]:
    """What counts the tokens of a model, each text once, and its name; bytes where its tokenizer is not at hand."""
    from ecoshell.models.tokens import ByteCounter, counter_for

    counter = counter_for(model)
    try:
        if not counter.wait():
            counter = ByteCounter()
        yield cache(counter.count), counter.name
    finally:
        counter.close()
