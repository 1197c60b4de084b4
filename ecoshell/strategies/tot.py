"""ToT-DFS: depth-first search; two next steps are proposed and compared before one is taken (BTP §3.1, SPEC §2)."""

from collections.abc import Generator
from typing import Any

from ecoshell.strategies import Rank, Request, StrategySpec, Thinking, Thought, Tried, ending, same
from ecoshell.strategies.search import Search, depth_first

DEPTH = 8


def tot(question: str, max_steps: int) -> Thinking:
    """Propose two next steps, rank them, take the better one; the other waits in case the search comes back.

    A child is a proposed thought with its call, ranked *before* it is carried out. Executing both to compare what came
    of them would pay for the loser's tool each time, and have its side effects; ranking proposals spends on the loser
    only a thought. An answer proposed first ends the search at once; one proposed second is ranked like any step.
    """
    return depth_first(question, max_steps, depth=DEPTH, propose=_best_of_two)


def _best_of_two(search: Search) -> Generator[Request, Any, Thought]:
    """The better of two new proposals; after coming back the one that waits or, where none does, another thought."""
    node = search.here
    if node.waiting:
        return node.waiting.pop()
    if node.tried:
        return (yield from search.think(*node.tried))
    one = yield from search.think(proposal=True)
    if one.call is None or ending(one, node.path) or search.deepest or not search.left:
        return one
    other = yield from search.think(Tried(one.call), proposal=True)
    outcome = ending(other, node.path)
    given_up = outcome is not None and outcome.ending == "gave_up"
    if given_up or (other.call is not None and same(one.call, other.call)):  # there is nothing to compare
        return one
    # in both orders (SPEC §2); where they disagree the earlier one stays, so the second is asked only where it counts
    if (yield Rank(node.path, one, other)) == other and (yield Rank(node.path, other, one)) == other:
        one, other = other, one
    node.waiting.append(other)
    return one


TOT = StrategySpec("tot", tot, "compares two next steps before it takes one; goes back like dfsdt", searches=True)
