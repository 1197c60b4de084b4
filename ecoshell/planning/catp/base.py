"""A branching plan: tools, and what each of them waits for (CATP-LLM §4.1)."""

from dataclasses import dataclass

TASK = "<task>"
"""The dependency on what the user gave."""


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
    """Nodes in an order in which each stands after those it waits for."""

    nodes: tuple[Node, ...]

    @property
    def sinks(self) -> tuple[Node, ...]:
        """Nodes that no other waits for: what they give is what the plan gives."""
        awaited = {label for node in self.nodes for label in node.after}
        return tuple(node for node in self.nodes if node.label not in awaited)
