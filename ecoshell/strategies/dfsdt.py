"""DFSDT: depth-first search over decisions; the one who comes back is told what was tried (BTP §3.1, SPEC §2)."""

from ecoshell.strategies import StrategySpec, Thinking
from ecoshell.strategies.search import depth_first

DEPTH = 12
"""Steps of one path: half of the default step limit, so that a path that leads nowhere leaves room for another."""


def dfsdt(question: str, max_steps: int) -> Thinking:
    """Follow one path; at a dead end go back and try a second child, which is told of the first; stop at an answer.

    A second child is thought of only when the first failed: a question that goes well costs what ReAct costs.
    """
    return depth_first(question, max_steps, depth=DEPTH, propose=lambda search: search.think(*search.here.tried))


DFSDT = StrategySpec("dfsdt", dfsdt, "one path; goes back to try another way where it leads nowhere", searches=True)
