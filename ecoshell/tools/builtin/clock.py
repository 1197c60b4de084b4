"""The tool current_time: time zones by city, country, IANA name or offset."""

import functools
import re
import unicodedata
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import timezone as fixed_zone
from importlib import resources
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from ecoshell.errors import ToolError, closest_words

_OFFSET = re.compile(r"(?:utc|gmt)?\s*([+-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE)


def current_time(
    timezone: Annotated[str, "City, country, IANA name or offset; local time if left out."] = "",
) -> str:
    """Tell the current time, date and day of the week (now, today), here or in a city, country or time zone."""
    name = timezone.strip()
    if name:
        label, zone = _zone(name)
        now = datetime.now(zone)
    else:
        label, now = "local time", datetime.now(UTC).astimezone()
    offset = now.strftime("%z")
    return f"{now:%A %Y-%m-%d %H:%M:%S}, {label} (UTC{offset[:3]}:{offset[3:5]})"


def _zone(name: str) -> tuple[str, tzinfo]:
    """Return the canonical name and the zone; raises ToolError with similar names or a country's zones."""
    if offset := _OFFSET.fullmatch(name):
        sign, hours, minutes = offset[1], int(offset[2]), int(offset[3] or 0)
        if hours > 14:
            raise ToolError(f"{name} is not a UTC offset: offsets range from -12:00 to +14:00.")
        return name, fixed_zone(
            timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1)
        )
    key = _key(name)
    if zone := _names().get(key):
        return zone, ZoneInfo(zone)
    if zones := _countries().get(key):
        if len({datetime.now(ZoneInfo(zone)).utcoffset() for zone in zones}) > 1:
            raise ToolError(f"{name} has several times; ask for one of: {', '.join(zones)}.")
        return zones[0], ZoneInfo(zones[0])
    near = [_names().get(match, match) for match in closest_words(key, [*_names(), *_countries()])]
    hint = f"Nearest: {', '.join(near)}." if near else "Use an IANA name such as Europe/Berlin."
    raise ToolError(f"No time zone is called {name}. {hint}")


def _key(name: str) -> str:
    """Normalize case and accents of a name for lookup."""
    plain = "".join(
        sign for sign in unicodedata.normalize("NFKD", name) if not unicodedata.combining(sign)
    )
    return plain.casefold().replace("_", " ")


@functools.cache
def _names() -> dict[str, str]:
    """Return zones by their full name and by their city."""
    zones = sorted(available_timezones())
    cities = {_key(zone.rpartition("/")[2]): zone for zone in zones if not zone.startswith("Etc/")}
    return cities | {_key(zone): zone for zone in zones}


@functools.cache
def _countries() -> dict[str, tuple[str, ...]]:
    """Return the zones of each country by its names and two-letter code."""
    zones: dict[str, list[str]] = {}
    for code, _, zone, *_ in _table("zone.tab"):
        zones.setdefault(code, []).append(zone)
    countries = [(code, name) for code, name in _table("iso3166.tab") if code in zones]
    by_name = {_key(key): tuple(zones[code]) for code, name in countries for key in (code, name)}
    for code, name in countries:  # UK means Britain (UK) and not the later Virgin Islands (UK).
        for part in re.split(r" \(|\)", name):
            by_name.setdefault(_key(part), tuple(zones[code]))
    return by_name


def _table(name: str) -> list[list[str]]:
    text = (resources.files("tzdata") / "zoneinfo" / name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
