"""A parallel plan in a line, for whoever tells it."""

from ecoshell.events import GraphNode, GraphPlanned, NodeChanged
from ecoshell.planning.catp.plan import TASK, longest_path
from ecoshell.planning.plan_news import Written
from ecoshell.sessions.branching import Branching
from ecoshell.untrusted import visible_line


def plan_line(plan: GraphPlanned, written: Written) -> str:
    """What it uses, what waits for what, and what it is expected to take: `a, b, a + b → c · about $0.002, 1.3 s`."""
    again = "plan, repaired: " if plan.repaired else "plan: "
    nodes = ", ".join(_node(node, done=node.label in plan.kept) for node in plan.nodes)
    return f"{again}{nodes} · {estimate(plan, written)}"


def estimate(plan: GraphPlanned, written: Written) -> str:
    """What its tools are expected to cost, and how long its longest path takes: `tools about $0.002, 1.3 s`."""
    price = "price unknown" if plan.price_nano is None else written(plan.price_nano, "usd")
    time = "time unknown" if plan.seconds is None else f"{plan.seconds:.1f} s"
    return f"tools about {price}, {time}"


def outcome(branching: Branching, written: Written) -> str:
    """What it has come to: how its nodes stand, what they have cost, and how long its longest path took by the clock.

    `2 done, 1 failed · $0.0021, 1.4 s`
    """
    counts = ", ".join(f"{count:,} {state}" for state, count in branching.counts.items())
    spent = branching.spent_nano
    price = "price unknown" if spent is None else written(spent, "usd")
    return f"{counts} · {price}, {_longest(branching):.1f} s"


def node_line(changed: NodeChanged) -> str:
    """That a node failed, and why where that is said; empty for one that stands otherwise."""
    if changed.state not in ("failed", "denied", "skipped", "stopped"):
        return ""
    reason = f": {visible_line(changed.reason)}" if changed.reason else ""
    return f"{visible_line(changed.label)} {changed.state}{reason}"


def _node(node: GraphNode, *, done: bool) -> str:
    name = visible_line(node.label) + (" (done)" if done else "")
    before = [visible_line(label) for label in node.after if label != TASK]
    return f"{' + '.join(before)} → {name}" if before else name


def _longest(branching: Branching) -> float:
    """Seconds of the longest path, by what its nodes took."""
    waits = {node.label: node.after for node in branching.plan.nodes}
    took = {label: branching.came_to(label) for label in waits}
    return longest_path(waits, {label: one.seconds if one else 0.0 for label, one in took.items()})[0]
