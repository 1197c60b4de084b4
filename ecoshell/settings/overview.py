"""Every setting as a person looks at it: value, default, where it comes from, and what typing something changes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import SettingsError
from ecoshell.settings import DEFAULT, PREFIX, KeyPath, Source, dotted, read_bytes, read_settings
from ecoshell.settings.edit import REMOVED, Changes, checked
from ecoshell.settings.schema import NAMED, Description, descriptions

_PRICE = "price"
_LAST_BEFORE_PRESETS = ("modes", "umi", "preset")
_TWO_RATES = "The two prices, of input and of output, in dollars per million tokens: 0.20 0.80"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting; values are written as they would be typed, empty where there is none."""

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
        """The variable of the environment that sets it, which no file can change; empty when none does."""
        return self.origin if self.origin.startswith(PREFIX) else ""

    def changes(self, typed: str | None) -> Changes:
        """What typing this changes; None, or nothing typed, gives back the default. Raises SettingsError."""
        if typed is None or not typed.strip():
            with_all = self.path[-2] == _PRICE and self.path[-1] in ("input", "output") if len(self.path) > 3 else False
            return {self.path[:-1] if with_all else self.path: REMOVED}
        if self.path[-1] != _PRICE:
            return {self.path: typed.strip()}
        rates = typed.replace(",", " ").replace("$", " ").split()
        if len(rates) != 2:
            raise SettingsError(f"{self.key} needs two numbers.", fix=_TWO_RATES)
        return {(*self.path, "input"): rates[0], (*self.path, "output"): rates[1]}


@dataclass(frozen=True, slots=True)
class Overview:
    """The settings of one person, or what is wrong with them; `source` is the file as it was read."""

    file: Path
    rows: tuple[SettingRow, ...]
    problems: tuple[SettingsError, ...]
    source: Source | None = None

    def complaint(self, changes: Changes) -> str:
        """Why these changes could not be written; empty when they could."""
        try:
            if self.source is not None:
                checked(self.file, self.source, changes)
        except SettingsError as error:
            return error.message.removeprefix(f"{self.file}: ")
        return ""


def overview(file: Path, environ: Mapping[str, str], models: Sequence[str] = ()) -> Overview:
    """All settings, in the order of the schema; `models` are named besides those the file speaks of."""
    loaded, problems = read_settings(file, environ)
    if loaded is None:
        return Overview(file, (), problems)
    named = loaded.settings.models.named
    names = [*named, *(name for name in models if name not in named)]
    values, found = loaded.settings.model_dump(), list[SettingRow]()

    def add(*wanted: Description, name: str = NAMED) -> None:
        for one in wanted:
            path = tuple(name if part == NAMED else part for part in one.path)
            value, default = typed_value(_found(values, path)), typed_value(one.default)
            found.append(SettingRow(path, value, default, loaded.origins.get(path, DEFAULT), one))

    known = descriptions().values()
    of_preset = [one for one in known if one.path[:4] == ("modes", "umi", "presets", NAMED)]
    of_model = [one for one in known if one.path[:2] == ("models", NAMED)]
    for one in known:
        if NAMED not in one.path:
            add(one)
        if one.path == _LAST_BEFORE_PRESETS:
            for name in loaded.settings.modes.umi.presets:
                add(*of_preset, name=name)
    for name in names:
        priced = _found(values, ("models", name, _PRICE)) is not None
        shown = of_model if priced else [*(one for one in of_model if _PRICE not in one.path), _WHOLE_PRICE]
        add(*shown, name=name)
    return Overview(file, tuple(found), problems, Source(file, read_bytes(file)))


def typed_value(value: Any) -> str:
    """A value as one would type it."""
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, tuple | dict) else str(value)


def _found(values: Mapping[str, Any], path: KeyPath) -> Any:
    """The value in nested tables; None where a table on the way is missing."""
    found: Any = values
    for part in path:
        if not isinstance(found, Mapping):
            return None
        found = cast("Mapping[str, Any]", found).get(part)
    return found


_WHOLE_PRICE = Description(("models", NAMED, _PRICE), _TWO_RATES, "text")
"""Stands for the price of a model that has none yet: input and output are only given together."""
