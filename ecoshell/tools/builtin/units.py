"""The tool convert_units."""

import functools
import re
from decimal import Context, Decimal
from typing import Annotated, Any

from ecoshell.errors import ToolError, closest_words
from ecoshell.tools.builtin.calculate import evaluate, plain

_DIGITS = 12
_MAX_UNIT_CHARS = 60
_UNIT = re.compile(r"""[\w\s°²³/*^.·%"'()-]+""")
_UNIT_POWER = re.compile(r"([a-z]+)([23])")
_DATA = {"k": "kilo", "m": "mega", "g": "giga", "t": "tera"}
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
    **{f"{lower}b": f"{prefix}byte" for lower, prefix in _DATA.items()},
    **{f"{lower.upper()}b": f"{prefix}bit" for lower, prefix in _DATA.items()},
    **{f"{lower}bps": f"{prefix}bit/s" for lower, prefix in _DATA.items()},
    **{f"{lower.upper()}Bps": f"{prefix}byte/s" for lower, prefix in _DATA.items()},
}
_TEMPERATURES = {
    **dict.fromkeys(("c", "degc", "celsius", "centigrade"), "degC"),
    **dict.fromkeys(("f", "degf", "fahrenheit"), "degF"),
    **dict.fromkeys(("k", "kelvin", "kelvins"), "kelvin"),
}
_QUANTITY = re.compile(r"""\s*(\d[\d.,]*)\s*([^\W\d_]+|['"])(?:\s*,|\s*and\b)?\s*""")
_DEGREES = re.compile(r"^(°|degrees? )\s*")


def convert_units(
    value: Annotated[str, "The number."],
    from_unit: Annotated[str, "Its unit, such as miles, kg, degF or km/h."],
    to_unit: Annotated[str, "The unit wanted."],
) -> str:
    """Convert a quantity between units: miles to km, kg to pounds, Fahrenheit to Celsius, hours to minutes."""
    registry = _registry()
    parts, source_text = [(value, from_unit)], f"{value.strip()} {from_unit.strip()}"
    try:
        evaluate(value)
    except ToolError:  # The value may contain its units, such as 2 feet 7 inches.
        parts, source_text = _QUANTITY.findall(value), value.strip()
        if not parts or len(value) > _MAX_UNIT_CHARS or _QUANTITY.sub("", value):
            raise
    from pint.errors import PintError

    total = Decimal(0)
    for text, name in parts:
        number = Decimal(evaluate(text).text)
        units = [_DEGREES.sub("", unit.strip().casefold()) for unit in (name, to_unit)]
        # With other units, C, F and K have other meanings.
        if all(unit in _TEMPERATURES for unit in units):
            source, target = (registry.Unit(_TEMPERATURES[unit]) for unit in units)
        else:
            source, target = _unit(registry, name), _unit(registry, to_unit)
        try:
            total += registry.Quantity(number, source).to(target).magnitude
        except PintError as error:
            raise ToolError(f"{name} cannot be converted to {to_unit}: {error}.") from error
        except ArithmeticError as error:
            raise ToolError(f"{source_text} is too large or too small to convert.") from error
    rounded = Context(prec=_DIGITS).create_decimal(total)
    is_exact = abs(rounded - total) <= abs(total) * Decimal("1e-20")
    sign = "=" if is_exact else "≈"
    return f"{source_text} {sign} {plain(rounded.normalize())} {to_unit.strip()}"


@functools.cache
def _registry() -> Any:
    """Return pint's units with decimal factors, so that exact definitions give exact results."""
    from pint import UnitRegistry  # takes about 0.3 s

    registry: Any = UnitRegistry  # Its types do not include decimals.
    return registry(non_int_type=Decimal)


def _unit(registry: Any, name: str) -> Any:
    if len(name) > _MAX_UNIT_CHARS or not _UNIT.fullmatch(name):
        raise ToolError(f"{name[:_MAX_UNIT_CHARS]!r} is not a unit.")
    name = name.strip()
    lower = name.lower()
    spellings = [name, lower]  # Pint distinguishes case and joins words with underscores.
    if " " in name:
        spellings.insert(0, lower.replace(" ", "_"))
    if power := _UNIT_POWER.fullmatch(lower):
        spellings.insert(0, f"{power[1]}**{power[2]}")
    for spelling in [*filter(None, [_ALIASES.get(name) or _ALIASES.get(lower)]), *spellings]:
        try:
            return registry.Unit(spelling)
        except Exception:  # noqa: BLE001 - pint's parser raises any error of its tokenizer
            continue
    near = closest_words(lower.replace(" ", "_"), registry)
    hint = f" Nearest: {', '.join(near)}." if near else ""
    raise ToolError(f"No unit is called {name}.{hint}")
