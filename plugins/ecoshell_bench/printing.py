"""What the benchmarks say: figures on standard output, everything else on standard error; and what counts tokens."""

import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from ecoshell.messages import visible


def show(text: str) -> None:
    """Print figures."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Say a line on standard error."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def show_record(record: Mapping[str, Any], *, as_json: bool, notes: str = "") -> None:
    """Print what was measured: as one JSON object, or for people, with notes below it."""
    show(json.dumps(record) if as_json else "\n".join((*_lines(record), notes)).strip())


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as lines under their names, texts to the left and figures to the right; what is not known is a dash."""
    flat = [dict(_flat(row)) for row in rows]
    names = [*dict.fromkeys(name for row in flat for name in row)]
    columns = [[name, *(_cell(row.get(name)) for row in flat)] for name in names]
    lefts = [all(isinstance(row.get(name), str) for row in flat) for name in names]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(line, widths, lefts, strict=True)
        ).rstrip()
        for line in zip(*columns, strict=True)
    ]


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Figures first, then each list or object of objects with its name above it."""
    single: dict[str, Any] = {}
    below: list[str] = []
    for name, value in record.items():
        if rows := _rows(value):
            below += ["", name, *table(rows)]
        elif isinstance(value, Mapping) and any(map(_rows, cast("Mapping[str, Any]", value).values())):
            below += ["", name, *_lines(cast("Mapping[str, Any]", value))]
        else:
            single.update(_flat({name: value}))
    width = max(map(len, single), default=0)
    yield from (f"{name:<{width}}  {_cell(value)}" for name, value in single.items())
    yield from below


def _rows(value: Any) -> Sequence[Mapping[str, Any]]:
    """The rows that a list of objects is, or an object of nothing but objects; none for anything else."""
    if isinstance(value, Mapping):
        objects = cast("Mapping[str, Any]", value)
        return [{"": name, **row} for name, row in objects.items()] if all(map(_is_object, objects.values())) else []
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return listed if all(map(_is_object, listed)) else []


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _flat(record: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(cast("Mapping[str, Any]", value), f"{before}{name}.")
        else:
            yield f"{before}{name}", value


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
    from ecoshell.models.tokens import TokenCounter, counter_for

    counter = counter_for(model)
    try:
        if not counter.wait():
            counter = TokenCounter()
        yield cache(counter.count), counter.name
    finally:
        counter.close()
