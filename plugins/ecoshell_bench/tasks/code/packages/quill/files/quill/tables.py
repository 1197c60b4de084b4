"""Lays out tables."""

import re


def layout(rows):
    """The lines of a table."""
    count = max(map(len, rows))
    full = [row + [""] * (count - len(row)) for row in rows]
    columns = list(zip(*full))
    widths = [max(map(len, column)) for column in columns]
    right = [len(column) > 1 and all(_is_number(cell) for cell in column[1:]) for column in columns]
    lines = [_line(row, widths, right) for row in full]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def _is_number(cell):
    return bool(re.fullmatch(r"[-+]?\d+([.,]\d+)*%?", cell))


def _line(row, widths, right):
    cells = [cell.rjust(width) if numeric else cell.ljust(width) for cell, width, numeric in zip(row, widths, right)]
    return "  ".join(cells).rstrip()
