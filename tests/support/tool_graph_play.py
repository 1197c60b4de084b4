"""Tool graph events of a turn: planned, running, done, partly failed, repaired."""

from dataclasses import replace

from ecoshell.events import Event, GraphNode, GraphPlanned, NodeChanged, TurnFinished, TurnStarted
from ecoshell.messages import Usage


def node(
    label: str, *after: str, price: int | None = 1_000_000, seconds: float | None = 1.2
) -> GraphNode:
    """A node that depends on these nodes, or only on the question."""
    return GraphNode(label, label.partition("#")[0], after or ("<task>",), (), (), price, seconds)


def done(label: str, seconds: float, nano: int | None = 1_200_000) -> NodeChanged:
    return NodeChanged(label, "done", "c", seconds, nano)


NODES = (
    node("count_text"),
    node("count_text#2"),
    node("current_time", price=0, seconds=0.001),
    node("calculate", "count_text", "count_text#2", price=0, seconds=0.02),
    node("write_file", "calculate", "current_time", price=None, seconds=None),
)
PLANNED = GraphPlanned(
    NODES, "…", critical=("count_text", "calculate", "write_file"), price_nano=None, seconds=None
)
RUNNING = tuple(
    NodeChanged(label, "running") for label in ("count_text", "count_text#2", "current_time")
)
DONE = (
    done("current_time", 0.002, 0),
    done("count_text#2", 0.8),
    done("count_text", 0.9),
    done("calculate", 0.03, 0),
    done("write_file", 0.1, None),
)
FAILED = (
    done("current_time", 0.002, 0),
    NodeChanged("count_text#2", "failed", "c", 0.3, 200_000, "no such file:\nb.txt"),
    NodeChanged("calculate", "skipped", reason="count_text#2 failed"),
    NodeChanged("write_file", "skipped", reason="calculate failed"),
    done("count_text", 0.9),
)
REPAIRED = GraphPlanned(
    (
        replace(NODES[0], price_nano=0, seconds=0.0),
        replace(NODES[2], price_nano=0, seconds=0.0),
        node("read_file"),
        node("calculate", "count_text", "read_file", price=0, seconds=0.02),
    ),
    "…",
    repaired=True,
    kept=("count_text", "current_time"),
    critical=("read_file", "calculate"),
    price_nano=1_000_000,
    seconds=1.22,
)
STARTED = TurnStarted(1, "how many words are in a.txt and b.txt?", "embedded", "single", "graph")
STOPPED = TurnFinished(1, "interrupted", "", 3_100_000, Usage(900, 60), 3, ("count_text",), 2.1)
ANSWERED = replace(STOPPED, status="answered")
AGAIN: tuple[Event, ...] = (
    REPAIRED,
    NodeChanged("read_file", "running"),
    done("read_file", 0.4),
    NodeChanged("calculate", "running"),
)
"""A part of the second plan."""
