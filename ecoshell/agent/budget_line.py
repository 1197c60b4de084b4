"""The budget line that capable models read with results (Budget-Aware Tool-Use, arXiv 2511.17006)."""

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.turn_usage import TurnUsage
from ecoshell.budget import CapState, amount_text
from ecoshell.errors import StoreError


class BudgetLine:
    """Reports the rest of the tightest cap and the mean cost of a step, once per change.

    The line is appended to results and stays there, so that a prompt keeps its cached prefix.
    """

    def __init__(self, deps: Dependencies, usage: TurnUsage) -> None:
        self._deps = deps
        self._usage = usage
        self._last = ""

    async def text(self) -> str:
        """The line; empty without a cap, for small models, if disabled, and if unchanged."""
        traits = self._deps.models.current.model.traits
        if not (self._deps.settings.budget_line and traits.capable):
            return ""
        try:
            caps = [
                cap for cap in await self._deps.budget.caps(at_rest=True) if cap.over(traits.name)
            ]
        except StoreError:  # the ledger is locked; the gate reports it
            return ""
        if not caps:
            return ""
        cap = min(caps, key=lambda cap: cap.left / max(1, cap.limit))
        line = f"Budget: {amount_text(cap.left, cap.unit)} of {amount_text(cap.limit, cap.unit)} left{self._cost(cap)}."
        if line == self._last:
            return ""
        self._last = line
        return line

    def _cost(self, cap: CapState) -> str:
        """The mean cost of a step of this turn; empty if unknown."""
        steps, consumption = self._usage.steps, self._usage.consumption
        ms = round(1_000 * self._usage.worked)
        spent = {"usd": consumption.nano, "tokens": consumption.usage.total, "ms": ms}[cap.unit]
        return (
            f"; a step costs about {amount_text(spent // steps, cap.unit)}"
            if steps and spent
            else ""
        )
