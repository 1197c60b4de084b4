"""What plans of one turn have finished, so that a repaired plan does not do it once more."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ecoshell.agent.guards import unwrap
from ecoshell.catalog.catalog import Catalog
from ecoshell.messages import TOOL_CALL, Call
from ecoshell.planning.catp.base import TASK, GraphPlan, Node
from ecoshell.strategies.base import Step
from ecoshell.tools.base import LASTING


@dataclass(slots=True)
class Lasting:
    """A lasting call that was done."""

    step: Step
    known_as: frozenset[str]
    """What it was: as it was proposed, and as its tool got it, which a person may have changed."""
    followed: int = 0
    """How many others were done after it, by the end of its plan."""


class Finished:
    """Nodes of the present plan that are done, and every lasting call that was done for a plan before it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._nodes: dict[str, tuple[Node, Step]] = {}
        """By their labels."""
        self._earlier: list[Lasting] = []
        """Lasting calls of plans before this one that it has not come to, in the order in which they ended."""
        self._lasting: list[Lasting] = []
        """Those that were done for this plan, or are kept in it."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """What the finished nodes of the present plan came to, by their labels."""
        return {label: step for label, (_, step) in self._nodes.items()}

    def add(self, node: Node, step: Step, made: Call) -> None:
        """A node of the present plan is done; `made` is the call as its tool got it."""
        self._nodes[node.label] = node, step
        if self._catalog.tool(node.tool).effects & LASTING:
            self._lasting.append(Lasting(step, frozenset((self._what(step.call), self._what(made)))))

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
        self._nodes = kept
        steps = [step for _, step in kept.values()]
        done = [*self._earlier, *self._lasting]
        for at, lasting in enumerate(done, 1):
            lasting.followed = len(done) - at
        self._earlier = [one for one in done if one.step not in steps]
        self._lasting = [one for one in done if one.step in steps]

    def take_over(self, node: Node, call: Call) -> Lasting | None:
        """What was done for a plan before this one by this very call, as the node's; None where it is to be made.

        One call that was done stands for one node: of three equal ones two are made yet.
        """
        what = self._what(call)
        found = next((one for one in self._earlier if what in one.known_as), None)
        if found is not None:
            self._earlier.remove(found)
            self._lasting.append(found)
            self._nodes[node.label] = node, found.step
        return found

    def _what(self, call: Call) -> str:
        """The tool and its arguments, written so that calls that are the same read the same."""
        made = unwrap(call) if call.name == TOOL_CALL else call
        arguments = dict(made.arguments)
        properties: Mapping[str, Any] = self._catalog.document(made.name).parameters.get("properties") or {}
        for name, schema in properties.items():
            if isinstance(schema, dict) and "default" in schema:
                arguments.setdefault(name, cast("dict[str, Any]", schema)["default"])
        return f"{made.name} {json.dumps(_plain(arguments), sort_keys=True, default=str)}"


def _plain(value: Any) -> Any:
    """The value with whole numbers written in one way: `1.0` is `1`."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in cast("list[Any] | tuple[Any, ...]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value
