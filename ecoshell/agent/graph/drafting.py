"""From what a model wrote to a plan that can be run, and what that plan is expected to take."""

from collections.abc import Collection

from ecoshell.agent.context import Frame
from ecoshell.agent.mode import View
from ecoshell.events import GraphNode, GraphPlanned
from ecoshell.messages import META_TOOLS
from ecoshell.planning.catp.base import GraphPlan
from ecoshell.planning.catp.faults import PlanFault, shown
from ecoshell.planning.catp.grammar import plan_grammar
from ecoshell.planning.catp.paths import schedule
from ecoshell.planning.catp.places import ITSELF
from ecoshell.planning.catp.prose import find_plan
from ecoshell.planning.catp.rules import Problem
from ecoshell.planning.catp.tpl import render
from ecoshell.planning.catp.types import Signature, signature
from ecoshell.planning.catp.validity import validate

_HELD_NODES = 8
"""Nodes of a plan that is written under a grammar: each takes it more rules."""


def read_plan(written: str, view: View, frame: Frame) -> GraphPlan:
    """The plan in a text, around which there may be prose; raises PlanFault, which names line, column and node.

    It may name what the view knows and the turn's plan allows.
    """
    tools = _tools(view, frame)
    found = find_plan(written, {*tools, *META_TOOLS, *frame.plan.forbidden})
    for at, node in enumerate(found.plan.nodes):
        if said := _barred(node.tool, frame):
            raise found.places.fault((at, ITSELF), PlanFault(f"{shown(node.label)}: {said}", node=node.label))
    validate(found.plan, Problem(tools), found.places)
    return found.plan


def _barred(tool: str, frame: Frame) -> str:
    """Why a tool that is known may not stand in a plan; empty where it may."""
    if tool in META_TOOLS:
        return f"{tool} is no part of a plan; tools alone are."
    return frame.plan.refusal(tool)


def grammar_of_plans(view: View, frame: Frame) -> str:
    """The grammar of what `read_plan` takes, for models that can be held to it; empty where no plan can be run.

    May take a second.
    """
    allowed = {name: kinds for name, kinds in _tools(view, frame).items() if name not in frame.plan.forbidden}
    try:
        return plan_grammar(Problem(allowed, max_nodes=_HELD_NODES))
    except PlanFault:
        return ""


def _tools(view: View, frame: Frame) -> dict[str, Signature]:
    """What a plan may name, with the kinds it takes and gives."""
    names = dict.fromkeys((*view.usable, *(document.name for document in view.registered)))
    return {name: signature(frame.catalog.document(name)) for name in names if name in frame.catalog}


def planned(plan: GraphPlan, frame: Frame, kept: Collection[str], *, repaired: bool) -> GraphPlanned:
    """The plan as the event that tells of it, with the price and time it is expected to take."""
    nodes: list[GraphNode] = []
    for node in plan.nodes:
        kinds, estimate = signature(frame.catalog.document(node.tool)), frame.plan.expected(node.tool)
        takes, gives = tuple(sorted(kinds.takes)), tuple(sorted(kinds.gives))
        free = node.label in kept
        price, seconds = (0, 0.0) if free else (estimate.price_nano, estimate.seconds)
        nodes.append(GraphNode(node.label, node.tool, node.after, takes, gives, price, seconds))
    prices = [node.price_nano for node in nodes if node.price_nano is not None]
    known = [node.seconds for node in nodes if node.seconds is not None]
    usual = sum(known) / len(known) if any(known) else 1.0
    longest = schedule(plan, {node.label: usual if node.seconds is None else node.seconds for node in nodes})
    return GraphPlanned(
        nodes=tuple(nodes),
        text=render(plan, "text"),
        repaired=repaired,
        kept=tuple(node.label for node in nodes if node.label in kept),
        critical=longest.critical,
        price_nano=sum(prices) if len(prices) == len(nodes) else None,
        seconds=longest.length if len(known) == len(nodes) else None,
    )
