"""Numbers for display, and texts fitted to a number of terminal cells."""

from rich.cells import cell_len, set_cell_size

from ecoshell.budget import Unit, amount_text, duration_text
from ecoshell.budget.amounts import short_tokens as tokens


def money(nano: int | None) -> str:
    """A price in nano-dollars; None is unknown."""
    return "price unknown" if nano is None else amount_text(nano, "usd")


def amount(value: int, unit: Unit) -> str:
    """A part of a cap, in its unit."""
    if unit == "ms":
        return duration_text(value)
    return money(value) if unit == "usd" else f"{tokens(value)} tok"


def fit(text: str, width: int) -> str:
    """The text in at most `width` cells, with an ellipsis if it is cut."""
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1).rstrip()}…" if width > 0 else ""


def fit_end(text: str, width: int) -> str:
    """The end of the text, in at most `width` cells."""
    return (
        text if cell_len(text) <= width else set_cell_size(text[::-1], max(0, width)).strip()[::-1]
    )


def fit_middle(text: str, width: int) -> str:
    """The text in at most `width` cells, cut in the middle: tool names differ at their ends."""
    if cell_len(text) <= width:
        return text
    tail = max(0, (width - 1) * 2 // 5)
    start = set_cell_size(text, max(0, width - 1 - tail)).rstrip()
    return f"{start}…{fit_end(text, tail)}" if width > 0 else ""


def align_left(text: str, width: int) -> str:
    """The text padded or cut to exactly `width` cells."""
    return set_cell_size(fit(text, width), max(0, width))


def align_right(text: str, width: int) -> str:
    """The text padded on the left, or cut, to exactly `width` cells."""
    fitted = fit(text, width)
    return " " * (width - cell_len(fitted)) + fitted


def model_name(name: str, width: int) -> str:
    """A model's name in at most `width` cells; of a path, its last part."""
    if cell_len(name) <= width or "/" not in name:
        return fit(name, width)
    kind, colon, path = name.partition(":")
    return fit(
        f"{kind}:…/{path.rpartition('/')[2]}" if colon else f"…/{name.rpartition('/')[2]}", width
    )
