"""The tool calculate: a parser for everyday arithmetic, with exact results where possible and limits always.

    sum      product (("+" | "-") product)*          a percentage on the right is of the left: 200 + 15% is 230
    product  operand (("*" | "/" | "//" | "%") operand)*  also x × · ÷ "times" "divided by" "mod" "of"; the operator may
                                                     be omitted before a name or a bracket: 2(3 + 4), 2 pi
    power    operand ("^" | "**") operand            right-associative: 2^3^2 is 2^9; before unary minus: -2^2 is -4
    operand  ("+" | "-") operand | value ("!" | "²" | "³" | "°" | "%")*
                                                     "%" is a percentage unless a divisor follows
    value    number | constant | "(" sum ")" | function "(" sum ("," sum)* ")" | function operand

Numbers may have an exponent, a 0x prefix, or underscores; commas between groups of three digits are separators if the
expression calls no function. Integers stay exact up to about 3,900 digits and decimals up to 50; larger and irrational
numbers are rounded to 50 digits, which `Inexact` in the decimal context records.

Python's `ast` cannot parse percentages, postfix operators, omitted operators and exact decimals.
"""

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
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
from typing import Annotated

from ecoshell.errors import ToolError

Number = int | Decimal

_DIGITS, _DISPLAY_DIGITS, _GUARD_DIGITS = 50, 15, 3
_MAX_BITS = 13_000
_MAX_FACTORIAL = 1_400
_PLAIN_EXPONENTS = range(-7, 21)
"""Powers of ten for which decimals are written without an exponent."""
_MAX_CHARS = 2_000
_MAX_DEPTH = 100
"""Maximum nesting of brackets, signs and functions."""


def calculate(
    expression: Annotated[
        str,
        "Arithmetic with + - * / ^ % and functions. log is base 10, ln natural; angles are radians, or in °.",
    ],
) -> str:
    """Calculate arithmetic: add, subtract, multiply, divide, powers, percent, roots, logarithms."""
    result = evaluate(expression)
    source = " ".join(expression.strip(" =?\n\t").split())
    return f"{source} {'=' if result.is_exact else '≈'} {result.text}"


@dataclass(frozen=True, slots=True)
class Result:
    """The value of an expression, and whether the text is exact."""

    text: str
    is_exact: bool


def evaluate(text: str) -> Result:
    """Evaluate an expression; raises ToolError for invalid syntax and impossible operations."""
    if len(text) > _MAX_CHARS:
        raise ToolError(
            f"The expression is too long: {len(text)} characters; the maximum is {_MAX_CHARS}."
        )
    traps = [DivisionByZero, InvalidOperation, Overflow]
    with localcontext(
        Context(prec=_DIGITS, Emax=999_999_999, Emin=-999_999_999, traps=traps)
    ) as context:
        try:
            value = _Parser(text).result()
            if isinstance(value, int) and value.bit_length() > _MAX_BITS:
                value = _inexact(+Decimal(value))
            is_exact = not context.flags[Inexact]
            if isinstance(value, Decimal):  # all digits of an exact number, 15 of a rounded one
                with localcontext(prec=_DIGITS if is_exact else _DISPLAY_DIGITS):
                    value = _to_int(value.normalize())
            return Result(str(value) if isinstance(value, int) else plain(value), is_exact)
        except ZeroDivisionError as error:
            raise ToolError("Division by zero.") from error
        except (OverflowError, DecimalException) as error:
            raise ToolError("The result is too large or not a real number.") from error
        except ValueError as error:
            raise ToolError(f"The expression cannot be computed: {error}.") from error


# -- arithmetic


def _multiply(left: Number, right: Number) -> Number:
    """Return the product; rounded if two integers give too large a result."""
    if (
        isinstance(left, int)
        and isinstance(right, int)
        and left.bit_length() + right.bit_length() > _MAX_BITS
    ):
        return Decimal(left) * Decimal(right)
    return left * right


def _divide(left: Number, right: Number) -> Number:
    """Return the quotient, as an integer if the remainder is 0."""
    if right == 0:
        raise ZeroDivisionError
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return Decimal(left) / right


def _floor_divide(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    return _floor(_divide(left, right))


def _modulo(left: Number, right: Number) -> Number:
    """Return the remainder of `_floor_divide`; it has the sign of `right`."""
    if right == 0:
        raise ZeroDivisionError
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    remainder = Decimal(left) % right
    return remainder + right if remainder and (remainder < 0) != (right < 0) else remainder


def _power(base: Number, exponent: Number) -> Number:
    """Return the power; exact for integers unless the result is too large."""
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and 0 <= exponent * base.bit_length() <= _MAX_BITS
    ):
        return _to_int(base**exponent)
    return _to_int(Decimal(base) ** Decimal(exponent))


def _to_int(value: Number) -> Number:
    """Convert an integral value to int if it is small enough to be exact."""
    if (
        isinstance(value, Decimal)
        and value.adjusted() < _DIGITS
        and value == value.to_integral_value()
    ):
        return int(value)
    return value


def _floor(value: Number) -> Number:
    """Round down; ignores the last digits of an inexact value."""
    if isinstance(value, int):
        return value
    with localcontext(prec=_DIGITS - _GUARD_DIGITS if getcontext().flags[Inexact] else _DIGITS):
        return _to_int((+value).to_integral_value("ROUND_FLOOR"))


def _inexact(value: Number) -> Number:
    """Mark the result as inexact, and return the value."""
    getcontext().flags[Inexact] = True
    return value


def plain(number: Decimal) -> str:
    """Format a decimal, with an exponent if it is very large or small."""
    return f"{number:f}" if number.adjusted() in _PLAIN_EXPONENTS else f"{number:e}"


# -- functions; angles are radians

_PI = Decimal("3.1415926535897932384626433832795028841971693993751")
_E = Decimal("2.7182818284590452353602874713526624977572470936999")
_CONSTANTS: dict[str, Number] = {"pi": _PI, "π": _PI, "e": _E, "tau": 2 * _PI}


def _natural(*values: Number) -> tuple[int, ...]:
    """Return the values as non-negative integers; raises ValueError for others."""
    naturals = tuple(value for value in values if isinstance(value, int) and value >= 0)
    if len(naturals) < len(values):
        raise ValueError("it needs non-negative whole numbers")
    return naturals


def _factorial(number: Number) -> Number:
    (count,) = _natural(number)
    if count > _MAX_FACTORIAL:
        raise OverflowError
    return math.factorial(count)


def _comb(*values: Number) -> Number:
    total, chosen = _natural(*values)
    if total > _MAX_BITS:  # an upper bound of the bits of the result
        raise OverflowError
    return math.comb(total, chosen)


def _log(value: Number, base: Number = 10) -> Number:
    return Decimal(value).log10() if base == 10 else Decimal(value).ln() / Decimal(base).ln()


def _round(value: Number, places: Number = 0) -> Number:
    if not isinstance(places, int) or not -_DIGITS < places < _DIGITS:
        raise InvalidOperation
    with localcontext():  # Explicit rounding does not mark the result as inexact.
        return _to_int(Decimal(value).quantize(Decimal(1).scaleb(-places), "ROUND_HALF_UP"))


def _by_float(function: Callable[[float], float], value: Number) -> Number:
    """Apply a function that the decimal module lacks, in double precision."""
    result = function(float(value))
    if not math.isfinite(result):
        raise OverflowError
    is_rounding_error = abs(result) < 1e-15 < abs(value)  # such as sin(pi)
    return _inexact(Decimal(0) if is_rounding_error else Decimal(repr(result)))


_Function = tuple[Callable[..., Number], int, int]
"""A function with its minimum and maximum number of arguments."""


def _unary(apply: Callable[[Number], Number]) -> _Function:
    return apply, 1, 1


_FLOATS = ("cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
_FUNCTIONS: dict[str, _Function] = {
    "sqrt": _unary(lambda value: _to_int(Decimal(value).sqrt())),
    "√": _unary(lambda value: _to_int(Decimal(value).sqrt())),
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
    "gcd": (lambda *values: math.gcd(*_natural(*values)), 2, 99),
    "lcm": (lambda *values: math.lcm(*_natural(*values)), 2, 9),
    "factorial": _unary(_factorial),
    "comb": (_comb, 2, 2),
    "radians": _unary(lambda value: _inexact(value * _PI / 180)),
    "degrees": _unary(lambda value: _inexact(value * 180 / _PI)),
    **{name: _unary(functools.partial(_by_float, getattr(math, name))) for name in _FLOATS},
}
_SUM, _PRODUCT, _SIGN, _POWER = 1, 2, 3, 4
_OPERATORS: dict[str, tuple[int, int, Callable[[Number, Number], Number]]] = {
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
"""Precedence of each operator, minimum precedence of its right operand, and its function."""


# -- parsing

_WORDS = (
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
_IS_NUMBER, _IS_NAME = (
    re.compile(_NUMBER, re.ASCII).fullmatch,
    re.compile(_NAME, re.ASCII).fullmatch,
)


@dataclass(frozen=True, slots=True)
class _Percent:
    """A percentage, whose meaning depends on the operator before it."""

    number: Number


class _Parser:
    """Evaluates an expression while parsing it, by precedence climbing."""

    def __init__(self, text: str) -> None:
        text = text.lower()
        for pattern, replacement in _WORDS:
            text = pattern.sub(replacement, text)
        if not _CALL.search(text):
            text = _GROUPED.sub(lambda group: group[0].replace(",", ""), text)
        if not text.strip():
            raise ToolError("The expression is empty: give something such as 17 * 23.")
        self._tokens: list[str] = [*_TOKEN.findall(text.strip()), "", ""]
        """The tokens, followed by two empty ones as an end mark."""
        self._position = 0

    def result(self) -> Number:
        value = _number(self._expression(_SUM, 0))
        if self._next:
            raise self._unexpected("an operator")
        return value

    def _expression(self, min_precedence: int, depth: int) -> Number | _Percent:
        """Parse an operand and the operators of at least this precedence after it."""
        value = self._operand(depth)
        while True:
            is_omitted = self._next == "(" or (
                _IS_NAME(self._next) and self._next not in _OPERATORS
            )
            operator = "*" if is_omitted else self._next
            if operator not in _OPERATORS or _OPERATORS[operator][0] < min_precedence:
                return value
            precedence, right_precedence, apply = _OPERATORS[operator]
            self._position += not is_omitted
            left = _number(value)
            right = self._expression(right_precedence, depth + (precedence == _POWER))
            if isinstance(right, _Percent) and precedence == _SUM:
                right = _divide(_multiply(left, right.number), 100)
            value = apply(left, _number(right))

    def _operand(self, depth: int) -> Number | _Percent:
        """Parse a value with its prefix and postfix operators."""
        if depth > _MAX_DEPTH:
            raise ToolError("The expression is nested too deeply.")
        if sign := self._accept("+", "-"):
            value = _number(self._expression(_SIGN, depth + 1))
            return -value if sign == "-" else value
        value = self._value(depth)
        while postfix := self._accept("²", "³", "!", "°"):
            if postfix == "!":
                value = _factorial(value)
            elif postfix == "°":
                value = _inexact(value * _PI / 180)
            else:
                value = _power(value, 2 if postfix == "²" else 3)
        following = self._tokens[self._position + 1] if self._next else ""
        is_modulo = (
            following == "("
            or _IS_NUMBER(following)
            or (_IS_NAME(following) and following not in _OPERATORS)
        )
        return _Percent(value) if not is_modulo and self._accept("%") else value

    def _value(self, depth: int) -> Number:
        """Parse a number, a constant, a function call, or a sum in brackets."""
        token = self._next
        if _IS_NUMBER(token):
            self._position += 1
            if token.startswith("0x"):
                return int(token, 16)
            digits = token.replace("_", "")
            return int(digits) if digits.isdigit() else getcontext().create_decimal(digits)
        if self._accept(*_CONSTANTS):
            return _inexact(_CONSTANTS[token])
        name = self._accept(*_FUNCTIONS)
        if self._accept("("):
            values = [_number(self._expression(_SUM, depth + 1))]
            while name and self._accept(","):
                values.append(_number(self._expression(_SUM, depth + 1)))
            if not self._accept(")"):
                raise self._unexpected("a closing bracket")
            if not name:
                return values[0]
        elif name and self._next not in ("+", "-"):  # sqrt 16
            values = [_number(self._operand(depth + 1))]
        elif _IS_NAME(token) and not name:
            raise ToolError(
                f"{token} is unknown, and calculate does not read files: write the numbers themselves, or use "
                f"run_python, which can read a file. Available: pi, e, tau and the functions {', '.join(_FUNCTIONS)}."
            )
        else:
            raise self._unexpected("a number")
        function, minimum, maximum = _FUNCTIONS[name]
        if not minimum <= len(values) <= maximum:
            count = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
            raise ToolError(f"{name} takes {count} argument(s), not {len(values)}.")
        return function(*values)

    @property
    def _next(self) -> str:
        return self._tokens[self._position]

    def _accept(self, *tokens: str) -> str:
        """Consume and return the next token if it is one of these; empty otherwise."""
        token = self._next
        if token not in tokens:
            return ""
        self._position += 1
        return token

    def _unexpected(self, expected: str) -> ToolError:
        parsed = " ".join(self._tokens[: self._position][-8:])
        position = f" after {parsed!r}" if parsed else ""
        actual = repr(self._next) if self._next else "the end"
        return ToolError(f"Invalid expression: expected {expected}{position}, not {actual}.")


def _number(value: Number | _Percent) -> Number:
    return _divide(value.number, 100) if isinstance(value, _Percent) else value
