from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from ecoshell.errors import ToolError
from ecoshell.tools.builtin.clock import current_time


def moment(text: str) -> datetime:
    """Parse a result, and check its weekday."""
    stamp, _, zone = text.partition(", ")
    weekday, _, clock = stamp.partition(" ")
    offset = zone.rpartition("UTC")[2].rstrip(")")
    time = datetime.fromisoformat(clock + offset)
    assert time.strftime("%A") == weekday
    return time


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("Asia/Tokyo", "Asia/Tokyo"),
        ("tokyo", "Asia/Tokyo"),
        ("New York", "America/New_York"),
        ("new_york", "America/New_York"),
        ("India", "Asia/Kolkata"),
        ("UK", "Europe/London"),
        ("Germany", "Europe/Berlin"),
        ("São Paulo", "America/Sao_Paulo"),
        ("Bogota\u0301", "America/Bogota"),
        ("utc", "UTC"),
        ("", "local time"),
    ],
)
def test_places_are_found_by_their_common_names(name: str, zone: str):
    start = datetime.now(UTC) - timedelta(seconds=1)
    text = current_time(name)
    assert start <= moment(text) <= datetime.now(UTC)
    assert f", {zone} (UTC" in text
    if "/" in zone:
        assert moment(text).utcoffset() == datetime.now(ZoneInfo(zone)).utcoffset()


@pytest.mark.parametrize(
    ("name", "offset"),
    [("+02:00", "+02:00"), ("UTC-3", "-03:00"), ("gmt+5:30", "+05:30"), ("-0930", "-09:30")],
)
def test_an_offset_is_accepted_as_a_zone(name: str, offset: str):
    assert current_time(name).endswith(f"(UTC{offset})")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Tokio", "Asia/Tokyo"),
        ("Australia", "several times.*Australia/Sydney"),
        ("+25:00", "not a UTC offset"),
        ("../../etc/passwd", "No time zone"),
        ("/etc/localtime", "No time zone"),
        ("x\0y", r"No time zone is called x\0y\. Use an IANA name"),
        ("x" * 10_000, "No time zone"),
    ],
)
def test_an_unknown_zone_is_an_error_with_suggestions(name: str, words: str):
    with pytest.raises(ToolError, match=words):
        current_time(name)
