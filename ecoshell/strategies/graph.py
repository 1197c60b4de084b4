"""Graph: run a tool graph with independent nodes in parallel, then answer (CATP-LLM §3, SPEC §3)."""

from collections.abc import Generator
from typing import Any

from ecoshell.strategies.protocol import (
    DraftGraph,
    GraphDraft,
    GraphResult,
    Path,
    Request,
    RunGraph,
    StrategySpec,
    Thinking,
    Thought,
)
from ecoshell.strategies.react import extend

MAX_DRAFTS = 2
"""Drafts per graph until one can run."""
MAX_REPAIRS = 1
"""Times that the rest of a graph is drafted again after a failure."""


def graph(question: str, max_steps: int) -> Thinking:
    """Draft a tool graph, run it, repair it once if a node fails, then continue as ReAct.

    A thought instead of a draft continues as ReAct at once, and so does a draft that cannot run. Drafts count as steps.
    """
    path, steps_left = Path(question), max_steps
    unfinished: tuple[str, ...] = ()
    for _ in range(1 + MAX_REPAIRS):
        draft, count = yield from _draft(path, unfinished, min(MAX_DRAFTS, steps_left))
        steps_left -= count
        if isinstance(draft, Thought):
            return (yield from extend(path, steps_left + 1, draft))
        if draft is None:
            break
        result: GraphResult = yield RunGraph(path)
        path, unfinished = path.then(*result.steps), result.unfinished
        if not unfinished:
            break
    return (yield from extend(path, steps_left))


def _draft(
    path: Path, unfinished: tuple[str, ...], limit: int
) -> Generator[Request, Any, tuple[GraphDraft | Thought | None, int]]:
    """Return a draft that can run, a thought, or None, and the number of steps used."""
    fault = ""
    for count in range(1, limit + 1):
        draft: GraphDraft | Thought | None = yield DraftGraph(path, fault, unfinished)
        if draft is None:
            return None, count - 1
        if isinstance(draft, Thought) or not draft.fault:
            return draft, count
        fault = draft.fault
    return None, limit


GRAPH = StrategySpec(
    "graph",
    graph,
    "plans a tool graph, runs independent nodes in parallel, then answers",
    parallel=True,
)
