"""What is wrong with the settings, in words that name the place, the key, and the nearest right key."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from pydantic_core import ErrorDetails

from ecoshell.errors import SettingsError
from ecoshell.settings import keys
from ecoshell.settings.schema import NAMED, general, known_keys

_SECRET = re.compile(r"(?:^|_)(?:api_?key|key|token|secret|password)$", re.IGNORECASE)
_LONGEST_SHOWN = 40
_SEE_ALL = "`ecoshell config` shows every key and its value."


def path_of(detail: ErrorDetails) -> keys.Path:
    """The key that pydantic complains of, without the place inside a list."""
    path: list[str] = []
    for part in detail["loc"]:
        if not isinstance(part, str):
            break
        path.append(part)
    return tuple(path)


def problem(detail: ErrorDetails, place: str) -> SettingsError:
    """The error for what pydantic complains of, which was set at this place."""
    path = path_of(detail)
    key = keys.dotted(path)
    if detail["type"] == "extra_forbidden":
        return SettingsError(f"{place}: unknown key {key}", fix=_fix_of_unknown(path))
    if detail["type"] == "missing":
        return SettingsError(f"{place}: {key} is missing", fix=f"Give {key} too.")
    return SettingsError(f"{place}: {key} {_demand(detail)}", fix=_SEE_ALL)


def unknown_variable(name: str, known: Mapping[str, keys.Path]) -> SettingsError:
    """The error for a variable that begins like ours and is none of them."""
    near = keys.nearest((name,), [(variable,) for variable in known])
    return SettingsError(f"{name}: unknown variable", fix=f"did you mean {near[0]}?" if near else _SEE_ALL)


def summed_up(problems: Sequence[SettingsError]) -> SettingsError:
    """The first problem, which says how many more there are."""
    first, others = problems[0], len(problems) - 1
    if not others:
        return first
    follow = "problem follows" if others == 1 else "problems follow"
    return SettingsError(
        first.message, kept=f"{others} more {follow}: `ecoshell config check` lists all.", fix=first.fix
    )


def _demand(detail: ErrorDetails) -> str:
    """What the value must be, and what it is; an address is not repeated, since it may carry a password."""
    if detail["type"] == "value_error":
        demand = str(detail.get("ctx", {}).get("error", detail["msg"]))
    elif detail["type"] in ("model_type", "mapping_type"):
        demand = "must be a table"
    else:
        demand = detail["msg"].replace("Input should be", "must be", 1)
    shown = str(detail["input"]) if isinstance(detail["input"], (int, Decimal, str)) else ""
    if not shown or len(shown) > _LONGEST_SHOWN or "://" in shown:
        return demand
    return f"{demand}, not {shown!r}"


def _fix_of_unknown(path: keys.Path) -> str:
    if _SECRET.search(path[-1]):
        return "API keys are never kept here: put them in the environment (OPENAI_API_KEY) or in the system's keyring."
    near = keys.nearest(general(path), known_keys())
    if near is None:
        return _SEE_ALL
    place = near.index(NAMED) if NAMED in near else len(path)
    name = path[place] if path[:place] == near[:place] and place < len(path) else "NAME"
    return f"did you mean {keys.dotted([name if part == NAMED else part for part in near])}?"
