"""A parallel plan and what has become of it, as a session's events tell of it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ecoshell.events import Event, GraphPlanned, NodeChanged, NodeState, TurnFinished, TurnStarted

STATES: tuple[NodeState, ...] = ("done", "running", "waiting", "failed", "denied", "stopped", "skipped")


@dataclass(frozen=True, slots=True)
class Branching:
    """One plan, and the last that was heard of each of its nodes."""

    plan: GraphPlanned
    changes: Mapping[str, NodeChanged] = field(default_factory=dict[str, NodeChanged])
    """By label."""
    over: bool = False
    """Whether nothing of it can go on any more."""

    def heard(self, event: NodeChanged) -> "Branching":
        """The plan as it stands after this."""
        return replace(self, changes={**self.changes, event.label: event})

    def ended(self) -> "Branching":
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


def branchings(events: Iterable[Event], *, running: bool = False) -> list[Branching]:
    """Every parallel plan in a session, in its order, as it stood at last.

    With `running` the turn of the last events goes on, and what they say that runs does run.
    """
    found: list[Branching] = []
    for event in events:
        match event:
            case GraphPlanned():
                _end(found)
                found.append(Branching(event))
            case NodeChanged() if found:
                found[-1] = found[-1].heard(event)
            case TurnStarted() | TurnFinished():
                _end(found)
            case _:
                pass
    if not running:
        _end(found)
    return found


def _end(found: list[Branching]) -> None:
    if found:
        found[-1] = found[-1].ended()
