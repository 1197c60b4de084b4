"""The best plan within a budget: a bounded knapsack (BTP §2.2, SPEC §2), solved exactly.

Maximise `Σ f·v` where `Σ f·c ≤ R` and `0 ≤ f ≤ F`; of equal plans, take the one that spends least. A few tools are
searched (packing/branching.py). Of many, a relaxation leaves a core in question (packing/relaxation.py), which is
searched, too, or filled into a table (packing/table.py) where that is quicker.
"""

import math
from collections.abc import Sequence
from itertools import count
from math import gcd
from operator import itemgetter
from typing import Any

from ecoshell.planning.btp.packing.branching import NOTHING, Tool, search
from ecoshell.planning.btp.packing.condensing import leaves_for, plan_of_many
from ecoshell.planning.btp.packing.reading import Number, read, read_at_once, read_budget, whole_costs, whole_values

_FEW = 48
"""So many tools are searched as they are."""
_rank = itemgetter(0)


def solve(values: Sequence[Number], costs: Sequence[Number], bounds: Sequence[int], budget: Number) -> list[int]:
    """How often to use each tool. Takes sequences or arrays of one length, and a budget in the unit of the costs.

    No plan costs more than the budget, to the last bit. A budget below zero pays for nothing, an infinite one for all
    that is worth anything. Real values are compared to fourteen digits. Raises ValueError for lengths that differ, for
    values and costs that are not finite numbers, for costs and bounds below zero, bounds that are not whole, and a
    budget that is not a number.
    """
    whole = read_at_once(values, costs, bounds, budget)
    if whole is not None:
        counts = _plan(whole, costs, bounds, budget)
    else:
        values, costs, bounds = read(values, costs, bounds)
        counts = _real_plan(values, costs, bounds, read_budget(budget))
    if 0 in costs and budget >= 0:
        return [bounds[at] if costs[at] == 0 < values[at] else uses for at, uses in enumerate(counts)]
    return counts


def _real_plan(values: Sequence[Number], costs: Sequence[Number], bounds: Sequence[int], budget: Number) -> list[int]:
    """The plan for numbers of any kind; tools that cost nothing are not in it."""
    if budget == math.inf:
        return [bound if value > 0 else 0 for value, bound in zip(values, bounds, strict=True)]
    counts = [0] * len(values)
    places = [at for at, cost in enumerate(costs) if 0 < cost <= budget and values[at] > 0 < bounds[at]]
    if places:
        price, whole = whole_costs([costs[at] for at in places], budget)
        most = [min(bounds[at], whole // cost) for at, cost in zip(places, price, strict=True)]
        worth = whole_values([values[at] for at in places], sum(most))
        for at, uses in zip(places, _plan(worth, price, most, whole), strict=True):
            counts[at] = uses
    return counts


def _plan(values: Sequence[Any], costs: Sequence[Any], bounds: Sequence[int], budget: Any) -> list[int]:
    """The plan for whole numbers (Any, for want of a type of sequences of these); what costs nothing is not in it."""
    if len(values) > _FEW:
        return plan_of_many(values, costs, bounds, budget)
    square = budget * budget
    tools: list[Tool] = [
        (value * square // cost, value, cost, bound if bound * cost <= budget else budget // cost, place)
        for value, cost, bound, place in zip(values, costs, bounds, count())
        if value > 0 < bound and 0 < cost <= budget
    ]
    tools.sort(key=_rank, reverse=True)
    (plan, _, _), proven = search(tools, budget, (gcd(*values), gcd(*costs)), NOTHING, leaves_for(budget))
    if not proven:
        return plan_of_many(values, costs, bounds, budget)
    counts = [0] * len(values)
    for at, uses in enumerate(plan):
        counts[tools[at][4]] = uses
    return counts
