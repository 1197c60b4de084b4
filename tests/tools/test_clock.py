from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from ecoshell.errors import ToolError
from ecoshell.tools.builtin.clock import current_time


def moment(text: str) -> datetime:
    """The moment a result stands for, checked against its own weekday."""
    stamp, _, rest = text.partition(", ")
    weekday, _, clock = stamp.partition(" ")
    offset = rest.rpartition("UTC")[2].rstrip(")")
    found = datetime.fromisoformat(clock + offset)
    assert found.strftime("%A") == weekday
    return found


@pytest.mark.parametrize(
    ("wanted", "zone"),
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
def test_the_time_is_told_where_people_mean(wanted: str, zone: str):
    before = datetime.now(UTC) - timedelta(seconds=1)
    text = current_time(wanted)
    assert before <= moment(text) <= datetime.now(UTC)
    assert f", {zone} (UTC" in text
    if "/" in zone:
        assert moment(text).utcoffset() == datetime.now(ZoneInfo(zone)).utcoffset()


@pytest.mark.parametrize(
    ("wanted", "offset"), [("+02:00", "+02:00"), ("UTC-3", "-03:00"), ("gmt+5:30", "+05:30"), ("-0930", "-09:30")]
)
def test_an_offset_is_a_zone(wanted: str, offset: str):
    assert current_time(wanted).endswith(f"(UTC{offset})")


@pytest.mark.parametrize(
    ("wanted", "words"),
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
def test_a_zone_nobody_knows_is_told_with_the_nearest(wanted: str, words: str):
    with pytest.raises(ToolError, match=words):
        current_time(wanted)
