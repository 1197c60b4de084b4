"""What plans of one turn have finished, so that a repaired plan does not do it once more."""

import json
from collections.abc import Mapping

from ecoshell.agent.meta import unwrap
from ecoshell.catalog.catalog import Catalog
from ecoshell.messages import TOOL_CALL, Call
from ecoshell.planning.catp.base import TASK, GraphPlan, Node
from ecoshell.strategies.base import Step
from ecoshell.tools.base import LASTING


class Finished:
    """Nodes of the present plan that are done, and every lasting call that was done for a plan before it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._nodes: dict[str, tuple[Node, Step]] = {}
        """By their labels."""
        self._earlier: dict[str, Step] = {}
        """Lasting calls of the plans before this one, by what they were."""
        self._lasting: dict[str, Step] = {}
        """The same, with those of this plan."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """What the finished nodes of the present plan came to, by their labels."""
        return {label: step for label, (_, step) in self._nodes.items()}

    def add(self, node: Node, step: Step, made: Call) -> None:
        """A node of the present plan is done; `made` is the call as its tool got it."""
        self._nodes[node.label] = node, step
        if self._catalog.tool(node.tool).effects & LASTING:
            self._lasting[_what(made)] = step

    def follow(self, plan: GraphPlan) -> None:
        """Go on with a repaired plan, which keeps what it names as before: the same use of a tool for the same inputs.

        A node whose inputs have changed, or wait for what has, runs anew.
        """
        kept: dict[str, tuple[Node, Step]] = {}
        for node in plan.nodes:
            before = self._nodes.get(node.label)
            same = before is not None and set(before[0].after) == set(node.after)
            if before is not None and same and kept.keys() >= set(node.after) - {TASK}:
                kept[node.label] = before
        self._nodes, self._earlier = kept, dict(self._lasting)

    def alike(self, call: Call) -> Step | None:
        """The step in which this very call was done for a plan before this one, if it is one that lasts."""
        return self._earlier.get(_what(call))


def _what(call: Call) -> str:
    """The tool and its arguments, written so that equal calls read the same."""
    made = unwrap(call) if call.name == TOOL_CALL else call
    return f"{made.name} {json.dumps(dict(made.arguments), sort_keys=True, default=str)}"
