"""What the plans of a trained planner were worth, beside its ablations, the baseline, and choices made in hindsight.

Every task is planned by models that have not seen it, once for each size level of its inputs, and counts for all its
recorded samples. Where a plan is not recorded for a sample its score is taken as 0 and its price as nothing: the pools
keep what was worth most, so that this is the least it can be.
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

DRAWS = 2_000
"""Of the tasks, for the intervals."""
_CHEAPEST, _BEST_SCORE, _BEST = "cheapest", "best score", "best"

Choose = Callable[[int, int], Actions]
"""The plan for a task and a size level."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a way to choose came to, on every sample in one order."""

    tasks: "NDArray[np.int64]"
    qop: "NDArray[np.float64]"
    score: "NDArray[np.float64]"
    price: "NDArray[np.float64]"
    """The plan's mean recorded price, which holds for samples without a record, too; nan where it has none."""
    recorded: "NDArray[np.bool_]"
    valid: "NDArray[np.bool_]"

    def row(self, method: "Outcome") -> dict[str, Any]:
        """Means, the interval of QoP, and that of how far the method is above."""
        return {
            "qop": _mean(self.qop),
            "qop_95": _interval(self.tasks, self.qop),
            "caorl_above_95": None if self is method else _interval(self.tasks, method.qop - self.qop),
            "score": _mean(self.score),
            "price": _mean(self.price[self.price == self.price]),
            "recorded": _mean(self.recorded),
        }


def judged(planner: Planner, plans: Sequence[RecordedPlan], constants: Constants) -> dict[str, Any]:
    """The planner's columns of `bench catp`; raises UsageError for a planner that does not know the tasks or tools."""
    if unknown := sorted({one.task for one in plans} - {*planner.tasks}):
        raise UsageError(f"The planner knows no task {unknown[0]}.", fix="Give the pools that it was trained on.")
    if {*planner.types} != {*constants.types}:
        raise UsageError("The planner has other tools than the constants.", fix="Give those it was trained with.")
    if METHOD not in planner.variants:
        raise UsageError("The planner was not trained by the method itself.", fix="Train it without --only.")
    recordings = Recordings([one for one in plans if one.task in planner.unseen], constants)
    alpha = constants.alpha

    def hindsight(figure: Callable[[RecordedPlan], float]) -> Choose:
        """The plan of a task with the highest mean figure over its records."""
        means = {
            task: {plan: fmean(map(figure, runs.values())) for plan, runs in own.items()}
            for task, own in recordings.by_task.items()
        }
        return lambda task, _: max(means[task], key=lambda plan: means[task][plan])

    def worth(one: RecordedPlan) -> float:
        return quality(one.score, one.price, alpha=alpha, most=constants.max_cost)

    def best(task: int, level: int) -> Actions:
        samples, own = recordings.samples[task, level], recordings.by_task[task]
        return max(own, key=lambda plan: sum(worth(run) for sample, run in own[plan].items() if sample in samples))

    among: dict[str, Choose] = {
        name: lambda task, level, name=name: planner.plan(name, task, level, [*recordings.by_task[task]])
        for name in planner.variants
    }
    free: dict[str, Choose] = {name: partial(planner.plan, name) for name in planner.variants}
    among |= {
        _CHEAPEST: hindsight(lambda one: -float(one.price)),
        _BEST_SCORE: hindsight(lambda one: one.score),
        _BEST: best,
    }
    chosen = {name: _outcome(choose, recordings, planner, worth) for name, choose in among.items()}
    written = {name: _outcome(choose, recordings, planner, worth) for name, choose in free.items()}
    rows = {name: one.row(chosen[METHOD]) for name, one in chosen.items()}
    free_rows = {name: {**one.row(written[METHOD]), "valid": _mean(one.valid)} for name, one in written.items()}

    def means(name: str) -> dict[str, float]:
        return {"qop": rows[name]["qop"], "price": rows[name]["price"], "valid": free_rows[name]["valid"]}

    return {
        "qop": rows[METHOD]["qop"],
        "ift_qop": rows[BASELINE]["qop"] if BASELINE in rows else None,
        "cheapest_qop": rows[_CHEAPEST]["qop"],
        "best_score_qop": rows[_BEST_SCORE]["qop"],
        "price": rows[METHOD]["price"],
        "valid": free_rows[METHOD]["valid"],
        "samples": len(chosen[METHOD].qop),
        "ablations": {name: means(name) for name in ABLATIONS if name in rows},
        "chosen": rows,
        "written": free_rows,
    }


def _outcome(
    choose: Choose, recordings: Recordings, planner: Planner, worth: Callable[[RecordedPlan], float]
) -> Outcome:
    """Choose for every task and level with several recorded plans for the task, and look up what it came to."""
    import numpy as np

    rows: list[tuple[float, ...]] = []
    for (task, level), samples in sorted(recordings.samples.items()):
        if len(recordings.by_task[task]) < 2:
            continue
        plan = choose(task, level)
        runs: Mapping[int, RecordedPlan] = recordings.by_task[task].get(plan, {})
        price = fmean(float(run.price) for run in runs.values()) if runs else nan
        language = planner.language
        sound = bool(runs) or valid(language.text(plan), language.problem(planner.tasks[task]))
        for sample in sorted(samples):
            run = runs.get(sample)
            rows.append((task, worth(run) if run else 0.0, run.score if run else 0.0, price, run is not None, sound))
    if not rows:
        raise UsageError("No task has several recorded plans.", fix="Give the whole pools.")
    task, qop, score, price, recorded, sound = np.array(rows, np.float64).T
    return Outcome(task.astype(np.int64), qop, score, price, recorded > 0, sound > 0)


def _mean(values: "NDArray[Any]") -> float:
    return round(float(values.mean()), 6) if len(values) else 0.0


def _interval(tasks: "NDArray[np.int64]", values: "NDArray[np.float64]") -> list[float]:
    """The 95 % interval of the mean, by drawing whole tasks again and again, always the same ones."""
    import numpy as np

    numbers = np.unique(tasks)
    sums = np.array([values[tasks == one].sum() for one in numbers])
    counts = np.array([(tasks == one).sum() for one in numbers])
    drawn = np.random.default_rng(0).integers(0, len(numbers), (DRAWS, len(numbers)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return [round(float(one), 6) for one in np.quantile(means, (0.025, 0.975))]
