"""Where a written plan has its nodes, so that what is wrong with one is told with line and column."""

import re
from dataclasses import dataclass
from itertools import islice

from ecoshell.planning.catp.faults import PlanFault

Spot = tuple[int, int]
"""A node of a plan by its number from 0, and the number of one of its dependencies, or ITSELF."""
ITSELF = -1


@dataclass(frozen=True, slots=True)
class Places:
    """Positions in the text of one plan, in characters from 0."""

    text: str
    start: int
    """Where the plan begins: there may be prose before it."""
    nodes: tuple[int, ...]
    after: tuple[int, ...]
    """Where the dependencies of each node begin."""
    dependency: re.Pattern[str]
    """What matches one dependency after another from there on."""

    def fault(self, spot: Spot, fault: PlanFault) -> PlanFault:
        """The fault with its place in the text."""
        return PlanFault.at(self.text, self._position(*spot), fault.message, fault.node)

    def _position(self, node: int, number: int) -> int:
        if not self.nodes:
            return self.start
        if number == ITSELF:
            return self.nodes[node]
        written = self.dependency.finditer(self.text, self.after[node])
        return next(islice(written, number, None)).start()
