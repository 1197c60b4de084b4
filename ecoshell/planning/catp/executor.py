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
    """A node failed, and why; what stands behind it is skipped, all else goes on."""


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
    run = _Run(plan, run_node, parallel, ordered, watch)
    try:
        async with run.group:
            run.start()
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    finally:
        for one in [*run.nodes.values()]:  # a node may have been cancelled before its first step
            if one.state == "running":
                run.tell(one, "stopped")
            elif one.state == "waiting":
                run.tell(one, "skipped", reason="the plan was stopped")
    return GraphRun(tuple(run.nodes.values()), run.now())


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
        self.nodes: dict[str, NodeRun] = {node.label: NodeRun(node) for node in plan.nodes}
        self.group = asyncio.TaskGroup()
        self._run_node = run_node
        self._slots = max(1, parallel)
        self._watch = watch
        self._results: dict[str, T] = {}
        self._place = {label: at for at, label in enumerate(self.nodes)}
        self._order = TopologicalSorter({node.label: {*node.after} - {TASK} for node in plan.nodes})
        self._order.prepare()
        self._ready: list[str] = []
        """Nodes that wait for no result any more, but perhaps for their turn or for room."""
        self._turns = [label for label in self.nodes if label in ordered]
        """Nodes whose order counts and that have not ended; only the first may run."""
        self._stopped = False
        self._begun = asyncio.get_running_loop().time()

    def now(self) -> float:
        """Seconds since the plan's start."""
        return asyncio.get_running_loop().time() - self._begun

    def start(self) -> None:
        """Start what may start, as far as there is room, in the plan's order."""
        waiting = sorted((*self._ready, *self._order.get_ready()), key=self._place.__getitem__)
        self._ready = []
        for label in waiting:
            if not self._slots or (label in self._turns and label != self._turns[0]):
                self._ready.append(label)
            else:
                self._slots -= 1
                self.tell(self.nodes[label], "running")
                self.group.create_task(self._one(label), name=label)

    async def _one(self, label: str) -> None:
        """Run one node; then start what waited for it or, where it failed, skip that, directly or not."""
        node = self.nodes[label].node
        given = {one: self._results[one] for one in node.after if one != TASK}
        try:
            self._results[label] = await self._run_node(node, given)
        except NodeFailed as failure:
            self.tell(self.nodes[label], "failed", reason=str(failure))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self._stopped = True
                self.tell(self.nodes[label], "stopped")
                raise
            self.tell(self.nodes[label], "failed", reason="it was cancelled from within")
        except BaseException as defect:
            self._stopped = True
            self.tell(self.nodes[label], "failed", reason=str(defect) or type(defect).__name__)
            raise
        else:
            self._order.done(label)
            self.tell(self.nodes[label], "done")
        lost = {label} if self.nodes[label].state == "failed" else set[str]()
        for run in [*self.nodes.values()]:
            if not lost.isdisjoint(run.node.after):
                lost.add(run.node.label)
                if run.state == "waiting":
                    self.tell(run, "skipped", reason=f"{label} failed")
        self._slots += 1
        self._turns = [one for one in self._turns if self.nodes[one].state in ("waiting", "running")]
        if not self._stopped:
            self.start()

    def tell(self, run: NodeRun, state: NodeState, *, reason: str = "") -> None:
        """Keep a node's new state, and say so."""
        now = self.now()
        started = now if state == "running" else run.started
        finished = None if state in ("running", "skipped") else now
        told = replace(run, state=state, reason=reason, started=started, finished=finished)
        self.nodes[run.node.label] = told
        if self._watch is not None:
            self._watch(told)
