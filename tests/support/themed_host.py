"""A themed app with one widget of every kind, and measurements of its screen."""

from collections.abc import Iterator

from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.color import Color
from textual.widgets import Footer, Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from ecoshell.tui.themes import ThemedApp

_TONES = (
    "primary",
    "secondary",
    "accent",
    "success",
    "warning",
    "error",
    "foreground",
    "foreground-muted",
)
_LINES = range(0x2500, 0x25A0)
"""Box drawing and block characters, which do not count as text."""


class Host(ThemedApp[int]):
    """A stand-in for the chat below opened screens."""

    BINDINGS = [("f1", "nothing", "help"), ("ctrl+p", "nothing", "commands")]  # noqa: RUF012 - declared so by Textual
    CSS = """
    #text, #rows { height: 4; }
    #below { height: auto; background: $panel; }
    """

    def compose(self) -> ComposeResult:
        words = "  ".join(f"[${tone}]{tone}[/]" for tone in _TONES)
        yield Static(words)
        yield TextArea("def f(x):\n    return x", compact=True, id="text")
        yield OptionList(*(Option(f"row {number}") for number in range(3)), compact=True, id="rows")
        yield Input(placeholder="type here", compact=True)
        yield Static(words, id="below")
        yield Footer(show_command_palette=False)

    def action_nothing(self) -> None:
        """A key of the footer."""


def segments(app: App[object]) -> Iterator[Segment]:
    """The segments of the current screen after all filters, as sent to the terminal."""
    for strip in app.screen._compositor.render_strips():
        yield from strip


def words(app: App[object]) -> str:
    """The text on the screen, without box drawing and with single blanks."""
    signs = (
        " " if sign and ord(sign) in _LINES else sign
        for segment in segments(app)
        for sign in segment.text
    )
    return " ".join("".join(signs).split())


def ratio(first: Color, second: Color) -> float:
    """The contrast of two colours according to WCAG 2, from 1 to 21."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def least_contrast(app: App[object]) -> tuple[float, str]:
    """The lowest contrast on the screen, with its text."""
    ratios = [(21.0, "")]
    for text, style, _ in segments(app):
        if not any(sign.strip() and ord(sign) not in _LINES for sign in text) or style is None:
            continue
        front, back = (Color.from_rich_color(color) for color in (style.color, style.bgcolor))
        pair = (back, front) if style.reverse else (front, back)
        ratios.append((ratio(*pair), text))
    return min(ratios)


def _luminance(color: Color) -> float:
    parts = [part / 255 for part in color.rgb]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
