"""The functions and constants an expression may use; angles are radians."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, localcontext

from ecoshell.tools.builtin.arithmetic import (
    DIGITS,
    LARGEST_BITS,
    Number,
    ceil,
    divide,
    floor,
    modulo,
    power,
    rounded,
    whole,
)

PI = Decimal("3.1415926535897932384626433832795028841971693993751")
E = Decimal("2.7182818284590452353602874713526624977572470936999")
_LARGEST_FACTORIAL = 1_400


@dataclass(frozen=True, slots=True)
class Function:
    """A function by its name in an expression, with the number of arguments it takes."""

    apply: Callable[..., Number]
    least: int = 1
    most: int = 1


def factorial(number: Number) -> Number:
    """The factorial of a whole number; raises OverflowError when it has too many digits to be kept."""
    (whole_number,) = _counts(number)
    if whole_number > _LARGEST_FACTORIAL:
        raise OverflowError
    return math.factorial(whole_number)


def _sqrt(value: Number) -> Number:
    return whole(Decimal(value).sqrt())


def _exp(value: Number) -> Number:
    return Decimal(value).exp()


def _ln(value: Number) -> Number:
    return Decimal(value).ln()


def _log(value: Number, base: Number = 10) -> Number:
    return Decimal(value).log10() if base == 10 else Decimal(value).ln() / Decimal(base).ln()


def _log2(value: Number) -> Number:
    return _log(value, 2)


def _abs(value: Number) -> Number:
    return -value if value < 0 else value


def _round(value: Number, places: Number = 0) -> Number:
    if not isinstance(places, int) or not -DIGITS < places < DIGITS:
        raise InvalidOperation
    with localcontext():  # what was asked for is not recorded as a loss
        return whole(Decimal(value).quantize(Decimal(1).scaleb(-places), "ROUND_HALF_UP"))


def _sum(*values: Number) -> Number:
    total: Number = 0
    for value in values:
        total = total + value
    return total


def _mean(*values: Number) -> Number:
    return divide(_sum(*values), len(values))


def _gcd(*values: Number) -> Number:
    return math.gcd(*_counts(*values))


def _lcm(*values: Number) -> Number:
    return math.lcm(*_counts(*values))


def _comb(*values: Number) -> Number:
    total, chosen = _counts(*values)
    if total > LARGEST_BITS:  # a bound on the bits of the result
        raise OverflowError
    return math.comb(total, chosen)


def _radians(value: Number) -> Number:
    return rounded(value * PI / 180)


def _degrees(value: Number) -> Number:
    return rounded(value * 180 / PI)


def _counts(*values: Number) -> tuple[int, ...]:
    """The values as whole numbers that are not negative; raises ValueError for any other."""
    counts = tuple(value for value in values if isinstance(value, int) and value >= 0)
    if len(counts) < len(values):
        raise ValueError("whole numbers are needed that are not negative")
    return counts


def _by_float(function: Callable[[float], float]) -> Function:
    """A function the decimal module lacks, computed in double precision."""

    def apply(value: Number) -> Number:
        found = function(float(value))
        if not math.isfinite(found):
            raise OverflowError
        tiny = abs(found) < 1e-15 < abs(value)  # sin(pi) is 0, not what pi's own rounding leaves
        return rounded(Decimal(0) if tiny else Decimal(repr(found)))

    return Function(apply)


CONSTANTS: dict[str, Number] = {"pi": PI, "π": PI, "e": E, "tau": 2 * PI}

FUNCTIONS: dict[str, Function] = {
    "sqrt": Function(_sqrt),
    "√": Function(_sqrt),
    "exp": Function(_exp),
    "ln": Function(_ln),
    "log": Function(_log, 1, 2),
    "log10": Function(_log),
    "log2": Function(_log2),
    "abs": Function(_abs),
    "floor": Function(floor),
    "ceil": Function(ceil),
    "round": Function(_round, 1, 2),
    "min": Function(min, 2, 99),
    "max": Function(max, 2, 99),
    "sum": Function(_sum, 1, 99),
    "mean": Function(_mean, 1, 99),
    "pow": Function(power, 2, 2),
    "mod": Function(modulo, 2, 2),
    "gcd": Function(_gcd, 2, 99),
    "lcm": Function(_lcm, 2, 9),
    "factorial": Function(factorial),
    "comb": Function(_comb, 2, 2),
    "radians": Function(_radians),
    "degrees": Function(_degrees),
} | {
    name: _by_float(getattr(math, name))
    for name in ("cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
}
