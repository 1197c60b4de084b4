"""A tool graph as a Mermaid flowchart, with the expected and actual time and price of each node.

Names are untrusted. All characters except letters, digits and underscores are written as character
numbers (`#34;`), so that no name can end its quotation, its line or the code block. Node IDs are
n1, n2, …
"""

from itertools import pairwise

from ecoshell.budget import amount_text
from ecoshell.events import GraphNode, NodeState
from ecoshell.messages import visible_line
from ecoshell.sessions.tool_graphs import ToolGraph

_STYLES: dict[NodeState, str] = {
    "waiting": "fill:#f4f4f4,stroke:#999,color:#333",
    "running": "fill:#dbeafe,stroke:#1d4ed8,color:#111",
    "done": "fill:#dcfce7,stroke:#15803d,color:#111",
    "failed": "fill:#fee2e2,stroke:#b91c1c,color:#111",
    "denied": "fill:#fff7ed,stroke:#b91c1c,color:#111",
    "skipped": "fill:#fff7ed,stroke:#c2410c,color:#111,stroke-dasharray:4 3",
    "stopped": "fill:#ffedd5,stroke:#c2410c,color:#111",
}


def flowchart(tool_graph: ToolGraph) -> str:
    """Return the flowchart, ending in a newline.

    States are words and classes; the longest path has thick arrows.
    """
    plan = tool_graph.plan
    nodes = {node.label: node for node in plan.nodes}
    ids = {label: f"n{number}" for number, label in enumerate(nodes, 1)}
    critical = frozenset(pairwise(plan.critical))
    lines = ["flowchart TD"]
    for label, node in nodes.items():
        mark = "* " if label in plan.critical else ""
        text = f"{mark}{escaped(label)}<br/>{_figures(tool_graph, node)}"
        lines.append(f'    {ids[label]}["{text}"]:::{tool_graph.state(label)}')
    for label, node in nodes.items():
        for source in dict.fromkeys(node.after):
            if source in ids:
                arrow = "==>" if (source, label) in critical else "-->"
                lines.append(f"    {ids[source]} {arrow} {ids[label]}")
    lines += [f"    classDef {state} {_STYLES[state]}" for state in tool_graph.counts]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return a text for a quoted label, on one line.

    Spaces are written as numbers, too: Mermaid interprets words such as `direction TB` even inside
    quotation marks.
    """
    return "".join(
        character if character.isalnum() or character == "_" else f"#{ord(character)};"
        for character in visible_line(text)
    )


def _figures(tool_graph: ToolGraph, node: GraphNode) -> str:
    """Return state, time and price of a node: `done · ≈1.20 s → 0.90 s · ≈$0.001 → $0.0012`."""
    state = tool_graph.state(node.label)
    time = "?" if node.seconds is None else f"≈{node.seconds:.2f} s"
    price = "?" if node.price_nano is None else f"≈{amount_text(node.price_nano, 'usd')}"
    result = tool_graph.result(node.label)
    if result is not None:
        spent = "?" if result.spent_nano is None else amount_text(result.spent_nano, "usd")
        time, price = f"{time} → {result.seconds:.2f} s", f"{price} → {spent}"
    elif state == "done":
        return "done before"
    return f"{state} · {time} · {price}"
