"""The best plan among many tools: most are decided at once, the few in question searched or filled into a table."""

import math
from collections.abc import Sequence
from math import gcd
from operator import mul
from typing import TYPE_CHECKING, Any, cast

from ecoshell.planning.btp.packing.branching import Best
from ecoshell.planning.btp.packing.core import Core
from ecoshell.planning.btp.packing.relaxation import Relaxation
from ecoshell.planning.btp.packing.scaling import scaled
from ecoshell.planning.btp.packing.table import best_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MIDDLE = 64
"""So many tools, about the one at which the budget is used up, are searched for a good plan."""
_UNITS = 1 << 16
"""The longest budget that is filled into a table as it is."""
_SCALED_BITS = 15
"""A longer one has at least 16,384 units once it is scaled."""
_BRIEF, _PATIENT = 300, 2_000
"""Plans to look at before a table is filled; before one is that must be scaled, and is no longer exact."""
_FLOAT_BITS = 52
"""Whole numbers with so many bits, and sums of a few more, are exact as floats."""


def leaves_for(budget: int) -> int:
    """How many plans a search may look at before a table is the better way."""
    return _BRIEF if budget <= _UNITS else _PATIENT


def plan_of_many(values: Sequence[int], costs: Sequence[int], bounds: Sequence[int], budget: int) -> list[int]:
    """How often to use each tool, for any whole numbers; what is worth nothing, or costs nothing, is not used.

    Where all values together have more than fifteen digits, they are compared to these.
    """
    import numpy as np

    kind = np.int64 if max(budget, *map(max, (values, costs, bounds))) < 1 << 62 else np.object_
    value, cost, bound = (cast("NDArray[Any]", np.array(one, dtype=kind)) for one in (values, costs, bounds))
    usable: NDArray[np.intp] = ((value > 0) & (bound > 0) & (cost > 0) & (cost <= budget)).nonzero()[0]
    counts = [0] * len(values)
    if usable.size:
        value, cost = value[usable], cost[usable]
        bound = np.minimum(np.minimum(bound[usable], budget // cost), 1 << _FLOAT_BITS)
        excess = math.frexp(float(value.astype(np.float64) @ bound.astype(np.float64)))[1] - _FLOAT_BITS
        if excess > 0:
            value = np.maximum(value >> excess, 1)
        for place, count in zip(usable.tolist(), _best(value, cost, bound, budget), strict=True):
            counts[place] = count
    return counts


def _best(values: "NDArray[Any]", costs: "NDArray[Any]", bounds: "NDArray[Any]", budget: int) -> Sequence[int]:
    """How often to use each tool; each could be used, and no more often than the budget allows."""
    grain, leaves = (gcd(*values.tolist()), gcd(*costs.tolist())), leaves_for(budget)
    relaxation = Relaxation(values, costs, bounds, budget)
    best = relaxation.greedy()
    core = relaxation.core(best, grain)
    if core and len(core.tools) > _MIDDLE:  # the better the known plan is, the less is in question
        best, _ = core.middle(_MIDDLE).search(best, grain, leaves)
        core = relaxation.core(best, grain)
    if core and len(core.tools) <= _MIDDLE:
        best, proven = core.search(best, grain, leaves)
        core = None if proven else relaxation.core(best, grain)
    return _tabled(core, best)[0] if core else best[0]


def _tabled(core: Core, best: Best) -> Best:
    """The best plan of the core, or the one that is known already."""
    values, costs, bounds = ([tool[field] for tool in core.tools] for field in (1, 2, 3))
    unit = gcd(*costs) or 1
    costs, budget = [cost // unit for cost in costs], min(core.budget, sum(map(mul, costs, bounds))) // unit
    least = core.least // unit
    if least > budget:
        return best
    if budget <= _UNITS:
        counts = best_counts(values, costs, bounds, budget, least)
    else:
        costs, budget = scaled(costs, budget, _SCALED_BITS)
        counts = core.filled(best_counts(values, costs, bounds, budget))
    return max(core.plan(counts), best, key=_merit)


def _merit(best: Best) -> tuple[int, int]:
    _, value, left = best
    return value, left
