"""Query results as plots, in text and as PNG images; runs in a worker process."""

import io
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import Any

from ecoshell.errors import ToolError
from ecoshell.messages import visible_line

from .database import QueryResult, is_number

_MAX_BARS = 50
_BAR_CHARACTERS = 50
_LABEL_CHARACTERS = 30
_WIDTH, _HEIGHT = 60, 15
_MARKS = (None, "o", "x", "+", "*")
"""Markers of the columns in one plot."""
_DATE_TYPES = ("DATE", "TIMESTAMP")
_YEARS = range(1000, 9000)
"""Years of dates that can be drawn; without placeholders such as 9999-12-31."""


def draw_text(kind: str, result: QueryResult) -> tuple[str, int]:
    """Return a plot as text and its number of rows; raises ToolError without a numeric column."""
    numbers = _numbers(result)
    if kind == "bar":
        return _bars(result, *numbers[0]), min(_MAX_BARS, len(result.rows))
    figure = import_module("plotille").Figure()
    figure.width, figure.height, figure.with_colors, figure.origin = _WIDTH, _HEIGHT, False, False
    figure.y_ticks_fkt = figure.x_ticks_fkt = _tick
    marks = _MARKS[: len(numbers)]
    labels = (
        f"{name} {mark or ''}".rstrip() for (name, _), mark in zip(numbers, marks, strict=True)
    )
    figure.x_label, figure.y_label = _label(result.columns[0]), ", ".join(labels)
    draw = figure.plot if kind == "line" else figure.scatter
    points = [_points(_x_values(result), values) for _, values in numbers]
    for (x_values, y_values), mark in zip(points, marks, strict=True):
        draw(x_values, y_values, marker=mark)
    for set_limits, axis in ((figure.set_x_limits, 0), (figure.set_y_limits, 1)):
        values = [value for series in points for value in series[axis]]
        if values and min(values) < max(values):
            span = max(values) - min(values)
            set_limits(min(values), max(values) + span * 0.01)  # The limit itself is not drawn.
    text = str(figure.show()).replace("⠀", " ")  # Its width differs in some fonts.
    return "\n".join(line.rstrip() for line in text.splitlines()), len(result.rows)


def omitted(kind: str, result: QueryResult) -> list[str]:
    """Return the columns that a plot as text does not show."""
    drawn = {0, *_numeric_columns(result)[: 1 if kind == "bar" else None]}
    return [_label(name) for index, name in enumerate(result.columns) if index not in drawn]


def draw_png(kind: str, result: QueryResult) -> tuple[bytes, int]:
    """Return a plot as a PNG image and its number of rows; raises ToolError without a numeric column."""
    numbers = _numbers(result)
    import_module("matplotlib").rcParams["text.parse_math"] = False  # Labels are plain text.
    figure = import_module("matplotlib.figure").Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    count = len(result.rows)
    if kind == "bar":
        count = min(_MAX_BARS, count)
        name, values = numbers[0]
        heights = [value or 0 for value in values[:count]]
        axes.bar(
            range(count),
            heights,
            tick_label=[_label(row[0]) for row in result.rows[:count]],
            label=name,
        )
    else:
        draw = axes.plot if kind == "line" else axes.scatter
        for name, values in numbers:
            draw(*_points(_x_values(result), values), label=name)
    axes.set_xlabel(_label(result.columns[0]))
    axes.tick_params(axis="x", rotation=30)
    axes.legend()
    image = io.BytesIO()
    import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure).print_png(image)
    return image.getvalue(), count


def _numbers(result: QueryResult) -> list[tuple[str, list[float | None]]]:
    """Return the names and values of the numeric columns after the first."""
    indices = _numeric_columns(result)
    if not indices or not result.rows:
        columns = zip(result.columns, result.types, strict=True)
        kinds = ", ".join(f"{_label(name)} {kind}" for name, kind in columns)
        count = len(result.rows)
        raise ToolError(
            f"A plot needs rows and a numeric column after the first: {count} rows of {kinds}."
        )
    return [
        (_label(result.columns[index]), [_float(row[index]) for row in result.rows])
        for index in indices
    ]


def _numeric_columns(result: QueryResult) -> list[int]:
    """Return the positions of the numeric columns after the first, as many as one plot can mark."""
    columns = [index for index, kind in enumerate(result.types) if index and is_number(kind)]
    return columns[: len(_MARKS)]


def _x_values(result: QueryResult) -> Sequence[float | datetime | None]:
    """Return the first column if it contains numbers or dates, else the row numbers."""
    first = [row[0] for row in result.rows]
    if is_number(result.types[0]):
        return [_float(value) for value in first]
    if result.types[0].startswith(_DATE_TYPES) and not result.types[0].endswith("]"):
        return [_date(value) for value in first]
    return [float(number) for number in range(1, len(first) + 1)]


def _points(
    x_values: Sequence[Any], y_values: Sequence[float | None]
) -> tuple[list[Any], list[float]]:
    """Return the coordinates of points without missing values."""
    pairs = zip(x_values, y_values, strict=True)
    points = [(x, y) for x, y in pairs if x is not None and y is not None]
    return [x for x, _ in points], [y for _, y in points]


def _bars(result: QueryResult, name: str, values: Sequence[float | None]) -> str:
    """Return a line with label, bar and value for each row; negative bars are hatched."""
    rows = [
        (_label(row[0]), value) for row, value in zip(result.rows[:_MAX_BARS], values, strict=False)
    ]
    width = max(len(label) for label, _ in rows)
    highest = max(abs(value or 0) for _, value in rows) or 1
    lines = [f"{name} by {_label(result.columns[0])}"]
    for label, value in rows:
        length = round(_BAR_CHARACTERS * abs(value or 0) / highest)
        bar = ("▒" if (value or 0) < 0 else "█") * length
        lines.append(f"{label:<{width}}  {bar} {_value_text(value)}")
    return "\n".join(lines)


def _float(value: str | None) -> float | None:
    """Return a finite number, else None."""
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None


def _date(value: str | None) -> datetime | None:
    """Return a date that can be drawn, else None."""
    with suppress(ValueError):
        date = datetime.fromisoformat(value or "").replace(tzinfo=None)
        return date if date.year in _YEARS else None
    return None


def _tick(value: float | datetime, _: object) -> str:
    return f"{value:%y-%m-%d}" if isinstance(value, datetime) else f"{value:.6g}"


def _value_text(value: float | None) -> str:
    return "NULL" if value is None else f"{value:,.10g}"


def _label(value: str | None) -> str:
    return "NULL" if value is None else visible_line(value, _LABEL_CHARACTERS)
