"""An app that wears a theme from a file, and sends no colour where none is wanted."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter, Monochrome

from ecoshell.paths import Paths
from ecoshell.tui.themes import MONO, Look, Themes, load_theme, load_themes, wanted_theme

_BRIGHT = 0.2
"""Brightness from which on a background is a selection or a cursor, and no tint of the theme's black."""
_WITHOUT = frozenset({"dumb", "unknown", "vt52", "vt100", "vt102", "vt220", "vt320"})
R = TypeVar("R")


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
    ground, stands_out = style.bgcolor, bool(style.reverse)
    if ground is not None and not ground.is_default:
        stands_out |= Color(*ground.get_truecolor(foreground=False)).brightness >= _BRIGHT
    plain = style.without_color + Style(reverse=stands_out)
    return plain + Style.from_meta(style.meta) if style.meta else plain


class ThemedApp(App[R]):
    """Wears the theme of the settings from its first frame on; all others are read when they are wanted."""

    def __init__(self, paths: Paths) -> None:
        super().__init__()
        self.paths = paths
        """Where the settings and the person's own themes are."""
        self._without_color: Sequence[LineFilter] = [Colorless()]
        self.forced_mono = wants_no_color(os.environ, terminal=sys.__stderr__ is not None and sys.__stderr__.isatty())
        """Whether no theme's colours are sent, because the person or the terminal wants none."""
        self.no_color = self.forced_mono  # Textual takes an empty NO_COLOR for one too
        theme = load_theme(paths, MONO if self.forced_mono else wanted_theme(paths))
        self.register_theme(theme)
        self.set_reactive(App.theme, theme.name)  # pyright: ignore[reportUnknownMemberType, reportArgumentType]
        self.stylesheet.set_variables(self.get_css_variables())  # not by a watcher: it would style everything twice

    def get_line_filters(self) -> Sequence[LineFilter]:
        """No colour at all in a colorless theme; else Textual's filters, without its shades of grey."""
        theme = self.current_theme
        if isinstance(theme, Look) and theme.colorless:
            return self._without_color
        return [one for one in super().get_line_filters() if not isinstance(one, Monochrome)]

    async def learn_themes(self) -> Themes:
        """Read all theme files, beside the screen; what has changed in the one that is worn is put on."""
        themes = await asyncio.to_thread(load_themes, self.paths)
        worn = self.current_theme
        for theme in themes.all:
            self.register_theme(theme)
        if self.current_theme != worn:
            self.mutate_reactive(App.theme)  # pyright: ignore[reportUnknownMemberType, reportArgumentType]
        return themes

    def wear(self, name: str) -> None:
        """Put on a theme that was learnt; where no colour is wanted, the one without them stays on."""
        if not self.forced_mono:
            self.theme = name
