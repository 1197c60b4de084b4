"""Whether a plan solves a problem, and if not, at which nodes it does not: what a remote model is told (SPEC §3)."""

from collections.abc import Iterator
from itertools import accumulate, islice

from ecoshell.planning.catp.base import TASK, GraphPlan, Node
from ecoshell.planning.catp.checks import faults_of, unknown_tool
from ecoshell.planning.catp.faults import PlanFault, shown
from ecoshell.planning.catp.places import ITSELF, Places, Spot
from ecoshell.planning.catp.rules import Bag, Problem
from ecoshell.planning.catp.tpl import parse, tokens

_TOLD = 20
"""Faults that are looked for: a model that is asked again needs no more."""

_Found = Iterator[tuple[Spot, PlanFault]]


def validate(plan: GraphPlan, problem: Problem, places: Places | None = None) -> None:
    """Raise PlanFault for a plan that does not solve the problem; its message tells the faults, each with its node.

    With the places where the plan was written, each has its line and column, too.
    """
    if found := faults(plan, problem, places):
        raise PlanFault.of(found)


def valid(written: str, problem: Problem) -> bool:
    """Whether a text is a plan that solves the problem."""
    try:
        return not faults(parse(written), problem)
    except PlanFault:
        return False


def faults(plan: GraphPlan, problem: Problem, places: Places | None = None) -> list[PlanFault]:
    """What keeps a plan from solving the problem, the first twenty faults."""
    found = list(islice(_structural(plan, problem), _TOLD)) or list(islice(_typed(plan, problem), _TOLD))
    return [fault if places is None else places.fault(spot, fault) for spot, fault in found]


def _structural(plan: GraphPlan, problem: Problem) -> _Found:
    yield from faults_of(plan.nodes, problem.max_nodes)
    used: dict[str, int] = {}
    for at, node in enumerate(plan.nodes):
        due = used[node.tool] = used.get(node.tool, 0) + 1
        if node.tool not in problem.tools:
            yield (at, ITSELF), PlanFault(unknown_tool(node.tool, problem.tools), node=node.label)
        elif problem.uses is not None and due > problem.uses:
            said = f"{shown(node.label)}: a tool may be used {problem.uses} times at most."
            yield (at, ITSELF), PlanFault(said, node=node.label)
        elif node.index != due:
            said = f"{shown(node.label)} is use {due} of {shown(node.tool)}: call it {shown(_label(node.tool, due))}."
            yield (at, ITSELF), PlanFault(said, node=node.label)
    if problem.max_tokens is not None:
        yield from _too_long(plan, problem.max_tokens)


def _too_long(plan: GraphPlan, most: int) -> _Found:
    """The fault of the node by which the plan passes its limit of tokens; [SoP] does not count."""
    length = len(tokens(plan)) - 1
    if length > most:
        ends = accumulate((len(node.after) + 3 for node in plan.nodes), initial=1)
        at = next(at for at, end in enumerate(ends) if end > most) - 1
        label = plan.nodes[max(at, 0)].label
        said = f"The plan has {length} tokens; at most {most} are taken: {shown(label)} is beyond them."
        yield (max(at, 0), ITSELF), PlanFault(said, node=label)


def _typed(plan: GraphPlan, problem: Problem) -> _Found:
    """What does not fit in a plan of known tools: what flows in at each node, and what comes out at the end."""
    rules = problem.rules
    groups = {node.label: rules.group_of[rules.class_of[node.tool]] for node in plan.nodes}
    for at, node in enumerate(plan.nodes):
        yield from _of_node(at, node, groups, problem)
    sinks = [0] * len(rules.gives)
    for node in plan.sinks:
        sinks[groups[node.label]] += 1
    if not rules.delivers(sinks):
        first = plan.sinks[0]
        ends = ", ".join(f"{shown(node.label)} ({_kinds(problem, node.tool)})" for node in plan.sinks[:8])
        wanted = " and ".join(problem.wanted)
        said = f"The task asks for {wanted}, nothing more and nothing less; the plan ends in {ends}."
        yield (plan.nodes.index(first), ITSELF), PlanFault(said, node=first.label)


def _of_node(at: int, node: Node, groups: dict[str, int], problem: Problem) -> _Found:
    rules = problem.rules
    number, name = rules.class_of[node.tool], shown(node.label)
    taken = " or ".join(sorted(rules.signatures[number].takes))
    counts = [0] * len(rules.gives)
    for place, label in enumerate(node.after):
        usable = rules.task_usable[number] if label == TASK else rules.usable[number][groups[label]]
        if not usable:
            given = " and ".join(problem.given) if label == TASK else "/".join(sorted(rules.gives[groups[label]]))
            said = f"{name} takes {taken}, and {shown(label)} gives {given}."
            yield (at, place), PlanFault(said, node=node.label)
        if label != TASK:
            counts[groups[label]] += 1
    if kind := rules.missing(number, Bag(tuple(counts), TASK in node.after)):
        said = f"{name} needs {kind}, and nothing it waits for gives (enough of) it."
        yield (at, ITSELF), PlanFault(said, node=node.label)


def _label(tool: str, index: int) -> str:
    return Node(tool, index=index).label


def _kinds(problem: Problem, tool: str) -> str:
    return "/".join(sorted(problem.tools[tool].gives))
