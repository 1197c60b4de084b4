"""DFSDT and ToT-DFS: depth-first search over thoughts and calls (BTP §3.1, SPEC §2).

A node is a path; its children are the steps taken from it, `WIDTH` at most. A path comes to a dead end when the model
gives up on it, when it is as deep as it may be and still acts, when `FAILURES` calls in a row brought nothing, or when
the model proposes again what was tried there. The search then goes back to the nearest node above that has a child left
to try.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from ecoshell.messages import Call
from ecoshell.strategies import (
    FOUND_MOST,
    Backtrack,
    Outcome,
    Path,
    Rank,
    Request,
    Step,
    StrategySpec,
    Thinking,
    Thought,
    Tried,
    act,
    ending,
    same,
    think,
)

DFSDT_DEPTH, TOT_DEPTH = 12, 8
"""Steps of one path: at most half of the default step limit, so that one that leads nowhere leaves room for another."""
WIDTH = 2
FAILURES = 3
"""Calls in a row that fail or were made before, after which a branch is left from before the first of them."""
_REASON = 300
"""Characters of a reason that siblings are told."""


@dataclass(slots=True)
class Node:
    """A place in the tree: the path to it, the children that failed, and the proposals that wait."""

    path: Path
    tried: tuple[Tried, ...] = ()
    waiting: list[Thought] = field(default_factory=list[Thought])


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """Why a path is left, and how many of its last steps are not worth another try from between them."""

    reason: str
    steps: int = 1


class Search:
    """The nodes from the root to where the search is, the thoughts that are left, and the best path seen."""

    def __init__(self, question: str, max_steps: int, depth: int) -> None:
        self.left = max_steps
        """Thoughts that may still be asked for, over the whole tree."""
        self.best = Path(question)
        """The latest of the paths with the most results."""
        self.given_up = ""
        """The last reason the model gave for giving up on a path."""
        self._depth = depth
        self._nodes = [Node(self.best)]

    @property
    def here(self) -> Node:
        """The node whose children are being tried."""
        return self._nodes[-1]

    @property
    def deepest(self) -> bool:
        """Whether no step may follow here but one that ends the path."""
        return len(self.here.path.steps) >= self._depth

    def think(self, *tried: Tried, proposal: bool = False) -> Generator[Request, Any, Thought]:
        """Yield for a thought here, and count it."""
        self.left -= 1
        return (yield from think(self.here.path, tried, proposal=proposal))

    def refuse(self, call: Call, outcome: Outcome | None) -> DeadEnd | None:
        """Why this call, which brings about this outcome, is not made but ends the path."""
        if outcome is not None:
            self.given_up = outcome.answer
            return DeadEnd(f"given up: {outcome.answer}")
        if any(same(call, tried.call) for tried in self.here.tried):
            return DeadEnd("nothing else was found to try")
        return DeadEnd(f"no answer after {self._depth} steps") if self.deepest else None

    def enter(self, step: Step) -> DeadEnd | None:
        """Go one step further; why that is no place to go on from, if it is none."""
        self._nodes.append(Node(self.here.path.then(step)))
        self._arrive()
        last = self.here.path.steps[-FAILURES:]
        if len(last) < FAILURES or any(one.observation.ok and not one.observation.refused for one in last):
            return None
        return DeadEnd(f"{FAILURES} calls in a row brought nothing, at last: {step.observation.text}", FAILURES)

    def back(self, end: DeadEnd) -> bool:
        """Go back to the nearest node above that has a child left to try; says whether there is one."""
        reason = " ".join(end.reason.split())[:_REASON]
        del self._nodes[len(self._nodes) - end.steps + 1 :]
        while len(self._nodes) > 1:
            child, node = self._nodes.pop(), self._nodes[-1]
            node.tried += (Tried(child.path.steps[-1].call, reason),)
            if len(node.tried) < WIDTH:
                self._arrive()
                return True
        return False

    def settle(self, path: Path) -> Generator[Request, Any, Path]:
        """Go from this path to the best one, where that is another: without an answer, it has what there is to tell."""
        if self.best is not path:
            yield Backtrack(path, self.best, FOUND_MOST)
        return self.best

    def _arrive(self) -> None:
        if self.here.path.results >= self.best.results:
            self.best = self.here.path


def depth_first(
    question: str, max_steps: int, *, depth: int, propose: Callable[[Search], Generator[Request, Any, Thought]]
) -> Thinking:
    """Search until the first answer; `propose` gives the next thought to act upon where the search is.

    `max_steps` counts thoughts over the whole tree; when they run out, the outcome is `exhausted`, with the best path.
    """
    search = Search(question, max_steps, depth)
    path = search.here.path
    while search.left > 0:
        path = search.here.path
        thought = yield from propose(search)
        outcome, call = ending(thought, path), thought.call
        if call is None or (outcome is not None and outcome.ending == "answered"):
            return outcome or Outcome("answered", thought.rationale, path)
        end = search.refuse(call, outcome)
        if end is None:
            for step in (yield from act(path, thought)):
                end = search.enter(step)
            path = search.here.path
        if end is not None and not search.back(end):
            best = yield from search.settle(path)
            return Outcome("gave_up" if search.given_up else "exhausted", search.given_up, best)
        if end is not None and search.left > 0:
            yield Backtrack(path, search.here.path, end.reason)
    return Outcome("exhausted", "", (yield from search.settle(path)))


def dfsdt(question: str, max_steps: int) -> Thinking:
    """Follow one path; at a dead end go back and try a second child, which is told of the first; stop at an answer.

    A second child is thought of only when the first failed: a question that goes well costs what ReAct costs.
    """
    return depth_first(question, max_steps, depth=DFSDT_DEPTH, propose=lambda search: search.think(*search.here.tried))


DFSDT = StrategySpec("dfsdt", dfsdt, "one path; goes back to try another way where it leads nowhere", searches=True)


def tot(question: str, max_steps: int) -> Thinking:
    """Propose two next steps, rank them, take the better one; the other waits in case the search comes back.

    A child is a proposed thought with its call, ranked *before* it is carried out. Executing both to compare what came
    of them would pay for the loser's tool each time, and have its side effects; ranking proposals spends on the loser
    only a thought. An answer proposed first ends the search at once; one proposed second is ranked like any step.
    """
    return depth_first(question, max_steps, depth=TOT_DEPTH, propose=_best_of_two)


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
