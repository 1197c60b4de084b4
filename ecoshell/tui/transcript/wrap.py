"""Where a row of text is broken: between words, and inside a word only when it is wider than the line."""

import re
from collections.abc import Iterator

from rich.cells import cell_len, split_graphemes

_WORD = re.compile(r"\s*\S+\s*|\s+")


def breaks(text: str, width: int) -> list[int]:
    """The places at which a line begins after the first; blanks at a break stay at the end of the line before it."""
    if len(text) <= width and text.isascii():
        return []
    found: list[int] = []
    used = 0
    for word in _WORD.finditer(text):
        start, whole = word.start(), word.group()
        solid = cell_len(whole.rstrip())
        if used and used + solid > width:
            found.append(start)
            used = 0
        if solid > width:
            cuts = [0, *_chopped(whole.rstrip(), width)]
            found += [start + at for at in cuts[1:]]
            whole = whole[cuts[-1] :]
        used += cell_len(whole)
    return found


def _chopped(word: str, width: int) -> Iterator[int]:
    """The places at which a word that is too wide is cut; what is seen as one character stays whole."""
    if word.isascii():
        yield from range(width, len(word), width)
        return
    used = 0
    for start, _, cells in split_graphemes(word)[0]:
        if used and used + cells > width:
            yield start
            used = 0
        used += cells
