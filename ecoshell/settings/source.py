"""What was read of the settings, and from where each key of it comes: the file's line or the variable's name.

The variable of a key is `ECOSHELL_` and the key in capitals, with `_` (or `__`) for each dot: `agent.max_steps` is
`ECOSHELL_AGENT_MAX_STEPS`. A list is written as in TOML: `["read_file", "run_command:git status"]`. The tables of
single models and presets have no variables.
"""

import errno
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from ecoshell.errors import SettingsError
from ecoshell.settings import keys
from ecoshell.settings.problems import unknown_variable
from ecoshell.settings.schema import NAMED, known_keys

PREFIX = "ECOSHELL_"
_NOT_SETTINGS = frozenset({"ECOSHELL_HOME", "ECOSHELL_STARTED"})
"""Where the files are, and when a measured process was started."""
_LIKE_TOML = re.compile(r"[-+]?\d+|true|false|\[.*\]", re.ASCII | re.DOTALL)
_TOML_PLACE = re.compile(r"\(at (?:line (?P<line>\d+), column \d+|end of document)\)")


def variables() -> dict[str, keys.Path]:
    """The environment variable of every key that has one."""
    known = known_keys()
    tables = {key[:depth] for key in known for depth in range(1, len(key))}
    leaves = [path for path in known if path not in tables and NAMED not in path]
    return {PREFIX + "_".join(path).upper(): path for path in leaves}


class Source:
    """The settings as they were written, before anybody looks whether they are right."""

    def __init__(self, file: Path, data: dict[str, Any], lines: Mapping[keys.Path, int]) -> None:
        self.data = data
        self._file = file
        self._lines = lines
        self._from_environment: dict[keys.Path, str] = {}

    @classmethod
    def of_file(cls, file: Path) -> "Source":
        """The file's content, nothing where there is no file; raises SettingsError when it is no readable TOML."""
        return cls.of_bytes(file, _bytes(file))

    @classmethod
    def of_bytes(cls, file: Path, raw: bytes) -> "Source":
        """What the file holds, if it holds these bytes; raises SettingsError when they are no TOML."""
        text = _text(file, raw)
        try:
            return cls(file, tomllib.loads(text, parse_float=Decimal), keys.key_lines(text))
        except tomllib.TOMLDecodeError as error:
            place = _TOML_PLACE.search(str(error))
            line = place["line"] if place and place["line"] else text.count("\n") + 1
            message = _TOML_PLACE.sub("", str(error)).strip().rstrip(".")
            raise SettingsError(
                f"{file} line {line}: this is not TOML: {message}",
                fix='Texts need quotes, as in model = "embedded".',
            ) from error
        except (ValueError, RecursionError) as error:  # a number of too many digits, brackets in too many brackets
            why = "it is nested too deeply" if isinstance(error, RecursionError) else "a number in it is too long"
            raise SettingsError(f"{file} cannot be read: {why}.", fix="Correct it, or move it away.") from error

    def add_environment(self, environ: Mapping[str, str]) -> tuple[SettingsError, ...]:
        """Lay the variables over the file (an empty one counts as unset); returns what is wrong with their names."""
        known = variables()
        strangers: list[SettingsError] = []
        for name, text in sorted(environ.items()):
            if not name.startswith(PREFIX) or name in _NOT_SETTINGS or not text.strip():
                continue
            path = known.get(name.replace("__", "_"))
            if path is None:
                strangers.append(unknown_variable(name, known))
            elif _put(self.data, path, value_of(text)):
                self._from_environment[path] = name
        return tuple(strangers)

    def line(self, path: keys.Path) -> int | None:
        """The line of the key, or of the innermost table around it that the file has."""
        around = (self._lines.get(path[:depth]) for depth in range(len(path), 0, -1))
        return next((line for line in around if line is not None), None)

    def place(self, path: keys.Path) -> str:
        """Where a key (or what is around it) was set: `…/config.toml line 7`, or the name of a variable."""
        if path in self._from_environment:
            return self._from_environment[path]
        line = self.line(path)
        return str(self._file) if line is None else f"{self._file} line {line}"

    def origins(self) -> dict[keys.Path, str]:
        """The place of every key that was set."""
        return {path: self.place(path) for path in (*self._lines, *self._from_environment)}


def value_of(text: str) -> Any:
    """A value as it is typed, as the TOML value it looks like: a whole number, true, false, a list, else a text."""
    text = text.strip()
    if _LIKE_TOML.fullmatch(text):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            return text
    return text


def _bytes(file: Path) -> bytes:
    try:
        if file.exists() and not file.is_file():  # a pipe would be waited for
            raise OSError(errno.EINVAL, "it is not a file")
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise SettingsError(
            f"{file}: it cannot be read ({error.strerror}).", fix="Make it a readable file, or move it away."
        ) from error


def _text(file: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{file} line {line}: this is not UTF-8.", fix="Save the file as UTF-8.") from error


def _put(data: dict[str, Any], path: keys.Path, value: Any) -> bool:
    """Set a value in nested tables; False when the file has something else where a table should be."""
    for part in path[:-1]:
        below = data.setdefault(part, {})
        if not isinstance(below, dict):
            return False
        data = cast("dict[str, Any]", below)
    data[path[-1]] = value
    return True
