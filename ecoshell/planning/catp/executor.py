"""Runs a branching plan: a node starts when all it waits for is done, branches side by side (CATP-LLM §4.1, SPEC §3).

What a node does is the caller's; here is only the order, and what becomes of the nodes behind one that fails.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from ecoshell.planning.catp.base import TASK, GraphPlan, Node

NodeState = Literal["waiting", "running", "done", "failed", "skipped", "stopped"]
T = TypeVar("T")
_STOPPED = "the plan was stopped"


class NodeFailed(Exception):
    """A node came to nothing; what stands behind it is skipped, all else goes on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class NodeRun(Generic[T]):
    """Where a node stands; times are seconds after the plan's start."""

    node: Node
    state: NodeState = "waiting"
    result: T | None = None
    """What it gave; None unless it is done."""
    reason: str = ""
    """Why it failed or was skipped; empty where it was stopped."""
    started: float | None = None
    finished: float | None = None


@dataclass(frozen=True, slots=True)
class GraphRun(Generic[T]):
    """What a plan came to, its nodes in the plan's order, and the seconds it took by the clock."""

    nodes: tuple[NodeRun[T], ...]
    seconds: float


RunNode = Callable[[Node, Mapping[str, T]], Awaitable[T]]
"""Runs one node, given the results of those it waits for by their labels; raises NodeFailed."""
Watch = Callable[[NodeRun[T]], None]
"""Hears of every change of a node's state, at once."""


async def run_graph(
    plan: GraphPlan,
    run_node: RunNode[T],
    *,
    parallel: int,
    ordered: Collection[str] = (),
    seconds: float | None = None,
    watch: Watch[T] | None = None,
) -> GraphRun[T]:
    """Run a plan, `parallel` nodes at a time at most; the labels in `ordered` one at a time, as they stand in the plan.

    A node that fails, or takes longer than `seconds`, lets only its descendants be skipped. Any other exception, and a
    cancellation, stops all branches, waits for their end and is raised; what ran is stopped then, and what waited is
    skipped. Raises ValueError for a node that waits for none before it.
    """
    return await _Run(plan, run_node, parallel, ordered, seconds, watch).whole()


class _Run(Generic[T]):
    """One plan under way."""

    def __init__(
        self,
        plan: GraphPlan,
        run_node: RunNode[T],
        parallel: int,
        ordered: Collection[str],
        seconds: float | None,
        watch: Watch[T] | None,
    ) -> None:
        self._run_node = run_node
        self._slots = max(1, parallel)
        self._seconds = seconds
        self._watch = watch
        self._position = {node.label: at for at, node in enumerate(plan.nodes)}
        self._runs: dict[str, NodeRun[T]] = {node.label: NodeRun(node) for node in plan.nodes}
        self._results: dict[str, T] = {}
        self._behind, self._awaited = _edges(plan)
        self._turns = deque(node.label for node in plan.nodes if node.label in ordered)
        """Nodes whose order counts and that have not ended; only the first may run."""
        self._ordered = frozenset(self._turns)
        self._ready: list[int] = []
        """Positions of nodes that may start, a heap."""
        self._labels = list(self._position)
        self._stopped = False

    async def whole(self) -> GraphRun[T]:
        loop = asyncio.get_running_loop()
        self._begun = loop.time()
        self._clock = loop.time
        for label, awaited in self._awaited.items():
            if not awaited:
                self._may_start(label)
        try:
            async with asyncio.TaskGroup() as self._group:
                self._start()
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            self._stop()
        return GraphRun(tuple(self._runs.values()), self._now())

    def _now(self) -> float:
        return self._clock() - self._begun

    def _may_start(self, label: str) -> None:
        """The node waits for no result any more, but perhaps for its turn."""
        if label not in self._ordered or self._turns[0] == label:
            heapq.heappush(self._ready, self._position[label])

    def _start(self) -> None:
        """Start what may start, as far as there is room."""
        while self._slots and self._ready and not self._stopped:
            label = self._labels[heapq.heappop(self._ready)]
            self._slots -= 1
            self._tell(replace(self._runs[label], state="running", started=self._now()))
            self._group.create_task(self._one(label), name=label)

    async def _one(self, label: str) -> None:
        """Run one node, and start what waited for it."""
        try:
            result = await self._within_limit(self._runs[label].node)
        except NodeFailed as failure:
            self._end(label, "failed", reason=failure.reason)
            self._skip(self._behind[label], f"{label} failed")
        except asyncio.CancelledError:
            self._stopped = True
            self._end(label, "stopped")
            raise
        except BaseException as defect:
            self._stopped = True
            self._end(label, "failed", reason=str(defect) or type(defect).__name__)
            raise
        else:
            self._results[label] = result
            self._end(label, "done", result=result)
            for follower in self._behind[label]:
                self._awaited[follower].discard(label)
                if not self._awaited[follower] and self._runs[follower].state == "waiting":
                    self._may_start(follower)
        self._slots += 1
        self._next_turn()
        self._start()

    async def _within_limit(self, node: Node) -> T:
        given = {label: self._results[label] for label in node.after if label != TASK}
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                return await self._run_node(node, given)
        except TimeoutError:
            if not limit.expired():
                raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise NodeFailed("it was cancelled from within") from None
        raise NodeFailed(f"it took longer than {self._seconds:g} s")

    def _end(self, label: str, state: NodeState, *, result: T | None = None, reason: str = "") -> None:
        self._tell(replace(self._runs[label], state=state, result=result, reason=reason, finished=self._now()))

    def _skip(self, labels: Collection[str], reason: str) -> None:
        """Skip those of the nodes that wait, and all behind them."""
        rest = list(reversed(list(labels)))
        while rest:
            label = rest.pop()
            if self._runs[label].state == "waiting":
                self._tell(replace(self._runs[label], state="skipped", reason=reason))
                rest.extend(reversed(self._behind[label]))

    def _stop(self) -> None:
        """Let nothing stand as if it went on: a node may have been started and cancelled before its first step."""
        for label in self._labels:
            if self._runs[label].state == "running":
                self._end(label, "stopped")
        self._skip(self._labels, _STOPPED)

    def _next_turn(self) -> None:
        """Let the next of the nodes whose order counts start, where those before it have ended."""
        ended = False
        while self._turns and self._runs[self._turns[0]].state not in ("waiting", "running"):
            self._turns.popleft()
            ended = True
        if ended and self._turns and not self._awaited[self._turns[0]]:
            self._may_start(self._turns[0])

    def _tell(self, run: NodeRun[T]) -> None:
        self._runs[run.node.label] = run
        if self._watch is not None:
            self._watch(run)


def _edges(plan: GraphPlan) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """What stands right behind each node, and what each waits for."""
    behind: dict[str, list[str]] = {}
    awaited: dict[str, set[str]] = {}
    for node in plan.nodes:
        label, before = node.label, set(node.after) - {TASK}
        if label in behind:
            raise ValueError(f"{label} stands in the plan twice")
        if missing := before - behind.keys():
            raise ValueError(f"{label} waits for {sorted(missing)[0]}, which does not stand before it")
        for earlier in before:
            behind[earlier].append(label)
        behind[label], awaited[label] = [], before
    return behind, awaited
