"""Whether a plan solves a problem, and if not, at which nodes it does not: what a remote model is told (SPEC §3)."""

from collections.abc import Iterator

from ecoshell.planning.catp.base import TASK, GraphPlan, Node
from ecoshell.planning.catp.checks import faults_of, unknown_tool
from ecoshell.planning.catp.faults import PlanFault, shown
from ecoshell.planning.catp.rules import Bag, Problem
from ecoshell.planning.catp.tpl import parse, tokens

_TOLD = 20
"""Faults that are looked for: a model that is asked again needs no more."""


def validate(plan: GraphPlan, problem: Problem) -> None:
    """Raise PlanFault for a plan that does not solve the problem; its message tells the faults, each with its node."""
    if found := faults(plan, problem):
        raise PlanFault.of(found)


def valid(written: str, problem: Problem) -> bool:
    """Whether a text is a plan that solves the problem."""
    try:
        return not faults(parse(written), problem)
    except PlanFault:
        return False


def faults(plan: GraphPlan, problem: Problem) -> list[PlanFault]:
    """What keeps a plan from solving the problem, the first twenty faults."""
    found = [fault for _, fault in zip(range(_TOLD), _structural(plan, problem), strict=False)]
    if found:
        return found
    return [fault for _, fault in zip(range(_TOLD), _typed(plan, problem), strict=False)]


def _structural(plan: GraphPlan, problem: Problem) -> Iterator[PlanFault]:
    for _, fault in faults_of(plan.nodes, problem.max_nodes):
        yield fault
    used: dict[str, int] = {}
    for node in plan.nodes:
        due = used[node.tool] = used.get(node.tool, 0) + 1
        if node.tool not in problem.tools:
            yield PlanFault(unknown_tool(node.tool, problem.tools), node=node.label)
        elif problem.uses is not None and due > problem.uses:
            yield PlanFault(f"{shown(node.label)}: a tool may be used {problem.uses} times at most.", node=node.label)
        elif node.index != due:
            said = f"{shown(node.label)} is use {due} of {shown(node.tool)}: call it {shown(_label(node.tool, due))}."
            yield PlanFault(said, node=node.label)
    if problem.max_tokens is not None and (length := len(tokens(plan)) - 1) > problem.max_tokens:
        yield PlanFault(f"The plan has {length} tokens; at most {problem.max_tokens} are taken.")


def _typed(plan: GraphPlan, problem: Problem) -> Iterator[PlanFault]:
    """What does not fit in a plan of known tools: what flows in at each node, and what comes out at the end."""
    rules = problem.rules
    groups = {node.label: rules.group_of[rules.class_of[node.tool]] for node in plan.nodes}
    for node in plan.nodes:
        yield from _of_node(node, groups, problem)
    sinks = [0] * len(rules.gives)
    for node in plan.sinks:
        sinks[groups[node.label]] += 1
    if not rules.delivers(sinks):
        ends = ", ".join(f"{shown(node.label)} ({_kinds(problem, node.tool)})" for node in plan.sinks[:8])
        wanted = " and ".join(problem.wanted)
        said = f"The task asks for {wanted}, nothing more and nothing less; the plan ends in {ends}."
        yield PlanFault(said, node=plan.sinks[0].label)


def _of_node(node: Node, groups: dict[str, int], problem: Problem) -> Iterator[PlanFault]:
    rules = problem.rules
    number, name = rules.class_of[node.tool], shown(node.label)
    taken = " or ".join(sorted(rules.signatures[number].takes))
    counts = [0] * len(rules.gives)
    for label in node.after:
        usable = rules.task_usable[number] if label == TASK else rules.usable[number][groups[label]]
        if not usable:
            given = " and ".join(problem.given) if label == TASK else "/".join(sorted(rules.gives[groups[label]]))
            yield PlanFault(f"{name} takes {taken}, and {shown(label)} gives {given}.", node=node.label)
        if label != TASK:
            counts[groups[label]] += 1
    if kind := rules.missing(number, Bag(tuple(counts), TASK in node.after)):
        yield PlanFault(f"{name} needs {kind}, and nothing it waits for gives (enough of) it.", node=node.label)


def _label(tool: str, index: int) -> str:
    return Node(tool, index=index).label


def _kinds(problem: Problem, tool: str) -> str:
    return "/".join(sorted(problem.tools[tool].gives))
