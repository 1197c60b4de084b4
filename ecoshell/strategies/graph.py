"""Graph: a parallel plan whose branches run side by side, then the answer (CATP-LLM §3, SPEC §3)."""

from collections.abc import Generator
from typing import Any

from ecoshell.strategies import (
    Draft,
    Drafted,
    Gathered,
    Path,
    Request,
    RunParallel,
    StrategySpec,
    Thinking,
    Thought,
)
from ecoshell.strategies.react import onward

ATTEMPTS = 2
"""Plans that are written at most until one can be run."""
REPAIRS = 1
"""How often the rest of a plan is written anew after a part of it has failed."""


def graph(question: str, max_steps: int) -> Thinking:
    """Draft a plan, run it, repair it once where it failed, and go on from what it found as ReAct does.

    A thought in the place of a plan is followed; without a plan that can be run, everything goes as in ReAct. Drafts
    count as steps.
    """
    path, left = Path(question), max_steps
    unfinished: tuple[str, ...] = ()
    for _ in range(1 + REPAIRS):
        drafted, taken = yield from _draft(path, unfinished, min(ATTEMPTS, left))
        left -= taken
        if isinstance(drafted, Thought):
            return (yield from onward(path, left + 1, drafted))
        if drafted is None:
            break
        gathered: Gathered = yield RunParallel(path)
        path, unfinished = path.then(*gathered.steps), gathered.unfinished
        if not unfinished:
            break
    return (yield from onward(path, left))


def _draft(
    path: Path, unfinished: tuple[str, ...], most: int
) -> Generator[Request, Any, tuple[Drafted | Thought | None, int]]:
    """A plan that can be run, a thought, or None; and how many steps that took."""
    fault = ""
    for taken in range(1, most + 1):
        drafted: Drafted | Thought | None = yield Draft(path, fault, unfinished)
        if drafted is None:
            return None, taken - 1
        if isinstance(drafted, Thought) or not drafted.fault:
            return drafted, taken
        fault = drafted.fault
    return None, most


GRAPH = StrategySpec("graph", graph, "plans branches, runs them side by side, then answers", branches=True)
