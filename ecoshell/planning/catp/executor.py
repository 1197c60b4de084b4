"""Runs a branching plan: a node starts when all it waits for is done, branches side by side (CATP-LLM §4.1, SPEC §3).

What a node does is the caller's; here is only the order, and what becomes of the nodes behind one that fails.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Generic, Literal, TypeVar

from ecoshell.planning.catp.plan import TASK, GraphPlan, Node

NodeState = Literal["waiting", "running", "done", "failed", "skipped", "stopped"]
T = TypeVar("T")


class NodeFailed(Exception):
    """A node failed; what stands behind it is skipped, all else goes on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class NodeRun:
    """Where a node stands; times are seconds after the plan's start."""

    node: Node
    state: NodeState = "waiting"
    reason: str = ""
    """Why it failed or was skipped; empty where it was stopped."""
    started: float | None = None
    finished: float | None = None


@dataclass(frozen=True, slots=True)
class GraphRun:
    """What a plan came to, its nodes in the plan's order, and the seconds it took by the clock."""

    nodes: tuple[NodeRun, ...]
    seconds: float


RunNode = Callable[[Node, Mapping[str, T]], Awaitable[T]]
"""Runs one node, given the results of those it waits for by their labels; raises NodeFailed."""
Watch = Callable[[NodeRun], None]
"""Hears of every change of a node's state, at once."""


async def run_graph(
    plan: GraphPlan,
    run_node: RunNode[T],
    *,
    parallel: int,
    ordered: Collection[str] = (),
    watch: Watch | None = None,
) -> GraphRun:
    """Run a plan, `parallel` nodes at a time at most; the labels in `ordered` one at a time, as they stand in the plan.

    A node that fails lets only its descendants be skipped. Any other exception, and a cancellation, stops all branches,
    waits for their end and is raised; what ran is stopped then, and what waited is skipped.
    """
    return await _Run(plan, run_node, parallel, ordered, watch).whole()


class _Run(Generic[T]):
    """One plan under way."""

    def __init__(
        self,
        plan: GraphPlan,
        run_node: RunNode[T],
        parallel: int,
        ordered: Collection[str],
        watch: Watch | None,
    ) -> None:
        self._run_node = run_node
        self._slots = max(1, parallel)
        self._watch = watch
        self._runs: dict[str, NodeRun] = {node.label: NodeRun(node) for node in plan.nodes}
        self._results: dict[str, T] = {}
        self._place = {label: at for at, label in enumerate(self._runs)}
        self._order = TopologicalSorter({node.label: {*node.after} - {TASK} for node in plan.nodes})
        self._ready: list[str] = []
        """Nodes that wait for no result any more, but perhaps for their turn or for room."""
        self._turns = [label for label in self._runs if label in ordered]
        """Nodes whose order counts and that have not ended; only the first may run."""
        self._stopped = False

    async def whole(self) -> GraphRun:
        self._begun = asyncio.get_running_loop().time()
        self._order.prepare()
        try:
            async with asyncio.TaskGroup() as self._group:
                self._start()
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            for run in [*self._runs.values()]:  # a node may have been cancelled before its first step
                if run.state == "running":
                    self._tell(run, "stopped")
                elif run.state == "waiting":
                    self._tell(run, "skipped", reason="the plan was stopped")
        return GraphRun(tuple(self._runs.values()), self._now())

    def _now(self) -> float:
        return asyncio.get_running_loop().time() - self._begun

    def _start(self) -> None:
        """Start what may start, as far as there is room, in the plan's order."""
        self._ready = sorted((*self._ready, *self._order.get_ready()), key=self._place.__getitem__)
        waiting, self._ready = self._ready, []
        for label in waiting:
            if not self._slots or (label in self._turns and label != self._turns[0]):
                self._ready.append(label)
            else:
                self._slots -= 1
                self._tell(self._runs[label], "running")
                self._group.create_task(self._one(label), name=label)

    async def _one(self, label: str) -> None:
        """Run one node, and start what waited for it."""
        node = self._runs[label].node
        given = {one: self._results[one] for one in node.after if one != TASK}
        try:
            self._results[label] = await self._run_node(node, given)
        except NodeFailed as failure:
            self._fail(label, failure.reason)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self._stopped = True
                self._tell(self._runs[label], "stopped")
                raise
            self._fail(label, "it was cancelled from within")
        except BaseException as defect:
            self._stopped = True
            self._tell(self._runs[label], "failed", reason=str(defect) or type(defect).__name__)
            raise
        else:
            self._order.done(label)
            self._tell(self._runs[label], "done")
        self._slots += 1
        self._turns = [one for one in self._turns if self._runs[one].state in ("waiting", "running")]
        if not self._stopped:
            self._start()

    def _fail(self, label: str, reason: str) -> None:
        """The node failed: skip what waits for it, directly or not."""
        self._tell(self._runs[label], "failed", reason=reason)
        lost = {label}
        for run in [*self._runs.values()]:
            if not lost.isdisjoint(run.node.after):
                lost.add(run.node.label)
                if run.state == "waiting":
                    self._tell(run, "skipped", reason=f"{label} failed")

    def _tell(self, run: NodeRun, state: NodeState, *, reason: str = "") -> None:
        now = self._now()
        started = now if state == "running" else run.started
        finished = None if state in ("running", "skipped") else now
        told = replace(run, state=state, reason=reason, started=started, finished=finished)
        self._runs[run.node.label] = told
        if self._watch is not None:
            self._watch(told)
