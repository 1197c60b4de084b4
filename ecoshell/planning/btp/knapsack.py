"""An exact solver of the bounded knapsack: the best plan within a budget (BTP §2.2, SPEC §2).

Maximises `Σ f·v` subject to `Σ f·c ≤ R` and `0 ≤ f ≤ F`; among equal plans, it minimises the cost.

The recurrence is BTP's Algorithm 1, corrected: a tool reads the plans without it (`V[i−1]`), so that no tool exceeds
its bound. Instead of a table with a cell per budget, the solver keeps the Pareto-optimal plans as pairs of cost and
value, so that costs need no common unit. It drops a plan as soon as Dantzig's relaxation, with fractional uses of the
remaining tools, cannot improve on the best known plan.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from math import gcd
from operator import mul
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Number = int | float
Goal = tuple[int, float]
"""The minimum value and the maximum cost of a better plan."""
_MAX_PLANS = 1 << 16
"""Above this number, one plan is kept per 32,768th of the budget: the paper's scaled costs (Appendix A.1)."""
_MARGIN = 1e-9
"""Share of the budget that exceeds float errors, so that rounding never excludes a plan."""
_COST_BITS = 62
"""Maximum size of a budget, so that costs can be added in 64 bits."""
_VALUE_BITS = 52
"""Maximum size of the total value, so that floats represent it exactly."""
_MAX_VALUE_UNITS = 1e14
"""Real values are compared to fourteen digits; further differences are rounding errors."""


def solve(
    values: Sequence[Number], costs: Sequence[Number], bounds: Sequence[int], budget: Number
) -> list[int]:
    """Return the number of uses of each tool. Takes sequences or arrays of equal length; budget and costs share a unit.

    The cost of the plan never exceeds the budget, to the last bit. A negative budget allows nothing, an infinite one
    every use with a positive value. Real values are compared to fourteen digits. Raises ValueError for different
    lengths, values or costs that are not finite, negative costs or bounds, fractional bounds, and a budget that is not
    a number.
    """
    tool_values = _plain("value", values)
    tool_costs = _plain("cost", costs, 0)
    limits = _plain("bound", bounds, 0, integral=True)
    if not len(tool_values) == len(tool_costs) == len(limits):
        raise ValueError(
            f"{len(tool_values)} values, {len(tool_costs)} costs and {len(limits)} bounds are not of the same tools"
        )
    budget_number = _plain_number(budget)
    counts = [
        int(bound) if value > 0 <= budget_number else 0
        for value, bound in zip(tool_values, limits, strict=True)
    ]
    if budget_number == math.inf:
        return counts
    usable = [
        at for at, count in enumerate(counts) if count and 0 < tool_costs[at] <= budget_number
    ]
    counts = [count if cost == 0 else 0 for count, cost in zip(counts, tool_costs, strict=True)]
    if not usable:
        return counts
    ratios = [tool_costs[at].as_integer_ratio() for at in usable]
    # floats are exact multiples of a power of two
    unit = max(denominator for _, denominator in ratios)
    numerator, denominator = budget_number.as_integer_ratio()
    units = numerator * unit // denominator
    # rounding keeps plans within the budget: Σ ⌈c/u⌉ ≤ ⌊R/u⌋ implies Σ c ≤ R (BTP Appendix A.1)
    shift = max(0, units.bit_length() - _COST_BITS)
    unit_costs = [
        -(-(numerator * unit // denominator) >> shift) for numerator, denominator in ratios
    ]
    units >>= shift
    uses = [
        min(int(limits[at]), units // cost) for at, cost in zip(usable, unit_costs, strict=True)
    ]
    if sum(map(mul, unit_costs, uses)) > units:
        unit_values = _whole_values([tool_values[at] for at in usable], uses)
        uses = _search(unit_values, unit_costs, uses, units)
    for at, count in zip(usable, uses, strict=True):
        counts[at] = count
    return counts


def _plain_number(budget: Any) -> int | float:
    """Return the budget as a Python number; raises ValueError if it is none."""
    number = budget.item() if hasattr(budget, "item") else budget  # a numpy scalar
    if isinstance(number, float) and math.isnan(number):
        raise ValueError("the budget is not a number")
    if not isinstance(number, int | float):
        raise ValueError(f"the budget is {number!r}")
    return number


def _whole_values(values: Sequence[int | float], uses: Sequence[int]) -> list[int]:
    """Return the values as integers, as precise as their sum over all uses allows."""
    if {*map(type, values)} <= {int}:
        excess = int(sum(map(mul, values, uses))).bit_length() - _VALUE_BITS
        return [max(1, int(value) >> max(0, excess)) for value in values]
    decimals = math.floor(
        math.log10(min(2**53 / sum(uses), _MAX_VALUE_UNITS)) - math.log10(max(values))
    )
    return [max(1, round(Fraction(value) * Fraction(10) ** decimals)) for value in values]


def _search(
    values: Sequence[int], costs: Sequence[int], uses: Sequence[int], budget: int
) -> list[int]:
    """Return the best plan, as counts, of tools with at most `uses` each.

    Starts with the greedy plan by value per cost, which is the result among equal plans. Candidates for improvement
    have a greater value within the budget, or the same value for less. The relaxation gives the minimum cost of such a
    plan and the extra cost of each use that deviates from it, which bounds the deviation.
    """
    import numpy as np

    given_values, given_costs, given_uses = (
        np.array(row, np.int64) for row in (values, costs, uses)
    )
    order = np.argsort(given_costs / given_values, kind="stable")
    value, cost, limits = given_values[order], given_costs[order], given_uses[order]
    best, budget_left = np.zeros_like(limits), budget
    for tool, (price, limit) in enumerate(zip(cost.tolist(), limits.tolist(), strict=True)):
        best[tool] = count = min(limit, budget_left // price)
        budget_left -= price * count
    reached, spent, margin = int(best @ value), budget - budget_left, _MARGIN * budget
    goals = (reached + gcd(*values), budget + margin), (reached, spent - gcd(*costs) + margin)
    worth, price = (np.cumsum(row * limits.astype(np.float64)) for row in (value, cost))
    fewest, highest = limits.astype(np.float64), np.zeros(len(limits))
    for goal, limit in goals:
        part = min(int(worth.searchsorted(goal)), len(limits) - 1)
        rate = cost[part] / value[part]
        room = limit - (price[part] - (worth[part] - goal) * rate)
        if goal > worth[-1] or room < 0:
            continue
        dearer = cost - value * rate
        with np.errstate(divide="ignore"):
            moves = np.floor(np.minimum(room / np.abs(dearer), limits))
        fewest = np.minimum(fewest, np.where(dearer < 0, limits - moves, 0))
        highest = np.maximum(highest, np.where(dearer < 0, limits, moves))
    least = np.minimum(fewest, highest).astype(np.int64)
    improved = _better((value, cost), least, highest.astype(np.int64), budget, goals)
    if improved is not None and (int(improved @ value), -int(improved @ cost)) > (reached, -spent):
        best = improved
    counts = np.zeros_like(best)
    counts[order] = best
    return counts.tolist()


def _better(
    tools: "tuple[Integers, Integers]",
    fewest: "Integers",
    limits: "Integers",
    budget: int,
    goals: Sequence[Goal],
) -> "Integers | None":
    """Return the best plan with uses between `fewest` and `limits` that reaches a goal; None without such a plan.

    Plans are sorted by cost; tools, with value and cost, are added from the last to the first.
    """
    import numpy as np

    doubtful: list[int] = (limits - fewest).tolist()
    packs = list[tuple[int, int]]()
    # packs of 1, 2, 4 … uses, which sum to any count, largest first
    for tool, uses in enumerate(doubtful):
        sizes = [1 << bit for bit in range((uses + 1).bit_length() - 1)]
        packs += [
            (tool, size) for size in sorted((*sizes, uses - sum(sizes)), reverse=True) if size
        ]
    pack_tools, sizes = np.array(packs, np.int64).reshape(-1, 2).T
    pack_values, pack_costs = (row[pack_tools] * sizes for row in tools)
    worth, price = (
        np.append(0.0, np.cumsum(row.astype(np.float64))) for row in (pack_values, pack_costs)
    )
    value, cost = (np.array([fewest @ row]) for row in tools)
    stages: list[tuple[Integers, Integers]] = []
    for at in range(len(packs) - 1, -1, -1):
        stages.append((value, cost))
        fit = int(np.searchsorted(cost, budget - int(pack_costs[at]), "right"))
        value = np.concatenate((value, value[:fit] + pack_values[at]))
        cost = np.concatenate((cost, cost[:fit] + pack_costs[at]))
        order = cost.argsort(kind="stable")
        value, cost = value[order], cost[order]
        highest, hopeful = np.maximum.accumulate(value), np.zeros(len(value), np.bool_)
        for goal, limit in goals:
            hopeful |= (
                cost + np.interp(goal - value, worth[: at + 1], price[: at + 1], right=math.inf)
                <= limit
            )
        hopeful[1:] &= highest[1:] > highest[:-1]
        value, cost = value[hopeful], cost[hopeful]
        if len(cost) > _MAX_PLANS:
            last_of_unit = np.append(np.diff(cost // max(1, budget >> 15)) > 0, True)
            value, cost = value[last_of_unit], cost[last_of_unit]
    if not value.size or cost[-1] > budget:
        return None
    counts, reached, spent = fewest.copy(), int(value[-1]), int(cost[-1])
    # reconstruct the best plan from the last pack to the first
    for (tool, size), (values, costs) in zip(packs, reversed(stages), strict=True):
        value_left = reached - int(tools[0][tool]) * size
        cost_left = spent - int(tools[1][tool]) * size
        place = int(values.searchsorted(value_left))
        if place < len(values) and values[place] == value_left and costs[place] == cost_left:
            counts[tool] += size
            reached, spent = value_left, cost_left
    return counts


def _plain(
    name: str, sequence: Any, least: Number = -math.inf, *, integral: bool = False
) -> list[Number]:
    """Convert to a list of Python numbers; raises ValueError for the first invalid one."""
    # an array
    numbers: list[Any] = sequence.tolist() if hasattr(sequence, "tolist") else list(sequence)
    for at, number in enumerate(numbers):
        if hasattr(number, "item"):
            number = numbers[at] = number.item()  # noqa: PLW2901 - numpy's own, in a list
        if not isinstance(number, int | float):
            why = "not an int or a float"
        elif number - number != 0:
            why = "not a finite number"
        elif number < least:
            why = "below zero"
        elif integral and number % 1:
            why = "not a whole number"
        else:
            continue
        raise ValueError(f"{name} {at} is {number!r}: {why}")
    return numbers
