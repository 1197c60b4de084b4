"""What makes a list of nodes a plan, whatever its tools are: distinct labels, and only earlier nodes waited for."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from ecoshell.planning.catp.base import TASK, GraphPlan, Node
from ecoshell.planning.catp.faults import PlanFault, shown
from ecoshell.planning.catp.places import ITSELF, Spot
from ecoshell.planning.catp.words import MOST_INDEX

MAX_NODES = 1_024
"""Nodes of a plan, whoever made it."""


def check(plan: GraphPlan, max_nodes: int = MAX_NODES) -> None:
    """Raise PlanFault for the first thing that keeps the nodes from being a plan."""
    for _, fault in faults_of(plan.nodes, max_nodes):
        raise fault


def faults_of(nodes: Sequence[Node], max_nodes: int = MAX_NODES) -> Iterator[tuple[Spot, PlanFault]]:
    """All faults, each with the spot in the plan."""
    if not nodes:
        yield (0, ITSELF), PlanFault("The plan is empty: it needs at least one tool.")
    if len(nodes) > max_nodes:
        yield (max_nodes, ITSELF), beyond(nodes[max_nodes], max_nodes, len(nodes))
        return
    places: dict[str, int] = {}
    for at, node in enumerate(nodes):
        places.setdefault(node.label, at)
    earlier = {TASK}
    for at, node in enumerate(nodes):
        if said := _of_node(node, at, places):
            yield (at, ITSELF), PlanFault(said, node=node.label)
        if len(set(node.after)) < len(node.after) or not earlier.issuperset(node.after):
            yield from _of_dependencies(at, nodes, places)
        earlier.add(node.label)


def beyond(node: Node, most: int, nodes: int | None = None) -> PlanFault:
    """The fault of the first node that is one too many; None is as many nodes as nobody has counted."""
    said = f"more than {most} nodes" if nodes is None else f"{nodes} nodes; at most {most} are taken"
    return PlanFault(f"The plan has {said}: {shown(node.label)} is one too many.", node=node.label)


def _of_dependencies(at: int, nodes: Sequence[Node], places: Mapping[str, int]) -> Iterator[tuple[Spot, PlanFault]]:
    node, seen = nodes[at], set[str]()
    for number, label in enumerate(node.after):
        if label in seen:
            said = f"{shown(node.label)} names its dependency {shown(label)} twice."
            yield (at, number), PlanFault(said, node=node.label)
        elif label != TASK and not places.get(label, at) < at:
            yield (at, number), PlanFault(_of_dependency(label, at, nodes, places), node=node.label)
        seen.add(label)


def _of_node(node: Node, at: int, places: Mapping[str, int]) -> str:
    if not node.tool or node.tool == TASK:
        return f"A tool cannot be called {shown(node.tool)}."
    if not 1 <= node.index <= MOST_INDEX:
        return f"The index of {shown(node.label)} is not between 1 and {MOST_INDEX}."
    if places[node.label] < at:
        return f"Two nodes are called {shown(node.label)}: a tool's second use is {shown(f'{node.tool}#2')}."
    if not node.after:
        return f"{shown(node.label)} names no dependency: it needs `{TASK}` or an earlier node."
    return ""


def _of_dependency(label: str, at: int, nodes: Sequence[Node], places: Mapping[str, int]) -> str:
    """What is wrong with waiting for a node that does not stand earlier."""
    name = nodes[at].label
    if label == name:
        return f"{shown(name)} waits for itself."
    if label not in places:
        return f"{shown(name)} waits for {shown(label)}, which is not in the plan."
    if way := _way(label, name, nodes, places):
        said = " → ".join(map(shown, (name, *way[:_CYCLE_SHOWN]))) + (" → …" if len(way) > _CYCLE_SHOWN else "")
        return f"{shown(name)} waits for itself in a cycle: {said}."
    return f"{shown(name)} waits for {shown(label)}, which stands later: a node stands after those it waits for."


_CYCLE_SHOWN = 8
_MOST_SEARCHED = 10_000
"""Steps of the search for a cycle: its absence changes a message only."""


def _way(start: str, goal: str, nodes: Sequence[Node], places: Mapping[str, int]) -> list[str]:
    """A chain of nodes from one to another along what each waits for; empty when there is none."""
    came: dict[str, str] = {start: ""}
    waiting, steps = [start], 0
    while waiting and steps < _MOST_SEARCHED:
        current = waiting.pop()
        for label in nodes[places[current]].after:
            steps += 1
            if label in places and label not in came:
                came[label] = current
                waiting.append(label)
    way: list[str] = []
    step = goal if goal in came else ""
    while step:
        way.append(step)
        step = came[step]
    return way[::-1]


def unknown_tool(tool: str, known: Collection[str]) -> str:
    """What is said of a name that is no tool's, with the names that look most like it."""
    import difflib

    near = difflib.get_close_matches(tool[:100], known, n=3, cutoff=0.5)
    hint = f" Nearest: {', '.join(map(shown, near))}." if near else ""
    return f"There is no tool called {shown(tool)}.{hint}"
