"""What predicted steps are worth beside their references (SPEC §4; α-UMi, Appendix C), and how far that can be trusted.

The figures of one step are from 0 to 1, those of a data set in percent with intervals of 95 %.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from statistics import fmean
from typing import Any

from ecoshell_train.trajectories import Decision, Trajectory

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+")
"""Runs of letters and digits; where no spaces part the words, each Chinese or Japanese character."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was decided at a step: a call, or an answer; the decision is None when nothing usable was said.

    A call that cannot be used has the tool it names, if any, and the arguments as they were written.
    """

    decision: Decision | None
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answer: str = ""


@dataclass(frozen=True, slots=True)
class StepScore:
    """One step's figures; None where the reference has nothing to compare with.

    Plan ACC: the decision is the reference's, of call, finish and give up. Act. EM, of a reference call: the same tool
    is called. Hallu.: a tool is called that is not in the list; a call that names none invents none. Arg. F1, of a
    reference call: how far the arguments are the reference's; 0 if the tool is another. R-L, of a reference that
    finishes: Rouge-L of the answer; another decision has no answer.
    """

    plan_acc: float
    action_em: float | None
    hallucination: float
    argument_f1: float | None
    rouge_l: float | None


def score_step(trajectory: Trajectory, number: int, prediction: Prediction) -> StepScore:
    """The figures of the trajectory's step with this number, counted from 0."""
    step, called = trajectory.steps[number], prediction.decision == "call"
    calls, finishes = step.decision == "call", step.decision == "finish"
    right = called and prediction.tool == step.tool
    said = prediction.answer if prediction.decision == "finish" else None
    return StepScore(
        plan_acc=float(prediction.decision == step.decision),
        action_em=float(right) if calls else None,
        hallucination=float(called and bool(prediction.tool) and prediction.tool not in trajectory.names),
        argument_f1=(arguments_f1(step.arguments, prediction.arguments) if right else 0.0) if calls else None,
        rouge_l=(0.0 if said is None else rouge_l(trajectory.final, said)) if finishes else None,
    )


def gold(trajectory: Trajectory, number: int) -> Prediction:
    """The reference as a prediction of itself."""
    step = trajectory.steps[number]
    return Prediction(step.decision, step.tool, step.arguments, trajectory.final if step.decision != "call" else "")


def arguments_f1(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The F1 of two sets of arguments: a key in both counts a half, with its value 1; two empty sets are equal.

    Python takes true for 1, JSON does not.
    """
    if not one and not other:
        return 1.0
    pairs = [(one[key], other[key]) for key in one.keys() & other.keys()]
    same = sum(mine == theirs and isinstance(mine, bool) == isinstance(theirs, bool) for mine, theirs in pairs)
    return (len(pairs) + same) / (len(one) + len(other))


def rouge_l(one: str, other: str) -> float:
    """Rouge-L F of two texts: the longest common subsequence of their words over the mean of their lengths.

    Words are compared in lower case and unstemmed; two texts without words are equal. It is written out here because
    the usual package knows ASCII words only, and reference answers are in other scripts too.
    """
    words, others = _WORD.findall(one.lower()), _WORD.findall(other.lower())
    if not words and not others:
        return 1.0
    return 2 * common_subsequence(words, others) / (len(words) + len(others))


def common_subsequence(one: list[str], other: list[str]) -> int:
    """The length of the longest common subsequence: a row of the table is the bits of one number (Hyyrö, 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(one)) - 1
    row = full
    for word in other:
        matches = row & places.get(word, 0)
        row = (row + matches | row - matches) & full
    return len(one) - row.bit_count()


# A data set's figures

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
    """The means over all steps, and their percentile bootstrap intervals; raises ValueError when there is no step.

    Whole tasks are drawn, as the steps of one are alike; where there is but one task, its steps are.
    """
    import numpy as np

    scored = [task for task in tasks if task]
    steps = [step for task in scored for step in task]
    if not steps:
        raise ValueError("no step to summarise")
    drawn = scored if len(scored) > 1 else [[step] for step in steps]
    values = [np.array([astuple(step) for step in group], dtype=float) for group in drawn]  # None becomes nan
    draws = resamples(len(drawn))
    totals = draws @ np.stack([np.nansum(group, axis=0) for group in values])
    cases = draws @ np.stack([np.sum(~np.isnan(group), axis=0) for group in values])
    percent: dict[str, float | None] = {}
    intervals: dict[str, Interval | None] = {}
    for place, metric in enumerate(METRICS):
        known = [value for step in steps if (value := getattr(step, metric)) is not None]
        percent[metric], some = 100 * fmean(known) if known else None, cases[:, place] > 0
        intervals[metric] = None
        if some.any():
            low, high = np.percentile(100 * totals[some, place] / cases[some, place], TAILS)
            intervals[metric] = (float(low), float(high))
    return Result(len(steps), percent, intervals)


def resamples(size: int) -> Any:
    """How often each of so many groups is drawn in each bootstrap sample: an array of samples by groups."""
    import numpy as np

    return np.random.default_rng(SEED).multinomial(size, np.full(size, 1 / size), size=RESAMPLES)


def as_record(result: Result) -> dict[str, Any]:
    """What is printed: n, the metrics in percent, and their 95 % intervals."""
    percent = {metric: None if value is None else round(value, 4) for metric, value in result.percent.items()}
    intervals = {metric: one and [round(end, 4) for end in one] for metric, one in result.intervals.items()}
    return {"n": result.n, **percent, "intervals": intervals}
