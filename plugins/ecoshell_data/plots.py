"""Results as plots: in plain characters, and as PNG images; works in a worker process."""

import io
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import Any

from ecoshell.errors import ToolError
from ecoshell.messages import visible_line

from .database import Found, is_number

_BARS = 50
"""Bars that are drawn, and characters of the longest."""
_LABEL = 30
_WIDTH, _HEIGHT = 60, 15
_MARKS = (None, "o", "x", "+", "*")
"""What tells columns of numbers apart that are drawn at once."""
_DATES = ("DATE", "TIMESTAMP")
_YEARS = range(1000, 9000)


def drawn(kind: str, found: Found) -> tuple[str, int]:
    """A plot in plain characters, and how many rows it shows; raises ToolError where there are no numbers to draw."""
    numbers = _numbers(found)
    if kind == "bar":
        return _bars(found, *numbers[0]), min(_BARS, len(found.rows))
    figure = import_module("plotille").Figure()
    figure.width, figure.height, figure.with_colors, figure.origin = _WIDTH, _HEIGHT, False, False
    figure.y_ticks_fkt = figure.x_ticks_fkt = _tick
    marks = _MARKS[: len(numbers)]
    named = (f"{name} {mark or ''}".rstrip() for (name, _), mark in zip(numbers, marks, strict=True))
    figure.x_label, figure.y_label = _label(found.columns[0]), ", ".join(named)
    draw = figure.plot if kind == "line" else figure.scatter
    points = [_points(_across(found), values) for _, values in numbers]
    for (across, up), mark in zip(points, marks, strict=True):
        draw(across, up, marker=mark)
    for limit, place in ((figure.set_x_limits, 0), (figure.set_y_limits, 1)):
        values = [value for one in points for value in one[place]]
        if values and min(values) < max(values):
            span = max(values) - min(values)
            limit(min(values), max(values) + span * 0.01)  # at the end itself nothing is drawn
    text = str(figure.show()).replace("⠀", " ")  # a space of its own width in some fonts
    return "\n".join(line.rstrip() for line in text.splitlines()), len(found.rows)


def png(kind: str, found: Found) -> tuple[bytes, int]:
    """A plot as a PNG image, and how many rows it shows; raises ToolError where there are no numbers to draw."""
    numbers = _numbers(found)
    import_module("matplotlib").rcParams["text.parse_math"] = False  # heavy; labels are texts
    figure = import_module("matplotlib.figure").Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    shown = len(found.rows)
    if kind == "bar":
        shown = min(_BARS, shown)
        name, values = numbers[0]
        heights = [value or 0 for value in values[:shown]]
        axes.bar(range(shown), heights, tick_label=[_label(row[0]) for row in found.rows[:shown]], label=name)
    else:
        draw = axes.plot if kind == "line" else axes.scatter
        for name, values in numbers:
            draw(*_points(_across(found), values), label=name)
    axes.set_xlabel(_label(found.columns[0]))
    axes.tick_params(axis="x", rotation=30)
    axes.legend()
    image = io.BytesIO()
    import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure).print_png(image)
    return image.getvalue(), shown


def _numbers(found: Found) -> list[tuple[str, list[float | None]]]:
    """The columns of numbers after the first, with their names."""
    places = [place for place, kind in enumerate(found.types) if place and is_number(kind)][: len(_MARKS)]
    if not places or not found.rows:
        kinds = ", ".join(f"{_label(name)} {kind}" for name, kind in zip(found.columns, found.types, strict=True))
        raise ToolError(
            f"A plot needs rows, and a column of numbers after the first: {len(found.rows)} rows of {kinds}."
        )
    return [(_label(found.columns[place]), [_float(row[place]) for row in found.rows]) for place in places]


def _across(found: Found) -> Sequence[float | datetime | None]:
    """Where each row stands: its first value, if that is a number or a date, else its number."""
    first = [row[0] for row in found.rows]
    if is_number(found.types[0]):
        return [_float(value) for value in first]
    if found.types[0].startswith(_DATES) and not found.types[0].endswith("]"):
        return [_date(value) for value in first]
    return [float(number) for number in range(1, len(first) + 1)]


def _points(across: Sequence[Any], values: Sequence[float | None]) -> tuple[list[Any], list[float]]:
    """Where there is something to draw."""
    there = [(x, y) for x, y in zip(across, values, strict=True) if x is not None and y is not None]
    return [x for x, _ in there], [y for _, y in there]


def _bars(found: Found, name: str, values: Sequence[float | None]) -> str:
    """A line for each row: label, bar and value; a bar of less than nothing is hatched."""
    rows = [(_label(row[0]), value) for row, value in zip(found.rows[:_BARS], values, strict=False)]
    width = max(len(label) for label, _ in rows)
    most = max(abs(value or 0) for _, value in rows) or 1
    lines = [f"{name} by {_label(found.columns[0])}"]
    for label, value in rows:
        bar = ("▒" if (value or 0) < 0 else "█") * round(_BARS * abs(value or 0) / most)
        lines.append(f"{label:<{width}}  {bar} {_shown(value)}")
    return "\n".join(lines)


def _float(value: str | None) -> float | None:
    """A number that can be drawn."""
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None


def _date(value: str | None) -> datetime | None:
    """A date that can be drawn: not infinity, nor what stands for it at an end of the calendar, such as 9999-12-31."""
    with suppress(ValueError):
        date = datetime.fromisoformat(value or "").replace(tzinfo=None)
        return date if date.year in _YEARS else None
    return None


def _tick(value: float | datetime, _: object) -> str:
    return f"{value:%y-%m-%d}" if isinstance(value, datetime) else f"{value:.6g}"


def _shown(value: float | None) -> str:
    return "NULL" if value is None else f"{value:,.10g}"


def _label(value: str | None) -> str:
    return "NULL" if value is None else visible_line(value, _LABEL)
