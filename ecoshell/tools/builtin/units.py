"""convert_units: a quantity in another unit."""

import difflib
import functools
import re
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Annotated, Any

from ecoshell.errors import ToolError
from ecoshell.tools.builtin.expression import evaluate

_DIGITS = 12
_LONGEST = 60
_UNIT = re.compile(r"""[\w\s°²³/*^.·%"'()-]+""")
_POWER = re.compile(r"([a-z]+)([23])")
_ALIASES = {
    "fl oz": "fluid_ounce",
    "fl. oz": "fluid_ounce",
    "sqft": "foot**2",
    "sq ft": "foot**2",
    "sqm": "meter**2",
    "kmh": "km/h",
    "kmph": "km/h",
    '"': "inch",
    "'": "foot",
    "kb": "kilobyte",
    "gb": "gigabyte",
    "tb": "terabyte",
}
_TEMPERATURES = {
    **dict.fromkeys(("c", "degc", "celsius", "centigrade"), "degC"),
    **dict.fromkeys(("f", "degf", "fahrenheit"), "degF"),
    **dict.fromkeys(("k", "kelvin", "kelvins"), "kelvin"),
}
_DEGREES = re.compile(r"^(°|degrees? )\s*")


def convert_units(
    value: Annotated[str, "The number."],
    from_unit: Annotated[str, "Its unit, such as miles, kg, degF or km/h."],
    to_unit: Annotated[str, "The unit wanted."],
) -> str:
    """Convert a quantity between units: miles to km, kg to pounds, Fahrenheit to Celsius, hours to minutes."""
    registry = _registry()
    number = Decimal(evaluate(value).text)
    source, target = _units(registry, from_unit, to_unit)
    from pint.errors import PintError

    try:
        found: Decimal = registry.Quantity(number, source).to(target).magnitude
    except PintError as error:
        raise ToolError(f"{from_unit} cannot be converted to {to_unit}: {error}.") from error
    except ArithmeticError as error:
        raise ToolError(f"{value} {from_unit} is too large or too small to convert.") from error
    shown = Context(prec=_DIGITS).create_decimal(found)
    exact = abs(shown - found) <= abs(found) * Decimal("1e-20")
    return f"{value.strip()} {from_unit.strip()} {'=' if exact else '≈'} {_plain(shown)} {to_unit.strip()}"


@functools.cache
def _registry() -> Any:
    """Pint's units, counted in decimals so that what is exact by definition comes out exact."""
    from pint import UnitRegistry  # builds its table of units, about 0.3 s

    registry: Any = UnitRegistry  # its types know no decimals
    return registry(non_int_type=Decimal)


def _units(registry: Any, *names: str) -> list[Any]:
    """The units of these names; a lone C, F or K is a temperature where all of them can be."""
    keys = [_DEGREES.sub("", name.strip().casefold()) for name in names]
    if all(key in _TEMPERATURES for key in keys):
        return [registry.Unit(_TEMPERATURES[key]) for key in keys]
    return [_unit(registry, name) for name in names]


def _unit(registry: Any, name: str) -> Any:
    if len(name) > _LONGEST or not _UNIT.fullmatch(name):
        raise ToolError(f"{name[:_LONGEST]!r} is not a unit.")
    for spelling in _spellings(name.strip()):
        try:
            return registry.Unit(spelling)
        except Exception:  # noqa: BLE001 - a fence: pint's parser raises whatever its tokenizer does
            continue
    known: list[str] = list(registry)
    near = difflib.get_close_matches(name.strip().lower().replace(" ", "_"), known, n=3)
    raise ToolError(f"No unit is called {name.strip()}." + (f" Nearest: {', '.join(near)}." if near else ""))


def _spellings(name: str) -> Iterator[str]:
    """How pint may know the unit; it is strict about case, and joins words with underscores."""
    lower = name.lower()
    if lower in _ALIASES:
        yield _ALIASES[lower]
    if found := _POWER.fullmatch(lower):
        yield f"{found[1]}**{found[2]}"
    if " " in name:
        yield lower.replace(" ", "_")
    yield name
    yield lower


def _plain(number: Decimal) -> str:
    number = number.normalize()
    return f"{number:f}" if -7 < number.adjusted() < 21 else f"{number:e}"
