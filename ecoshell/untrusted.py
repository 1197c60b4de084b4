"""Text that a tool or a model wrote: shown as data, never obeyed by the terminal that shows it."""

from collections.abc import Mapping
from functools import cache


def visible(text: str) -> str:
    """The text with every character that could steer a terminal or mislead the eye made readable.

    ESC becomes `␛`; other control characters `\\x9b`; bidirectional overrides, invisible tags, line separators and lone
    surrogates `\\u202e`. Newlines and tabs stay, and a carriage return before a newline is dropped.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_shown())


def visible_line(text: str, most: int | None = None) -> str:
    """The text on one line: as `visible` shows it, with every run of white space as one space.

    Of one with more than `most` characters the end is left out, and an ellipsis says so.
    """
    line = " ".join(visible(text).split())
    return line if most is None or len(line) <= most else f"{line[: most - 1].rstrip()}…"


_KEPT = frozenset(b"\n\t")
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_MISLEADING = (
    0x061C,  # Arabic letter mark
    *range(0x200E, 0x2010),  # left-to-right and right-to-left marks
    *range(0x2028, 0x202F),  # line and paragraph separators, embeddings and overrides
    *range(0x2066, 0x206A),  # isolates
    *range(0xD800, 0xE000),  # surrogates, which no terminal's encoding can carry
    0xFEFF,  # zero-width no-break space
    *range(0xE0000, 0xE0080),  # tags, which carry whole sentences that nobody sees
)


@cache
def _shown() -> Mapping[int, str]:
    """What each of these characters is shown as; made when the first of them turns up, which is seldom."""
    codes = [code for code in (*_CONTROLS, *_MISLEADING) if code not in _KEPT]
    shown = {code: f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" for code in codes if code <= 0xFFFF}
    return shown | {code: f"\\U{code:08x}" for code in codes if code > 0xFFFF} | {0x1B: "␛"}
