"""A branching plan: a DAG of tools and what each waits for (CATP-LLM §4.1), and what keeps nodes from being one."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from ecoshell.errors import UsageError
from ecoshell.messages import visible_line

TASK = "<task>"
"""The dependency on what the user gave."""
MAX_NODES = 1_024
"""Nodes of a plan, whoever made it."""
MAX_INDEX = 9_999
BOM = "\ufeff"
"""The byte order mark that some programs put before a text; no editor counts it as a column."""
ITSELF = -1
_SHOWN = 60
"""Characters of what was written that a message repeats."""
_LISTED = 5
"""Faults that one message tells."""
_CYCLE_SHOWN = 8


class PlanFault(UsageError):
    """A plan cannot be taken.

    `line`, `column` (from 1) and `position` (characters from 0) tell where in its text, `node` the label of the node;
    each is None where it does not apply. `spot` is the node's number, and that of its dependency or ITSELF, from 0.
    """

    def __init__(
        self, message: str, *, node: str | None = None, spot: tuple[int, int] = (0, ITSELF), fix: str = ""
    ) -> None:
        super().__init__(message, fix=fix)
        self.node = node
        self.spot = spot
        self.position: int | None = None
        self.line: int | None = None
        self.column: int | None = None

    @classmethod
    def at(cls, text: str, position: int, message: str, node: str | None = None) -> "PlanFault":
        """A fault in a text: the message begins with its line and column."""
        line = text.count("\n", 0, position) + 1
        column = position - max(text.rfind("\n", 0, position) + 1, int(text.startswith(BOM))) + 1
        fault = cls(f"line {line}, column {column}: {message}", node=node)
        fault.position, fault.line, fault.column = position, line, column
        return fault

    @classmethod
    def of(cls, faults: Sequence["PlanFault"]) -> "PlanFault":
        """Several faults as one, which has the place of the first."""
        first, more = faults[0], len(faults) - _LISTED
        said = " ".join(fault.message for fault in faults[:_LISTED]) + (f" And {more} more." if more > 0 else "")
        fault = cls(said, node=first.node, spot=first.spot)
        fault.position, fault.line, fault.column = first.position, first.line, first.column
        return fault


@dataclass(frozen=True, slots=True)
class Node:
    """One use of a tool."""

    tool: str
    after: tuple[str, ...] = (TASK,)
    """Labels of earlier nodes, or TASK; in the order in which they were written."""
    index: int = 1
    """Counts the uses of the same tool from 1 on."""

    @property
    def label(self) -> str:
        """How the plan names it: `read_file`, then `read_file#2`."""
        return self.tool if self.index == 1 else f"{self.tool}#{self.index}"


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """Nodes in an order in which each stands after those it waits for; raises PlanFault for what is no such plan."""

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        for fault in faults_of(self.nodes):
            raise fault

    @property
    def sinks(self) -> tuple[Node, ...]:
        """Nodes that no other waits for: what they give is what the plan gives."""
        awaited = {label for node in self.nodes for label in node.after}
        return tuple(node for node in self.nodes if node.label not in awaited)


def faults_of(nodes: Sequence[Node]) -> Iterator[PlanFault]:
    """What keeps nodes from being a plan, whatever its tools are, each with its spot."""
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
        label, seen, said = node.label, set[str](), ""
        if not node.tool or node.tool == TASK:
            said = f"A tool cannot be called {shown(node.tool)}."
        elif not 1 <= node.index <= MAX_INDEX:
            said = f"The index of {shown(label)} is not between 1 and {MAX_INDEX}."
        elif places[label] < at:
            said = f"Two nodes are called {shown(label)}: a tool's second use is {shown(f'{node.tool}#2')}."
        elif not node.after:
            said = f"{shown(label)} names no dependency: it needs `{TASK}` or an earlier node."
        if said:
            yield PlanFault(said, node=label, spot=(at, ITSELF))
        for number, one in enumerate(node.after):
            said = ""
            if one in seen:
                said = f"{shown(label)} names its dependency {shown(one)} twice."
            elif one == TASK or places.get(one, at) < at:
                pass
            elif one == label:
                said = f"{shown(label)} waits for itself."
            elif one not in places:
                said = f"{shown(label)} waits for {shown(one)}, which is not in the plan."
            else:
                cycle = _cycle(nodes) if cycle is None else cycle
                said = f"{shown(label)} waits for {shown(one)}, which stands later"
                said += ": a node stands after those it waits for."
                if (label, one) in cycle:
                    first = cycle.index((label, one))
                    way = [label, *(waited for _, waited in (*cycle[first:], *cycle[:first]))]
                    more = " → …" if len(way) > _CYCLE_SHOWN + 1 else ""
                    told = " → ".join(map(shown, way[: _CYCLE_SHOWN + 1]))
                    said = f"{shown(label)} waits for itself in a cycle: {told}{more}."
            if said:
                yield PlanFault(said, node=label, spot=(at, number))
            seen.add(one)


def beyond(nodes: Sequence[Node], most: int) -> PlanFault:
    """The fault of the first node that is one too many."""
    label, said = nodes[most].label, f"The plan has {len(nodes)} nodes; at most {most} are taken"
    return PlanFault(f"{said}: {shown(label)} is one too many.", node=label, spot=(most, ITSELF))


def _cycle(nodes: Sequence[Node]) -> list[tuple[str, str]]:
    """A cycle of nodes that each wait for another, as pairs; empty where there is none."""
    try:
        TopologicalSorter({node.label: {*node.after} - {node.label} for node in reversed(nodes)}).prepare()
    except CycleError as error:
        return [*pairwise(reversed(error.args[1]))]
    return []


def unknown_tool(tool: str, known: Collection[str]) -> str:
    """What is said of a name that is no tool's, with the names that look most like it."""
    import difflib

    near = difflib.get_close_matches(tool[:100], known, n=3, cutoff=0.5)
    hint = f" Nearest: {', '.join(map(shown, near))}." if near else ""
    return f"There is no tool called {shown(tool)}.{hint}"


def shown(text: str) -> str:
    """What a model or a person wrote, as a message may repeat it: on one line, and not too long."""
    line = visible_line(text[: 2 * _SHOWN])
    return f"`{line[:_SHOWN]}…`" if len(line) > _SHOWN or len(text) > 2 * _SHOWN else f"`{line}`"


def longest_path(waits: Mapping[str, Iterable[str]], times: Mapping[str, float]) -> tuple[float, tuple[str, ...]]:
    """How long nodes take that each start with the end of the last one they wait for (CATP-LLM B.3), and the labels of
    the longest path; `waits` says in order what each waits for, and `times` what it takes.

    Of paths of the same length it is the one that stands first.
    """
    ends: dict[str, float] = {}
    paths: dict[str, tuple[str, ...]] = {}
    for label, after in waits.items():
        latest = max((one for one in after if one in ends), key=ends.__getitem__, default="")
        ends[label] = ends.get(latest, 0.0) + times[label]
        paths[label] = (*paths.get(latest, ()), label)
    last = max(ends, key=ends.__getitem__, default="")
    return ends.get(last, 0.0), paths.get(last, ())
