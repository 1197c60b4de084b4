"""current_time: the date and time, here or elsewhere."""

import difflib
import functools
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from importlib import resources
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from ecoshell.errors import ToolError

_OFFSET = re.compile(r"(?:utc|gmt)?\s*([+-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE)


def current_time(
    timezone: Annotated[str, "City, country, IANA name or offset; local time if left out."] = "",
) -> str:
    """Tell the current time, date and day of the week (now, today), here or in a city, country or time zone."""
    wanted = timezone.strip()
    if wanted:
        label, zone = _zone(wanted)
        now = datetime.now(zone)
    else:
        label, now = "local time", datetime.now(UTC).astimezone()
    offset = now.strftime("%z")
    return f"{now:%A %Y-%m-%d %H:%M:%S}, {label} (UTC{offset[:3]}:{offset[3:5]})"


def _zone(wanted: str) -> tuple[str, tzinfo]:
    """The zone a person means, and its name; raises ToolError with the nearest names, or a country's several zones."""
    if found := _OFFSET.fullmatch(wanted):
        sign, hours, minutes = found[1], int(found[2]), int(found[3] or 0)
        if hours > 14:
            raise ToolError(f"{wanted} is not a UTC offset: they go from -12:00 to +14:00.")
        return wanted, timezone(timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1))
    key = _key(wanted)
    if name := _names().get(key):
        return name, ZoneInfo(name)
    if zones := _countries().get(key):
        if len({datetime.now(ZoneInfo(zone)).utcoffset() for zone in zones}) > 1:
            raise ToolError(f"{wanted} has several times; ask for one of: {', '.join(zones)}.")
        return zones[0], ZoneInfo(zones[0])
    near = difflib.get_close_matches(key, [*_names(), *_countries()], n=3)
    hint = ", ".join(_names().get(match, match) for match in near) or "IANA names such as Europe/Berlin are known"
    raise ToolError(f"No time zone is called {wanted}. Nearest: {hint}.")


def _key(name: str) -> str:
    return name.casefold().replace("_", " ")


@functools.cache
def _names() -> dict[str, str]:
    """Zone names by what they are called: whole, or the city alone."""
    zones = sorted(available_timezones())
    cities = {_key(zone.rpartition("/")[2]): zone for zone in zones if not zone.startswith("Etc/")}
    return cities | {_key(zone): zone for zone in zones}


@functools.cache
def _countries() -> dict[str, tuple[str, ...]]:
    """The zones of each country, by its names and its two-letter code."""
    zones: dict[str, list[str]] = {}
    for code, _, zone, *_ in _table("zone.tab"):
        zones.setdefault(code, []).append(zone)
    countries = [(code, name) for code, name in _table("iso3166.tab") if code in zones]
    found = {_key(called): tuple(zones[code]) for code, name in countries for called in (code, name)}
    for code, name in countries:  # Britain (UK), but also Virgin Islands (UK): the first is meant
        for part in re.split(r" \(|\)", name):
            found.setdefault(_key(part), tuple(zones[code]))
    return found


def _table(name: str) -> list[list[str]]:
    text = (resources.files("tzdata") / "zoneinfo" / name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
