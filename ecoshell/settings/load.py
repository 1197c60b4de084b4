"""Loads and validates the settings, and keeps the place where each was set."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import SettingsError
from ecoshell.settings.convert import InvalidTable, to_settings, to_values
from ecoshell.settings.keys import KeyPath
from ecoshell.settings.problems import problem, summarize
from ecoshell.settings.schema import Settings
from ecoshell.settings.source import Source, read_bytes

DEFAULT = "default"
HIDDEN = "(not shown)"
"""Replaces a value that may be a secret: a variable, a header or an OAuth field of a server."""

SettingOrigin = tuple[KeyPath, Any, str]
"""A key, its value, and where the value comes from."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Valid settings, and the places of those that are not defaults."""

    settings: Settings
    origins: Mapping[KeyPath, str]

    def rows(
        self, prefix: KeyPath = (), table: Mapping[str, Any] | None = None
    ) -> Iterator[SettingOrigin]:
        """Yield every key of a table, by default of all settings, in schema order; secrets are hidden."""
        for name, value in (to_values(self.settings) if table is None else table).items():
            path = (*prefix, name)
            if isinstance(value, dict):
                yield from self.rows(path, cast("dict[str, Any]", value))
            else:
                secret = path[:2] == ("mcp", "servers") and path[3] in ("env", "headers", "oauth")
                yield path, HIDDEN if secret else value, self.origins.get(path, DEFAULT)


def load_settings(file: Path, environ: Mapping[str, str]) -> Loaded:
    """Load the settings of a file (which may be missing) and an environment; raises SettingsError."""
    loaded, problems = read_settings(file, environ)
    if loaded is None:
        raise summarize(problems)
    return loaded


def read_settings(
    file: Path, environ: Mapping[str, str]
) -> tuple[Loaded | None, tuple[SettingsError, ...]]:
    """Return the settings, or None and all problems in the order of the file."""
    try:
        source = Source(file, read_bytes(file))
    except SettingsError as error:
        return None, (error,)
    unknown_variables = source.add_environment(environ)
    try:
        settings = to_settings(Settings, source.data)
    except InvalidTable as error:
        invalid = sorted(error.problems, key=lambda value: source.line(value.path) or 0)
        problems = [problem(value, source.place(value.path)) for value in invalid]
        return None, (*problems, *unknown_variables)
    if unknown_variables:
        return None, unknown_variables
    return Loaded(settings, source.origins()), ()
