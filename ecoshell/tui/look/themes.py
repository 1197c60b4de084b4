"""Themes: TOML files of colours, from the package and from the user's folder."""

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ecoshell.paths import Paths
from ecoshell.tui.look.palette import Look, theme_of

DEFAULT = "dark"
MONO = "mono"
"""The theme without colours: worn where none may be sent."""
VARIABLE = "ECOSHELL_TUI_THEME"
_PACKAGE = Path(__file__).resolve().parents[2]
_LARGEST = 64 * 1024
"""Bytes of a theme file, of which a tenth is a long one."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A theme file that cannot be used, and why."""

    file: Path
    reason: str

    @property
    def complaint(self) -> str:
        """What is wrong, for the person."""
        return f"The theme {self.file} cannot be used: {self.reason}."


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
    for folder in _folders(paths):
        for file in sorted(folder.glob("*.toml")):
            try:
                found[file.stem] = read_theme(file)
            except (OSError, ValueError) as wrong:
                broken.append(Broken(file, _reason(wrong)))
    complaints = [one.complaint for one in broken]
    wanted = wanted_theme(paths)
    if wanted not in found:
        complaints.append(f"There is no theme {wanted!r}; the themes are {', '.join(sorted(found))}.")
    return Themes(tuple(found.values()), wanted if wanted in found else DEFAULT, tuple(broken), tuple(complaints))


def load_theme(paths: Paths, name: str) -> Look:
    """The theme of this name alone, which is quicker than all; the default one where there is none that works.

    Nothing is said about what is wrong: `load_themes` does that.
    """
    for file in _candidates(paths, name):
        try:
            return read_theme(file)
        except (OSError, ValueError):
            continue
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
    return theme_of(file.stem, record)


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


def _reason(wrong: OSError | ValueError) -> str:
    """What is wrong, in words that do not name the file again."""
    return (wrong.strerror if isinstance(wrong, OSError) else None) or str(wrong)


def _candidates(paths: Paths, name: str) -> Iterator[Path]:
    """Where a theme of this name could be, the user's own first; a name that is a path is none."""
    if name == Path(name).name:
        for folder in reversed(_folders(paths)):
            yield folder / f"{name}.toml"


def _folders(paths: Paths) -> tuple[Path, Path]:
    return _ours(), paths.config / "themes"


def _ours() -> Path:
    installed = _PACKAGE / "_themes"
    return installed if installed.is_dir() else _PACKAGE.parent / "themes"
