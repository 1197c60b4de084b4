"""The best plan within a budget: a bounded knapsack (BTP §2.2, SPEC §2), solved exactly.

Maximise `Σ f·v` where `Σ f·c ≤ R` and `0 ≤ f ≤ F`; of equal plans, take the one that spends least.

The recurrence is that of BTP's Algorithm 1, corrected: a tool reads the plans without it (`V[i−1]`), so that none is
used more often than its bound. In place of a row with a cell for every budget, the plans themselves are kept, each as
its cost and its value, as far as no other is both cheaper and better: so costs need no common unit. A plan is left out
as soon as even a relaxation, in which the tools still to come may be used in parts (Dantzig's bound), makes nothing
better of it than the best plan known.
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
"""What a better plan is worth at least and costs at most."""
_MOST_PLANS = 1 << 16
"""Of more plans than these, one is kept for each 32,768th of the budget: the paper's scaled costs (Appendix A.1)."""
_MARGIN = 1e-9
"""Of the budget: more than floats are wrong by, so that rounding leaves a plan in question and never decides one."""
_COST_BITS, _VALUE_BITS = 62, 52
"""So long are a budget, that costs can be added to in 64 bits, and the value of all uses, that floats hold exactly."""
_FINEST = 1e14
"""Real values are read to fourteen digits: what differs beyond them differs by the rounding of floats."""


def solve(values: Sequence[Number], costs: Sequence[Number], bounds: Sequence[int], budget: Number) -> list[int]:
    """How often to use each tool. Takes sequences or arrays of one length, and a budget in the unit of the costs.

    No plan costs more than the budget, to the last bit. A budget below zero pays for nothing, an infinite one for all
    that is worth anything. Real values are compared to fourteen digits. Raises ValueError for lengths that differ, for
    values and costs that are not finite numbers, for costs and bounds below zero, bounds that are not whole, and a
    budget that is not a number.
    """
    worth, price, most = _plain("value", values), _plain("cost", costs, 0), _plain("bound", bounds, 0, whole=True)
    if not len(worth) == len(price) == len(most):
        raise ValueError(f"{len(worth)} values, {len(price)} costs and {len(most)} bounds are not of the same tools")
    given: Any = budget
    room: Any = given.item() if hasattr(given, "item") else given  # numpy's numbers have such a method
    if not isinstance(room, int | float) or math.isnan(room):
        raise ValueError("the budget is not a number" if isinstance(room, float) else f"the budget is {room!r}")
    counts = [int(bound) if value > 0 <= room else 0 for value, bound in zip(worth, most, strict=True)]
    if room == math.inf:
        return counts
    usable = [at for at, count in enumerate(counts) if count and 0 < price[at] <= room]
    counts = [count if cost == 0 else 0 for count, cost in zip(counts, price, strict=True)]
    if not usable:
        return counts
    ratios = [price[at].as_integer_ratio() for at in usable]
    unit = max(below for _, below in ratios)  # floats are whole numbers of a power of two, exactly
    above, below = room.as_integer_ratio()
    left = above * unit // below
    # what is cut is rounded so that no plan passes the budget: Σ ⌈c/u⌉ ≤ ⌊R/u⌋ gives Σ c ≤ R (BTP Appendix A.1)
    shift = max(0, left.bit_length() - _COST_BITS)
    whole = [-(-(above * unit // below) >> shift) for above, below in ratios]
    left >>= shift
    uses = [min(int(most[at]), left // cost) for at, cost in zip(usable, whole, strict=True)]
    if sum(map(mul, whole, uses)) > left:
        fine = [worth[at] for at in usable]  # as fine as their sum over all uses allows
        if {*map(type, fine)} <= {int}:
            excess = int(sum(map(mul, fine, uses))).bit_length() - _VALUE_BITS
            fine = [max(1, int(value) >> max(0, excess)) for value in fine]
        else:
            decimals = math.floor(math.log10(min(2**53 / sum(uses), _FINEST)) - math.log10(max(fine)))
            unit_of_value = Fraction(10) ** decimals
            fine = [max(1, round(Fraction(value) * unit_of_value)) for value in fine]
        uses = _search(fine, whole, uses, left)
    for at, count in zip(usable, uses, strict=True):
        counts[at] = count
    return counts


def _search(values: Sequence[int], costs: Sequence[int], uses: Sequence[int], budget: int) -> list[int]:
    """The best plan of tools that can be used so often each, as counts.

    At first every tool in turn, by falling value per cost, is taken as often as it fits; of equal plans that is the
    one. What is in question after it are plans that are worth more within the budget, or as much for less: the
    relaxation says what such a plan costs at least, and how much dearer it gets with each use by which it departs from
    that; it departs by no more than can be paid for.
    """
    import numpy as np

    given_values, given_costs, given_uses = (np.array(one, np.int64) for one in (values, costs, uses))
    order = np.argsort(given_costs / given_values, kind="stable")
    value, cost, most = given_values[order], given_costs[order], given_uses[order]
    best, left = np.zeros_like(most), budget
    for tool, (price, limit) in enumerate(zip(cost.tolist(), most.tolist(), strict=True)):
        best[tool] = count = min(limit, left // price)
        left -= price * count
    reached, spent, margin = int(best @ value), budget - left, _MARGIN * budget
    goals = (reached + gcd(*values), budget + margin), (reached, spent - gcd(*costs) + margin)
    worth, price = (np.cumsum(one * most.astype(np.float64)) for one in (value, cost))
    fewest, highest = most.astype(np.float64), np.zeros(len(most))
    for goal, limit in goals:
        part = min(int(worth.searchsorted(goal)), len(most) - 1)
        rate = cost[part] / value[part]
        room = limit - (price[part] - (worth[part] - goal) * rate)
        if goal > worth[-1] or room < 0:
            continue
        dearer = cost - value * rate
        with np.errstate(divide="ignore"):
            moves = np.floor(np.minimum(room / np.abs(dearer), most))
        fewest = np.minimum(fewest, np.where(dearer < 0, most - moves, 0))
        highest = np.maximum(highest, np.where(dearer < 0, most, moves))
    least = np.minimum(fewest, highest).astype(np.int64)
    found = _better((value, cost), least, highest.astype(np.int64), budget, goals)
    if found is not None and (int(found @ value), -int(found @ cost)) > (reached, -spent):
        best = found
    counts = np.zeros_like(best)
    counts[order] = best
    return counts.tolist()


def _better(
    tools: "tuple[Integers, Integers]", fewest: "Integers", most: "Integers", budget: int, goals: Sequence[Goal]
) -> "Integers | None":
    """The best plan that uses each tool so often and reaches one of the goals; None where there is none.

    Plans are kept by rising cost, and tools, by value and cost, taken in from the last to the first.
    """
    import numpy as np

    doubtful: list[int] = (most - fewest).tolist()
    packs = list[tuple[int, int]]()
    for tool, uses in enumerate(doubtful):  # 1, 2, 4 … uses, from which any count adds up, the largest first
        sizes = [1 << bit for bit in range((uses + 1).bit_length() - 1)]
        packs += [(tool, size) for size in sorted((*sizes, uses - sum(sizes)), reverse=True) if size]
    which, sizes = np.array(packs, np.int64).reshape(-1, 2).T
    pack_values, pack_costs = (one[which] * sizes for one in tools)
    worth, price = (np.append(0.0, np.cumsum(one.astype(np.float64))) for one in (pack_values, pack_costs))
    value, cost = (np.array([fewest @ one]) for one in tools)
    before: list[tuple[Integers, Integers]] = []
    for at in range(len(packs) - 1, -1, -1):
        before.append((value, cost))
        fit = int(np.searchsorted(cost, budget - int(pack_costs[at]), "right"))
        value = np.concatenate((value, value[:fit] + pack_values[at]))
        cost = np.concatenate((cost, cost[:fit] + pack_costs[at]))
        order = cost.argsort(kind="stable")
        value, cost = value[order], cost[order]
        highest, hopeful = np.maximum.accumulate(value), np.zeros(len(value), np.bool_)
        for goal, limit in goals:
            hopeful |= cost + np.interp(goal - value, worth[: at + 1], price[: at + 1], right=math.inf) <= limit
        hopeful[1:] &= highest[1:] > highest[:-1]
        value, cost = value[hopeful], cost[hopeful]
        if len(cost) > _MOST_PLANS:
            last_of_unit = np.append(np.diff(cost // max(1, budget >> 15)) > 0, True)
            value, cost = value[last_of_unit], cost[last_of_unit]
    if not value.size or cost[-1] > budget:
        return None
    counts, reached, spent = fewest.copy(), int(value[-1]), int(cost[-1])
    # how the best plan came about, from the last pack that was decided back to the first
    for (tool, size), (values, costs) in zip(packs, reversed(before), strict=True):
        rest, left = reached - int(tools[0][tool]) * size, spent - int(tools[1][tool]) * size
        place = int(values.searchsorted(rest))
        if place < len(values) and values[place] == rest and costs[place] == left:
            counts[tool] += size
            reached, spent = rest, left
    return counts


def _plain(name: str, given: Any, least: Number = -math.inf, *, whole: bool = False) -> list[Number]:
    """Python's own numbers; raises ValueError that names the first one that is wrong."""
    numbers: list[Any] = given.tolist() if hasattr(given, "tolist") else list(given)  # arrays have such a method
    for at, number in enumerate(numbers):
        if hasattr(number, "item"):
            number = numbers[at] = number.item()  # noqa: PLW2901 - numpy's own, in a list
        if not isinstance(number, int | float):
            why = "not an int or a float"
        elif number - number != 0:
            why = "not a finite number"
        elif number < least:
            why = "below zero"
        elif whole and number % 1:
            why = "not a whole number"
        else:
            continue
        raise ValueError(f"{name} {at} is {number!r}: {why}")
    return numbers
