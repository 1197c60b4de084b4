"""What model calls take that are made for one node, while others are made for the nodes beside it."""

from dataclasses import replace

from ecoshell.agent.judging import ROLE as JUDGE
from ecoshell.events import BudgetSettled, Emit, Event, TextArrived
from ecoshell.planning.btp.costs import StepCost


class Spending:
    """Passes events on, with the node they are about, and adds up what they say was spent on thinking."""

    def __init__(self, emit: Emit, node: str = "") -> None:
        self.thought = StepCost()
        self._emit = emit
        self._node = node

    def emit(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, BudgetSettled) and event.role != JUDGE:
            self.thought = self.thought.plus(event)
        self._emit(replace(event, node=self._node) if self._node and isinstance(event, TextArrived) else event)
