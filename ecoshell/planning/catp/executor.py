"""The executor of tool graphs: a node starts when its dependencies are done (CATP-LLM §4.1, SPEC §3).

The caller runs the nodes; the executor handles order, concurrency and the descendants of failed nodes.
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
    """A node failed; its descendants are skipped and all other nodes continue."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """The state of a node; times are seconds since the start of the graph."""

    node: Node
    state: NodeState = "waiting"
    reason: str = ""
    """Why it failed or was skipped; empty if stopped."""
    started: float | None = None
    finished: float | None = None


@dataclass(frozen=True, slots=True)
class GraphRun:
    """The final states of all nodes, in the order of the graph, and the elapsed seconds."""

    nodes: tuple[NodeRun, ...]
    seconds: float


RunNode = Callable[[Node, Mapping[str, T]], Awaitable[T]]
"""Runs a node with the results of its dependencies by label; raises NodeFailed."""
Watch = Callable[[NodeRun], None]
"""Receives every change of a node's state."""


async def run_graph(
    plan: GraphPlan,
    run_node: RunNode[T],
    *,
    parallel: int,
    ordered: Collection[str] = (),
    watch: Watch | None = None,
) -> GraphRun:
    """Run a tool graph with at most `parallel` concurrent nodes; `ordered` labels run one at a time, in graph order.

    A failed node causes only its descendants to be skipped. Any other exception, or a cancellation, stops the running
    nodes, skips the waiting ones, and is raised.
    """
    run = _Run(plan, run_node, parallel, ordered, watch)
    try:
        async with run.group:
            run.start()
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    finally:
        for node_run in [*run.nodes.values()]:  # a node may be cancelled before its task starts
            if node_run.state == "running":
                run.tell(node_run, "stopped")
            elif node_run.state == "waiting":
                run.tell(node_run, "skipped", reason="the plan was stopped")
    return GraphRun(tuple(run.nodes.values()), run.now())


class _Run(Generic[T]):
    """The run of one tool graph."""

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
        """Nodes whose dependencies are done, waiting for their turn or a free slot."""
        self._turns = [label for label in self.nodes if label in ordered]
        """Unfinished ordered nodes; only the first may run."""
        self._stopped = False
        self._begun = asyncio.get_running_loop().time()

    def now(self) -> float:
        """Return the seconds since the start."""
        return asyncio.get_running_loop().time() - self._begun

    def start(self) -> None:
        """Start ready nodes in graph order while slots are free."""
        waiting = sorted((*self._ready, *self._order.get_ready()), key=self._place.__getitem__)
        self._ready = []
        for label in waiting:
            if not self._slots or (label in self._turns and label != self._turns[0]):
                self._ready.append(label)
            else:
                self._slots -= 1
                self.tell(self.nodes[label], "running")
                self.group.create_task(self._run(label), name=label)

    async def _run(self, label: str) -> None:
        """Run one node, then start its dependents or, after a failure, skip its descendants."""
        node = self.nodes[label].node
        inputs = {
            dependency: self._results[dependency] for dependency in node.after if dependency != TASK
        }
        try:
            self._results[label] = await self._run_node(node, inputs)
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
        self._turns = [
            turn for turn in self._turns if self.nodes[turn].state in ("waiting", "running")
        ]
        if not self._stopped:
            self.start()

    def tell(self, run: NodeRun, state: NodeState, *, reason: str = "") -> None:
        """Record and report a node's new state."""
        now = self.now()
        started = now if state == "running" else run.started
        finished = None if state in ("running", "skipped") else now
        changed = replace(run, state=state, reason=reason, started=started, finished=finished)
        self.nodes[run.node.label] = changed
        if self._watch is not None:
            self._watch(changed)
