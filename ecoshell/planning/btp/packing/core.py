"""The few tools on which a plan turns, once it is certain how often all the others are used."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import accumulate, takewhile

from ecoshell.planning.btp.packing.branching import Best, Grain, Tool, search


@dataclass(frozen=True, slots=True)
class Core:
    """Tools in question, by falling rank, their bounds counting uses beyond the certain ones."""

    tools: Sequence[Tool]
    certain: Sequence[int]
    """How often each of all tools is used in any case, by place."""
    worth: int
    """Value of the certain uses."""
    budget: int
    """What they leave of it."""
    least: int
    """Every better plan spends at least so much of that."""

    def middle(self, width: int) -> "Core":
        """So many tools: half of them about the one that the budget breaks at, half the cheapest behind these.

        Of the others, those before are used and those behind are not.
        """
        if len(self.tools) <= width:
            return self
        spent = accumulate(cost * bound for _, _, cost, bound, _ in self.tools)
        at = sum(1 for _ in takewhile(self.budget.__ge__, spent))
        first = max(0, at - width // 4)
        certain, worth, budget = self.plan([bound for _, _, _, bound, _ in self.tools[:first]])
        about, behind = self.tools[first : first + width // 2], self.tools[first + width // 2 :]
        tools = sorted([*about, *nsmallest(width // 2, behind, key=_cost)], reverse=True)
        return Core(tools, certain, worth, budget, 0)

    def filled(self, counts: Sequence[int]) -> Sequence[int]:
        """These counts, and as many further uses as are still within the bounds and the budget."""
        fuller, (_, _, left) = list(counts), self.plan(counts)
        for at, (_, _, cost, bound, _) in enumerate(self.tools):
            more = min(bound - fuller[at], left // cost)
            fuller[at] += more
            left -= more * cost
        return fuller

    def search(self, best: Best, grain: Grain, leaves: int) -> tuple[Best, bool]:
        """The best plan, if so many plans are enough to find it, and whether it is proven."""
        _, value, left = best
        known: Best = ((), value - self.worth, left)
        found, proven = search(self.tools, self.budget, grain, known, leaves)
        return (self.plan(found[0]) if found[1:] > known[1:] else best), proven

    def plan(self, counts: Iterable[int]) -> Best:
        """The whole plan in which the first of these tools are used so often, beyond what is certain."""
        whole, value, left = list(self.certain), self.worth, self.budget
        for (_, gain, cost, _, place), count in zip(self.tools, counts, strict=False):
            whole[place] += count
            value += gain * count
            left -= cost * count
        return whole, value, left


def _cost(tool: Tool) -> int:
    return tool[2]
