"""Reads the settings: the file, then the environment over it; what is unknown or wrong is refused with its place."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from ecoshell.errors import SettingsError
from ecoshell.settings import keys
from ecoshell.settings.problems import path_of, problem, summed_up
from ecoshell.settings.schema import Settings
from ecoshell.settings.source import Source

DEFAULT = "default"

Row = tuple[keys.Path, Any, str]
"""A key, its value, and where that comes from."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings that hold, and where those come from that are not defaults."""

    settings: Settings
    origins: Mapping[keys.Path, str]

    def rows(self) -> Iterator[Row]:
        """Every key, in the order of the schema."""
        return self._rows((), self.settings.model_dump())

    def _rows(self, above: keys.Path, table: Mapping[str, Any]) -> Iterator[Row]:
        for name, value in table.items():
            path = (*above, name)
            if isinstance(value, dict):
                yield from self._rows(path, cast("dict[str, Any]", value))
            else:
                yield path, value, self.origins.get(path, DEFAULT)


def load_settings(file: Path, environ: Mapping[str, str]) -> Loaded:
    """The settings of a file (which need not exist) and an environment; raises SettingsError for what is wrong."""
    loaded, problems = read_settings(file, environ)
    if loaded is None:
        raise summed_up(problems)
    return loaded


def read_settings(file: Path, environ: Mapping[str, str]) -> tuple[Loaded | None, tuple[SettingsError, ...]]:
    """The settings, or None and everything that is wrong, in the order of the file."""
    try:
        source = Source.of_file(file)
    except SettingsError as error:
        return None, (error,)
    strangers = source.add_environment(environ)
    try:
        settings = Settings.model_validate(source.data)
    except ValidationError as error:
        found = sorted(error.errors(), key=lambda detail: source.line(path_of(detail)) or 0)
        return None, (*(problem(detail, source.place(path_of(detail))) for detail in found), *strangers)
    return (None, strangers) if strangers else (Loaded(settings, source.origins()), ())
