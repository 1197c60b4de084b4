"""Tool graphs: DAGs of tools with dependencies (CATP-LLM §4.1), and the faults of invalid ones."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from ecoshell.errors import UsageError, closest_words
from ecoshell.messages import visible_line

TASK = "<task>"
"""The dependency on the user's input."""
MAX_NODES = 1_024
"""Maximum nodes of any plan."""
MAX_INDEX = 9_999
BOM = "\ufeff"
"""The byte order mark; editors do not count it as a column."""
ITSELF = -1
_QUOTE_CHARACTERS = 60
"""Characters of the input that a message repeats."""
_FAULTS_PER_MESSAGE = 5
_CYCLE_NODES_SHOWN = 8


class PlanFault(UsageError):
    """A plan is invalid.

    `line` and `column` (from 1) and `position` (characters from 0) locate the fault in its text, and `node` is the
    label of the node; each is None if not applicable. `spot` holds the index of the node and of its dependency, or
    ITSELF.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        spot: tuple[int, int] = (0, ITSELF),
        fix: str = "",
    ) -> None:
        super().__init__(message, fix=fix)
        self.node = node
        self.spot = spot
        self.position: int | None = None
        self.line: int | None = None
        self.column: int | None = None

    @classmethod
    def at(cls, text: str, position: int, message: str, node: str | None = None) -> "PlanFault":
        """Create a fault in a text; the message begins with line and column."""
        line = text.count("\n", 0, position) + 1
        column = position - max(text.rfind("\n", 0, position) + 1, int(text.startswith(BOM))) + 1
        fault = cls(f"line {line}, column {column}: {message}", node=node)
        fault.position, fault.line, fault.column = position, line, column
        return fault

    @classmethod
    def of(cls, faults: Sequence["PlanFault"]) -> "PlanFault":
        """Combine faults into one at the position of the first."""
        first, more = faults[0], len(faults) - _FAULTS_PER_MESSAGE
        message = " ".join(fault.message for fault in faults[:_FAULTS_PER_MESSAGE]) + (
            f" And {more} more." if more > 0 else ""
        )
        fault = cls(message, node=first.node, spot=first.spot)
        fault.position, fault.line, fault.column = first.position, first.line, first.column
        return fault


@dataclass(frozen=True, slots=True)
class Node:
    """One use of a tool."""

    tool: str
    after: tuple[str, ...] = (TASK,)
    """Labels of earlier nodes, or TASK, in the written order."""
    index: int = 1
    """The number of the use of the same tool, from 1."""

    @property
    def label(self) -> str:
        """The name in the plan: `read_file`, then `read_file#2`."""
        return self.tool if self.index == 1 else f"{self.tool}#{self.index}"


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """Nodes in topological order; raises PlanFault for an invalid plan."""

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        for fault in faults_of(self.nodes):
            raise fault

    @property
    def sinks(self) -> tuple[Node, ...]:
        """Nodes without dependents; their results are the result of the plan."""
        awaited = {label for node in self.nodes for label in node.after}
        return tuple(node for node in self.nodes if node.label not in awaited)


def faults_of(nodes: Sequence[Node]) -> Iterator[PlanFault]:
    """Return the structural faults of a plan, each with its spot."""
    if not nodes:
        yield PlanFault("The plan is empty: it needs at least one tool.")
    if len(nodes) > MAX_NODES:
        yield beyond(nodes, MAX_NODES)
        return
    places: dict[str, int] = {}
    for at, node in enumerate(nodes):
        places.setdefault(node.label, at)
    cycle: list[tuple[str, str]] | None = None
    for at, node in enumerate(nodes):
        label, dependencies, message = node.label, set[str](), ""
        if not node.tool or node.tool == TASK:
            message = f"A tool cannot be called {shown(node.tool)}."
        elif not 1 <= node.index <= MAX_INDEX:
            message = f"The index of {shown(label)} is not between 1 and {MAX_INDEX}."
        elif places[label] < at:
            message = f"Two nodes are called {shown(label)}: a tool's second use is {shown(f'{node.tool}#2')}."
        elif not node.after:
            message = f"{shown(label)} names no dependency: it needs `{TASK}` or an earlier node."
        if message:
            yield PlanFault(message, node=label, spot=(at, ITSELF))
        for number, dependency in enumerate(node.after):
            message = ""
            if dependency in dependencies:
                message = f"{shown(label)} names its dependency {shown(dependency)} twice."
            elif dependency == TASK or places.get(dependency, at) < at:
                pass
            elif dependency == label:
                message = f"{shown(label)} waits for itself."
            elif dependency not in places:
                message = f"{shown(label)} waits for {shown(dependency)}, which is not in the plan."
            else:
                cycle = _cycle(nodes) if cycle is None else cycle
                message = f"{shown(label)} waits for {shown(dependency)}, which stands later"
                message += ": a node stands after those it waits for."
                if (label, dependency) in cycle:
                    first = cycle.index((label, dependency))
                    way = [label, *(waited for _, waited in (*cycle[first:], *cycle[:first]))]
                    more = " → …" if len(way) > _CYCLE_NODES_SHOWN + 1 else ""
                    path = " → ".join(map(shown, way[: _CYCLE_NODES_SHOWN + 1]))
                    message = f"{shown(label)} waits for itself in a cycle: {path}{more}."
            if message:
                yield PlanFault(message, node=label, spot=(at, number))
            dependencies.add(dependency)


def beyond(nodes: Sequence[Node], limit: int) -> PlanFault:
    """Return the fault of the first node above the limit."""
    label = nodes[limit].label
    message = f"The plan has {len(nodes)} nodes; at most {limit} are taken"
    return PlanFault(
        f"{message}: {shown(label)} is one too many.", node=label, spot=(limit, ITSELF)
    )


def _cycle(nodes: Sequence[Node]) -> list[tuple[str, str]]:
    """Return a dependency cycle as pairs of labels; empty without a cycle."""
    try:
        TopologicalSorter(
            {node.label: {*node.after} - {node.label} for node in reversed(nodes)}
        ).prepare()
    except CycleError as error:
        return [*pairwise(reversed(error.args[1]))]
    return []


def unknown_tool(tool: str, names: Collection[str]) -> str:
    """Return the message for an unknown tool, with similar names."""
    near = closest_words(tool[:100], names)
    hint = f" Nearest: {', '.join(map(shown, near))}." if near else ""
    return f"There is no tool called {shown(tool)}.{hint}"


def shown(text: str) -> str:
    """Quote input for a message: one line of limited length."""
    line = visible_line(text[: 2 * _QUOTE_CHARACTERS])
    if len(line) > _QUOTE_CHARACTERS or len(text) > 2 * _QUOTE_CHARACTERS:
        return f"`{line[:_QUOTE_CHARACTERS]}…`"
    return f"`{line}`"


def longest_path(
    waits: Mapping[str, Iterable[str]], times: Mapping[str, float]
) -> tuple[float, tuple[str, ...]]:
    """Return the duration and the labels of the critical path (CATP-LLM B.3), the first one in a tie.

    `waits` maps labels to dependencies, in order, and `times` to durations.
    """
    ends: dict[str, float] = {}
    paths: dict[str, tuple[str, ...]] = {}
    for label, after in waits.items():
        latest = max(
            (dependency for dependency in after if dependency in ends),
            key=ends.__getitem__,
            default="",
        )
        ends[label] = ends.get(latest, 0.0) + times[label]
        paths[label] = (*paths.get(latest, ()), label)
    last = max(ends, key=ends.__getitem__, default="")
    return ends.get(last, 0.0), paths.get(last, ())
