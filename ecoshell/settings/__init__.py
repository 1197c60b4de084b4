"""The settings: the file, then the environment over it; what is unknown or wrong is refused with its place.

The variable of a key is `ECOSHELL_` and the key in capitals, with `_` (or `__`) for each dot: `agent.max_steps` is
`ECOSHELL_AGENT_MAX_STEPS`. A list is written as in TOML: `["read_file", "run_command:git status"]`. The tables of
single models and presets have no variables. pydantic comes with it, which no first frame waits for: import it inside
functions.
"""

import errno
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ecoshell.errors import SettingsError
from ecoshell.errors import closest_word as nearest_word
from ecoshell.settings.schema import NAMED, Settings, general, kind_of, values

KeyPath = tuple[str, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_CLOSES = re.compile(r"""]|\"{3}|'{3}""")
"""What the last line has of a value over several lines."""


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line on which each key of a valid TOML text is set, tables included.

    The text is read statement by statement: a statement ends at the first line with which it parses.
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    statement: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        statement.append(line)
        if len(statement) > 1 and not _CLOSES.search(line):
            continue
        try:
            parsed = tomllib.loads("\n".join(statement))
        except tomllib.TOMLDecodeError:
            continue  # an array or a text over several lines
        first = number - len(statement) + 1
        paths = list(_paths(parsed))
        if statement[0].lstrip().startswith("["):
            table = paths[-1]
            paths = [table[:depth] for depth in range(1, len(table) + 1)]
        else:
            paths = [(*table, *path) for path in paths]
        for path in paths:
            lines.setdefault(path, first)
        statement = []
    return lines


def dotted(path: Sequence[str]) -> str:
    """The path as TOML writes it: `models."gpt-4.1".price`."""
    quoted = (json.dumps(part, ensure_ascii=False).replace("\x7f", r"\u007f") for part in path)  # one more than in JSON
    return ".".join(part if _BARE.fullmatch(part) else text for part, text in zip(path, quoted, strict=True))


def parted(key: str) -> KeyPath:
    """The path that TOML reads in a written key, `dotted` the other way round; raises ValueError for what is no key."""
    parts: list[str] = []
    table: Any = {}
    with suppress(tomllib.TOMLDecodeError):
        table = tomllib.loads(f"{key} = 0")
    if "\n" in key or not table or table == tomllib.loads(f"{key} = 1"):  # it sets a value of its own
        raise ValueError(f"{key!r} is no key")
    while isinstance(table, dict):
        ((part, table),) = cast("dict[str, Any]", table).items()
        parts.append(part)
    return tuple(parts)


def nearest_key(path: KeyPath, known: Sequence[KeyPath]) -> KeyPath | None:
    """The known key most like this one: by its whole path, else by its last part alone."""
    whole, last = {".".join(key): key for key in known}, {key[-1]: key for key in known}
    close = whole.get(nearest_word(".".join(path), whole) or "")
    return close or last.get(nearest_word(path[-1], last) or "")


def _paths(table: Mapping[str, Any]) -> Iterator[KeyPath]:
    """Every key of a table and of the tables in it, the outer ones first."""
    for key, value in table.items():
        yield (key,)
        if isinstance(value, dict):
            for path in _paths(cast("dict[str, Any]", value)):
                yield (key, *path)


DEFAULT = "default"
PREFIX = "ECOSHELL_"
_NOT_SETTINGS = frozenset({"ECOSHELL_HOME", "ECOSHELL_STARTED"})
"""Where the files are, and when a measured process was started."""
_LIKE_TOML = re.compile(r"[-+]?\d+|true|false|\[.*\]", re.ASCII | re.DOTALL)
_TOML_PLACE = re.compile(r"\(at (?:line (?P<line>\d+), column \d+|end of document)\)")
_SECRET = re.compile(r"(?:^|_)(?:api_?key|key|token|secret|password)$", re.IGNORECASE)
_LONGEST_SHOWN = 40
_SEE_ALL = "`ecoshell config` shows every key and its value."
HIDDEN = "(not shown)"
"""In the place of what may be a key: a variable or a header of a server."""

Row = tuple[KeyPath, Any, str]
"""A key, its value, and where that comes from."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings that hold, and where those come from that are not defaults."""

    settings: Settings
    origins: Mapping[KeyPath, str]

    def rows(self, above: KeyPath = (), table: Mapping[str, Any] | None = None) -> Iterator[Row]:
        """Every key, or those of a table, in the order of the schema; values that may be keys are not shown."""
        for name, value in (self.settings.model_dump() if table is None else table).items():
            path = (*above, name)
            if isinstance(value, dict):
                yield from self.rows(path, cast("dict[str, Any]", value))
            else:
                hidden = path[:2] == ("mcp", "servers") and path[3] in ("env", "headers", "oauth")
                yield path, HIDDEN if hidden else value, self.origins.get(path, DEFAULT)

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Settings of older versions that are still read and change nothing, each in a sentence."""
        key = ("experience", "similarity")
        if self.settings.experience.similarity != "embeddings":
            return ()
        said = f'{dotted(key)} = "embeddings" has no effect any more: questions are compared by their words.'
        return (f"{self.origins.get(key, DEFAULT)}: {said}",)


def load_settings(file: Path, environ: Mapping[str, str]) -> Loaded:
    """The settings of a file (which need not exist) and an environment; raises SettingsError for what is wrong."""
    loaded, problems = read_settings(file, environ)
    if loaded is None:
        raise summed_up(problems)
    return loaded


def read_settings(file: Path, environ: Mapping[str, str]) -> tuple[Loaded | None, tuple[SettingsError, ...]]:
    """The settings, or None and everything that is wrong, in the order of the file."""
    try:
        source = Source(file, read_bytes(file))
    except SettingsError as error:
        return None, (error,)
    strangers = source.add_environment(environ)
    try:
        settings = Settings.model_validate(source.data)
    except ValidationError as error:
        found = sorted(error.errors(), key=lambda detail: source.line(path_of(detail)) or 0)
        return None, (*(problem(detail, source.place(path_of(detail))) for detail in found), *strangers)
    return (None, strangers) if strangers else (Loaded(settings, source.origins()), ())


def variables() -> dict[str, KeyPath]:
    """The environment variable of every key that has one."""
    short = {f"{PREFIX}LEDGER": ("budget", "ledger")}
    return short | {PREFIX + "_".join(path).upper(): path for path, _, _ in values() if NAMED not in path}


class Source:
    """The settings as they were written, before anybody looks whether they are right."""

    def __init__(self, file: Path, raw: bytes) -> None:
        """What the file holds, if it holds these bytes; raises SettingsError when they are no TOML."""
        self._file = file
        self._from_environment: dict[KeyPath, str] = {}
        try:
            text = raw.decode("utf-8-sig")
            self.data: dict[str, Any] = tomllib.loads(text, parse_float=Decimal)
            self._lines = key_lines(text)
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise SettingsError(f"{file} line {line}: this is not UTF-8.", fix="Save the file as UTF-8.") from error
        except tomllib.TOMLDecodeError as error:
            place = _TOML_PLACE.search(str(error))
            line = place["line"] if place and place["line"] else raw.count(b"\n") + 1
            message = _TOML_PLACE.sub("", str(error)).strip().rstrip(".")
            raise SettingsError(
                f"{file} line {line}: this is not TOML: {message}",
                fix='Texts need quotes, as in model = "embedded".',
            ) from error
        except (ValueError, InvalidOperation, RecursionError) as error:  # a number of too many digits, or too deep
            why = "it is nested too deeply" if isinstance(error, RecursionError) else "a number in it is too long"
            raise SettingsError(f"{file} cannot be read: {why}.", fix="Correct it, or move it away.") from error

    def add_environment(self, environ: Mapping[str, str]) -> tuple[SettingsError, ...]:
        """Lay the variables over the file (an empty one counts as unset); returns what is wrong with their names."""
        names = sorted(name for name in environ.keys() - _NOT_SETTINGS if name.startswith(PREFIX))
        given = {name: environ[name] for name in names if environ[name].strip()}
        known = variables() if given else {}
        texts = {path for path, _, field in values() if kind_of(field)[0] == "text"} if given else set[KeyPath]()
        strangers: list[SettingsError] = []
        for name, text in given.items():
            path = known.get(name.replace("__", "_"))
            if path is None:
                near = nearest_key((name,), [(variable,) for variable in known])
                fix = f"did you mean {near[0]}?" if near else _SEE_ALL
                strangers.append(SettingsError(f"{name}: unknown variable", fix=fix))
                continue
            table = self.data
            for part in path[:-1]:
                below = table.setdefault(part, {})
                if not isinstance(below, dict):  # there is something else where a table should be
                    break
                table = cast("dict[str, Any]", below)
            else:
                table[path[-1]] = text.strip() if path in texts else value_of(text)
                self._from_environment[path] = name
        return tuple(strangers)

    def line(self, path: KeyPath) -> int | None:
        """The line of the key, or of the innermost table around it that the file has."""
        around = (self._lines.get(path[:depth]) for depth in range(len(path), 0, -1))
        return next((line for line in around if line is not None), None)

    def place(self, path: KeyPath) -> str:
        """Where a key (or what is around it) was set: `…/config.toml line 7`, or the name of a variable."""
        if path in self._from_environment:
            return self._from_environment[path]
        line = self.line(path)
        return str(self._file) if line is None else f"{self._file} line {line}"

    def origins(self) -> dict[KeyPath, str]:
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


def read_bytes(file: Path) -> bytes:
    """What the file holds, nothing where there is none; raises SettingsError."""
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


def path_of(detail: ErrorDetails) -> KeyPath:
    """The key that pydantic complains of, without the place inside a list."""
    path: list[str] = []
    for part in detail["loc"]:
        if not isinstance(part, str):
            break
        path.append(part)
    return tuple(path)


def problem(detail: ErrorDetails, place: str) -> SettingsError:
    """The error for what pydantic complains of, which was set at this place."""
    path, kind = path_of(detail), detail["type"]
    key = dotted(path)
    stray = kind == "dict_type" and path[0] == "plugins"  # where tables may have any name
    if kind == "extra_forbidden" or stray:
        return SettingsError(f"{place}: unknown key {key}", fix=_fix_of_unknown(path))
    if kind == "missing":
        return SettingsError(f"{place}: {key} is missing", fix=f"Give {key} too.")
    if kind == "value_error":
        demand = str(detail.get("ctx", {}).get("error", detail["msg"]))
    elif kind in ("model_type", "mapping_type"):
        demand = "must be a table"
    elif kind == "tuple_type":
        demand = 'must be a list, such as ["one", "two"]'
    else:
        demand = detail["msg"].replace("Input should be", "must be", 1)
    shown = str(detail["input"]) if isinstance(detail["input"], (int, Decimal, str)) else ""
    if shown and len(shown) <= _LONGEST_SHOWN and "://" not in shown:  # an address may carry a password
        demand += f", not {shown!r}"
    return SettingsError(f"{place}: {key} {demand}", fix=_SEE_ALL)


def summed_up(problems: Sequence[SettingsError]) -> SettingsError:
    """The first problem, which says how many more there are."""
    first, others = problems[0], len(problems) - 1
    if not others:
        return first
    follow = "problem follows" if others == 1 else "problems follow"
    return SettingsError(
        first.message, kept=f"{others} more {follow}: `ecoshell config check` lists all.", fix=first.fix
    )


def _fix_of_unknown(path: KeyPath) -> str:
    if _SECRET.search(path[-1]):
        return "API keys are never kept here: put them in the environment (OPENAI_API_KEY) or in the system's keyring."
    known = dict.fromkeys(key[:depth] for key, _, _ in values() for depth in range(1, len(key) + 1))
    near = nearest_key(general(path), [*known])
    if near is None:
        return _SEE_ALL
    place = near.index(NAMED) if NAMED in near else len(path)
    name = path[place] if path[:place] == near[:place] and place < len(path) else "NAME"
    return f"did you mean {dotted([name if part == NAMED else part for part in near])}?"
