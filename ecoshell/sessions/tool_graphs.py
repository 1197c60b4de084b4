"""The state of tool graphs, rebuilt from a session's events."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ecoshell.events import (
    CallFinished,
    CallJudged,
    CallMarked,
    Event,
    GraphPlanned,
    NodeChanged,
    NodeState,
    PlanScored,
    Status,
    TurnFinished,
    TurnStarted,
)

STATES: tuple[NodeState, ...] = (
    "done", "running", "waiting", "failed", "denied", "stopped", "skipped"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolGraph:
    """One plan and the last change of each node, by label; nothing runs once it `is_closed`."""

    plan: GraphPlanned
    changes: Mapping[str, NodeChanged] = field(default_factory=dict[str, NodeChanged])
    is_closed: bool = False

    def with_change(self, event: NodeChanged) -> "ToolGraph":
        """Return the graph after this change."""
        return replace(self, changes={**self.changes, event.label: event})

    def closed(self) -> "ToolGraph":
        """Return the graph after its turn: running nodes are stopped, waiting ones skipped."""
        return self if self.is_closed else replace(self, is_closed=True)

    def state(self, label: str) -> NodeState:
        """Return the state of a node."""
        change = self.changes.get(label)
        initial: NodeState = "done" if label in self.plan.kept else "waiting"
        state = initial if change is None else change.state
        if not self.is_closed or state not in ("waiting", "running"):
            return state
        return "stopped" if state == "running" else "skipped"

    def result(self, label: str) -> NodeChanged | None:
        """Return the last change of a node that ran for this plan and has ended, else None."""
        change = self.changes.get(label)
        has_ended = change is not None and change.state in ("done", "failed", "denied", "stopped")
        return change if has_ended else None

    @property
    def counts(self) -> dict[NodeState, int]:
        """The number of nodes by state, without zeros."""
        counts = Counter(self.state(node.label) for node in self.plan.nodes)
        return {state: counts[state] for state in STATES if counts[state]}

    @property
    def is_settled(self) -> bool:
        """Whether every node has ended."""
        return all(self.state(node.label) not in ("waiting", "running") for node in self.plan.nodes)

    @property
    def spent_nano(self) -> int | None:
        """The cost of its nodes; None if a part is unknown."""
        total = 0
        for label in {node.label for node in self.plan.nodes} & self.changes.keys():
            nano = self.changes[label].spent_nano
            if nano is None:
                return None
            total += nano
        return total


def tool_graphs(events: Iterable[Event], *, running: bool = False) -> list[ToolGraph]:
    """Return the final state of every tool graph of a session, in order.

    `running` means that the last turn has not ended.
    """
    graphs: list[ToolGraph] = []
    for event in events:
        match event:
            case GraphPlanned() | TurnStarted() | TurnFinished():
                graphs[-1:] = [graph.closed() for graph in graphs[-1:]]
                if isinstance(event, GraphPlanned):
                    graphs.append(ToolGraph(event))
            case NodeChanged() if graphs:
                graphs[-1] = graphs[-1].with_change(event)
            case _:
                pass
    if not running:
        graphs[-1:] = [graph.closed() for graph in graphs[-1:]]
    return graphs


@dataclass(slots=True)
class PlannedTurn:
    """One turn with a tool graph; after a repair, the last one.

    - `calls`: call IDs by node label, empty for skipped nodes. Nodes that a repair keeps have the
      calls of the previous plan.
    - `runs`: every executed call of the turn, by ID.
    - `status`, `seconds`: how the turn ended; None while it runs.
    - `scored`: the plan's last score.
    """

    turn: int
    question: str
    tool_graph: ToolGraph | None = None
    calls: dict[str, str] = field(default_factory=dict[str, str])
    runs: dict[str, CallFinished] = field(default_factory=dict[str, CallFinished])
    verdicts: dict[str, CallJudged] = field(default_factory=dict[str, CallJudged])
    marks: dict[str, bool] = field(default_factory=dict[str, bool])
    status: Status | None = None
    seconds: float | None = None
    scored: PlanScored | None = None

    def add(self, event: Event) -> None:
        """Update the turn with an event that occurred in it."""
        match event:
            case GraphPlanned():
                self.tool_graph = ToolGraph(event)
            case NodeChanged() if self.tool_graph is not None:
                self.tool_graph = self.tool_graph.with_change(event)
                self.calls[event.label] = event.call
            case CallFinished(refused=""):
                self.runs[event.id] = event
            case CallJudged():
                self.verdicts[event.id] = event
            case TurnFinished():
                self.status, self.seconds = event.status, event.seconds
                self.tool_graph = self.tool_graph and self.tool_graph.closed()
            case _:
                pass


class PlannedTurns:
    """The turns of one session that have a tool graph, by number."""

    def __init__(self, history: Iterable[Event] = ()) -> None:
        self.by_number: dict[int, PlannedTurn] = {}
        self._current: PlannedTurn | None = None
        for event in history:
            self.add(event)

    def add(self, event: Event) -> None:
        """Update the turns with the next event of the session."""
        match event:
            case TurnStarted():
                self._current = PlannedTurn(event.turn, event.question)
            case CallMarked():
                self._mark(event)
            case PlanScored() if event.turn in self.by_number:
                self.by_number[event.turn].scored = event
            case _ if self._current is not None:
                self._current.add(event)
                if isinstance(event, GraphPlanned):
                    self.by_number[self._current.turn] = self._current
                if isinstance(event, TurnFinished):
                    self._current = None
            case _:
                pass

    def _mark(self, event: CallMarked) -> None:
        turn = self.by_number.get(event.turn)
        if turn is None and self._current is not None and self._current.turn == event.turn:
            turn = self._current
        if turn is not None:
            turn.marks.pop(event.id, None)
            if event.helpful is not None:
                turn.marks[event.id] = event.helpful
