"""Which of many tools are in question: what a plan would cost that may use tools in parts (Dantzig's bound)."""

from typing import TYPE_CHECKING, Any

from ecoshell.planning.btp.packing.branching import Best, Grain, Tool
from ecoshell.planning.btp.packing.core import Core

if TYPE_CHECKING:
    from numpy import float64, intp
    from numpy.typing import NDArray

_MARGIN = 1e-9
"""Of the budget: more than floats are wrong by, so that rounding leaves a tool in question and never decides one."""


class Relaxation:
    """Many tools by falling value per cost, with what they are worth and cost together up to each."""

    def __init__(self, values: "NDArray[Any]", costs: "NDArray[Any]", bounds: "NDArray[Any]", budget: int) -> None:
        """Whole numbers above zero; `bound·cost` is at most the budget, and all values together are below 2⁵³."""
        import numpy as np

        self._values, self._costs, self._bounds, self._budget = values, costs, bounds, budget
        value, bound = values.astype(np.float64), bounds.astype(np.float64)
        cost = (costs / budget).astype(np.float64)
        order: NDArray[intp] = np.argsort(cost / value, kind="stable")
        self._order, self._value, self._cost, self._bound = order, value[order], cost[order], bound[order]
        self._worth, self._price = np.cumsum(self._value * self._bound), np.cumsum(self._cost * self._bound)

    def greedy(self) -> Best:
        """Every tool in turn, as often as its bound and what is left allow."""
        counts = self._bounds * 0
        fit = int(self._price.searchsorted(1 - _MARGIN))  # before rounding can matter
        counts[self._order[:fit]] = self._bounds[self._order[:fit]]
        left, cheapest = self._budget - int((counts * self._costs).sum()), int(self._costs.min())
        for place in self._order[fit:].tolist():
            if left < cheapest:
                break
            cost = int(self._costs[place])
            if cost <= left:
                counts[place] = count = min(int(self._bounds[place]), left // cost)
                left -= count * cost
        return counts.tolist(), int((counts * self._values).sum()), left

    def core(self, best: Best, grain: Grain) -> Core | None:
        """What is left to decide for a better plan; None where there is no better one.

        A better plan is worth more within the budget, or as much for less. The relaxation says what either would cost,
        and how much dearer that gets with each use by which a tool departs from it: no tool departs further than can
        be paid for.
        """
        import numpy as np

        _, value, left = best
        fewest, most = self._bound, np.zeros_like(self._bound)
        for goal, limit in ((value + grain[0], 1.0), (value, 1 - (left + grain[1]) / self._budget)):
            if goal > self._worth[-1] or (slack := limit - self._least(goal) + _MARGIN) < 0:
                continue
            part = self._worth.searchsorted(goal)
            dearer = self._cost - self._value * (self._cost[part] / self._value[part])
            with np.errstate(divide="ignore"):
                moves = np.floor(np.minimum(slack / np.abs(dearer), self._bound))
            fewest = np.minimum(fewest, np.where(dearer < 0, self._bound - moves, 0))
            most = np.maximum(most, np.where(dearer < 0, self._bound, moves))
        return self._core(fewest, most - fewest, int(self._least(value) * self._budget)) if most.any() else None

    def _least(self, goal: int) -> float:
        """The part of the budget that the relaxation spends to be worth so much."""
        part = self._worth.searchsorted(goal)
        return float(self._price[part] - (self._worth[part] - goal) * self._cost[part] / self._value[part])

    def _core(self, fewest: "NDArray[float64]", open_uses: "NDArray[float64]", least: int) -> Core | None:
        certain = self._bounds * 0
        certain[self._order] = fewest.astype(certain.dtype)
        left = self._budget - int((certain * self._costs).sum())
        if left < 0:
            return None
        tools: list[Tool] = []
        for at in (open_uses > 0).nonzero()[0].tolist():
            place = int(self._order[at])
            value, cost = int(self._values[place]), int(self._costs[place])
            tools.append((value * self._budget**2 // cost, value, cost, int(open_uses[at]), place))
        tools.sort(reverse=True)
        spent = self._budget - left
        return Core(tools, certain.tolist(), int((certain * self._values).sum()), left, max(0, least - spent))
