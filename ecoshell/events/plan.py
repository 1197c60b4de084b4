"""Events of plans: the plan of tool uses (BTP) and tool graphs (CATP)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ecoshell.budget import Unit, amount_text, counted
from ecoshell.events.base import Event
from ecoshell.events.lines import Line

_NAME_LIMIT = 3
"""Tools named in a line; more are counted."""
_GROUP_SIZE = 3
"""From this number on, tools without history share a line."""
_RELEVANT_CHANCE = 0.2
"""Chance of use from which a plan shows a new tool on a separate line."""

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

    def render(self, previous: "PlanChanged | None" = None) -> Line | None:
        """The first plan of a turn, or what a later one newly forbids; None if nothing."""
        if self.number > 1:
            text = _newly_forbidden(previous, self) if previous and self.enforced else ""
            return Line("warning", "·", f"plan: {text}") if text else None
        tools = "tool" if len(self.rows) + self.others == 1 else "tools"
        binding = "no cap: advice only" if self.cap is None else "nothing is blocked"
        text = f"plan: {planned_share(self)} {tools}, {price_range(self)}"
        return Line("info", "·", text, "" if self.enforced else binding)


def _newly_forbidden(previous: PlanChanged, plan: PlanChanged) -> str:
    earlier = previous.rows if previous.enforced else ()
    forbidden = {row.tool for row in earlier if row.state == "forbidden"}
    rows = [row for row in plan.rows if row.state == "forbidden" and row.tool not in forbidden]
    if rows and not plan.others and all(row.state != "planned" for row in plan.rows):
        reasons = ", ".join(dict.fromkeys(why_words(row.why) for row in rows))
        return f"no tool may be used now ({reasons})"
    names = [f"{row.tool} ({why_words(row.why)})" for row in rows[:_NAME_LIMIT]]
    if len(rows) > _NAME_LIMIT:
        names.append(f"{len(rows) - _NAME_LIMIT:,} more")
    text = " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
    return text and f"{text} may no longer be used"


def why_words(why: str) -> str:
    """The reason of a plan row."""
    return "low past success" if why == "below τ" else why


def planned_share(plan: PlanChanged) -> str:
    """The number of planned tools: `3 of 13`; `60+ of 527` if there are more than the event's rows."""
    planned = sum(row.state == "planned" for row in plan.rows)
    more = "+" if plan.others and plan.rows and plan.rows[-1].state == "planned" else ""
    return f"{planned:,}{more} of {len(plan.rows) + plan.others:,}"


def price_range(plan: PlanChanged, format_amount: Callable[[int, Unit], str] = amount_text) -> str:
    """The estimated cost of the turn from here: `about $0.002 to $0.011`, `$0`, `price unknown`, `time unknown`."""
    if plan.low is None or plan.high is None:
        return "time unknown" if plan.unit == "ms" else "price unknown"
    low, high = format_amount(plan.low, plan.unit), format_amount(plan.high, plan.unit)
    if not plan.high:
        return high
    return f"about {low}" if low == high else f"about {low} to {high}"


def untried(rows: Sequence[PlanRow]) -> list[str]:
    """The tools without history that the question hardly concerns, if there are enough of them to share a line."""
    unused = (row for row in rows if row.why == "new" and row.state == "planned" and not row.used)
    new = [row.tool for row in unused if row.chance < _RELEVANT_CHANCE]
    return new if len(new) >= _GROUP_SIZE else []


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

    @property
    def edges(self) -> str:
        """The nodes and what they wait for, where they cannot be drawn: `a, b (done), a + b → c`."""
        labels = {node.label for node in self.nodes}
        texts: list[str] = []
        for node in self.nodes:
            name = f"{node.label}{' (done)' if node.label in self.kept else ''}"
            inputs = [label for label in node.after if label in labels]
            texts.append(f"{' + '.join(inputs)} → {name}" if inputs else name)
        return ", ".join(texts)

    def render(self) -> Line:
        """Return the number of tools, their expected price, and the duration of the longest path."""
        done = f", {len(self.kept):,} of them done" if self.kept else ""
        kind = "repaired plan" if self.repaired else "plan"
        price = "price unknown" if self.price_nano is None else amount_text(self.price_nano, "usd")
        time = "time unknown" if self.seconds is None else f"{self.seconds:.1f} s"
        text = f"{kind} of {counted(len(self.nodes), 'tool')}{done}"
        return Line("thought", "◦", text, f"tools about {price}, {time}")


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

    def render(self) -> Line | None:
        if self.state not in ("failed", "denied", "skipped", "stopped"):
            return None
        return Line("warning", "×", f"{self.label} {self.state}", self.reason)


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

    def render(self) -> Line:
        quality = "unknown" if self.quality is None else f"{self.quality:.2f}"
        performance, cost = "unknown", "unknown"
        if self.performance is not None:
            performance = f"{self.performance:.2f} by {self.judged_by}"
        if self.resources_nano is None:
            cost = "unknown (not every run was measured)"
        elif self.cost_nano is not None:
            resources = amount_text(self.resources_nano, "usd")
            part = f" ({resources} of it time and memory)" if self.resources_nano else ""
            cost = f"{amount_text(self.cost_nano, 'usd')}{part if self.cost_nano else ' (nothing was paid)'}"
        text = f"plan of turn {self.turn}: QoP {quality}: P {performance}, C {cost}"
        return Line("info", "◦", f"{text} of {amount_text(self.most_nano, 'usd')}")
