"""Themes: TOML files of colours, what is derived when it is left out, and an app that wears them, or no colour."""

import asyncio
import difflib
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
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
"""The theme without colours: worn where none may be sent."""
VARIABLE = "ECOSHELL_TUI_THEME"
_PACKAGE = Path(__file__).resolve().parents[1]
_LARGEST = 64 * 1024
"""Bytes of a theme file, of which a tenth is a long one."""
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
_FROM = {
    "syntax": ("accent", "primary", "success", "warning", "muted"),
    "diff": ("success", "error", "secondary"),
}
"""The colours that stand for those of code and of changes in files where a theme gives none."""
_FLAGS = ("dark", "colorless")
_MUTED, _SELECTED, _BORDER = 0.3, 0.3, 0.3
"""How far muted text goes to the background, and a selection and a border from it to their colours."""

_BRIGHT = 0.2
"""Brightness from which on a background is a selection or a cursor, and no tint of the theme's black."""
_WITHOUT = frozenset({"dumb", "unknown", "vt52", "vt100", "vt102", "vt220", "vt320"})

Palette = dict[str, Color]
R = TypeVar("R")


@dataclass
class Look(Theme):
    """A theme from a file; a colorless one is shown with no colour at all."""

    colorless: bool = False


def _known(given: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"it knows no {what} {key!r}; {hint}")


def _variables(colors: Palette) -> dict[str, str]:
    """Textual's own variables, where what it derives would be hard to read or to tell apart."""
    ground, text, muted, primary = (colors[key] for key in ("background", "foreground", "muted", "primary"))
    selected, border = ground.blend(primary, _SELECTED), ground.blend(text, _BORDER)
    variables = {
        **dict.fromkeys(("foreground-muted", "text-muted", "text-disabled"), muted),
        **dict.fromkeys(("block-cursor-blurred-foreground", "input-selection-foreground"), text),
        **dict.fromkeys(("block-cursor-background", "footer-key-foreground", "link-color"), primary),
        **dict.fromkeys(("block-cursor-foreground", "link-color-hover"), ground),
        **dict.fromkeys(("block-cursor-blurred-background", "input-selection-background"), selected),
        "screen-selection-background": selected,
        "screen-selection-foreground": text,
        "block-hover-background": colors["panel"],
        "border-blurred": border,
        "scrollbar": border,
        **dict.fromkeys(("scrollbar-hover", "scrollbar-active"), primary),
        **dict.fromkeys(("scrollbar-background", "scrollbar-corner-color"), ground),
        **dict.fromkeys(("scrollbar-background-hover", "scrollbar-background-active"), ground),
    }
    return {key: color.hex for key, color in variables.items()}


@dataclass(frozen=True, slots=True)
class Broken:
    """A theme file that cannot be used, and why."""

    file: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Themes:
    """What was found: the themes, the one to use, and what was wrong with files and names, for the person."""

    all: tuple[Look, ...]
    chosen: str
    broken: tuple[Broken, ...] = ()
    complaints: tuple[str, ...] = ()


def load_themes(paths: Paths) -> Themes:
    """All themes, the user's read last so that they win, and the one the settings choose."""
    found: dict[str, Look] = {}
    broken: list[Broken] = []
    for folder in reversed([*_folders(paths)]):
        for file in sorted(folder.glob("*.toml")):
            try:
                found[file.stem] = read_theme(file)
            except (OSError, ValueError) as wrong:
                reason = wrong.strerror if isinstance(wrong, OSError) else None  # which does not name the file again
                broken.append(Broken(file, reason or str(wrong)))
    complaints = [f"The theme {one.file} cannot be used: {one.reason}." for one in broken]
    wanted = wanted_theme(paths)
    if wanted not in found:
        complaints.append(f"There is no theme {wanted!r}; the themes are {', '.join(sorted(found))}.")
    return Themes(tuple(found.values()), wanted if wanted in found else DEFAULT, tuple(broken), tuple(complaints))


def load_theme(paths: Paths, name: str) -> Look:
    """The theme of this name alone, which is quicker than all; the default one where there is none that works.

    Nothing is said about what is wrong: `load_themes` does that.
    """
    if name == Path(name).name:  # a path is no name
        for folder in _folders(paths):
            with suppress(OSError, ValueError):
                return read_theme(folder / f"{name}.toml")
    return read_theme(_ours() / f"{DEFAULT}.toml")


def read_theme(file: Path) -> Look:
    """The theme in a TOML file; raises OSError, and ValueError for what is no theme."""
    if not file.is_file():
        raise ValueError("it is not a file")
    if file.stat().st_size > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST // 1024} KiB")
    try:
        record = tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not _NAME.fullmatch(file.stem):
        raise ValueError("a theme's name has letters, digits, '-' and '_' only")
    _known(record, (*_FLAGS, *_SECTIONS), "key")
    flags = {flag: record.get(flag, flag == "dark") for flag in _FLAGS}
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{flag} must be true or false")
    palettes: dict[str, Palette] = {name: {} for name in _SECTIONS}
    for name, palette in palettes.items():
        table = record.get(name, {} if name != "colors" else None)
        if not isinstance(table, dict):
            raise ValueError("it has no [colors]" if name == "colors" else f"{name} is no table")
        _known(cast("dict[str, Any]", table), _SECTIONS[name], "color")
        for key, value in cast("dict[str, Any]", table).items():
            with suppress(ColorParseError):
                palette[key] = Color.parse(str(value))
            color = palette.get(key)
            if color is None or color.auto or color.ansi is not None or color.a != 1:  # it has to be one, and opaque
                raise ValueError(f"{key} = {value!r} is not a color such as #7fb8c9")
        if name == "colors" and "primary" not in palette:
            raise ValueError("it has no color 'primary'")
    given: Palette = {key: Color.parse(value) for key, value in (_DARK if flags["dark"] else _LIGHT).items()}
    given |= palettes["colors"]
    ground, text, primary = given["background"], given["foreground"], given["primary"]
    colors = {  # where the file gives none, they come from the others
        "secondary": primary,
        "accent": primary,
        "surface": ground.blend(text, 0.03),
        "panel": ground.blend(text, 0.06),
        "muted": text.blend(ground, _MUTED),
    } | given
    more = {
        f"{section}-{key}": palettes[section].get(key, colors[source])
        for section, sources in _FROM.items()
        for key, source in zip(_SECTIONS[section], sources, strict=True)
    }
    main = {key: color.hex for key, color in colors.items() if key != "muted"}
    variables = _variables(colors) | {key: color.hex for key, color in more.items()}
    return Look(name=file.stem, **main, **flags, variables=variables)


def wanted_theme(paths: Paths) -> str:
    """The theme the settings choose, read before they are checked; what is wrong with them is told later."""
    if told := os.environ.get(VARIABLE, "").strip():
        return told
    if not paths.settings_file.is_file():  # a pipe would be waited for
        return DEFAULT
    try:
        record = tomllib.loads(paths.settings_file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return DEFAULT
    section = record.get("tui")
    return str(cast("dict[str, Any]", section).get("theme", DEFAULT)) if isinstance(section, dict) else DEFAULT


def _folders(paths: Paths) -> Iterator[Path]:
    """Where themes are, the first that has one of a name wins; plugins are only loaded for one that is not before."""
    yield paths.config / "themes"
    yield _ours()
    from ecoshell.plugin_host import Plugins, find_user_plugins

    yield from Plugins(find_user_plugins(paths), lambda _: None).theme_folders()


def _ours() -> Path:
    installed = _PACKAGE / "_themes"
    return installed if installed.is_dir() else _PACKAGE.parent / "themes"


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
