"""What a plan is made of at one moment of a turn; nothing that happens meanwhile changes the plan under way."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ecoshell.agent.mode import Foreseen, View
from ecoshell.agent.model_set import ModelSet
from ecoshell.agent.plan.draft import Draft
from ecoshell.agent.plan.means import Means, expected_step, means
from ecoshell.agent.plan.outset import Outset
from ecoshell.agent.plan.tool_costs import Thought, ToolCosts
from ecoshell.budget.caps import CapState
from ecoshell.budget.holds import Hold
from ecoshell.budget.money import Unit
from ecoshell.events import PlanRow
from ecoshell.planning.btp.base import NO_EVIDENCE
from ecoshell.planning.btp.costs import Expected
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.planning.btp.value import HELPFUL_PRIOR, frequency_bound, value

MOST_ROWS = 60
"""Rows an event carries; thousands of tools would fill the session's log."""


@dataclass(frozen=True, slots=True)
class Solved:
    """A plan, and what it was reckoned with."""

    foreseen: Foreseen = field(default_factory=lambda: Foreseen(()))
    draft: Draft = field(default_factory=Draft)
    shown: tuple[PlanRow, ...] = ()
    """The rows an event carries."""


@dataclass(frozen=True, slots=True)
class Moment:
    """All that a plan is made of and that changes in a turn; of equal moments the plans are the same."""

    caps: tuple[CapState, ...]
    cast: ModelSet
    aside: Hold | None
    view: View
    ahead: Thought
    """What was thought towards the next use: a part of its cost that is paid already."""
    threshold: float
    strict: bool
    hour_nano: int
    uses: Mapping[str, int]
    registered: frozenset[str]
    outset: Outset = field(compare=False)
    task: TaskPlan = field(compare=False)
    """A copy of the turn's, as `tools` is: what both have learned comes of the uses."""
    tools: ToolCosts = field(compare=False)

    def solve(self) -> Solved:
        """The plan by the tightest of the caps; computes, so it belongs into a thread."""
        foreseen = self.cast.mode.foresee(self.view)
        found = means(self.caps, self.aside, foreseen)
        guess, freely = expected_step(foreseen), self.cast.registers_freely
        units: tuple[Unit, ...] = (*found,) or (self._usual_unit(),)
        costs = {unit: self.tools.expected(unit, guess, hour_nano=self.hour_nano, freely=freely) for unit in units}
        beyond = {name for unit, one in found.items() for name in self._too_dear(one, costs[unit])}
        drafts = [self._draft(unit, found.get(unit), costs[unit], beyond) for unit in units]
        tightest = min(drafts, key=lambda draft: draft.room)
        return Solved(foreseen, tightest, _most_telling(tightest.plan.rows))

    def _too_dear(self, found: Means, costs: Mapping[str, Expected]) -> list[str]:
        """Tools of which not even one use fits."""
        return [name for name, cost in costs.items() if cost.total > found.budget + self._paid_of(cost)]

    def _paid_of(self, cost: Expected) -> int:
        """What of a use is paid already, if it comes next: no more of what was thought than thinking of it takes."""
        return min(self.ahead.amount(cost.unit), cost.next_thought)

    def _draft(self, unit: Unit, found: Means | None, costs: Mapping[str, Expected], beyond: Collection[str]) -> Draft:
        """The plan in one unit.

        What is paid already depends on the use that comes next, which must be a planned one: while no planned tool
        would have that much of its cost paid, the plan is made again with what the dearest of them would have.
        """
        candidates = self._candidates(costs)
        if found is None:
            return Draft(self.task.solve(None, candidates), unit, None, costs, priors=self._priors)
        paid = max(map(self._paid_of, costs.values()), default=0)
        while True:
            plan = self.task.solve(found.budget + paid, candidates, beyond=beyond)
            most = max((self._paid_of(costs[row.tool]) for row in plan.rows if row.left), default=0)
            if most >= paid:
                return Draft(plan, unit, found, costs, paid, self._priors)
            paid = most

    @property
    def _priors(self) -> Mapping[str, float]:
        """What tools are worth before their own history; strictly, the same for all."""
        return {} if self.strict else self.outset.priors

    def _usual_unit(self) -> Unit:
        """The unit to speak in without a cap: dollars, unless everything is free."""
        prices = [model.traits.price for model in self.cast.models]
        costs_money = any(price is not None and price.worst(1, 1) for price in prices)
        return "usd" if self.tools.priced or costs_money else "tokens"

    def _candidates(self, costs: Mapping[str, Expected]) -> list[Candidate]:
        """Values and bounds come from before the turn, costs from now."""
        candidates: list[Candidate] = []
        for name, cost in costs.items():
            past = self.outset.evidence.get(name, NO_EVIDENCE)
            worth = value(past, self._priors.get(name, HELPFUL_PRIOR))
            bound = frequency_bound(past, worth, self.threshold)
            known, likely = past.weight > 0, self.outset.chances.get(name, 0.0)
            candidates.append(Candidate(name, worth, bound, cost.total, cost.spread, known=known, chance=likely))
        return candidates


def _most_telling(rows: Sequence[PlanRow]) -> tuple[PlanRow, ...]:
    """The rows an event carries: what was used, then what is planned, by what it is worth."""
    ranked = sorted(rows, key=lambda row: (row.used == 0, row.state != "planned", -row.value * row.chance))
    return tuple(ranked[:MOST_ROWS])
