"""No colour: whether the terminal wants any, and the filter that takes every one away."""

from collections.abc import Mapping
from functools import lru_cache

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_BRIGHT = 0.2
"""Brightness from which on a background is a selection or a cursor, and no tint of the theme's black."""
_WITHOUT = frozenset({"dumb", "unknown", "vt52", "vt100", "vt102", "vt220", "vt320"})


def wants_no_color(environ: Mapping[str, str], *, terminal: bool) -> bool:
    """Whether the person (`NO_COLOR`, see no-color.org) wants none, or the terminal, if there is one, has none."""
    if environ.get("NO_COLOR"):
        return True
    term = environ.get("TERM", "")
    return terminal and not environ.get("COLORTERM") and (term in _WITHOUT or term.endswith(("-m", "-mono")))


class Colorless(LineFilter):
    """Takes all colours away; a background that stood out from the theme's black becomes `reverse`.

    Textual's own filter turns colours into shades of grey, which are colours to a terminal.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments without colours; what a click means is kept."""
        return [Segment(text, style and _plain(style), None) for text, style, _ in segments]


@lru_cache(4096)
def _plain(style: Style) -> Style:
    stands_out = bool(style.reverse) or _is_bright(style.bgcolor)
    plain = style.without_color + Style(reverse=stands_out)
    return plain + Style.from_meta(style.meta) if style.meta else plain


def _is_bright(ground: RichColor | None) -> bool:
    if ground is None or ground.is_default:
        return False
    return Color(*ground.get_truecolor(foreground=False)).brightness >= _BRIGHT
