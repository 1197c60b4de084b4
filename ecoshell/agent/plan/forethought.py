"""What has been thought towards the next use of a tool: what it took, and what of that is paid ahead."""

from ecoshell.agent.judging import ROLE as JUDGE
from ecoshell.agent.plan.tool_costs import Thought
from ecoshell.events import (
    BranchLeft,
    BudgetSettled,
    CallFinished,
    CallStarted,
    Event,
    StepProposed,
    ToolRegistered,
)


class Forethought:
    """Follows one turn's thinking; hears every event of it.

    A use costs the thinking that calls for it. What of that is thought already has left the caps and is not to be paid
    again, as long as a use can come of it: a thought that turned out to call for none was paid for nothing.
    """

    def __init__(self, *, registers_freely: bool) -> None:
        """`registers_freely`: registering takes no thought of its own, so what was thought goes on to the call."""
        self.taken = Thought()
        """All that was thought since the last call: what the next one comes to have cost."""
        self.ahead = Thought()
        """What of it may still lead to a call, and of a call under way what led to it."""
        self._registers_freely = registers_freely
        self._proposed = Thought()
        """What proposals took that wait to be chosen."""

    def see(self, event: Event) -> None:
        """Take an event into account."""
        match event:
            case BudgetSettled() if event.role != JUDGE:
                self.taken = self.taken.plus(event)
                self.ahead = self.ahead.plus(event)
            case StepProposed():
                self._proposed = self.ahead
            case CallStarted():
                self.taken = Thought()
            case CallFinished() | BranchLeft():
                self.drop()
            case ToolRegistered() if event.by == "agent" and not self._registers_freely:
                self.taken = Thought()
                self.drop()
            case _:
                pass

    def step(self) -> None:
        """A step begins: of the thoughts before it, only those that were proposed can still lead to a call."""
        self.ahead = self._proposed

    def drop(self) -> None:
        """No call comes any more of what was thought."""
        self.ahead = self._proposed = Thought()
