"""The settings as written, before validation: the file, overridden by environment variables.

The variable of a key is `ECOSHELL_` and the key in capitals, with `_` (or `__`) for each dot: `agent.max_steps` is
`ECOSHELL_AGENT_MAX_STEPS`. A list is written as in TOML: `["read_file", "run_command:git status"]`. The tables of
single models and presets have no variables.
"""

import errno
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import SettingsError
from ecoshell.settings.descriptions import NAMED, kind_of, setting_fields
from ecoshell.settings.keys import KeyPath, closest_key, key_lines
from ecoshell.settings.problems import SHOW_ALL

PREFIX = "ECOSHELL_"

_NOT_SETTINGS = frozenset({"ECOSHELL_HOME", "ECOSHELL_STARTED"})
"""The folder of all files, and the start time of a measured process."""
_TOML_LITERAL = re.compile(r"[-+]?\d+|true|false|\[.*\]", re.ASCII | re.DOTALL)
_TOML_ERROR_PLACE = re.compile(r"\(at (?:line (?P<line>\d+), column \d+|end of document)\)")


def variables() -> dict[str, KeyPath]:
    """Return the key of each environment variable."""
    short_names = {f"{PREFIX}LEDGER": ("budget", "ledger")}
    keys = (path for path, _, _ in setting_fields() if NAMED not in path)
    return short_names | {PREFIX + "_".join(path).upper(): path for path in keys}


class Source:
    """Unvalidated settings and the place of each key."""

    def __init__(self, file: Path, content: bytes) -> None:
        """Parse the content of the file; raises SettingsError if it is not TOML."""
        self._file = file
        self._from_environment: dict[KeyPath, str] = {}
        try:
            text = content.decode("utf-8-sig")
            self.data: dict[str, Any] = tomllib.loads(text, parse_float=Decimal)
            self._lines = key_lines(text)
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise SettingsError(
                f"{file} line {line}: this is not UTF-8.", fix="Save the file as UTF-8."
            ) from error
        except tomllib.TOMLDecodeError as error:
            place = _TOML_ERROR_PLACE.search(str(error))
            line = place["line"] if place and place["line"] else content.count(b"\n") + 1
            message = _TOML_ERROR_PLACE.sub("", str(error)).strip().rstrip(".")
            raise SettingsError(
                f"{file} line {line}: this is not TOML: {message}",
                fix='Texts need quotes, as in model = "embedded".',
            ) from error
        except (ValueError, InvalidOperation, RecursionError) as error:
            is_deep = isinstance(error, RecursionError)
            reason = "it is nested too deeply" if is_deep else "a number in it is too long"
            raise SettingsError(
                f"{file} cannot be read: {reason}.", fix="Correct it, or move it away."
            ) from error

    def add_environment(self, environ: Mapping[str, str]) -> tuple[SettingsError, ...]:
        """Override the file with the variables that are not empty; return an error for each unknown variable."""
        names = sorted(name for name in environ.keys() - _NOT_SETTINGS if name.startswith(PREFIX))
        texts = {name: environ[name] for name in names if environ[name].strip()}
        if not texts:
            return ()
        keys = variables()
        text_keys = {
            path for path, _, field in setting_fields() if kind_of(field.type)[0] == "text"
        }
        problems: list[SettingsError] = []
        for name, text in texts.items():
            path = keys.get(name.replace("__", "_"))
            if path is None:
                closest = closest_key((name,), [(variable,) for variable in keys])
                fix = f"did you mean {closest[0]}?" if closest else SHOW_ALL
                problems.append(SettingsError(f"{name}: unknown variable", fix=fix))
            elif self._set(path, text.strip() if path in text_keys else parse_value(text)):
                self._from_environment[path] = name
        return tuple(problems)

    def _set(self, path: KeyPath, value: Any) -> bool:
        """Set a value in the nested tables; False if the file has a value where a table belongs."""
        table = self.data
        for part in path[:-1]:
            subtable = table.setdefault(part, {})
            if not isinstance(subtable, dict):
                return False
            table = cast("dict[str, Any]", subtable)
        table[path[-1]] = value
        return True

    def line(self, path: KeyPath) -> int | None:
        """Return the line of the key, or of the innermost table around it in the file."""
        lines = (self._lines.get(path[:depth]) for depth in range(len(path), 0, -1))
        return next((line for line in lines if line is not None), None)

    def place(self, path: KeyPath) -> str:
        """Return where a key (or the table around it) was set: `…/config.toml line 7`, or a variable's name."""
        if path in self._from_environment:
            return self._from_environment[path]
        line = self.line(path)
        return str(self._file) if line is None else f"{self._file} line {line}"

    def origins(self) -> dict[KeyPath, str]:
        """Return the place of every key that was set."""
        return {path: self.place(path) for path in (*self._lines, *self._from_environment)}


def parse_value(text: str) -> Any:
    """Parse typed text as a whole number, true, false or a list if it looks like one; otherwise it stays text."""
    text = text.strip()
    if _TOML_LITERAL.fullmatch(text):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            return text
    return text


def read_bytes(file: Path) -> bytes:
    """Read the file, empty if it does not exist; raises SettingsError."""
    try:
        if file.exists() and not file.is_file():  # reading a pipe would block
            raise OSError(errno.EINVAL, "it is not a file")
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise SettingsError(
            f"{file}: it cannot be read ({error.strerror}).",
            fix="Make it a readable file, or move it away.",
        ) from error
