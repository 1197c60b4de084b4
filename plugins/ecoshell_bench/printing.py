"""Output of the benchmarks: figures on standard output, notes and progress on standard error; token counting."""

import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from ecoshell.messages import visible


def show(text: str) -> None:
    """Print to standard output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print a line to standard error."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def show_record(record: Mapping[str, Any], *, as_json: bool, notes: str = "") -> None:
    """Print a record as one JSON object, or as tables followed by notes."""
    show(json.dumps(record) if as_json else "\n".join((*_lines(record), notes)).strip())


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Format rows as lines below a header; texts are aligned left, figures right, and None is a dash."""
    flat = [dict(_flat(row)) for row in rows]
    names = [*dict.fromkeys(name for row in flat for name in row)]
    columns = [[name, *(_cell(row.get(name)) for row in flat)] for name in names]
    widths = [max(map(len, column)) for column in columns]
    is_text = [all(isinstance(row.get(name), str) for row in flat) for name in names]
    return [
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in zip(*columns, strict=True)
    ]


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield single figures first, then each table with its name above it."""
    figures: dict[str, Any] = {}
    tables: list[str] = []
    for name, value in record.items():
        if rows := _rows(value):
            tables += ["", name, *table(rows)]
        elif isinstance(value, Mapping) and any(
            map(_rows, cast("Mapping[str, Any]", value).values())
        ):
            tables += ["", name, *_lines(cast("Mapping[str, Any]", value))]
        else:
            figures.update(_flat({name: value}))
    width = max(map(len, figures), default=0)
    yield from (f"{name:<{width}}  {_cell(value)}" for name, value in figures.items())
    yield from tables


def _rows(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a list of objects or of an object of objects; an empty list for any other value."""
    if isinstance(value, Mapping):
        objects = cast("Mapping[str, Any]", value)
        return (
            [{"": name, **row} for name, row in objects.items()]
            if all(map(_is_object, objects.values()))
            else []
        )
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return items if all(map(_is_object, items)) else []


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " to ".join(map(_cell, cast("Sequence[Any]", value)))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@contextmanager
def progress(total: int, done: int = 0) -> Generator[Callable[[], None]]:
    """Show a progress bar if standard error is a terminal; call the yielded function after each step."""
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
    """Yield a cached token counter for a model and its name; it counts bytes if the tokenizer is unavailable."""
    from ecoshell.models.tokens import TokenCounter, counter_for

    counter = counter_for(model)
    try:
        if not counter.wait():
            counter = TokenCounter()
        yield cache(counter.count), counter.name
    finally:
        counter.close()
