"""Converts validation errors of the schema to SettingsErrors that name the place, the key and a fix."""

import re
from collections.abc import Sequence
from decimal import Decimal

from pydantic_core import ErrorDetails

from ecoshell.errors import SettingsError
from ecoshell.settings.descriptions import NAMED, generic_path, setting_fields
from ecoshell.settings.keys import KeyPath, closest_key, dotted

SHOW_ALL = "`ecoshell config` shows every key and its value."

_SECRET_NAME = re.compile(r"(?:^|_)(?:api_?key|key|token|secret|password)$", re.IGNORECASE)
_SHOWN_LENGTH = 40


def path_of(detail: ErrorDetails) -> KeyPath:
    """Return the key an error is about, without the index of a list item."""
    path: list[str] = []
    for part in detail["loc"]:
        if not isinstance(part, str):
            break
        path.append(part)
    return tuple(path)


def problem(detail: ErrorDetails, place: str) -> SettingsError:
    """Convert an error of a key that was set at this place."""
    path, kind = path_of(detail), detail["type"]
    key = dotted(path)
    not_plugin_table = (
        kind == "dict_type" and path[0] == "plugins"
    )  # there, a table may have any name
    if kind == "extra_forbidden" or not_plugin_table:
        return SettingsError(f"{place}: unknown key {key}", fix=_fix_of_unknown(path))
    if kind == "missing":
        return SettingsError(f"{place}: {key} is missing", fix=f"Set {key} too.")
    if kind == "value_error":
        requirement = str(detail.get("ctx", {}).get("error", detail["msg"]))
    elif kind in ("model_type", "mapping_type"):
        requirement = "must be a table"
    elif kind == "tuple_type":
        requirement = 'must be a list, such as ["one", "two"]'
    else:
        requirement = detail["msg"].replace("Input should be", "must be", 1)
    value = str(detail["input"]) if isinstance(detail["input"], (int, Decimal, str)) else ""
    if (
        value and len(value) <= _SHOWN_LENGTH and "://" not in value
    ):  # an address may contain a password
        requirement += f", not {value!r}"
    return SettingsError(f"{place}: {key} {requirement}", fix=SHOW_ALL)


def summarize(problems: Sequence[SettingsError]) -> SettingsError:
    """Return the first problem, with the number of the others."""
    first, remaining = problems[0], len(problems) - 1
    if not remaining:
        return first
    follow = "problem follows" if remaining == 1 else "problems follow"
    return SettingsError(
        first.message,
        kept=f"{remaining} more {follow}: `ecoshell config check` lists all.",
        fix=first.fix,
    )


def _fix_of_unknown(path: KeyPath) -> str:
    if _SECRET_NAME.search(path[-1]):
        return (
            "The settings file does not accept API keys: "
            "use the environment (OPENAI_API_KEY) or the system's keyring."
        )
    known_paths = dict.fromkeys(
        key[:depth] for key, _, _ in setting_fields() for depth in range(1, len(key) + 1)
    )
    closest = closest_key(generic_path(path), [*known_paths])
    if closest is None:
        return SHOW_ALL
    depth = closest.index(NAMED) if NAMED in closest else len(path)
    name = path[depth] if path[:depth] == closest[:depth] and depth < len(path) else "NAME"
    return f"did you mean {dotted([name if part == NAMED else part for part in closest])}?"
