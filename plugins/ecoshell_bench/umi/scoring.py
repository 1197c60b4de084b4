"""From the figures of steps to those of a data set, and how far these can be trusted."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from statistics import fmean
from typing import Any

from ecoshell_bench.umi.metrics import StepScore

METRICS = tuple(one.name for one in fields(StepScore))
RESAMPLES = 2000
SEED = 0
TAILS = (2.5, 97.5)

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Result:
    """A data set's figures in percent by metric, None where no step can be compared; `n` counts steps."""

    n: int
    percent: dict[str, float | None]
    intervals: dict[str, Interval | None]
    """Of 95 %."""


def summarise(tasks: Sequence[Sequence[StepScore]]) -> Result:
    """The means over all steps, and their bootstrap intervals; raises ValueError when there is no step.

    Whole tasks are drawn, as the steps of one are alike; where there is but one task, its steps are.
    """
    scored = [task for task in tasks if task]
    steps = [step for task in scored for step in task]
    if not steps:
        raise ValueError("no step to summarise")
    drawn = scored if len(scored) > 1 else [[step] for step in steps]
    return Result(len(steps), {metric: _mean(steps, metric) for metric in METRICS}, _intervals(drawn))


def resamples(size: int) -> Any:
    """How often each of so many groups is drawn in each bootstrap sample: an array of samples by groups."""
    import numpy as np

    return np.random.default_rng(SEED).multinomial(size, np.full(size, 1 / size), size=RESAMPLES)


def _mean(steps: Sequence[StepScore], metric: str) -> float | None:
    known = [value for step in steps if (value := getattr(step, metric)) is not None]
    return 100 * fmean(known) if known else None


def _intervals(groups: Sequence[Sequence[StepScore]]) -> dict[str, Interval | None]:
    """The percentile bootstrap: sums and counts of each group, weighted by how often it is drawn."""
    import numpy as np

    values = [np.array([astuple(step) for step in group], dtype=float) for group in groups]  # None becomes nan
    sums = np.stack([np.nansum(group, axis=0) for group in values])
    counts = np.stack([np.sum(~np.isnan(group), axis=0) for group in values])
    draws = resamples(len(groups))
    totals, cases = draws @ sums, draws @ counts
    found: dict[str, Interval | None] = {}
    for place, metric in enumerate(METRICS):
        some = cases[:, place] > 0
        if not some.any():
            found[metric] = None
            continue
        low, high = np.percentile(100 * totals[some, place] / cases[some, place], TAILS)
        found[metric] = (float(low), float(high))
    return found
