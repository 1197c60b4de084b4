"""What model calls take that are made for one node, while others are made for the nodes beside it."""

from ecoshell.agent.judging import ROLE as JUDGE
from ecoshell.agent.plan.tool_costs import Thought
from ecoshell.events import BudgetSettled, Emit, Event


class Spending:
    """Passes events on, and adds up what they say was spent on thinking."""

    def __init__(self, emit: Emit) -> None:
        self.thought = Thought()
        self._emit = emit

    def emit(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, BudgetSettled) and event.role != JUDGE:
            self.thought = self.thought.plus(event)
        self._emit(event)
