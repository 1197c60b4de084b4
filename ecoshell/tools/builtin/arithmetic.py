"""Arithmetic that is exact where it can be and bounded always.

Whole numbers stay exact up to about 3,900 digits and decimals up to 50; what is larger or irrational is rounded to 50
digits, which `Inexact` in the decimal context records. Angles are radians.
"""

from collections.abc import Generator
from contextlib import contextmanager
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow, getcontext, localcontext

Number = int | Decimal

DIGITS = 50
_SHOWN_DIGITS = 15
LARGEST_BITS = 13_000
_PLAIN_EXPONENTS = range(-7, 21)
"""Of ten: the decimals that are shown without an exponent."""


@contextmanager
def bounded() -> Generator[Context]:
    """The decimal context all arithmetic here needs; errors are raised, and roundings recorded in its flags."""
    limits = Context(
        prec=DIGITS, Emax=999_999_999, Emin=-999_999_999, traps=[DivisionByZero, InvalidOperation, Overflow]
    )
    with localcontext(limits) as context:
        yield context


def decimal(text: str) -> Decimal:
    """The number a text writes, rounded to what is kept."""
    return getcontext().create_decimal(text)


def multiply(left: Number, right: Number) -> Number:
    """The product; of two whole numbers too large to keep, a rounded one."""
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > LARGEST_BITS:
        return Decimal(left) * Decimal(right)
    return left * right


def divide(left: Number, right: Number) -> Number:
    """The quotient, whole where it comes out even."""
    if right == 0:
        raise ZeroDivisionError
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return Decimal(left) / right


def floor_divide(left: Number, right: Number) -> Number:
    """The quotient rounded down."""
    return left // right if isinstance(left, int) and isinstance(right, int) else floor(divide(left, right))


def modulo(left: Number, right: Number) -> Number:
    """What is left after `floor_divide`; it has the sign of `right`."""
    if right == 0:
        raise ZeroDivisionError
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    rest = Decimal(left) % right
    return rest + right if rest and (rest < 0) != (right < 0) else rest


def power(base: Number, exponent: Number) -> Number:
    """The power; exact for whole numbers as long as the result can be kept."""
    if isinstance(base, int) and isinstance(exponent, int) and 0 <= exponent * base.bit_length() <= LARGEST_BITS:
        return whole(base**exponent)
    return whole(Decimal(base) ** Decimal(exponent))


def whole(value: Number) -> Number:
    """The value as an int if it is one and small enough to be exact."""
    if isinstance(value, Decimal) and value.adjusted() < DIGITS and value == value.to_integral_value():
        return int(value)
    return value


def floor(value: Number) -> Number:
    """The largest whole number that is not larger."""
    return whole(Decimal(value).to_integral_value("ROUND_FLOOR")) if isinstance(value, Decimal) else value


def ceil(value: Number) -> Number:
    """The smallest whole number that is not smaller."""
    return -floor(-value)


def rounded(value: Number) -> Number:
    """The value, marked as not exact."""
    getcontext().flags[Inexact] = True
    return value


def kept(value: Number) -> Number:
    """The value, rounded if it is a whole number of too many digits."""
    return rounded(+Decimal(value)) if isinstance(value, int) and value.bit_length() > LARGEST_BITS else value


def show(value: Number, *, exact: bool) -> str:
    """The number as text: all digits of an exact one, 15 of a rounded one."""
    if isinstance(value, Decimal):
        with localcontext(prec=DIGITS if exact else _SHOWN_DIGITS):
            value = whole(value.normalize())
    if isinstance(value, int):
        return str(value)
    return f"{value:f}" if value.adjusted() in _PLAIN_EXPONENTS else f"{value:e}"
