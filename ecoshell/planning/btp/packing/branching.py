"""The best plan among a few tools: a search in depth that leaves every branch which cannot be better."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

Tool = tuple[int, int, int, int, int]
"""Rank, value, cost, bound, and its place among the tools given; value, cost and bound are above zero.

The rank is its value per cost in units of 1/budget², fine enough to put any two tools in their order."""
Best = tuple[Sequence[int], int, int]
"""The best plan so far: how often each tool, what that is worth, and what it leaves of the budget."""
Grain = tuple[int, int]
"""The least by which plans can differ, if they do: a common divisor of all values, and one of all costs."""
NOTHING: Best = ((), -1, 0)
"""What every plan is better than."""


def search(  # noqa: PLR0912 - one loop, in which calls would take most of the time
    tools: Sequence[Tool], budget: int, grain: Grain, best: Best, leaves: int
) -> tuple[Best, bool]:
    """The best plan (`best` if none is better), and whether so many plans were enough to prove it.

    Tools come by falling rank. Better is what is worth more, or as much for less. The first plan is the greedy one;
    each further one takes back a use of the last before it, and goes on from there unless what is left cannot pay for
    a better plan even where the tools that follow may be used in parts.
    """
    (worth, price), (counts, value, left) = _greedy(tools, budget)
    if price[-1] <= budget:
        return (counts, value, left), True
    found, best_value, best_left = best
    (more, less), n, everything = grain, len(tools), worth[-1]
    last = bisect_right(price, budget) - 1
    most = worth[last] + (budget - price[last]) * tools[last][1] // tools[last][2]
    for _ in range(leaves):
        if value > best_value or (value == best_value and left > best_left):
            found, best_value, best_left = counts[:], value, left
            if value + more > most and _least_cost(tools, worth, price, value) > budget - left - less:
                return (found, best_value, best_left), True
        for at in range(n - 1, -1, -1):
            if count := counts[at]:
                rank, gain, cost, _, _ = tools[at]
                value, left, rest = value - gain, left + cost, at + 1
                while rest < n and tools[rest][0] == rank and tools[rest][2] == cost:
                    rest += 1  # another tool of the kind would only make up for it
                goal = worth[rest] + best_value - value
                if goal <= everything:
                    part = bisect_left(worth, goal, rest) - 1
                    _, full, dear, _, _ = tools[part]
                    after = left + price[rest] - price[part] + (worth[part] - goal) * dear // full
                    if after >= best_left + less:
                        break
                    goal += more
                    if after >= 0 and goal <= everything:
                        part = bisect_left(worth, goal, part) - 1
                        _, full, dear, _, _ = tools[part]
                        if left + price[rest] - price[part] + (worth[part] - goal) * dear // full >= 0:
                            break
                counts[at] = 0
                if count > 1:
                    value, left = value - (count - 1) * gain, left + (count - 1) * cost
        else:
            return (found, best_value, best_left), True
        counts[at] = count - 1
        for at in range(rest, n):
            _, gain, cost, count, _ = tools[at]
            if cost <= left:
                if count * cost > left:
                    count = left // cost
                counts[at], value, left = count, value + count * gain, left - count * cost
    return (found, best_value, best_left), False


def _least_cost(tools: Sequence[Tool], worth: Sequence[int], price: Sequence[int], goal: int) -> int:
    """What a plan costs at least that is worth so much, tools used in parts among them; there is one."""
    part = bisect_left(worth, goal) - 1
    _, full, cost, _, _ = tools[part]
    return price[part] - (worth[part] - goal) * cost // full


def _greedy(tools: Sequence[Tool], budget: int) -> tuple[tuple[list[int], list[int]], tuple[list[int], int, int]]:
    """Value and cost of all uses of the tools before each place, and the plan that uses each as often as it can pay."""
    worth, price, counts = [0], [0], list[int]()
    all_worth = all_price = value = 0
    left = budget
    for _, gain, cost, count, _ in tools:
        all_worth += gain * count
        all_price += cost * count
        worth.append(all_worth)
        price.append(all_price)
        if cost * count > left:
            count = left // cost  # noqa: PLW2901 - as many as can be paid for
        counts.append(count)
        value += count * gain
        left -= count * cost
    return (worth, price), (counts, value, left)
