"""The text of what is selected: without margins and signs, and with wrapped lines in one piece again."""

from collections.abc import Iterable

from textual.selection import Selection

from ecoshell.tui.transcript.column import Column
from ecoshell.tui.transcript.painter import MARGIN, Line


def selected(column: Column, selection: Selection) -> str:
    """What stands between two places of a column; blocks that are selected whole are given as they were written."""
    first, start = (selection.start.y, selection.start.x) if selection.start else (0, 0)
    last, end = (selection.end.y, selection.end.x) if selection.end else (column.height, None)
    parts: list[str] = []
    at = max(0, first)
    while at <= min(last, column.height - 1):
        item = column.at(at)
        span = column.span(item)
        if at == span.start and span.stop <= last and (at > first or start <= MARGIN):
            parts += ["\n", item.whole]
            at = span.stop
            continue
        parts += _text(column.line(at), start if at == first else 0, end if at == last else None)
        at += 1
    return "".join(parts[1:])


def text_of(lines: Iterable[Line]) -> str:
    """The text of painted lines."""
    return "".join([part for line in lines for part in _text(line)][1:])


def _text(line: Line, start: int = 0, end: int | None = None) -> tuple[str, str]:
    """What goes before a line, and its characters from one place up to another."""
    return "\n" if line.glue is None else line.glue, line.strip.text[max(start, line.lead) : end].rstrip()
