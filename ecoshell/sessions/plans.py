"""Tool graphs as a session's events tell of them: how each stands, what it is scored by, and what it came to."""

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

STATES: tuple[NodeState, ...] = ("done", "running", "waiting", "failed", "denied", "stopped", "skipped")


@dataclass(frozen=True, slots=True)
class ToolGraph:
    """One plan, and the last that was heard of each of its nodes."""

    plan: GraphPlanned
    changes: Mapping[str, NodeChanged] = field(default_factory=dict[str, NodeChanged])
    """By label."""
    over: bool = False
    """Whether nothing of it can go on any more."""

    def heard(self, event: NodeChanged) -> "ToolGraph":
        """The plan as it stands after this."""
        return replace(self, changes={**self.changes, event.label: event})

    def ended(self) -> "ToolGraph":
        """The plan when nothing of it can go on any more, as after its turn."""
        return self if self.over else replace(self, over=True)

    def stands(self, label: str) -> NodeState:
        """How a node stands."""
        change = self.changes.get(label)
        unheard: NodeState = "done" if label in self.plan.kept else "waiting"
        state = unheard if change is None else change.state
        if not self.over or state not in ("waiting", "running"):
            return state
        return "stopped" if state == "running" else "skipped"

    def came_to(self, label: str) -> NodeChanged | None:
        """What a node took; None while it has not ended, and where it did not run for this plan."""
        change = self.changes.get(label)
        return change if change is not None and change.state in ("done", "failed", "denied", "stopped") else None

    @property
    def counts(self) -> dict[NodeState, int]:
        """How many nodes stand how, of those that there are."""
        found = Counter(self.stands(node.label) for node in self.plan.nodes)
        return {state: found[state] for state in STATES if found[state]}

    @property
    def settled(self) -> bool:
        """Whether every node has ended."""
        return all(self.stands(node.label) not in ("waiting", "running") for node in self.plan.nodes)

    @property
    def spent_nano(self) -> int | None:
        """What its nodes have cost; None when a part of it is unknown."""
        spent = [self.changes[node.label].spent_nano for node in self.plan.nodes if node.label in self.changes]
        known = [nano for nano in spent if nano is not None]
        return sum(known) if len(known) == len(spent) else None


def tool_graphs(events: Iterable[Event], *, running: bool = False) -> list[ToolGraph]:
    """Every tool graph in a session, in its order, as it stood at last.

    With `running` the turn of the last events goes on, and what they say that runs does run.
    """
    found: list[ToolGraph] = []
    for event in events:
        match event:
            case GraphPlanned() | TurnStarted() | TurnFinished():
                found[-1:] = [one.ended() for one in found[-1:]]
                if isinstance(event, GraphPlanned):
                    found.append(ToolGraph(event))
            case NodeChanged() if found:
                found[-1] = found[-1].heard(event)
            case _:
                pass
    if not running:
        found[-1:] = [one.ended() for one in found[-1:]]
    return found


@dataclass(slots=True)
class PlannedTurn:
    """One turn with a plan, which may have been repaired; the last one counts, with all that went into it."""

    turn: int
    question: str
    tool_graph: ToolGraph | None = None
    """The last plan, with what is known of its nodes; None until there is one."""
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """The ids of the calls by the labels of the nodes, empty where one was skipped; what a repair keeps has those of
    the plan before."""
    runs: dict[str, CallFinished] = field(default_factory=dict[str, CallFinished])
    """Every call of the turn that ran, by its id."""
    verdicts: dict[str, CallJudged] = field(default_factory=dict[str, CallJudged])
    marks: dict[str, bool] = field(default_factory=dict[str, bool])
    status: Status | None = None
    """How the turn ended; None while it has not."""
    seconds: float | None = None
    """What it took; None as long as that."""
    scored: PlanScored | None = None
    """The plan's last score."""


class PlannedTurns:
    """The turns of one session that have a tool graph, by their numbers; hears every event of the session."""

    def __init__(self, past: Iterable[Event] = ()) -> None:
        self.by_number: dict[int, PlannedTurn] = {}
        self._open: PlannedTurn | None = None
        for event in past:
            self.see(event)

    def see(self, event: Event) -> None:
        """Take the next event into account."""
        match event:
            case TurnStarted():
                self._open = PlannedTurn(event.turn, event.question)
            case CallMarked():
                turn = self.by_number.get(event.turn)
                if turn is None and self._open is not None and self._open.turn == event.turn:
                    turn = self._open
                if turn is not None:
                    turn.marks.pop(event.id, None)
                    if event.helpful is not None:
                        turn.marks[event.id] = event.helpful
            case PlanScored() if event.turn in self.by_number:
                self.by_number[event.turn].scored = event
            case _ if (turn := self._open) is not None:
                match event:
                    case GraphPlanned():
                        turn.tool_graph = ToolGraph(event)
                        self.by_number[turn.turn] = turn
                    case NodeChanged() if turn.tool_graph is not None:
                        turn.tool_graph = turn.tool_graph.heard(event)
                        turn.calls[event.label] = event.call
                    case CallFinished(refused=""):
                        turn.runs[event.id] = event
                    case CallJudged():
                        turn.verdicts[event.id] = event
                    case TurnFinished():
                        turn.status, turn.seconds = event.status, event.seconds
                        turn.tool_graph = turn.tool_graph and turn.tool_graph.ended()
                        self._open = None
                    case _:
                        pass
            case _:
                pass
