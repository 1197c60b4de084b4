"""Events of plans: what the budget allows of each tool, and tools in branches."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ecoshell.budget.money import Unit
from ecoshell.events.base import Event

PlanState = Literal["planned", "forbidden", "unplanned"]
PlanWhy = Literal["value", "new", "budget", "quota", "blacklist", "below τ"]


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One tool in the plan; `cost` and `spread` are in the plan's unit, for one use."""

    tool: str
    value: float
    """0 to 1 (SPEC §2)."""
    cost: int
    spread: int
    """One standard deviation of the cost; 0 when there is too little experience."""
    bound: int
    """How often it should be used at most for this question, by experience."""
    planned: int
    """How often it may be used in this turn in all, uses so far included."""
    used: int
    state: PlanState
    why: PlanWhy
    """`value`: planned by its value; `new`: planned, without history; `budget`, `quota`, `blacklist`, `below τ`: what
    keeps it out of the plan, whether that forbids it (`forbidden`) or is advice (`unplanned`)."""
    chance: float = 1.0
    """How likely the question uses the tool, by experience and local ranking; the plan goes by value × chance."""

    @property
    def worth(self) -> float:
        """What one planned use is expected to bring."""
        return self.value * self.chance

    @property
    def left(self) -> int:
        """Uses that are left."""
        return max(0, self.planned - self.used) if self.state == "planned" else 0


@dataclass(frozen=True, slots=True)
class PlanChanged(Event):
    """The plan as it stands: what the budget allows of each tool (SPEC §2). Amounts are in `unit`."""

    type: ClassVar[str] = "plan_changed"
    mode: str
    """`btp`, `prompt`, `btp+prompt`."""
    reason: str
    """What made it: the question, or what has changed since."""
    number: int
    """1 for the turn's first plan; each replanning counts one up."""
    rows: tuple[PlanRow, ...]
    """Those worth showing, most valuable first."""
    others: int
    """Tools that are not among the rows."""
    unit: Unit
    cap: int | None
    """What the caps leave this turn in all; None without a cap."""
    reserved: int
    """Of it, what is set aside for the prompts and the answer."""
    budget: int | None
    """R: what uses of tools may still cost, what is `paid` of that included; None without a cap."""
    planned_cost: int
    """What the planned uses that are left are expected to cost."""
    enforced: bool
    """Whether what the rows say is forbidden is refused; without a cap the plan is advice."""
    low: int | None = None
    """The turn's estimated price from here, at the least and at the most likely; None when a price is unknown."""
    high: int | None = None
    paid: int = 0
    """What of the planned uses is paid already: thinking that is to lead to the next of them. The budget is the cap
    less what is reserved, and this."""
    whole: int | None = None
    """What the caps, as they are now, left this turn before it spent anything; None without a cap."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a branching plan, with what it is expected to take; unknown is None."""

    label: str
    """`read_file`, then `read_file#2`."""
    tool: str
    after: tuple[str, ...]
    """Labels of earlier nodes, or `<task>`."""
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    """Kinds of what flows in and out: text, json, number, file, …"""
    price_nano: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class GraphPlanned(Event):
    """A branching plan, before it runs (SPEC §3)."""

    type: ClassVar[str] = "graph_planned"
    nodes: tuple[GraphNode, ...]
    """Each after those it waits for."""
    text: str
    """The plan in the tool planning language."""
    repaired: bool = False
    """Whether it takes the place of one that failed in part."""
    kept: tuple[str, ...] = ()
    """Labels of nodes that the plan before it has finished, and that do not run again."""
    critical: tuple[str, ...] = ()
    """Labels of the longest path, first to last."""
    price_nano: int | None = None
    """What the tools are expected to cost together."""
    seconds: float | None = None
    """How long the longest path is expected to take."""


NodeState = Literal["waiting", "running", "done", "failed", "denied", "skipped", "stopped"]
"""How a node stands; `denied` where its call was not approved, `stopped` where it ran when the turn was stopped, or
when nothing was heard of it any more."""


@dataclass(frozen=True, slots=True)
class NodeChanged(Event):
    """A node of the branching plan has come to stand otherwise."""

    type: ClassVar[str] = "node_changed"
    label: str
    state: NodeState
    call: str = ""
    """The id of its call."""
    seconds: float = 0.0
    """Since it began to run, filling in its arguments included."""
    spent_nano: int | None = 0
    """What it has cost so far: its tool, and the model calls that filled in its arguments; None is unknown."""
    reason: str = ""
    """Why it failed, or was skipped."""


@dataclass(frozen=True, slots=True)
class PlanScored(Event):
    """What a branching plan was worth, told when its turn has ended and again when a mark has changed it (SPEC §3)."""

    type: ClassVar[str] = "plan_scored"
    turn: int
    performance: float | None
    """P, 0 to 1: the share of its nodes that helped; None when nobody could tell."""
    judged_by: str
    """Who told, joined by ` + `: `you`, `checker`, `agent`, `rules`, `classifier`, `model`; empty when nobody did."""
    cost_nano: int | None
    """C: what the turn has cost, what its tools took of the machine included; None when a part of it is unknown."""
    most_nano: int
    """C_max."""
    alpha: float
    quality: float | None
    """α·P − (1 − α)·C/C_max; None when P or C is unknown."""
    resources_nano: int | None = 0
    """Of C, the time and memory of its tools, which nobody pays; 0 where they are given no price."""
    checked: bool | None = None
    """What the checker of the settings said of the answer; None where none did."""
