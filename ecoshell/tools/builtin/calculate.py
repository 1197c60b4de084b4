"""calculate, convert_units and current_time: arithmetic as people write it, exact where it can be and bounded always.

    sum      product (("+" | "-") product)*          a percentage on the right is of the left: 200 + 15% is 230
    product  operand (("*" | "/" | "//" | "%") operand)*  also x × · ÷ "times" "divided by" "mod" "of"; a product's sign
                                                     may be left out before a name or a bracket: 2(3 + 4), 2 pi
    power    operand ("^" | "**") operand            from the right: 2^3^2 is 2^9; binds before a sign: -2^2 is -4
    operand  ("+" | "-") operand | value ("!" | "²" | "³" | "°" | "%")*
                                                     "%" is a percentage where nothing follows that it could divide
    value    number | constant | "(" sum ")" | function "(" sum ("," sum)* ")" | function operand

Numbers may have an exponent, a 0x in front, or underscores; commas between groups of three digits are taken as
separators where the expression calls no function. Whole numbers stay exact up to about 3,900 digits and decimals up to
50; what is larger or irrational is rounded to 50 digits, which `Inexact` in the decimal context records.

Python's `ast` is no help: percentages, signs behind a number, products without a sign and decimals that stay exact
would first have to be parsed, and written anew for it.
"""

import difflib
import functools
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import (
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    getcontext,
    localcontext,
)
from importlib import resources
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from ecoshell.errors import ToolError

Number = int | Decimal

_DIGITS, _SHOWN_DIGITS, _GUARD = 50, 15, 3
_LARGEST_BITS = 13_000
_LARGEST_FACTORIAL = 1_400
_PLAIN_EXPONENTS = range(-7, 21)
"""Of ten: the decimals that are shown without an exponent."""
_LONGEST = 2_000
_DEEPEST = 100
"""Brackets, signs in front and functions inside one another."""


def calculate(
    expression: Annotated[
        str, "Arithmetic with + - * / ^ % and functions. log is base 10, ln natural; angles are radians, or in °."
    ],
) -> str:
    """Calculate arithmetic: add, subtract, multiply, divide, powers, percent, roots, logarithms."""
    result = evaluate(expression)
    asked = " ".join(expression.strip(" =?\n\t").split())
    return f"{asked} {'=' if result.exact else '≈'} {result.text}"


@dataclass(frozen=True, slots=True)
class Result:
    """What an expression comes to, and whether the text holds every digit of it."""

    text: str
    exact: bool


def evaluate(text: str) -> Result:
    """Work out an expression; raises ToolError that says what cannot be read or computed."""
    if len(text) > _LONGEST:
        raise ToolError(f"The expression is too long: {len(text)} characters, and at most {_LONGEST} are read.")
    traps = [DivisionByZero, InvalidOperation, Overflow]
    with localcontext(Context(prec=_DIGITS, Emax=999_999_999, Emin=-999_999_999, traps=traps)) as context:
        try:
            value = _Reader(text).result()
            if isinstance(value, int) and value.bit_length() > _LARGEST_BITS:
                value = _rounded(+Decimal(value))
            exact = not context.flags[Inexact]
            if isinstance(value, Decimal):  # all digits of an exact number, 15 of a rounded one
                with localcontext(prec=_DIGITS if exact else _SHOWN_DIGITS):
                    value = _whole(value.normalize())
            return Result(str(value) if isinstance(value, int) else _plain(value), exact)
        except ZeroDivisionError as error:
            raise ToolError("Division by zero.") from error
        except (OverflowError, DecimalException) as error:
            raise ToolError("The result is too large, or not a real number.") from error
        except ValueError as error:
            raise ToolError(f"It cannot be computed: {error}.") from error


# -- arithmetic


def _multiply(left: Number, right: Number) -> Number:
    """The product; of two whole numbers too large to keep, a rounded one."""
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > _LARGEST_BITS:
        return Decimal(left) * Decimal(right)
    return left * right


def _divide(left: Number, right: Number) -> Number:
    """The quotient, whole where it comes out even."""
    if right == 0:
        raise ZeroDivisionError
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return Decimal(left) / right


def _floor_divide(left: Number, right: Number) -> Number:
    return left // right if isinstance(left, int) and isinstance(right, int) else _floor(_divide(left, right))


def _modulo(left: Number, right: Number) -> Number:
    """What is left after `_floor_divide`; it has the sign of `right`."""
    if right == 0:
        raise ZeroDivisionError
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    rest = Decimal(left) % right
    return rest + right if rest and (rest < 0) != (right < 0) else rest


def _power(base: Number, exponent: Number) -> Number:
    """The power; exact for whole numbers as long as the result can be kept."""
    if isinstance(base, int) and isinstance(exponent, int) and 0 <= exponent * base.bit_length() <= _LARGEST_BITS:
        return _whole(base**exponent)
    return _whole(Decimal(base) ** Decimal(exponent))


def _whole(value: Number) -> Number:
    """The value as an int if it is one and small enough to be exact."""
    if isinstance(value, Decimal) and value.adjusted() < _DIGITS and value == value.to_integral_value():
        return int(value)
    return value


def _floor(value: Number) -> Number:
    """The whole number below; of what was rounded, its last digits being none of its own."""
    if isinstance(value, int):
        return value
    with localcontext(prec=_DIGITS - _GUARD if getcontext().flags[Inexact] else _DIGITS):
        return _whole((+value).to_integral_value("ROUND_FLOOR"))


def _rounded(value: Number) -> Number:
    """The value, marked as not exact."""
    getcontext().flags[Inexact] = True
    return value


def _plain(number: Decimal) -> str:
    return f"{number:f}" if number.adjusted() in _PLAIN_EXPONENTS else f"{number:e}"


# -- functions; angles are radians

_PI = Decimal("3.1415926535897932384626433832795028841971693993751")
_E = Decimal("2.7182818284590452353602874713526624977572470936999")
_CONSTANTS: dict[str, Number] = {"pi": _PI, "π": _PI, "e": _E, "tau": 2 * _PI}


def _counts(*values: Number) -> tuple[int, ...]:
    """The values as whole numbers that are not negative; raises ValueError for any other."""
    counts = tuple(value for value in values if isinstance(value, int) and value >= 0)
    if len(counts) < len(values):
        raise ValueError("whole numbers are needed that are not negative")
    return counts


def _factorial(number: Number) -> Number:
    (count,) = _counts(number)
    if count > _LARGEST_FACTORIAL:
        raise OverflowError
    return math.factorial(count)


def _comb(*values: Number) -> Number:
    total, chosen = _counts(*values)
    if total > _LARGEST_BITS:  # a bound on the bits of the result
        raise OverflowError
    return math.comb(total, chosen)


def _log(value: Number, base: Number = 10) -> Number:
    return Decimal(value).log10() if base == 10 else Decimal(value).ln() / Decimal(base).ln()


def _round(value: Number, places: Number = 0) -> Number:
    if not isinstance(places, int) or not -_DIGITS < places < _DIGITS:
        raise InvalidOperation
    with localcontext():  # what was asked for is not recorded as a loss
        return _whole(Decimal(value).quantize(Decimal(1).scaleb(-places), "ROUND_HALF_UP"))


def _by_float(function: Callable[[float], float], value: Number) -> Number:
    """What a function gives that the decimal module lacks, in double precision."""
    found = function(float(value))
    if not math.isfinite(found):
        raise OverflowError
    tiny = abs(found) < 1e-15 < abs(value)  # sin(pi) is 0, not what pi's own rounding leaves
    return _rounded(Decimal(0) if tiny else Decimal(repr(found)))


_Function = tuple[Callable[..., Number], int, int]
"""With the fewest and the most arguments it takes."""


def _unary(apply: Callable[[Number], Number]) -> _Function:
    return apply, 1, 1


_FLOATS = ("cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
_FUNCTIONS: dict[str, _Function] = {
    "sqrt": _unary(lambda value: _whole(Decimal(value).sqrt())),
    "√": _unary(lambda value: _whole(Decimal(value).sqrt())),
    "exp": _unary(lambda value: Decimal(value).exp()),
    "ln": _unary(lambda value: Decimal(value).ln()),
    "log": (_log, 1, 2),
    "log10": _unary(_log),
    "log2": _unary(lambda value: _log(value, 2)),
    "abs": _unary(lambda value: -value if value < 0 else value),
    "floor": _unary(_floor),
    "ceil": _unary(lambda value: -_floor(-value)),
    "round": (_round, 1, 2),
    "min": (min, 2, 99),
    "max": (max, 2, 99),
    "sum": (lambda *values: sum(values), 1, 99),
    "mean": (lambda *values: _divide(sum(values), len(values)), 1, 99),
    "pow": (_power, 2, 2),
    "mod": (_modulo, 2, 2),
    "gcd": (lambda *values: math.gcd(*_counts(*values)), 2, 99),
    "lcm": (lambda *values: math.lcm(*_counts(*values)), 2, 9),
    "factorial": _unary(_factorial),
    "comb": (_comb, 2, 2),
    "radians": _unary(lambda value: _rounded(value * _PI / 180)),
    "degrees": _unary(lambda value: _rounded(value * 180 / _PI)),
    **{name: _unary(functools.partial(_by_float, getattr(math, name))) for name in _FLOATS},
}
_SUM, _PRODUCT, _SIGN, _POWER = 1, 2, 3, 4
_SIGNS: dict[str, tuple[int, int, Callable[[Number, Number], Number]]] = {
    "+": (_SUM, _PRODUCT, lambda left, right: left + right),
    "-": (_SUM, _PRODUCT, lambda left, right: left - right),
    "*": (_PRODUCT, _SIGN, _multiply),
    "of": (_PRODUCT, _SIGN, _multiply),
    "/": (_PRODUCT, _SIGN, _divide),
    "//": (_PRODUCT, _SIGN, _floor_divide),
    "%": (_PRODUCT, _SIGN, _modulo),
    "mod": (_PRODUCT, _SIGN, _modulo),
    "^": (_POWER, _SIGN, _power),
}
"""How strongly each binds, and how strongly at least what belongs to it on its right."""


# -- reading

_WORDING = (
    (re.compile(r"^\s*(?:what(?:'s| is)|how much is|calculate|compute|evaluate)\b"), ""),
    (re.compile(r"[=?\s]+$"), ""),
    (re.compile(r"\bto the power of\b"), "^"),
    (re.compile(r"\bsquare root of\b"), "√"),
    (re.compile(r"\bmultiplied by\b|\btimes\b"), "*"),
    (re.compile(r"\bdivided by\b|\bover\b"), "/"),
    (re.compile(r"\bplus\b"), "+"),
    (re.compile(r"\bminus\b"), "-"),
    (re.compile(r"\bpercent\b"), "%"),
    (re.compile(r"\bsquared\b"), "²"),
    (re.compile(r"\bcubed\b"), "³"),
    (re.compile(r"\bmodulo\b"), " mod "),
    (re.compile(r"(?<![a-z_])(?<!\b0)x(?![a-z_])|[×·⋅∙]"), "*"),
    (re.compile(r"[÷∕]"), "/"),
    (re.compile(r"[−–]"), "-"),
    (re.compile(r"\*\*"), "^"),
)
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_CALL = re.compile(r"[a-z√]\w*\s*\(")
_NUMBER = r"0x[0-9a-f]+|(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?"
_NAME = r"√|[a-zπ][a-z0-9_]*"
_TOKEN = re.compile(rf"\s*({_NUMBER}|{_NAME}|//|\S)", re.ASCII)
_IS_NUMBER, _IS_NAME = re.compile(_NUMBER, re.ASCII).fullmatch, re.compile(_NAME, re.ASCII).fullmatch


@dataclass(frozen=True, slots=True)
class _Percent:
    """A percentage not yet taken of anything."""

    number: Number


class _Reader:
    """Works the value out while reading, by precedence climbing."""

    def __init__(self, text: str) -> None:
        text = text.lower()
        for wording, sign in _WORDING:
            text = wording.sub(sign, text)
        if not _CALL.search(text):
            text = _GROUPED.sub(lambda group: group[0].replace(",", ""), text)
        if not text.strip():
            raise ToolError("The expression is empty: give something such as 17 * 23.")
        self._tokens: list[str] = [*_TOKEN.findall(text.strip()), "", ""]
        """The texts, and two empty ones that stand for the end."""
        self._at = 0

    def result(self) -> Number:
        value = _number(self._expression(_SUM, 0))
        if self._next:
            raise self._unexpected("a sign")
        return value

    def _expression(self, least: int, depth: int) -> Number | _Percent:
        """An operand, and what the signs behind it make of it that bind at least so strongly."""
        value = self._operand(depth)
        while True:
            omitted = self._next == "(" or (_IS_NAME(self._next) and self._next not in _SIGNS)
            sign = "*" if omitted else self._next
            if sign not in _SIGNS or _SIGNS[sign][0] < least:
                return value
            binds, right_binds, apply = _SIGNS[sign]
            self._at += not omitted
            left, right = _number(value), self._expression(right_binds, depth + (binds == _POWER))
            if isinstance(right, _Percent) and binds == _SUM:
                right = _divide(_multiply(left, right.number), 100)
            value = apply(left, _number(right))

    def _operand(self, depth: int) -> Number | _Percent:
        """A value with the signs that belong to it alone."""
        if depth > _DEEPEST:
            raise ToolError("The expression is nested too deeply.")
        if sign := self._accept("+", "-"):
            value = _number(self._expression(_SIGN, depth + 1))
            return -value if sign == "-" else value
        value = self._value(depth)
        while sign := self._accept("²", "³", "!", "°"):
            if sign == "!":
                value = _factorial(value)
            elif sign == "°":
                value = _rounded(value * _PI / 180)
            else:
                value = _power(value, 2 if sign == "²" else 3)
        after = self._tokens[self._at + 1] if self._next else ""
        divides = after == "(" or _IS_NUMBER(after) or (_IS_NAME(after) and after not in _SIGNS)
        return _Percent(value) if not divides and self._accept("%") else value

    def _value(self, depth: int) -> Number:
        """A number, a constant, a function of its arguments, or what is in brackets."""
        token = self._next
        if _IS_NUMBER(token):
            self._at += 1
            if token.startswith("0x"):
                return int(token, 16)
            digits = token.replace("_", "")
            return int(digits) if digits.isdigit() else getcontext().create_decimal(digits)
        if self._accept(*_CONSTANTS):
            return _rounded(_CONSTANTS[token])
        named = self._accept(*_FUNCTIONS)
        if self._accept("("):
            values = [_number(self._expression(_SUM, depth + 1))]
            while named and self._accept(","):
                values.append(_number(self._expression(_SUM, depth + 1)))
            if not self._accept(")"):
                raise self._unexpected("a closing bracket")
            if not named:
                return values[0]
        elif named and self._next not in ("+", "-"):  # sqrt 16
            values = [_number(self._operand(depth + 1))]
        elif _IS_NAME(token) and not named:
            raise ToolError(
                f"{token} is not known here, and files are not read: write the numbers themselves, or use run_python, "
                f"which can read a file. Known are pi, e and tau, and the functions {', '.join(_FUNCTIONS)}."
            )
        else:
            raise self._unexpected("a number")
        function, least, most = _FUNCTIONS[named]
        if not least <= len(values) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise ToolError(f"{named} takes {wanted} argument(s), not {len(values)}.")
        return function(*values)

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _accept(self, *texts: str) -> str:
        """Take the next token if it is one of these; says which, or nothing."""
        found = self._next
        if found not in texts:
            return ""
        self._at += 1
        return found

    def _unexpected(self, wanted: str) -> ToolError:
        read = " ".join(self._tokens[: self._at][-8:])
        came = f"{self._next!r} came" if self._next else "the expression ended"
        after = f" after {read!r}" if read else ""
        return ToolError(f"The expression cannot be read: {wanted} was expected{after}, but {came}.")


def _number(value: Number | _Percent) -> Number:
    return _divide(value.number, 100) if isinstance(value, _Percent) else value


# -- units

_UNIT_DIGITS = 12
_LONGEST_UNIT = 60
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
    parts, said = [(value, from_unit)], f"{value.strip()} {from_unit.strip()}"
    try:
        evaluate(value)
    except ToolError:  # it may bring its own units, such as 2 feet 7 inches
        parts, said = _QUANTITY.findall(value), value.strip()
        if not parts or len(value) > _LONGEST_UNIT or _QUANTITY.sub("", value):
            raise
    from pint.errors import PintError

    found = Decimal(0)
    for text, name in parts:
        number = Decimal(evaluate(text).text)
        units = [_DEGREES.sub("", unit.strip().casefold()) for unit in (name, to_unit)]
        if all(unit in _TEMPERATURES for unit in units):  # a lone C, F or K may be something else beside another unit
            source, target = (registry.Unit(_TEMPERATURES[unit]) for unit in units)
        else:
            source, target = _unit(registry, name), _unit(registry, to_unit)
        try:
            found += registry.Quantity(number, source).to(target).magnitude
        except PintError as error:
            raise ToolError(f"{name} cannot be converted to {to_unit}: {error}.") from error
        except ArithmeticError as error:
            raise ToolError(f"{said} is too large or too small to convert.") from error
    shown = Context(prec=_UNIT_DIGITS).create_decimal(found)
    exact = abs(shown - found) <= abs(found) * Decimal("1e-20")
    return f"{said} {'=' if exact else '≈'} {_plain(shown.normalize())} {to_unit.strip()}"


@functools.cache
def _registry() -> Any:
    """Pint's units, counted in decimals so that what is exact by definition comes out exact."""
    from pint import UnitRegistry  # builds its table of units, about 0.3 s

    registry: Any = UnitRegistry  # its types know no decimals
    return registry(non_int_type=Decimal)


def _unit(registry: Any, name: str) -> Any:
    if len(name) > _LONGEST_UNIT or not _UNIT.fullmatch(name):
        raise ToolError(f"{name[:_LONGEST_UNIT]!r} is not a unit.")
    name = name.strip()
    lower = name.lower()
    spellings = [name, lower]  # pint is strict about case, and joins words with underscores
    if " " in name:
        spellings.insert(0, lower.replace(" ", "_"))
    if found := _UNIT_POWER.fullmatch(lower):
        spellings.insert(0, f"{found[1]}**{found[2]}")
    for spelling in [*filter(None, [_ALIASES.get(name) or _ALIASES.get(lower)]), *spellings]:
        try:
            return registry.Unit(spelling)
        except Exception:  # noqa: BLE001 - a fence: pint's parser raises whatever its tokenizer does
            continue
    known: list[str] = list(registry)
    near = difflib.get_close_matches(lower.replace(" ", "_"), known, n=3)
    raise ToolError(f"No unit is called {name}." + (f" Nearest: {', '.join(near)}." if near else ""))


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
    near = [_names().get(match, match) for match in difflib.get_close_matches(key, [*_names(), *_countries()], n=3)]
    hint = f"Nearest: {', '.join(near)}." if near else "IANA names such as Europe/Berlin are known."
    raise ToolError(f"No time zone is called {wanted}. {hint}")


def _key(name: str) -> str:
    """What a name is found by, whatever its capital letters and accents."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", name) if not unicodedata.combining(sign))
    return plain.casefold().replace("_", " ")


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
