"""Unified diffs as rows: line numbers, signs, and highlighted code on a tinted ground."""

import re
from collections.abc import Iterator

from ecoshell.tui.transcript.blocks import Ground, Piece, Row
from ecoshell.tui.transcript.inline import MAX_HIGHLIGHTED_LENGTH, highlighted

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_GROUNDS: dict[str, Ground] = {"+": "added", "-": "removed"}
_NUMBER_CELLS = 4


def diff_rows(text: str, indent: str = "") -> Iterator[Row]:
    """The rows of a diff; files are named only if there are several."""
    lines = text.split("\n")
    several = sum(line.startswith("+++ ") for line in lines) > 1
    language = ""
    old = new = 0
    is_first_hunk = True
    for line in lines:
        sign, code = line[:1], line[1:]
        if line.startswith("+++ "):
            language = line.rpartition("/")[2].rpartition(".")[2].lower()
            is_first_hunk = True
            if several:
                yield Row((Piece(line[4:].removeprefix("b/"), "heading"),), indent)
        elif line.startswith(("--- ", "diff ", "index ")):
            continue
        elif match := _HUNK.match(line):
            old, new = int(match[1]), int(match[2])
            if not is_first_hunk:
                yield Row((Piece("…", "muted"),), f"{indent}{'':{_NUMBER_CELLS}} ")
            is_first_hunk = False
        elif sign in _GROUNDS or sign == " ":
            number = old if sign == "-" else new
            old, new = old + (sign != "+"), new + (sign != "-")
            ground = _GROUNDS.get(sign, "")
            (pieces,) = highlighted([code], language if len(code) <= MAX_HIGHLIGHTED_LENGTH else "")
            tone = ground or "muted"
            yield Row(
                (Piece(f"{sign} ", tone), *pieces),
                f"{indent}{number:>{_NUMBER_CELLS}} ",
                ground=ground,
            )
        elif line:
            yield Row((Piece(line, "muted"),), indent)
