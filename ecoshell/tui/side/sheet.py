"""Lines of a panel: pieces of text with a tone each, set in the cells that a terminal gives them."""

from collections.abc import Sequence
from typing import Literal, get_args

from rich.cells import cell_len, set_cell_size

Tone = Literal["text", "strong", "muted", "accent", "good", "near", "reached", "marked"]
TONES: tuple[Tone, ...] = get_args(Tone)
Piece = tuple[str, Tone]
Line = tuple[Piece, ...]
_LABEL = 11


def fit(text: str, width: int) -> str:
    """The text in at most `width` cells; what is cut off is told by an ellipsis."""
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1).rstrip()}…" if width > 0 else ""


def fit_middle(text: str, width: int) -> str:
    """The text in at most `width` cells, its middle left out: names of tools differ at their ends."""
    if cell_len(text) <= width:
        return text
    tail = max(0, (width - 1) * 2 // 5)
    start = set_cell_size(text, max(0, width - 1 - tail)).rstrip()
    end = set_cell_size(text[::-1], tail).strip()[::-1]
    return f"{start}…{end}" if width > 0 else ""


def left(text: str, width: int) -> str:
    """The text at the left of exactly `width` cells."""
    return set_cell_size(fit(text, width), max(0, width))


def right(text: str, width: int) -> str:
    """The text at the right of exactly `width` cells."""
    shown = fit(text, width)
    return " " * (width - cell_len(shown)) + shown


def model_name(name: str, width: int) -> str:
    """A model's name in at most `width` cells; of a file's path the end says the most."""
    if cell_len(name) <= width or "/" not in name:
        return fit(name, width)
    kind, colon, path = name.partition(":")
    return fit(f"{kind}:…/{path.rpartition('/')[2]}" if colon else f"…/{name.rpartition('/')[2]}", width)


def row(label: str, value: str, width: int) -> Line:
    """A label and its value, values below each other."""
    return ((left(label, _LABEL), "muted"), (fit(value, width - _LABEL), "text"))


def ends(start: Piece, end: Piece, width: int) -> Line:
    """One piece at each edge; the one at the start gives way."""
    room = max(0, width - cell_len(end[0]) - 1)
    return ((left(start[0], room), start[1]), (" ", "text"), (fit(end[0], width), end[1]))


def bar(parts: Sequence[tuple[int, str]], whole: int, width: int) -> str:
    """Shares of a whole, drawn one after another with their signs; whatever is there is seen, however small."""
    drawn, room = "", width
    for part, sign in parts:
        cells = min(room, -(-part * width // max(1, whole)))
        drawn, room = drawn + sign * cells, room - cells
    return drawn + "░" * room


def percent(part: int, whole: int) -> str:
    """A share in whole percent, rounded down so that only a full whole is 100 %."""
    return f"{100 * part // max(1, whole):>3} %"


def plain(lines: Sequence[Line]) -> str:
    """Lines without looks."""
    return "\n".join("".join(text for text, _ in line) for line in lines)
