"""What a plan is made of at one moment of a turn; nothing that happens meanwhile changes the plan under way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ecoshell.agent.kit import Cast
from ecoshell.agent.mode import Foreseen, View
from ecoshell.agent.plan.draft import Draft
from ecoshell.agent.plan.means import expected_step, means
from ecoshell.agent.plan.outset import Outset
from ecoshell.agent.plan.tool_costs import Thought, ToolCosts
from ecoshell.budget.caps import CapState
from ecoshell.budget.holds import Hold
from ecoshell.budget.money import Unit
from ecoshell.events import PlanRow
from ecoshell.planning.btp.base import NO_EVIDENCE
from ecoshell.planning.btp.costs import Expected
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.planning.btp.value import frequency_bound, value

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
    cast: Cast
    aside: Hold | None
    view: View
    thought: Thought
    """What was thought since the last call: a part of the next use's cost that is paid already."""
    threshold: float
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
        budgets = {unit: one.budget + self.thought.amount(unit) for unit, one in found.items()}
        beyond = {name for unit in budgets for name, cost in costs[unit].items() if cost.total > budgets[unit]}
        drafts = [
            Draft(
                self.task.solve(budgets.get(unit), self._candidates(costs[unit]), beyond=beyond),
                unit,
                found.get(unit),
                costs[unit],
            )
            for unit in units
        ]
        tightest = min(drafts, key=lambda draft: draft.room)
        return Solved(foreseen, tightest, _most_telling(tightest.plan.rows))

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
            worth = value(past)
            bound = frequency_bound(past, worth, self.threshold)
            known, likely = past.weight > 0, self.outset.chances.get(name, 0.0)
            candidates.append(Candidate(name, worth, bound, cost.total, cost.spread, known=known, chance=likely))
        return candidates


def _most_telling(rows: Sequence[PlanRow]) -> tuple[PlanRow, ...]:
    """The rows an event carries: what was used, then what is planned, by what it is worth."""
    ranked = sorted(rows, key=lambda row: (row.used == 0, row.state != "planned", -row.value * row.chance))
    return tuple(ranked[:MOST_ROWS])
