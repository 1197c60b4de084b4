"""Themes: TOML files of colours, from the package and from the user's folder."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from textual.theme import Theme

from ecoshell.paths import Paths

DEFAULT = "dark"
_PACKAGE = Path(__file__).resolve().parents[2]
_COLORS = (
    "primary", "secondary", "accent", "foreground", "background", "surface", "panel", "success", "warning", "error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Themes:
    """What was found: the themes, the one to use, and what was wrong with files and names, for the person."""

    all: tuple[Theme, ...]
    chosen: str
    complaints: tuple[str, ...] = ()


def load_themes(paths: Paths) -> Themes:
    """All themes, the user's read last so that they win, and the one the settings choose."""
    found: dict[str, Theme] = {}
    complaints: list[str] = []
    for file in _files(paths):
        try:
            found[file.stem] = read_theme(file)
        except (OSError, ValueError) as wrong:
            complaints.append(f"The theme {file} cannot be used: {wrong}")
    wanted = _wanted(paths)
    if wanted not in found:
        complaints.append(f"There is no theme {wanted!r}; the themes are {', '.join(sorted(found))}.")
    return Themes(tuple(found.values()), wanted if wanted in found else DEFAULT, tuple(complaints))


def read_theme(file: Path) -> Theme:
    """The theme in a TOML file; raises OSError, and ValueError for what is no theme."""
    record = tomllib.loads(file.read_text(encoding="utf-8"))
    colors = record.get("colors")
    if not isinstance(colors, dict):
        raise ValueError("it has no [colors]")
    return _checked(file.stem, cast("dict[str, Any]", colors), dark=bool(record.get("dark", True)))


def _checked(name: str, colors: Mapping[str, Any], *, dark: bool) -> Theme:
    from textual.color import Color, ColorParseError

    unknown = sorted(set(colors) - set(_COLORS))
    if unknown:
        raise ValueError(f"it knows no color {unknown[0]!r}; the colors are {', '.join(_COLORS)}")
    if "primary" not in colors:
        raise ValueError("it has no color 'primary'")
    for key, value in colors.items():
        try:
            Color.parse(str(value))
        except ColorParseError:
            raise ValueError(f"{key} = {value!r} is not a color") from None
    theme = Theme(name=name, primary=str(colors["primary"]), dark=dark)
    return replace(theme, **colors)


def _files(paths: Paths) -> Iterator[Path]:
    installed = _PACKAGE / "_themes"
    ours = installed if installed.is_dir() else _PACKAGE.parent / "themes"
    for folder in (ours, paths.config / "themes"):
        yield from sorted(folder.glob("*.toml"))


def _wanted(paths: Paths) -> str:
    """The settings' `[tui] theme`, read before the settings are checked; whatever is wrong with them is told later."""
    try:
        record = tomllib.loads(paths.settings_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return DEFAULT
    section = record.get("tui")
    return str(cast("dict[str, Any]", section).get("theme", DEFAULT)) if isinstance(section, dict) else DEFAULT
