"""What the tool graphs of one turn have finished, so that a repaired graph repeats no lasting call."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ecoshell.agent.guards import unwrap
from ecoshell.catalog import Catalog
from ecoshell.messages import Call
from ecoshell.planning.catp.plan import TASK, GraphPlan, Node
from ecoshell.strategies import Step
from ecoshell.tools import LASTING


@dataclass(slots=True)
class LastingCall:
    """A finished call with lasting effects."""

    step: Step
    keys: frozenset[str]
    """The call as proposed and as the tool received it, which the user may have edited."""
    calls_after: int = 0
    """Number of lasting calls after it, up to the end of its graph."""
    is_unused: bool = False
    """Whether no node of the present graph has it yet."""


@dataclass(slots=True)
class FinishedNodes:
    """The finished nodes of the present graph, and all finished lasting calls in their order."""

    catalog: Catalog
    steps: dict[str, Step] = field(default_factory=dict[str, Step])
    """The steps of the finished nodes, by label."""
    _nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    _lasting: list[LastingCall] = field(default_factory=list[LastingCall])

    def add(self, node: Node, step: Step, made: Call) -> None:
        """Add a finished node of the present graph; `made` is the call as its tool received it."""
        self._nodes[node.label], self.steps[node.label] = node, step
        if self.catalog.tool(node.tool).effects & LASTING:
            self._lasting.append(
                LastingCall(step, frozenset((self._key(step.call), self._key(made))))
            )

    def kept(self, plan: GraphPlan) -> dict[str, Node]:
        """The nodes that a repaired graph keeps, by label: those with the same label and the same kept inputs."""
        nodes: dict[str, Node] = {}
        for node in plan.nodes:
            previous = self._nodes.get(node.label)
            is_same = previous is not None and set(previous.after) == set(node.after)
            if is_same and nodes.keys() >= set(node.after) - {TASK}:
                nodes[node.label] = node
        return nodes

    def follow(self, plan: GraphPlan) -> None:
        self._nodes = self.kept(plan)
        self.steps = {label: self.steps[label] for label in self._nodes}
        for calls_after, lasting in enumerate(reversed(self._lasting)):
            lasting.calls_after = calls_after
            lasting.is_unused = lasting.step not in self.steps.values()

    def take_over(self, node: Node, call: Call) -> LastingCall | None:
        """Use an equal lasting call of an earlier graph for the node; None if the call must run.

        Each finished call serves one node: of three equal nodes, two still run.
        """
        key = self._key(call)
        for lasting in self._lasting:
            if lasting.is_unused and key in lasting.keys:
                lasting.is_unused = False
                self._nodes[node.label], self.steps[node.label] = node, lasting.step
                return lasting
        return None

    def _key(self, call: Call) -> str:
        """The tool and its arguments in a normal form: `1.0` is `1`, and defaults are included."""
        made = unwrap(call)
        arguments = dict(made.arguments)
        properties: Mapping[str, Any] = (
            self.catalog.schema(made.name).parameters.get("properties") or {}
        )
        for name, schema in properties.items():
            if isinstance(schema, dict) and "default" in schema:
                arguments.setdefault(name, cast("dict[str, Any]", schema)["default"])
        plain = json.loads(json.dumps(arguments, default=str), parse_float=_number)
        return f"{made.name} {json.dumps(plain, sort_keys=True)}"


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value
