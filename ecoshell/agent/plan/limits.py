"""The caps over one turn as its plan knows them: which of them was changed, and what the turn has spent of them."""

from collections.abc import Iterable

from ecoshell.agent.plan.tool_costs import Thought
from ecoshell.budget.caps import CapState
from ecoshell.budget.money import Unit, amount_text
from ecoshell.events import BudgetSettled, CallFinished, Event

_Limits = dict[tuple[str, Unit], int]
"""What each cap allows, by its scope and unit."""


class Limits:
    """Follows what the caps allow, and what a turn takes of it, by every event of it."""

    def __init__(self) -> None:
        self._spent = Thought()
        self._now: _Limits | None = None
        self._told: _Limits = {}

    def see(self, event: Event) -> None:
        """Take an event into account."""
        match event:
            case BudgetSettled():
                self._spent = self._spent.plus(event)
            case CallFinished():
                self._spent = self._spent + Thought(nano=event.spent_nano)
            case _:
                pass

    def spent(self, unit: Unit) -> int:
        """What the turn has spent, tools included."""
        return self._spent.amount(unit)

    def follow(self, caps: Iterable[CapState]) -> None:
        """These caps stand now; those that stand first are no change."""
        limits: _Limits = {(cap.scope, cap.unit): cap.limit for cap in caps}
        if self._now is None:
            self._told = limits
        self._now = limits

    def tell(self) -> None:
        """What has changed is told now."""
        self._told = self._now or {}

    @property
    def change(self) -> str:
        """What has changed since it was last told, in words; empty when nothing has."""
        before, now = self._told, self._now or {}
        said = [
            f"the {scope}'s cap is {amount_text(limit, unit)} now"
            for (scope, unit), limit in now.items()
            if before.get((scope, unit)) != limit
        ]
        scopes = {scope for scope, _ in now}
        said += [f"the {scope}'s cap was removed" for scope, _ in before if scope not in scopes]
        return " and ".join(dict.fromkeys(said))
