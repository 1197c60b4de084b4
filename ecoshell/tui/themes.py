"""Themes: TOML files of colours, defaults for missing colours, and an app that applies them or none."""

import asyncio
import difflib
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError
from textual.filter import LineFilter, Monochrome
from textual.theme import Theme

from ecoshell.paths import Paths

DEFAULT = "dark"
MONO = "mono"
"""The theme without colours, for NO_COLOR and monochrome terminals."""
VARIABLE = "ECOSHELL_TUI_THEME"
_PACKAGE = Path(__file__).resolve().parents[1]
_NAME = re.compile(r"[\w-]+", re.ASCII)
_DARK = {
    "background": "#14181c", "foreground": "#d6dbdf", "success": "#93c47d", "warning": "#e2b86b", "error": "#ea8a8a",
}  # fmt: skip
_LIGHT = {
    "background": "#fbfaf7", "foreground": "#2a2f33", "success": "#34641f", "warning": "#7a4f00", "error": "#a02c2c",
}  # fmt: skip
_COLORS = (
    "primary", "secondary", "accent", "foreground", "muted", "background", "surface", "panel", "success", "warning",
    "error",
)  # fmt: skip
_SECTIONS = {
    "colors": _COLORS,
    "syntax": ("keyword", "name", "string", "number", "comment"),
    "diff": ("added", "removed", "hunk"),
}
_FALLBACKS = {
    "syntax": ("accent", "primary", "success", "warning", "muted"),
    "diff": ("success", "error", "secondary"),
}
"""The colours used for code and diffs if a theme defines none."""
_VARIABLES = {
    "muted": ("foreground-muted", "text-muted", "text-disabled"),
    "foreground": (
        "block-cursor-blurred-foreground", "input-selection-foreground", "screen-selection-foreground",
    ),
    "primary": (
        "block-cursor-background", "footer-key-foreground", "link-color", "scrollbar-hover", "scrollbar-active",
    ),
    "background": (
        "block-cursor-foreground", "link-color-hover", "scrollbar-background", "scrollbar-background-hover",
        "scrollbar-background-active", "scrollbar-corner-color",
    ),
    "panel": ("block-hover-background",),
    "selected": (
        "block-cursor-blurred-background", "input-selection-background", "screen-selection-background",
    ),
    "border": ("border-blurred", "scrollbar"),
}  # fmt: skip
"""Textual's variables for each colour, whose default values would be hard to read or to tell apart."""
_FLAGS = ("dark", "colorless")
_MUTED, _SELECTED = 0.3, 0.3
"""Blending of muted text with the background, and of selections from it."""
_GRAPHIC = {True: 0.4, False: 0.52}
"""Blending of borders and scrollbars in dark and light themes: WCAG AA demands a contrast of 3."""
_HIGHLIGHT_BRIGHTNESS = 0.2
"""Brightness from which a background is a selection or cursor, not a tint of the theme's black."""
_MONOCHROME_TERMS = frozenset({"dumb", "unknown", "vt52", "vt100", "vt102", "vt220", "vt320"})

Palette = dict[str, Color]
R = TypeVar("R")


@dataclass
class FileTheme(Theme):
    """A theme from a file; a colorless one sends no colour at all."""

    colorless: bool = False


def _check_keys(keys: Iterable[str], allowed: tuple[str, ...], kind: str) -> None:
    for key in keys:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(allowed)}"
            raise ValueError(f"unknown {kind} {key!r}; {hint}")


@dataclass(frozen=True, slots=True)
class Themes:
    """All themes, and messages about broken files and an unknown selected name."""

    all: tuple[FileTheme, ...]
    complaints: tuple[str, ...]


def load_themes(paths: Paths) -> Themes:
    """Load all themes, the user's last so that they override others."""
    themes: dict[str, FileTheme] = {}
    complaints: list[str] = []
    for folder in reversed([*_folders(paths)]):
        for file in sorted(folder.glob("*.toml")):
            try:
                themes[file.stem] = read_theme(file)
            except (OSError, ValueError, RecursionError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                complaints.append(f"The theme {file} cannot be used: {reason}.")
    name = selected_theme(paths)
    if name not in themes:
        complaints.append(f"Unknown theme {name!r}; available: {', '.join(sorted(themes))}.")
    return Themes(tuple(themes.values()), tuple(complaints))


def load_theme(paths: Paths, name: str) -> FileTheme:
    """Load one theme, which is faster than all; the default one if it is missing or broken.

    Errors are reported by `load_themes`.
    """
    if name == Path(name).name:  # not a path
        for folder in _folders(paths):
            with suppress(OSError, ValueError, RecursionError):
                return read_theme(folder / f"{name}.toml")
    return read_theme(_shipped_folder() / f"{DEFAULT}.toml")


def read_theme(file: Path) -> FileTheme:
    """Read a theme from a TOML file; raises OSError, or ValueError or RecursionError if it is invalid."""
    if not file.is_file():
        raise ValueError("it is not a file")
    try:
        record = tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if not _NAME.fullmatch(file.stem):
        raise ValueError("a theme's name has letters, digits, '-' and '_' only")
    _check_keys(record, (*_FLAGS, *_SECTIONS), "key")
    flags = {flag: record.get(flag, flag == "dark") for flag in _FLAGS}
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{flag} must be true or false")
    palettes: dict[str, Palette] = {name: {} for name in _SECTIONS}
    for name, palette in palettes.items():
        table = record.get(name, {} if name != "colors" else None)
        if not isinstance(table, dict):
            raise ValueError("it has no [colors]" if name == "colors" else f"{name} is not a table")
        _check_keys(cast("dict[str, Any]", table), _SECTIONS[name], "color")
        for key, value in cast("dict[str, Any]", table).items():
            with suppress(ColorParseError):
                palette[key] = Color.parse(str(value))
            color = palette.get(key)
            if color is None or color.auto or color.ansi is not None or color.a != 1:
                raise ValueError(f"{key} = {value!r} is not a color such as #7fb8c9")
        if name == "colors" and "primary" not in palette:
            raise ValueError("it has no color 'primary'")
    base: Palette = {
        key: Color.parse(value) for key, value in (_DARK if flags["dark"] else _LIGHT).items()
    }
    base |= palettes["colors"]
    ground, text, primary = base["background"], base["foreground"], base["primary"]
    colors = {  # defaults derived from other colours
        "secondary": primary,
        "accent": primary,
        "surface": ground.blend(text, 0.03),
        "panel": ground.blend(text, 0.06),
        "muted": text.blend(ground, _MUTED),
    } | base
    more = {
        f"{section}-{key}": palettes[section].get(key, colors[source])
        for section, sources in _FALLBACKS.items()
        for key, source in zip(_SECTIONS[section], sources, strict=True)
    }
    main = {key: color.hex for key, color in colors.items() if key != "muted"}
    colors["selected"] = ground.blend(primary, _SELECTED)
    colors["border"] = ground.blend(text, _GRAPHIC[ground.brightness < text.brightness])
    variables = {name: colors[key].hex for key, names in _VARIABLES.items() for name in names}
    variables |= {key: color.hex for key, color in more.items()}
    return FileTheme(name=file.stem, **main, **flags, variables=variables)


def selected_theme(paths: Paths) -> str:
    """The theme named by the environment or the settings."""
    return chosen_setting(paths, "tui.theme", DEFAULT)


def chosen_setting(paths: Paths, key: str, default: str) -> str:
    """A text such as `tui.theme` from the environment or the settings file, without validating the others."""
    if value := os.environ.get(f"ECOSHELL_{key.replace('.', '_').upper()}", "").strip():
        return value
    if not paths.settings_file.is_file():  # reading a pipe would block
        return default
    try:
        value = tomllib.loads(paths.settings_file.read_text(encoding="utf-8-sig"))
        for part in key.split("."):
            value = value.get(part, {})
        return str(value or default)
    except (OSError, ValueError, RecursionError, AttributeError):  # reported with the settings
        return default


def _folders(paths: Paths) -> Iterator[Path]:
    """Theme folders, highest priority first; plugins are loaded only if the others lack a theme."""
    yield paths.config / "themes"
    yield _shipped_folder()
    from ecoshell.plugin_discovery import find_user_plugins
    from ecoshell.plugin_host import Plugins

    yield from Plugins(find_user_plugins(paths), lambda _: None).theme_folders()


def _shipped_folder() -> Path:
    installed = _PACKAGE / "_themes"
    return installed if installed.is_dir() else _PACKAGE.parent / "themes"


def wants_no_color(environ: Mapping[str, str], *, terminal: bool) -> bool:
    """Whether the user disables colour (`NO_COLOR`, see no-color.org) or the terminal has none."""
    if environ.get("NO_COLOR"):
        return True
    term = environ.get("TERM", "")
    return (
        terminal
        and not environ.get("COLORTERM")
        and (term in _MONOCHROME_TERMS or term.endswith(("-m", "-mono")))
    )


class Colorless(LineFilter):
    """Removes all colours; a highlighted background becomes `reverse`.

    Textual's own filter turns colours into shades of grey, which are still colours to a terminal.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments without colours; click actions stay."""
        return [Segment(text, style and _plain(style), None) for text, style, _ in segments]


@lru_cache(4096)
def _plain(style: Style) -> Style:
    ground, stands_out = style.bgcolor, bool(style.reverse)
    if ground is not None and not ground.is_default:
        stands_out |= (
            Color(*ground.get_truecolor(foreground=False)).brightness >= _HIGHLIGHT_BRIGHTNESS
        )
    plain = style.without_color + Style(reverse=stands_out)
    return plain + Style.from_meta(style.meta) if style.meta else plain


class ThemedApp(App[R]):
    """Applies the selected theme from the first frame on; the others are loaded later."""

    def __init__(self, paths: Paths) -> None:
        super().__init__()
        self.paths = paths
        self._without_color: Sequence[LineFilter] = [Colorless()]
        self.forced_mono = wants_no_color(
            os.environ, terminal=sys.__stderr__ is not None and sys.__stderr__.isatty()
        )
        """Whether colours are disabled by the user or the terminal."""
        self.no_color = self.forced_mono  # Textual also treats an empty NO_COLOR as set
        theme = load_theme(paths, MONO if self.forced_mono else selected_theme(paths))
        self.register_theme(theme)
        self.set_reactive(App.theme, theme.name)  # pyright: ignore[reportUnknownMemberType, reportArgumentType]
        self.stylesheet.set_variables(
            self.get_css_variables()
        )  # a watcher would style everything twice

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Remove all colour in a colorless theme; otherwise Textual's filters without its monochrome one."""
        theme = self.current_theme
        if isinstance(theme, FileTheme) and theme.colorless:
            return self._without_color
        return [
            line_filter
            for line_filter in super().get_line_filters()
            if not isinstance(line_filter, Monochrome)
        ]

    async def reload_themes(self) -> Themes:
        """Load all theme files, and reapply the current theme if its file has changed."""
        themes = await asyncio.to_thread(load_themes, self.paths)
        previous = self.current_theme
        for theme in themes.all:
            self.register_theme(theme)
        if self.current_theme != previous:
            self.mutate_reactive(App.theme)  # pyright: ignore[reportUnknownMemberType, reportArgumentType]
        return themes

    def apply_theme(self, name: str) -> None:
        """Switch to a loaded theme, unless colours are disabled."""
        if not self.forced_mono:
            self.theme = name
