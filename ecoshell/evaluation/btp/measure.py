"""What recorded tasks cost with and without a plan, for every strategy, cap, threshold and draw of costs (BTP §3)."""

import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

from ecoshell.evaluation.btp.agent import Spent, ideal, replay, replay_gated, replay_planned
from ecoshell.evaluation.btp.recordings import Task
from ecoshell.planning.btp.evidence import Evidence
from ecoshell.planning.btp.plan import Candidate, TaskPlan, chance, frequency_bound, priors, value
from ecoshell.strategies.base import Way

PlanName = Literal["off", "btp", "strict", "gate", "oracle"]
"""No plan; the shell's; the paper's; calls in their order while they fit; the most useful calls that fit."""


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
    split: Literal["others", "half"] = "others"
    """What is known of a task's tools: what the runs of all other questions say, or those of the other half."""
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
    useful_allowed: float
    """Share of the useful calls of all tasks that were let through, 0 to 1; 1 where there are none."""
    tasks_whole: float
    """Share of the tasks of which every useful call was let through, 0 to 1."""
    planned_cost: float | None
    planned_uses: float | None


@dataclass(frozen=True, slots=True)
class Outset:
    """A task, and what is known of every recorded tool before it begins."""

    task: Task
    evidence: Mapping[str, Evidence]
    fits: Mapping[str, float] = field(default_factory=dict[str, float])
    """The local ranker's chances, by the tools' names alone: a recording has no documents."""

    def candidates(self, threshold: float, costs: Mapping[str, int], *, strict: bool = False) -> list[Candidate]:
        """The task's tools as a plan sees them; to the paper's they are chosen already, so that it counts on them."""
        before = priors(self.evidence, self.fits, dict.fromkeys(self.evidence, ""))
        usual = sum(self.fits.values()) / max(1, len(self.fits))
        found: list[Candidate] = []
        for tool in self.task.tools:
            past = self.evidence[tool]
            worth = value(past) if strict else value(past, before[tool])
            likely = 1.0 if strict else chance(past, self.fits.get(tool, 0.0), usual)
            bound = frequency_bound(past, worth, threshold)
            found.append(Candidate(tool, worth, bound, costs[tool], known=past.weight > 0, chance=likely))
        return found


def draw_costs(tools: Iterable[str], costs: tuple[int, int], seed: int) -> dict[str, int]:
    """A cost for each tool, drawn evenly; the same for the same tool and seed, whatever other tools there are."""
    return {tool: random.Random(f"{seed}/{tool}").randint(*costs) for tool in tools}


def measure(outsets: Sequence[Outset], sweep: Sweep) -> Iterator[Row]:
    """A row for each combination, the seed changing first and the strategy last."""
    tools = {tool for one in outsets for tool in one.task.tools}
    costs = {seed: draw_costs(tools, sweep.costs, seed) for seed in sweep.seeds}
    for way, plan, cap, tau, seed in product(sweep.ways, sweep.plans, sweep.caps, sweep.thresholds, sweep.seeds):
        setting = _Setting(way, plan, cap, tau, costs[seed])
        spent = [_spent(one, setting, sweep) for one in outsets]
        useful = [len(one.task.useful) for one in outsets]
        yield Row(
            strategy=way.name,
            plan=plan,
            cap=cap,
            tau=tau,
            seed=seed,
            average_cost=statistics.fmean(one.cost for one in spent),
            uses=statistics.fmean(one.uses for one in spent),
            over_budget=statistics.fmean(one.cost > cap for one in spent),
            useful_allowed=sum(one.useful for one in spent) / sum(useful) if any(useful) else 1.0,
            tasks_whole=statistics.fmean(one.useful == all_of for one, all_of in zip(spent, useful, strict=True)),
            planned_cost=_mean(one.planned_cost for one in spent),
            planned_uses=_mean(one.planned_uses for one in spent),
        )


class _Setting(NamedTuple):
    way: Way
    plan: PlanName
    cap: int
    tau: float
    costs: Mapping[str, int]


def _spent(one: Outset, setting: _Setting, sweep: Sweep) -> Spent:
    """What one task comes to under one plan."""
    way, plan, cap, tau, costs = setting
    match plan:
        case "off":
            return replay(one.task, way.strategy, costs)
        case "gate":
            return replay_gated(one.task, way.strategy, costs, cap)
        case "oracle":
            return ideal(one.task, costs, cap)
        case "btp" | "strict":
            strict = plan == "strict"
            limits = TaskPlan(
                one.candidates(tau, costs, strict=strict),
                threshold=tau,
                strict=strict,
                earned=sweep.earned,
                blacklisting=sweep.blacklisting,
            )
            return replay_planned(one.task, way.strategy, limits, cap)


def _mean(planned: Iterable[int | None]) -> float | None:
    """The mean of what was planned, if it was."""
    known = [one for one in planned if one is not None]
    return statistics.fmean(known) if known else None
