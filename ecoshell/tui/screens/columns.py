"""Rows of a list as aligned columns, measured in the cells a terminal gives them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual.content import Content, Span

_GAP = 2
_LEAST = 12
"""Cells the first column is left with at least: it holds what is picked."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; it is shown where the list is at least `from_width` cells wide. The first takes what is left over."""

    title: str
    right: bool = False
    from_width: int = 0
    most: int = 24
    """Cells it takes at most, unless it is the first."""


class Layout:
    """The widths of the columns that fit into a list, for these rows."""

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int) -> None:
        self._columns = columns
        self._shown = [at for at, column in enumerate(columns) if at == 0 or width >= column.from_width]
        self._widths = [cell_len(column.title) for column in columns]
        for cells in rows:
            self._widths = [max(known, cell_len(cell)) for known, cell in zip(self._widths, cells, strict=True)]
        self._widths = [min(width, column.most) for width, column in zip(self._widths, columns, strict=True)]
        others = sum(self._widths[at] + _GAP for at in self._shown[1:])
        self._widths[0] = max(_LEAST, width - others)

    def head(self) -> str:
        """The titles."""
        return self._line([column.title for column in self._columns])

    def row(self, cells: Sequence[str], found: Iterable[int] = ()) -> Content:
        """One row; `found` are places in the first cell that the filter's letters stand at."""
        whole = min(len(cells[0]), self._widths[0] - 1)
        return Content(self._line(cells), [Span(at, at + 1, "bold underline") for at in found if at < whole])

    def _line(self, cells: Sequence[str]) -> str:
        return (" " * _GAP).join(self._cell(at, cells[at]) for at in self._shown).rstrip()

    def _cell(self, at: int, text: str) -> str:
        width = self._widths[at]
        if cell_len(text) > width:
            return f"{set_cell_size(text, width - 1)}…"
        room = " " * (width - cell_len(text))
        return room + text if self._columns[at].right else text + room
