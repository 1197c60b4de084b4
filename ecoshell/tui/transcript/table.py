"""A table of a Markdown text: its columns share the width by what stands in them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from rich.cells import cell_len

from ecoshell.tui.transcript.blocks import Piece, Row
from ecoshell.tui.transcript.inline import Pieces, inline
from ecoshell.tui.transcript.sections import PLAIN, Place
from ecoshell.tui.transcript.wrap import breaks

_BETWEEN = " │ "
_NARROWEST = 4
_DELIMITER = re.compile(r"\s*:?-+:?\s*")
_BAR = re.compile(r"(?<!\\)\|")


def is_delimiter(line: str, head: str) -> bool:
    """Whether a line under this head makes a table of it."""
    cells = _cells(line)
    return all(_DELIMITER.fullmatch(cell) for cell in cells) and len(cells) == len(_cells(head)) and "|" in head


@dataclass(frozen=True, slots=True)
class Table:
    """A head, the line under it, and rows."""

    lines: tuple[str, ...]
    place: Place = PLAIN

    @property
    def measure(self) -> tuple[int, int]:
        """One line for each and the gap."""
        return len(self.lines) + self.place.gap, 0

    def rows(self, width: int) -> Iterator[Row]:
        """The table at this width; a column that is too narrow for its text has it on several lines."""
        yield from self.place.before()
        aligned = [_alignment(cell) for cell in _cells(self.lines[1])]
        table = [self._row(line, len(aligned)) for at, line in enumerate(self.lines) if at != 1]
        widths = _shared([max(map(_width, column)) for column in zip(*table, strict=True)], self._room(width, aligned))
        lead, hang = self.place.lead, self.place.hang
        for at, cells in enumerate(table):
            broken = [list(_broken(cell, wide)) for cell, wide in zip(cells, widths, strict=True)]
            for line in zip_longest(*broken, fillvalue=()):
                yield Row(_beside(line, widths, aligned, head=not at), lead, hang)
                lead = hang
            if not at:
                yield Row((Piece("─┼─".join("─" * wide for wide in widths), "muted"),), hang, hang)

    def _row(self, line: str, columns: int) -> list[Pieces]:
        cells = [*_cells(line), *[""] * columns][:columns]
        extra = _cells(line)[columns:]
        if extra:  # what has no column is shown in the last one
            cells[-1] = " | ".join([cells[-1], *extra])
        return [inline(cell.strip().replace("\\|", "|"))[0] for cell in cells]

    def _room(self, width: int, aligned: Sequence[str]) -> int:
        return width - len(self.place.lead) - len(_BETWEEN) * (len(aligned) - 1)


def _cells(line: str) -> list[str]:
    return _BAR.split(line.strip().removeprefix("|").removesuffix("|"))


def _alignment(cell: str) -> str:
    cell = cell.strip()
    return "center" if cell.startswith(":") and cell.endswith(":") else "right" if cell.endswith(":") else "left"


def _width(cell: Pieces) -> int:
    return max(1, sum(cell_len(piece.text) for piece in cell))


def _shared(wanted: Sequence[int], room: int) -> list[int]:
    """The columns' widths: those that want little have it, and the others share the rest."""
    widths = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    for done, at in enumerate(order):
        share = max(_NARROWEST, room // (len(order) - done))
        widths[at] = min(wanted[at], share)
        room -= widths[at]
    return widths


def _broken(cell: Pieces, width: int) -> Iterator[Pieces]:
    """A cell's lines."""
    text = "".join(piece.text for piece in cell)
    places = [0, *breaks(text, width), len(text)]
    for start, end in pairwise(places):
        yield cut(cell, start, start + len(text[start:end].rstrip()))


def cut(pieces: Sequence[Piece], start: int, end: int) -> Pieces:
    """The characters of some pieces from `start` up to `end`."""
    found: list[Piece] = []
    at = 0
    for piece in pieces:
        text = piece.text[max(0, start - at) : max(0, end - at)]
        if text:
            found.append(Piece(text, piece.tone, piece.stress, piece.link))
        at += len(piece.text)
    return tuple(found)


def _beside(cells: Sequence[Pieces], widths: Sequence[int], aligned: Sequence[str], *, head: bool) -> Pieces:
    """One line of a row of the table."""
    line: list[Piece] = []
    for at, (cell, width, side) in enumerate(zip(cells, widths, aligned, strict=True)):
        if at:
            line.append(Piece(_BETWEEN, "muted"))
        free = max(0, width - sum(cell_len(piece.text) for piece in cell))
        left = {"left": 0, "right": free, "center": free // 2}[side]
        line.append(Piece(" " * left))
        line += [Piece(piece.text, "heading", piece.stress, piece.link) for piece in cell] if head else cell
        line.append(Piece(" " * (free - left)))
    return tuple(piece for piece in line if piece.text)
