"""Events of plans: the plan of tool uses (BTP) and tool graphs (CATP)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ecoshell.budget import Unit
from ecoshell.events.base import Event

PlanState = Literal["planned", "forbidden", "unplanned"]
PlanWhy = Literal["value", "new", "budget", "quota", "blacklist", "below τ"]


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One tool in the plan; `cost` and `spread` are for one use, in the plan's unit."""

    tool: str
    value: float
    """0 to 1 (SPEC §2)."""
    cost: int
    spread: int
    """One standard deviation of the cost; 0 without enough experience."""
    bound: int
    """The largest useful number of uses for this question, by experience."""
    planned: int
    """Uses allowed in this turn, those so far included."""
    used: int
    state: PlanState
    why: PlanWhy
    """`value`: planned by its value; `new`: planned without history; `budget`, `quota`, `blacklist`, `below τ`: why
    it is not planned, whether that is binding (`forbidden`) or advice (`unplanned`)."""
    chance: float = 1.0
    """Probability that the question uses the tool, by experience and local ranking."""
    is_cost_known: bool = True
    """Whether the cost is known at least as an estimate; otherwise `cost` is 0."""

    @property
    def worth(self) -> float:
        """Expected value of one planned use, which the plan maximizes."""
        return self.value * self.chance

    @property
    def left(self) -> int:
        """Remaining planned uses."""
        return max(0, self.planned - self.used) if self.state == "planned" else 0


@dataclass(frozen=True, slots=True)
class PlanChanged(Event):
    """The current plan: how often each tool may be used within the budget (SPEC §2). Amounts are in `unit`."""

    type: ClassVar[str] = "plan_changed"
    mode: str
    """`btp`, `prompt`, `btp+prompt`."""
    reason: str
    """Why the plan was made: the question, or what changed since."""
    number: int
    """1 for the turn's first plan; each replanning adds 1."""
    rows: tuple[PlanRow, ...]
    """The most relevant tools, most valuable first."""
    others: int
    """Number of tools without a row."""
    unit: Unit
    cap: int | None
    """What the caps leave for the whole turn; None without a cap."""
    reserved: int
    """The part of `cap` set aside for prompts and the answer."""
    budget: int | None
    """R: what tool uses may still cost, `paid` included; None without a cap."""
    planned_cost: int
    """Expected cost of the remaining planned uses."""
    enforced: bool
    """Whether forbidden tools are refused; without a cap the plan is advice."""
    low: int | None = None
    """Lower estimate of the turn's price from here; None if a price is unknown."""
    high: int | None = None
    """Upper estimate of the turn's price from here; None if a price is unknown."""
    paid: int = 0
    """The part of the planned uses that is already paid: thinking that leads to the next one. `budget` is `cap` less
    `reserved` plus `paid`."""
    whole: int | None = None
    """What the current caps left for this turn before it spent anything; None without a cap."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a tool graph and its expected cost; unknown is None."""

    label: str
    """`read_file`, then `read_file#2`."""
    tool: str
    after: tuple[str, ...]
    """Labels of earlier nodes, or `<task>`."""
    takes: tuple[str, ...] = ()
    """Kinds of input: text, json, number, file, …"""
    gives: tuple[str, ...] = ()
    """Kinds of output: text, json, number, file, …"""
    price_nano: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class GraphPlanned(Event):
    """A tool graph is about to run (SPEC §3)."""

    type: ClassVar[str] = "graph_planned"
    nodes: tuple[GraphNode, ...]
    """In topological order."""
    text: str
    """The graph in the tool planning language."""
    repaired: bool = False
    """Whether it replaces a graph that failed in part."""
    kept: tuple[str, ...] = ()
    """Labels of nodes that the previous graph finished, and that do not run again."""
    critical: tuple[str, ...] = ()
    """Labels on the longest path, first to last."""
    price_nano: int | None = None
    """Expected price of all tools."""
    seconds: float | None = None
    """Expected duration of the longest path."""


NodeState = Literal["waiting", "running", "done", "failed", "denied", "skipped", "stopped"]
"""State of a node: `denied` if its call was not approved; `stopped` if the turn was stopped while it ran, or if it
never reported an end."""


@dataclass(frozen=True, slots=True)
class NodeChanged(Event):
    """A node of the tool graph changed its state."""

    type: ClassVar[str] = "node_changed"
    label: str
    state: NodeState
    call: str = ""
    """ID of its call."""
    seconds: float = 0.0
    """Time since the node started, including the model calls that fill in its arguments."""
    spent_nano: int | None = 0
    """Cost so far: its tool and the model calls that fill in its arguments; None if unknown."""
    reason: str = ""
    """Why it failed or was skipped."""


@dataclass(frozen=True, slots=True)
class PlanScored(Event):
    """The score of a tool graph, reported when its turn ends and again when a mark changes it (SPEC §3)."""

    type: ClassVar[str] = "plan_scored"
    turn: int
    performance: float | None
    """P, 0 to 1: the share of its nodes that helped; None if undecided."""
    judged_by: str
    """The judges, joined by ` + `: `you`, `checker`, `agent`, `rules`, `classifier`, `model`; empty if undecided."""
    cost_nano: int | None
    """C: the cost of the turn, machine resources included; None if any part is unknown."""
    most_nano: int
    """C_max."""
    alpha: float
    quality: float | None
    """α·P − (1 − α)·C/C_max; None if P or C is unknown."""
    resources_nano: int | None = 0
    """The part of C for the tools' time and memory, which is not billed; 0 if these have no price."""
    checked: bool | None = None
    """The verdict of the configured checker; None without a checker."""
