"""Metrics of predicted steps (SPEC §4; α-UMi, Appendix C).

Figures of a step range from 0 to 1; those of a data set are percentages with 95 % intervals.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from statistics import fmean
from typing import Any

from ecoshell_train.trajectories import Decision, Trajectory

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+")
"""Runs of letters and digits, or single Chinese or Japanese characters."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The decision at a step, None for an unusable reply; a broken call keeps its tool name and raw arguments."""

    decision: Decision | None
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answer: str = ""


@dataclass(frozen=True, slots=True)
class StepScore:
    """The figures of a step; None if the reference has nothing to compare with.

    - Plan ACC: the decision (call, finish or give up) equals the reference's.
    - Act. EM (reference calls): the same tool is called.
    - Hallu.: the called tool is not in the list; a call without a name is not a hallucination.
    - Arg. F1 (reference calls): F1 of the arguments, 0 for another tool.
    - R-L (reference answers): Rouge-L of the answer, 0 for another decision.
    """

    plan_acc: float
    action_em: float | None
    hallucination: float
    argument_f1: float | None
    rouge_l: float | None


def score_step(trajectory: Trajectory, number: int, prediction: Prediction) -> StepScore:
    """Score the prediction of the trajectory's step with this index."""
    step, called = trajectory.steps[number], prediction.decision == "call"
    calls, finishes = step.decision == "call", step.decision == "finish"
    same_tool = called and prediction.tool == step.tool
    answer = prediction.answer if prediction.decision == "finish" else None
    return StepScore(
        plan_acc=float(prediction.decision == step.decision),
        action_em=float(same_tool) if calls else None,
        hallucination=float(
            called and bool(prediction.tool) and prediction.tool not in trajectory.names
        ),
        argument_f1=(arguments_f1(step.arguments, prediction.arguments) if same_tool else 0.0)
        if calls
        else None,
        rouge_l=(0.0 if answer is None else rouge_l(trajectory.final, answer))
        if finishes
        else None,
    )


def gold(trajectory: Trajectory, number: int) -> Prediction:
    """Return the reference's step as a prediction."""
    step = trajectory.steps[number]
    return Prediction(
        step.decision,
        step.tool,
        step.arguments,
        trajectory.final if step.decision != "call" else "",
    )


def arguments_f1(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Return the F1 of two sets of arguments: a common key counts 0.5, with an equal value 1; empty sets are equal.

    True and 1 differ, as in JSON.
    """
    if not first and not second:
        return 1.0
    pairs = [(first[key], second[key]) for key in first.keys() & second.keys()]
    equal = sum(a == b and isinstance(a, bool) == isinstance(b, bool) for a, b in pairs)
    return (len(pairs) + equal) / (len(first) + len(second))


def rouge_l(first: str, second: str) -> float:
    """Return Rouge-L F of two texts: the longest common subsequence of words over the mean length.

    Words are lowercased and not stemmed; two texts without words are equal. The usual package supports ASCII words
    only, but reference answers also use other scripts.
    """
    words, other_words = _WORD.findall(first.lower()), _WORD.findall(second.lower())
    if not words and not other_words:
        return 1.0
    return 2 * common_subsequence(words, other_words) / (len(words) + len(other_words))


def common_subsequence(first: list[str], second: list[str]) -> int:
    """Return the length of the longest common subsequence, with each table row as bits of an integer (Hyyrö, 2004)."""
    positions: dict[str, int] = {}
    for index, word in enumerate(first):
        positions[word] = positions.get(word, 0) | 1 << index
    full = (1 << len(first)) - 1
    row = full
    for word in second:
        matches = row & positions.get(word, 0)
        row = (row + matches | row - matches) & full
    return len(first) - row.bit_count()


# Figures of a data set

METRICS = tuple(each.name for each in fields(StepScore))
RESAMPLES = 2000
SEED = 0
TAILS = (2.5, 97.5)
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of a data set by metric, None if no step can be compared; `n` counts steps."""

    n: int
    percent: dict[str, float | None]
    intervals: dict[str, Interval | None]
    """95 % intervals in percent."""


def summarise(tasks: Sequence[Sequence[StepScore]]) -> Result:
    """Return means over all steps and percentile bootstrap intervals; raises ValueError without steps.

    Tasks are resampled, because the steps of a task are correlated; the steps of a single task are.
    """
    import numpy as np

    scored = [task for task in tasks if task]
    steps = [step for task in scored for step in task]
    if not steps:
        raise ValueError("no step to summarise")
    groups = scored if len(scored) > 1 else [[step] for step in steps]
    values = [
        np.array([astuple(step) for step in group], dtype=float) for group in groups
    ]  # None becomes nan
    draws = resamples(len(groups))
    totals = draws @ np.stack([np.nansum(group, axis=0) for group in values])
    cases = draws @ np.stack([np.sum(~np.isnan(group), axis=0) for group in values])
    percent: dict[str, float | None] = {}
    intervals: dict[str, Interval | None] = {}
    for column, metric in enumerate(METRICS):
        scores = [value for step in steps if (value := getattr(step, metric)) is not None]
        percent[metric] = 100 * fmean(scores) if scores else None
        intervals[metric] = None
        has_cases = cases[:, column] > 0
        if has_cases.any():
            low, high = np.percentile(
                100 * totals[has_cases, column] / cases[has_cases, column], TAILS
            )
            intervals[metric] = (float(low), float(high))
    return Result(len(steps), percent, intervals)


def resamples(size: int) -> Any:
    """Return how often each of `size` groups is drawn in each bootstrap sample: an array of samples by groups."""
    import numpy as np

    return np.random.default_rng(SEED).multinomial(size, np.full(size, 1 / size), size=RESAMPLES)


def as_record(result: Result) -> dict[str, Any]:
    """Return the record to print: n, the metrics in percent, and their 95 % intervals."""
    percent = {
        metric: None if value is None else round(value, 4)
        for metric, value in result.percent.items()
    }
    intervals = {
        metric: interval and [round(bound, 4) for bound in interval]
        for metric, interval in result.intervals.items()
    }
    return {"n": result.n, **percent, "intervals": intervals}
