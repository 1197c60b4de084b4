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
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Number = int | float
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
    whole, left = _whole_costs([price[at] for at in usable], room)
    uses = [min(int(most[at]), left // cost) for at, cost in zip(usable, whole, strict=True)]
    if sum(cost * count for cost, count in zip(whole, uses, strict=True)) > left:
        uses = _Search(_whole_values([worth[at] for at in usable], uses), whole, uses, left).plan()
    for at, count in zip(usable, uses, strict=True):
        counts[at] = count
    return counts


class _Search:
    """Looks for better plans than the best that is known, of tools that stand by falling value per cost."""

    def __init__(self, values: Sequence[int], costs: Sequence[int], uses: Sequence[int], budget: int) -> None:
        import numpy as np

        value, cost, most = (np.array(one, np.int64) for one in (values, costs, uses))
        self._order = np.argsort(cost / value, kind="stable")
        self._values, self._costs, self._uses = value[self._order], cost[self._order], most[self._order]
        self._budget, self._grain = budget, (gcd(*values), gcd(*costs))
        self._worth = np.cumsum(self._values * self._uses.astype(np.float64))
        self._price = np.cumsum(self._costs * self._uses.astype(np.float64))
        counts, left = list[int](), budget
        for price, limit in zip(self._costs.tolist(), self._uses.tolist(), strict=True):
            counts.append(min(limit, left // price))
            left -= price * counts[-1]
        self._best = np.array(counts, np.int64)
        """The best plan so far: at first every tool in turn as often as it fits, which of equal plans is the one."""
        self._value, self._cost = int(self._best @ self._values), budget - left

    def plan(self) -> list[int]:
        """The best plan, by the tools as they were given."""
        import numpy as np

        self._decide(*self._in_question())
        counts = np.zeros_like(self._best)
        counts[self._order] = self._best
        return counts.tolist()

    @property
    def _goals(self) -> tuple[tuple[int, float], ...]:
        """What a better plan is worth at least and costs at most: more within the budget, or as much for less."""
        margin = _MARGIN * self._budget
        more, less = self._value + self._grain[0], self._cost - self._grain[1]
        return (more, self._budget + margin), (self._value, less + margin)

    def _in_question(self) -> "tuple[Integers, Integers]":
        """How often a better plan uses each tool at least and at most; nothing at all where there is none.

        The relaxation says what it costs at least, and how much dearer it gets with each use by which it departs from
        that; it departs by no more than can be paid for.
        """
        import numpy as np

        fewest, most = self._uses.astype(np.float64), np.zeros(len(self._uses))
        for goal, limit in self._goals:
            part = min(int(self._worth.searchsorted(goal)), len(fewest) - 1)
            rate = self._costs[part] / self._values[part]
            left = limit - (self._price[part] - (self._worth[part] - goal) * rate)
            if goal > self._worth[-1] or left < 0:
                continue
            dearer = self._costs - self._values * rate
            with np.errstate(divide="ignore"):
                moves = np.floor(np.minimum(left / np.abs(dearer), self._uses))
            fewest = np.minimum(fewest, np.where(dearer < 0, self._uses - moves, 0))
            most = np.maximum(most, np.where(dearer < 0, self._uses, moves))
        return np.minimum(fewest, most).astype(np.int64), most.astype(np.int64)

    def _decide(self, fewest: "Integers", most: "Integers") -> None:
        """Take the best of the plans that use each tool so often, where it is better than the one that is known."""
        import numpy as np

        doubtful: list[int] = (most - fewest).tolist()
        packs = list[tuple[int, int]]()
        for tool, uses in enumerate(doubtful):  # 1, 2, 4 … uses, from which any count adds up, the largest first
            sizes = [1 << bit for bit in range((uses + 1).bit_length() - 1)]
            packs += [(tool, size) for size in sorted((*sizes, uses - sum(sizes)), reverse=True) if size]
        tools, sizes = np.array(packs, np.int64).reshape(-1, 2).T
        pack_values, pack_costs = self._values[tools] * sizes, self._costs[tools] * sizes
        worth, price = (np.append(0.0, np.cumsum(one.astype(np.float64))) for one in (pack_values, pack_costs))
        value, cost = (np.array([fewest @ one]) for one in (self._values, self._costs))
        goals = self._goals
        before: list[tuple[Integers, Integers]] = []
        for at in range(len(packs) - 1, -1, -1):
            before.append((value, cost))
            room = self._budget - int(pack_costs[at])
            fit = int(np.searchsorted(cost, room, "right"))
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
                last_of_unit = np.append(np.diff(cost // max(1, self._budget >> 15)) > 0, True)
                value, cost = value[last_of_unit], cost[last_of_unit]
        if value.size and cost[-1] <= self._budget and (value[-1], -cost[-1]) > (self._value, -self._cost):
            self._value, self._cost = int(value[-1]), int(cost[-1])
            self._best = self._traced(fewest, packs, before)

    def _traced(
        self, fewest: "Integers", packs: Sequence[tuple[int, int]], before: "list[tuple[Integers, Integers]]"
    ) -> "Integers":
        """How the best plan came about, from the last pack that was decided back to the first."""
        counts, value, cost = fewest.copy(), self._value, self._cost
        for (tool, size), (values, costs) in zip(packs, reversed(before), strict=True):
            rest, left = value - int(self._values[tool]) * size, cost - int(self._costs[tool]) * size
            place = int(values.searchsorted(rest))
            if place < len(values) and values[place] == rest and costs[place] == left:
                counts[tool] += size
                value, cost = rest, left
        return counts


def _whole_costs(costs: Sequence[Number], budget: Number) -> tuple[list[int], int]:
    """Costs and budget as whole numbers of at most 62 bits; what is cut is rounded so that no plan passes the budget.

    `Σ ⌈c/u⌉ ≤ ⌊R/u⌋` gives `Σ c ≤ R` (BTP Appendix A.1). Floats are whole numbers of a power of two, exactly.
    """
    ratios = [number.as_integer_ratio() for number in (*costs, budget)]
    unit = max(below for _, below in ratios[:-1])
    *whole, left = (above * unit // below for above, below in ratios)
    shift = max(0, left.bit_length() - _COST_BITS)
    return [-(-cost >> shift) for cost in whole], left >> shift


def _whole_values(values: Sequence[Number], uses: Sequence[int]) -> list[int]:
    """Values above zero as whole numbers, as fine as their sum over all uses allows; whole ones as they are."""
    if {*map(type, values)} <= {int}:
        whole = cast("Sequence[int]", values)
        excess = sum(value * count for value, count in zip(whole, uses, strict=True)).bit_length() - _VALUE_BITS
        return [max(1, value >> max(0, excess)) for value in whole]
    decimals = math.floor(math.log10(min(2**53 / sum(uses), _FINEST)) - math.log10(max(values)))
    unit = Fraction(10) ** decimals
    return [max(1, round(Fraction(value) * unit)) for value in values]


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
