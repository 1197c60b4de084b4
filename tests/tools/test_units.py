import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshell.errors import ToolError
from ecoshell.tools.builtin.calculate import convert_units


@pytest.mark.parametrize(
    ("value", "source", "target", "result"),
    [
        ("5", "miles", "km", "5 miles = 8.04672 km"),
        ("1,000", "m", "Kilometers", "1,000 m = 1 Kilometers"),
        ("1/2", "hour", "minutes", "1/2 hour = 30 minutes"),
        ("100", "F", "C", "100 F ≈ 37.7777777778 C"),
        ("-40", "°C", "°F", "-40 °C = -40 °F"),
        ("0", "K", "celsius", "0 K = -273.15 celsius"),
        ("10", "lbs", "kg", "10 lbs = 4.5359237 kg"),
        ("60", "mph", "km/h", "60 mph = 96.56064 km/h"),
        ("36", "kmh", "m/s", "36 kmh = 10 m/s"),
        ("1", "sq ft", "m2", "1 sq ft = 0.09290304 m2"),
        ("2", "m²", "cm²", "2 m² = 20000 cm²"),
        ("8", "fl oz", "ml", "8 fl oz = 236.5882365 ml"),
        ("1", "nautical mile", "km", "1 nautical mile = 1.852 km"),
        ("5", "gb", "MB", "5 gb = 5000 MB"),
        ("5", "Gigabytes", "megabytes", "5 Gigabytes = 5000 megabytes"),
        ("1", "kWh", "J", "1 kWh = 3600000 J"),
        ("1", "C", "mAh", "1 C ≈ 0.277777777778 mAh"),
        ("6", '"', "cm", '6 " = 15.24 cm'),
    ],
)
def test_quantities_are_converted_as_people_write_them(value: str, source: str, target: str, result: str):
    assert convert_units(value, source, target) == result


@pytest.mark.parametrize(
    ("value", "source", "target", "words"),
    [
        ("5", "miles", "kg", "cannot be converted"),
        ("5", "kilometre_", "m", "No unit is called kilometre_. Nearest: kilometre|No unit"),
        ("5", "florins", "km", "No unit is called florins"),
        ("five", "miles", "km", "not known"),
        ("1e999999", "km", "m", "too large"),
        ("1", "__import__('os')", "m", "not a unit|No unit"),
        ("1", "m" * 100, "m", "not a unit"),
        ("1", "", "m", "not a unit"),
        ("1", "3 m", "m", "No unit"),
        ("1", "meter**9**9**9", "m", "No unit|cannot"),
        ("1", "m\0", "m", "not a unit"),
    ],
)
def test_what_cannot_be_converted_is_told_at_once(value: str, source: str, target: str, words: str):
    started = time.process_time()
    with pytest.raises(ToolError, match=words):
        convert_units(value, source, target)
    assert time.process_time() - started < 2


@settings(max_examples=60, deadline=None)
@given(unit=st.text(alphabet="kmgs*/^²()'\"0123456789.% -°C\u00b5", max_size=15))
def test_any_unit_is_taken_or_refused_in_words(unit: str):
    with contextlib.suppress(ToolError):  # anything else would fail the test
        assert convert_units("1", unit, unit).startswith("1 ")


@pytest.mark.parametrize("unit", ["Fahrenheit", "degrees Fahrenheit", "degf", "°F", "F"])
def test_a_temperature_may_be_named_as_people_name_it(unit):
    assert convert_units("100", unit, "Celsius").startswith(f"100 {unit} ≈ 37.77")
