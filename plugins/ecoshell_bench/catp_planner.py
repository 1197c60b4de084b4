"""Measure the plans of a trained planner against its ablations, the baseline and choices made in hindsight.

Each task is planned by models that were not trained on it, once per size level of its inputs; the plan counts for all
recorded samples of the level. A plan without a record for a sample gets score 0 and price 0. That is a lower bound,
because the pools keep the best plans.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ecoshell.errors import UsageError
from ecoshell.planning.catp.costs import quality
from ecoshell_bench.catp_random import valid
from ecoshell_train.caorl_data import Constants, RecordedPlan, Recordings
from ecoshell_train.caorl_planner import ABLATIONS, BASELINE, METHOD, Actions, Planner

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BOOTSTRAP_DRAWS = 2_000
_CHEAPEST = "cheapest"
_BEST_SCORE = "best score"
_BEST = "best"

Choose = Callable[[int, int], Actions]
"""Returns the plan for a task and a size level."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a method for every sample, in a fixed order."""

    tasks: "NDArray[np.int64]"
    qop: "NDArray[np.float64]"
    score: "NDArray[np.float64]"
    price: "NDArray[np.float64]"
    """The plan's mean recorded price, also for samples without a record; nan without any record."""
    recorded: "NDArray[np.bool_]"
    valid: "NDArray[np.bool_]"

    def row(self, method: "Outcome") -> dict[str, Any]:
        """Return means, the interval of QoP and the interval of the method's advantage."""
        return {
            "qop": _mean(self.qop),
            "qop_95": _interval(self.tasks, self.qop),
            "caorl_above_95": None
            if self is method
            else _interval(self.tasks, method.qop - self.qop),
            "score": _mean(self.score),
            "price": _mean(self.price[self.price == self.price]),
            "recorded": _mean(self.recorded),
        }


def measure_planner(
    planner: Planner, plans: Sequence[RecordedPlan], constants: Constants
) -> dict[str, Any]:
    """Return the planner's part of the record; raises UsageError if the planner does not know the tasks or tools."""
    if unknown := sorted({plan.task for plan in plans} - {*planner.tasks}):
        raise UsageError(
            f"The planner does not know task {unknown[0]}.", fix="Give the pools it was trained on."
        )
    if {*planner.types} != {*constants.types}:
        raise UsageError(
            "The planner and the constants have different tools.",
            fix="Give the constants it was trained with.",
        )
    if METHOD not in planner.variants:
        raise UsageError(
            "The planner was trained without the method itself.", fix="Train it without --only."
        )
    recordings = Recordings([plan for plan in plans if plan.task in planner.unseen], constants)

    def qop(plan: RecordedPlan) -> float:
        return quality(plan.score, plan.price, alpha=constants.alpha, max_cost=constants.max_cost)

    recorded_plans: dict[str, Choose] = {
        name: lambda task, level, name=name: planner.plan(
            name, task, level, [*recordings.by_task[task]]
        )
        for name in planner.variants
    }
    any_plans: dict[str, Choose] = {name: partial(planner.plan, name) for name in planner.variants}
    recorded_plans |= _hindsight_choices(recordings, qop)
    chosen = {
        name: _outcome(choose, recordings, planner, qop) for name, choose in recorded_plans.items()
    }
    written = {
        name: _outcome(choose, recordings, planner, qop) for name, choose in any_plans.items()
    }
    rows = {name: outcome.row(chosen[METHOD]) for name, outcome in chosen.items()}
    written_rows = {
        name: {**outcome.row(written[METHOD]), "valid": _mean(outcome.valid)}
        for name, outcome in written.items()
    }

    def means(name: str) -> dict[str, float]:
        return {
            "qop": rows[name]["qop"],
            "price": rows[name]["price"],
            "valid": written_rows[name]["valid"],
        }

    return {
        "qop": rows[METHOD]["qop"],
        "ift_qop": rows[BASELINE]["qop"] if BASELINE in rows else None,
        "cheapest_qop": rows[_CHEAPEST]["qop"],
        "best_score_qop": rows[_BEST_SCORE]["qop"],
        "price": rows[METHOD]["price"],
        "valid": written_rows[METHOD]["valid"],
        "samples": len(chosen[METHOD].qop),
        "ablations": {name: means(name) for name in ABLATIONS if name in rows},
        "chosen": rows,
        "written": written_rows,
    }


def _hindsight_choices(
    recordings: Recordings, qop: Callable[[RecordedPlan], float]
) -> dict[str, Choose]:
    """Return the choices of the cheapest plan, the plan with the best score and the plan with the best QoP."""

    def highest_mean(figure: Callable[[RecordedPlan], float]) -> Choose:
        means = {
            task: {plan: fmean(map(figure, runs.values())) for plan, runs in runs_by_plan.items()}
            for task, runs_by_plan in recordings.by_task.items()
        }
        return lambda task, _: max(means[task], key=lambda plan: means[task][plan])

    def best(task: int, level: int) -> Actions:
        samples, runs_by_plan = recordings.samples[task, level], recordings.by_task[task]

        def total(plan: Actions) -> float:
            return sum(qop(run) for sample, run in runs_by_plan[plan].items() if sample in samples)

        return max(runs_by_plan, key=total)

    return {
        _CHEAPEST: highest_mean(lambda plan: -float(plan.price)),
        _BEST_SCORE: highest_mean(lambda plan: plan.score),
        _BEST: best,
    }


def _outcome(
    choose: Choose, recordings: Recordings, planner: Planner, qop: Callable[[RecordedPlan], float]
) -> Outcome:
    """Choose a plan for every level of each task with several recorded plans, and look up its recorded results."""
    import numpy as np

    rows: list[tuple[float, ...]] = []
    for (task, level), samples in sorted(recordings.samples.items()):
        if len(recordings.by_task[task]) < 2:
            continue
        plan = choose(task, level)
        runs: Mapping[int, RecordedPlan] = recordings.by_task[task].get(plan, {})
        price = fmean(float(run.price) for run in runs.values()) if runs else nan
        language = planner.language
        is_valid = bool(runs) or valid(language.text(plan), language.problem(planner.tasks[task]))
        for sample in sorted(samples):
            run = runs.get(sample)
            rows.append(
                (
                    task,
                    qop(run) if run else 0.0,
                    run.score if run else 0.0,
                    price,
                    run is not None,
                    is_valid,
                )
            )
    if not rows:
        raise UsageError("No task has several recorded plans.", fix="Give the complete pools.")
    tasks, qops, scores, prices, recorded, validity = np.array(rows, np.float64).T
    return Outcome(tasks.astype(np.int64), qops, scores, prices, recorded > 0, validity > 0)


def _mean(values: "NDArray[Any]") -> float:
    return round(float(values.mean()), 6) if len(values) else 0.0


def _interval(tasks: "NDArray[np.int64]", values: "NDArray[np.float64]") -> list[float]:
    """Return the 95 % bootstrap interval of the mean over resampled tasks, with a fixed seed."""
    import numpy as np

    numbers = np.unique(tasks)
    sums = np.array([values[tasks == number].sum() for number in numbers])
    counts = np.array([(tasks == number).sum() for number in numbers])
    draws = np.random.default_rng(0).integers(0, len(numbers), (BOOTSTRAP_DRAWS, len(numbers)))
    means = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    return [round(float(bound), 6) for bound in np.quantile(means, (0.025, 0.975))]
