"""What a knapsack is given, checked, and made whole numbers, so that all that follows is exact."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from operator import ne
from typing import Any, cast

Number = int | float
_INT, _FLOAT = {int}, {float}
_FLOAT_LIMIT = 9e15
"""Whole numbers up to here are exact as floats, too."""
_MANY = 1_000_000
"""Of more uses than these, values keep ten digits all the same."""
_FINEST = 1e14
"""Values are read to fourteen digits: what differs beyond them differs by the rounding of floats."""
_FEW = int(_FLOAT_LIMIT / _FINEST)
"""So many uses leave all of them."""


def read_at_once(
    values: Sequence[Number], costs: Sequence[Number], bounds: Sequence[Number], budget: Number
) -> Sequence[int] | None:
    """The values, made whole, where all else is whole and nothing is wrong; None where that takes a closer look.

    Of few tools a closer look takes longer than their plan.
    """
    if {*map(type, [budget, *costs, *bounds])} != _INT or not len(values) == len(costs) == len(bounds) > 0:
        return None
    if min(budget, *costs, *bounds) < 0:
        return None
    kinds = {*map(type, values)}
    if kinds == _INT:
        return cast("Sequence[int]", values)
    if kinds != _FLOAT or sum(bounds) > _FEW or not math.isfinite(sum(values)):
        return None
    usable = [value if value > 0 < bounds[at] and costs[at] <= budget else 0.0 for at, value in enumerate(values)]
    return _in_units(usable, _FEW)  # what cannot be in a plan has no say in the unit


def read(
    values: Sequence[Number], costs: Sequence[Number], bounds: Sequence[Number]
) -> tuple[list[Number], list[Number], list[int]]:
    """Values, costs and bounds of tools as plain numbers; raises ValueError that names the first one that is wrong."""
    worth, price, most = _plain("value", values), _plain("cost", costs), _plain("bound", bounds)
    if not len(worth) == len(price) == len(most):
        raise ValueError(f"{len(worth)} values, {len(price)} costs and {len(most)} bounds are not of the same tools")
    _not_negative("cost", price)
    _not_negative("bound", most)
    for at, bound in enumerate(most):
        if int(bound) != bound:
            raise ValueError(f"bound {at} is {bound}: not a whole number")
    return worth, price, [int(bound) for bound in most]


def read_budget(given: Number) -> Number:
    """A budget as a plain number, which may be infinite; raises ValueError when it is not a number."""
    budget = _number("the budget", given)
    if budget != budget:  # noqa: PLR0124 - NaN alone differs from itself
        raise ValueError("the budget is not a number")
    return budget


def whole_costs(costs: Sequence[Number], budget: Number) -> tuple[list[int], int]:
    """Costs and budget in units of which each cost is a whole number; what the budget has beyond whole units is cut."""
    if {*map(type, costs)} <= _INT:
        return cast("list[int]", list(costs)), math.floor(budget)
    ratios = [cost.as_integer_ratio() for cost in costs]
    unit = max(below for _, below in ratios)  # powers of two, all of them
    above, below = budget.as_integer_ratio()
    return [above * (unit // below) for above, below in ratios], above * unit // below


def whole_values(values: Sequence[Number], uses: int) -> list[int]:
    """Positive values in decimal units, as fine as the sum of so many of them allows; whole numbers as they are."""
    if {*map(type, values)} <= _INT:
        return cast("list[int]", list(values))
    try:
        return _in_units([float(value) for value in values], uses)
    except OverflowError:
        raise ValueError("a value beyond 1e308 cannot stand among real values") from None


def _in_units(reals: Sequence[float], uses: int) -> list[int]:
    top = max(reals)
    if not 1e-200 < top < 1e200:  # where powers of ten leave the range of floats
        exponent = math.frexp(top)[1]
        reals, top = [math.ldexp(value, -exponent) for value in reals], math.ldexp(top, -exponent) or 1.0
    decimals = math.floor(math.log10(min(_FLOAT_LIMIT / min(uses, _MANY), _FINEST) / top))
    if decimals > 0:
        unit = 10**decimals
        return [round(value * unit) for value in reals]
    unit = 10**-decimals
    return [round(value / unit) for value in reals]


def _plain(name: str, given: Any) -> list[Number]:
    """Python's own numbers, all of them finite."""
    numbers: list[Number] = given.tolist() if hasattr(given, "tolist") else list(given)  # arrays have such a method
    kinds = {*map(type, numbers)}
    if kinds <= _INT:
        return numbers
    if kinds != {float}:
        numbers = [_number(f"{name} {at}", number) for at, number in enumerate(numbers)]
    if any(map(ne, numbers, numbers)) or math.inf in (max(numbers), -min(numbers)):
        at = next(at for at, number in enumerate(numbers) if number - number != 0)
        raise ValueError(f"{name} {at} is {numbers[at]}: not a finite number")
    return numbers


def _number(name: str, given: Any) -> Number:
    if isinstance(given, float):
        return float(given)
    if isinstance(given, Integral):
        return int(given)
    if isinstance(given, Real) and float(given) == given:  # numpy's short floats
        return float(given)
    raise ValueError(f"{name} is {given!r}: not an int or a float")


def _not_negative(name: str, numbers: Sequence[Number]) -> None:
    if numbers and min(numbers) < 0:
        at = next(at for at, number in enumerate(numbers) if number < 0)
        raise ValueError(f"{name} {at} is {numbers[at]}: below zero")
