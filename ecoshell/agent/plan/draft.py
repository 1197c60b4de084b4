"""A plan under one cap: what was planned, in which unit, by which costs and means, and what the turn may come to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ecoshell.agent.plan.means import Means
from ecoshell.budget.money import Unit
from ecoshell.planning.btp.costs import Expected, Step
from ecoshell.planning.btp.plan import Plan

_SIGMAS = 2
"""Standard deviations by which an estimated price range reaches above and below its mean."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The plan of the moment; `means` is None without a cap."""

    plan: Plan = field(default_factory=Plan)
    unit: Unit = "tokens"
    means: Means | None = None
    costs: Mapping[str, Expected] = field(default_factory=dict[str, Expected])
    paid: int = 0
    """What of the planned uses is paid already: thinking that is to lead to the next of them."""
    priors: Mapping[str, float] = field(default_factory=dict[str, float])
    """What tools are worth before their own history, where that is not the paper's."""

    @property
    def budget(self) -> int | None:
        """What the planned uses may cost, with what is paid of them; None without a cap."""
        return None if self.means is None else max(0, self.means.budget + self.paid)

    @property
    def room(self) -> float:
        """What the cap leaves, in what all bounds would cost: of several caps, the tightest has the least."""
        wanted = sum(max(1, row.bound) * row.cost for row in self.plan.rows)
        return math.inf if self.means is None or not wanted else self.means.budget / wanted

    def price_range(
        self, chances: Mapping[str, float], answer: Step, *, enforced: bool
    ) -> tuple[int | None, int | None]:
        """What the turn takes from here, at least and at most, as far as can be told; None when a price is unknown.

        Mean and deviation of the planned uses, each drawn by its tool's chance of use, and the price of an answer.
        """
        least = answer.tokens if self.unit == "tokens" else answer.nano
        if least is None:
            return None, None
        allowed = [row for row in self.plan.rows if row.state == "planned" or not enforced]
        drawn = [(min(chances.get(row.tool, 0.0), 1.0) * max(1, row.left), row) for row in allowed]
        mean = sum(uses * row.cost for uses, row in drawn)
        variance = sum(min(uses, 1) * (row.cost**2 + row.spread**2) for uses, row in drawn)
        reach = _SIGMAS * math.sqrt(variance)
        high = least + math.ceil(mean + reach)
        if self.means is not None:
            high = min(high, self.means.cap)
        return min(high, least + max(0, math.floor(mean - reach))), high
