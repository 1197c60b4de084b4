"""What recorded tasks cost with and without a plan, for every strategy, cap, threshold and draw of costs (BTP §3)."""

import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from ecoshell.evaluation.btp.agent import Spent, replay, replay_planned
from ecoshell.evaluation.btp.recordings import Task
from ecoshell.planning.btp.base import Evidence
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.planning.btp.value import frequency_bound, value
from ecoshell.strategies.base import Way

PlanName = Literal["off", "btp"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is measured: every combination of ways, plans, caps, thresholds and seeds."""

    ways: Sequence[Way]
    plans: Sequence[PlanName]
    caps: Sequence[int]
    thresholds: Sequence[float]
    seeds: Sequence[int]
    """Each is one draw of costs."""
    costs: tuple[int, int] = (1, 10)
    """The least and the most that one use of a tool may cost."""
    steps: Literal["recorded", "gold"] = "recorded"
    """Whether tasks are replayed as they were recorded, or as their gold trajectories."""
    blacklisting: bool = True
    earned: bool = False
    """Whether a use that helped earns the tool a further one, which is the shell's way and not the paper's."""


@dataclass(frozen=True, slots=True)
class Row:
    """Means of a task under one setting; what was planned is None without a plan."""

    strategy: str
    plan: PlanName
    cap: int
    tau: float
    seed: int
    average_cost: float
    uses: float
    over_budget: float
    """Share of the tasks that spent more than the cap, 0 to 1."""
    planned_cost: float | None
    planned_uses: float | None


@dataclass(frozen=True, slots=True)
class Outset:
    """A task, and what experience says of each of its tools before it begins."""

    task: Task
    evidence: Mapping[str, Evidence]

    def candidates(self, threshold: float, costs: Mapping[str, int]) -> list[Candidate]:
        """The task's tools as a plan sees them."""
        return [self._candidate(tool, threshold, costs[tool]) for tool in self.task.tools]

    def _candidate(self, tool: str, threshold: float, cost: int) -> Candidate:
        past = self.evidence[tool]
        worth = value(past)
        return Candidate(tool, worth, frequency_bound(past, worth, threshold), cost, known=past.uses > 0)


def draw_costs(tools: Iterable[str], costs: tuple[int, int], seed: int) -> dict[str, int]:
    """A cost for each tool, drawn evenly; the same for the same tool and seed, whatever other tools there are."""
    return {tool: random.Random(f"{seed}/{tool}").randint(*costs) for tool in tools}


def measure(outsets: Sequence[Outset], sweep: Sweep) -> Iterator[Row]:
    """A row for each combination, the seed changing first and the strategy last."""
    tools = {tool for one in outsets for tool in one.task.tools}
    costs = {seed: draw_costs(tools, sweep.costs, seed) for seed in sweep.seeds}
    for way, plan, cap, tau, seed in product(sweep.ways, sweep.plans, sweep.caps, sweep.thresholds, sweep.seeds):
        spent: list[Spent] = []
        for one in outsets:
            if plan == "off":
                spent.append(replay(one.task, way.strategy, costs[seed]))
            else:
                candidates = one.candidates(tau, costs[seed])
                task_plan = TaskPlan(candidates, earned=sweep.earned, blacklisting=sweep.blacklisting)
                spent.append(replay_planned(one.task, way.strategy, task_plan, cap))
        yield Row(
            strategy=way.name,
            plan=plan,
            cap=cap,
            tau=tau,
            seed=seed,
            average_cost=statistics.fmean(one.cost for one in spent),
            uses=statistics.fmean(one.uses for one in spent),
            over_budget=statistics.fmean(one.cost > cap for one in spent),
            planned_cost=_mean(one.planned_cost for one in spent),
            planned_uses=_mean(one.planned_uses for one in spent),
        )


def _mean(planned: Iterable[int | None]) -> float | None:
    """The mean of what was planned, if it was."""
    known = [one for one in planned if one is not None]
    return statistics.fmean(known) if known else None
