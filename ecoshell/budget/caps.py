"""One cap as it stands."""

from dataclasses import dataclass
from typing import Literal

from ecoshell.budget.money import Unit

Scope = Literal["turn", "session", "day", "month"]
SCOPES: tuple[Scope, ...] = ("turn", "session", "day", "month")


@dataclass(frozen=True, slots=True)
class CapState:
    """One cap and what is used of it; `limit`, `spent` and `held` are nano-dollars or tokens, as `unit` says."""

    scope: str
    unit: Unit
    limit: int
    spent: int
    held: int

    @property
    def left(self) -> int:
        """What may still be reserved; never negative."""
        return max(0, self.limit - self.spent - self.held)
