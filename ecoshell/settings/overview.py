"""The settings screen's data: each setting's value, default and origin, and what a typed text changes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import SettingsError
from ecoshell.settings.convert import to_values
from ecoshell.settings.descriptions import NAMED, Description, descriptions
from ecoshell.settings.edit import REMOVED, Changes, validated
from ecoshell.settings.keys import KeyPath, dotted
from ecoshell.settings.load import DEFAULT, Loaded, read_settings
from ecoshell.settings.source import PREFIX, Source, read_bytes

_PRICE = "price"
_PRESET = ("modes", "umi", "preset")
_PRESETS = ("modes", "umi", "presets", NAMED)
_TWO_RATES = "Two prices, of input and output, in dollars per million tokens: 0.20 0.80"
_UNSET_PRICE = Description(("models", NAMED, _PRICE), _TWO_RATES, "text")
"""The price of a model without one; input and output can only be set together."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting; values are written as a user would type them, empty if unset."""

    path: KeyPath
    value: str
    default: str
    origin: str
    """`default`, the file and its line, or the name of a variable."""
    description: Description

    @property
    def key(self) -> str:
        return dotted(self.path)

    @property
    def variable(self) -> str:
        """The environment variable that overrides the file, or empty."""
        return self.origin if self.origin.startswith(PREFIX) else ""

    def changes(self, typed: str | None) -> Changes:
        """Return the changes for a typed text; None or blank text restores the default. Raises SettingsError."""
        if typed is None or not typed.strip():
            is_required_rate = self.path[-2:] in ((_PRICE, "input"), (_PRICE, "output"))
            return {self.path[:-1] if is_required_rate else self.path: REMOVED}
        if self.path[-1] != _PRICE:
            return {self.path: typed.strip()}
        rates = typed.replace(",", " ").replace("$", " ").split()
        if len(rates) != 2:
            raise SettingsError(f"{self.key} needs two numbers.", fix=_TWO_RATES)
        return {(*self.path, "input"): rates[0], (*self.path, "output"): rates[1]}


@dataclass(frozen=True, slots=True)
class Overview:
    """All settings, or the problems of the file; `source` is the file as read."""

    file: Path
    rows: tuple[SettingRow, ...]
    problems: tuple[SettingsError, ...]
    source: Source | None = None

    def complaint(self, changes: Changes) -> str:
        """Return why these changes are invalid, or an empty text."""
        try:
            if self.source is not None:
                validated(self.file, self.source, changes)
        except SettingsError as error:
            return error.message.removeprefix(f"{self.file}: ")
        return ""


def overview(file: Path, environ: Mapping[str, str], models: Sequence[str] = ()) -> Overview:
    """List all settings in schema order, with rows for `models` and for each model in the file."""
    loaded, problems = read_settings(file, environ)
    if loaded is None:
        return Overview(file, (), problems)
    values = to_values(loaded.settings)
    rows: list[SettingRow] = []
    for setting, name in _entries(loaded, models):
        path = tuple(name if part == NAMED else part for part in setting.path)
        value, default = typed_value(_value_at(values, path)), typed_value(setting.default)
        rows.append(SettingRow(path, value, default, loaded.origins.get(path, DEFAULT), setting))
    return Overview(file, tuple(rows), problems, Source(file, read_bytes(file)))


def typed_value(value: Any) -> str:
    """Write a value as a user would type it."""
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, tuple | dict) else str(value)


def _entries(loaded: Loaded, models: Sequence[str]) -> list[tuple[Description, str]]:
    """List each setting with the name that replaces NAMED in its path."""
    settings = loaded.settings
    declared = descriptions().values()
    of_presets = [setting for setting in declared if setting.path[:4] == _PRESETS]
    of_models = [setting for setting in declared if setting.path[:2] == ("models", NAMED)]
    unpriced = [*(setting for setting in of_models if _PRICE not in setting.path), _UNSET_PRICE]
    entries: list[tuple[Description, str]] = []
    for setting in declared:
        if NAMED not in setting.path:
            entries.append((setting, ""))
        if setting.path == _PRESET:
            entries += [(row, name) for name in settings.modes.umi.presets for row in of_presets]
    for name in dict.fromkeys((*settings.models.named, *models)):
        model = settings.models.named.get(name)
        is_priced = model is not None and model.price is not None
        entries += [(row, name) for row in (of_models if is_priced else unpriced)]
    return entries


def _value_at(values: Mapping[str, Any], path: KeyPath) -> Any:
    """Return the value in nested tables, or None if a table is missing."""
    value: Any = values
    for part in path:
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Any]", value).get(part)
    return value
