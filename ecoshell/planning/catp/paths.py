"""How long a branching plan takes when branches run at the same time: its longest path (CATP-LLM B.3)."""

from collections.abc import Mapping
from dataclasses import dataclass

from ecoshell.planning.catp.base import TASK, GraphPlan


@dataclass(frozen=True, slots=True)
class Schedule:
    """When each node ends if it starts with the end of the last one it waits for."""

    ends: Mapping[str, float]
    """By label, in the unit of the given times."""
    critical: tuple[str, ...]
    """Labels of the longest path, first to last."""

    @property
    def length(self) -> float:
        """What the whole plan takes; 0 for a plan without nodes."""
        return self.ends[self.critical[-1]] if self.critical else 0.0


def schedule(plan: GraphPlan, times: Mapping[str, float]) -> Schedule:
    """The schedule of a plan; `times` has what each node takes, by its label.

    One pass, as nodes stand after those they wait for; of paths of the same length, the one that stands first.
    """
    ends: dict[str, float] = {}
    before: dict[str, str] = {}
    for node in plan.nodes:
        latest = max((label for label in node.after if label != TASK), key=ends.__getitem__, default="")
        before[node.label] = latest
        ends[node.label] = (ends[latest] if latest else 0.0) + times[node.label]
    return Schedule(ends, _path(before, max(ends, key=ends.__getitem__, default="")))


def _path(before: Mapping[str, str], last: str) -> tuple[str, ...]:
    """The labels that lead to the last one."""
    path: list[str] = []
    while last:
        path.append(last)
        last = before[last]
    return tuple(reversed(path))
