"""DFSDT and ToT-DFS: depth-first search over thoughts and calls (BTP §3.1, SPEC §2).

A node is a path; its children are the steps taken from it, at most `WIDTH`. A path is a dead end when the model gives
up, when it acts at the maximum depth, when `FAILURES` consecutive calls failed, or when the model repeats a proposal.
The search then backtracks to the nearest ancestor with an unexplored child.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from ecoshell.strategies.protocol import (
    FOUND_MOST,
    AskModel,
    Backtrack,
    Outcome,
    Path,
    Rank,
    Request,
    Sibling,
    Step,
    StrategySpec,
    Thinking,
    Thought,
    act,
    ending,
    same,
)

DFSDT_DEPTH = 12
"""Maximum steps of a path; at most half of the default step limit, so that a dead end leaves room for another path."""
TOT_DEPTH = 8
WIDTH = 2
FAILURES = 3
"""Consecutive failed or repeated calls that make a path a dead end, from before the first of them."""
_REASON_CHARACTERS = 300


@dataclass(slots=True)
class Node:
    """A node of the tree: its path, failed children, and pending proposals."""

    path: Path
    failed_children: tuple[Sibling, ...] = ()
    waiting: list[Thought] = field(default_factory=list[Thought])


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """Why a path is abandoned, and how many of its last steps are skipped as restart points."""

    reason: str
    steps: int = 1


class Search:
    """The nodes from the root to the current one, the remaining thoughts, and the best path."""

    def __init__(self, question: str, max_steps: int, depth: int) -> None:
        self.thoughts_left = max_steps
        """Remaining thoughts for the entire tree."""
        self.best = Path(question)
        """The latest path with the most results."""
        self.given_up = ""
        """The model's latest reason for giving up."""
        self._depth = depth
        self._nodes = [Node(self.best)]

    @property
    def here(self) -> Node:
        return self._nodes[-1]

    @property
    def deepest(self) -> bool:
        """Whether the current path has the maximum depth."""
        return len(self.here.path.steps) >= self._depth

    def think(self, *siblings: Sibling, proposal: bool = False) -> Generator[Request, Any, Thought]:
        """Request a thought at the current node and count it."""
        self.thoughts_left -= 1
        return (yield AskModel(self.here.path, siblings, proposal))

    def refuse(self, thought: Thought, outcome: Outcome | None) -> DeadEnd | None:
        """Return why a thought is a dead end; None if its calls may run."""
        if outcome is not None:
            self.given_up = outcome.answer
            return DeadEnd(f"given up: {outcome.answer}")
        call, failed = thought.call, self.here.failed_children
        if call is not None and any(same(call, sibling.call) for sibling in failed):
            return DeadEnd("nothing else was found to try")
        return DeadEnd(f"no answer after {self._depth} steps") if self.deepest else None

    def enter(self, step: Step) -> DeadEnd | None:
        """Move to the child that a step leads to; return why it is a dead end, if it is."""
        self._nodes.append(Node(self.here.path.then(step)))
        self._arrive()
        last = self.here.path.steps[-FAILURES:]
        if len(last) < FAILURES or any(
            child.observation.ok and not child.observation.refused for child in last
        ):
            return None
        return DeadEnd(
            f"{FAILURES} calls in a row brought nothing, at last: {step.observation.text}", FAILURES
        )

    def back(self, end: DeadEnd) -> bool:
        """Backtrack to the nearest ancestor with an unexplored child; return whether one exists."""
        reason = " ".join(end.reason.split())[:_REASON_CHARACTERS]
        del self._nodes[len(self._nodes) - end.steps + 1 :]
        while len(self._nodes) > 1:
            child, node = self._nodes.pop(), self._nodes[-1]
            node.failed_children += (Sibling(child.path.steps[-1].call, reason),)
            if len(node.failed_children) < WIDTH:
                self._arrive()
                return True
        return False

    def settle(self, path: Path) -> Generator[Request, Any, Path]:
        """Backtrack to the best path, if it is not the current one, and return it."""
        if self.best is not path:
            yield Backtrack(path, self.best, FOUND_MOST)
        return self.best

    def _arrive(self) -> None:
        if self.here.path.results >= self.best.results:
            self.best = self.here.path


def depth_first(
    question: str,
    max_steps: int,
    *,
    depth: int,
    propose: Callable[[Search], Generator[Request, Any, Thought]],
) -> Thinking:
    """Search until the first answer; `propose` returns the next thought to execute at the current node.

    `max_steps` counts thoughts in the entire tree; without any left, the outcome is `exhausted` with the best path.
    """
    search = Search(question, max_steps, depth)
    path = search.here.path
    while search.thoughts_left > 0:
        path = search.here.path
        thought = yield from propose(search)
        outcome = ending(thought, path)
        if outcome is not None and outcome.ending == "answered":
            return outcome
        end = search.refuse(thought, outcome)
        if end is None:
            for step in (yield from act(path, thought)):
                end = search.enter(step)
            path = search.here.path
        if end is not None and not search.back(end):
            best = yield from search.settle(path)
            return Outcome("gave_up" if search.given_up else "exhausted", search.given_up, best)
        if end is not None and search.thoughts_left > 0:
            yield Backtrack(path, search.here.path, end.reason)
    return Outcome("exhausted", "", (yield from search.settle(path)))


def dfsdt(question: str, max_steps: int) -> Thinking:
    """Follow one path; at a dead end, backtrack and request a second child, with the first one in the prompt.

    The second child is requested only after the first failed, so an easy question costs the same as with ReAct.
    """
    return depth_first(
        question,
        max_steps,
        depth=DFSDT_DEPTH,
        propose=lambda search: search.think(*search.here.failed_children),
    )


DFSDT = StrategySpec(
    "dfsdt", dfsdt, "one path; goes back to try another way where it leads nowhere", searches=True
)


def tot(question: str, max_steps: int) -> Thinking:
    """Propose two next steps, rank them and execute the better one; the other is kept for backtracking.

    Proposals are ranked *before* execution: executing both would pay for the tool of the loser, with its side effects.
    An answer as the first proposal ends the search at once; as the second proposal it is ranked like any step.
    """
    return depth_first(question, max_steps, depth=TOT_DEPTH, propose=_best_of_two)


def _best_of_two(search: Search) -> Generator[Request, Any, Thought]:
    """Return the better of two proposals; after backtracking, the pending proposal or a new thought."""
    node = search.here
    if node.waiting:
        return node.waiting.pop()
    if node.failed_children:
        return (yield from search.think(*node.failed_children))
    first = yield from search.think(proposal=True)
    if first.call is None or ending(first, node.path) or search.deepest or not search.thoughts_left:
        return first
    second = yield from search.think(Sibling(first.call), proposal=True)
    outcome = ending(second, node.path)
    has_given_up = outcome is not None and outcome.ending == "gave_up"
    # nothing to compare
    if has_given_up or (second.call is not None and same(first.call, second.call)):
        return first
    # ranked in both orders (SPEC §2): the second must win both, so the other order is requested only after a win
    if (yield Rank(node.path, first, second)) == second and (
        yield Rank(node.path, second, first)
    ) == second:
        first, second = second, first
    node.waiting.append(second)
    return first


TOT = StrategySpec(
    "tot", tot, "compares two next steps before it takes one; goes back like dfsdt", searches=True
)
