"""Helpers for tests of turns with tool graphs: configurable tools, and plans of them."""

import json

from agent_play import of, say

from ecoshell.events import NodeChanged
from ecoshell.messages import Observation, ToolSchema


class Probe:
    """A tool with the given effects and price that runs `act`."""

    def __init__(self, name, act=None, *, effects=(), price=0, parameters=None):
        self.schema = ToolSchema(
            name, f"Does {name}.", parameters or {"type": "object", "properties": {}}
        )
        self.effects = frozenset(effects)
        self.price_nano = price
        self._act = act
        self.runs = []

    async def run(self, arguments):
        self.runs.append(dict(arguments))
        result = await self._act() if self._act else f"{self.schema.name} is done"
        return result if isinstance(result, Observation) else Observation(result)


def plan(**nodes):
    """A line of a script with a plan: `plan(a=[], b=["a"])`."""
    parts = [part for name, after in nodes.items() for part in (name, after or ["<task>"])]
    return say(json.dumps(parts))


def add(shell, *tools):
    """Add tools to the built-in ones."""
    catalog = shell.deps.catalog
    catalog.__init__([*(catalog.tool(name) for name in catalog.names), *tools])
    shell.deps.ranker.__init__(catalog.schemas)


def states(events):
    return [(event.label, event.state) for event in of(events, NodeChanged)]
