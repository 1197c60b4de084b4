"""Converts invalid values to SettingsErrors that name the place, the key and a fix."""

import re
from collections.abc import Sequence
from decimal import Decimal

from ecoshell.errors import SettingsError
from ecoshell.settings.convert import NOT_A_TABLE, InvalidValue
from ecoshell.settings.descriptions import NAMED, generic_path, setting_fields
from ecoshell.settings.keys import KeyPath, closest_key, dotted

SHOW_ALL = "`ecoshell config` shows every key and its value."

_SECRET_NAME = re.compile(r"(?:^|_)(?:api_?key|key|token|secret|password)$", re.IGNORECASE)
_SHOWN_LENGTH = 40


def problem(invalid: InvalidValue, place: str) -> SettingsError:
    """Convert an invalid value of a key that was set at this place."""
    path, requirement, key = invalid.path, invalid.requirement, dotted(invalid.path)
    # any table may be there
    is_plugin_setting = path[0] == "plugins" and requirement == NOT_A_TABLE
    if invalid.kind == "unknown" or is_plugin_setting:
        return SettingsError(f"{place}: unknown key {key}", fix=_fix_of_unknown(path))
    if invalid.kind == "missing":
        return SettingsError(f"{place}: {key} is missing", fix=f"Set {key} too.")
    value = str(invalid.value) if isinstance(invalid.value, (int, Decimal, str)) else ""
    may_hold_password = "://" in value
    if value and len(value) <= _SHOWN_LENGTH and not may_hold_password:
        requirement += f", not {value!r}"
    return SettingsError(f"{place}: {key} {requirement}", fix=SHOW_ALL)


def summarize(problems: Sequence[SettingsError]) -> SettingsError:
    """Return the first problem, with the number of the others."""
    first, remaining = problems[0], len(problems) - 1
    if not remaining:
        return first
    follow = "problem follows" if remaining == 1 else "problems follow"
    kept = f"{remaining} more {follow}: `ecoshell config check` lists all."
    return SettingsError(first.message, kept=kept, fix=first.fix)


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
