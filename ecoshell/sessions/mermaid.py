"""A tool graph as a Mermaid flowchart, with what each node was expected to take and took.

Names are untrusted: whatever is no letter, digit or underscore is written as a character's number (`#34;`), so that no
name can end its quotation, its line or the code block it stands in; nodes are called n1, n2, …
"""

from itertools import pairwise

from ecoshell.budget import amount_text
from ecoshell.events import GraphNode, NodeState
from ecoshell.messages import visible_line
from ecoshell.sessions.plans import ToolGraph

_LOOKS: dict[NodeState, str] = {
    "waiting": "fill:#f4f4f4,stroke:#999,color:#333",
    "running": "fill:#dbeafe,stroke:#1d4ed8,color:#111",
    "done": "fill:#dcfce7,stroke:#15803d,color:#111",
    "failed": "fill:#fee2e2,stroke:#b91c1c,color:#111",
    "denied": "fill:#fff7ed,stroke:#b91c1c,color:#111",
    "skipped": "fill:#fff7ed,stroke:#c2410c,color:#111,stroke-dasharray:4 3",
    "stopped": "fill:#ffedd5,stroke:#c2410c,color:#111",
}


def flowchart(tool_graph: ToolGraph) -> str:
    """The plan as Mermaid, ending in a newline: states as words and as classes, the longest path as thick arrows."""
    plan = tool_graph.plan
    names = {label: f"n{number}" for number, label in enumerate(dict.fromkeys(node.label for node in plan.nodes), 1)}
    nodes = {node.label: node for node in plan.nodes}
    critical = frozenset(pairwise(plan.critical))
    lines = ["flowchart TD"]
    for label, node in nodes.items():
        mark = "* " if label in plan.critical else ""
        said = f"{mark}{escaped(label)}<br/>{_figures(tool_graph, node)}"
        lines.append(f'    {names[label]}["{said}"]:::{tool_graph.stands(label)}')
    for label, node in nodes.items():
        for before in dict.fromkeys(node.after):
            if before in names:
                arrow = "==>" if (before, label) in critical else "-->"
                lines.append(f"    {names[before]} {arrow} {names[label]}")
    lines += [f"    classDef {state} {_LOOKS[state]}" for state in tool_graph.counts]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """A text for a quoted label, on one line: signs that Mermaid, Markdown or HTML could obey are written by number.

    So are blanks: Mermaid obeys words such as `direction TB` inside quotation marks too.
    """
    return "".join(sign if sign.isalnum() or sign == "_" else f"#{ord(sign)};" for sign in visible_line(text))


def _figures(tool_graph: ToolGraph, node: GraphNode) -> str:
    """How a node stands, its time and its price: `done · ≈1.20 s → 0.90 s · ≈$0.001 → $0.0012`."""
    time = "?" if node.seconds is None else f"≈{node.seconds:.2f} s"
    price = "?" if node.price_nano is None else f"≈{amount_text(node.price_nano, 'usd')}"
    took = tool_graph.came_to(node.label)
    if took is not None:
        spent = "?" if took.spent_nano is None else amount_text(took.spent_nano, "usd")
        time, price = f"{time} → {took.seconds:.2f} s", f"{price} → {spent}"
    elif tool_graph.stands(node.label) == "done":
        return "done before"
    return f"{tool_graph.stands(node.label)} · {time} · {price}"
