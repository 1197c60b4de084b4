"""What one predicted step is worth beside its reference (SPEC §4; α-UMi, Appendix C), each figure from 0 to 1."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ecoshell_bench.umi.reference import Decision, ReferenceStep, Trajectory

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
    """One step's figures; None where the reference has nothing to compare with."""

    plan_acc: float
    action_em: float | None
    hallucination: float
    argument_f1: float | None
    rouge_l: float | None


def score_step(trajectory: Trajectory, number: int, prediction: Prediction) -> StepScore:
    """The figures of the trajectory's step with this number, counted from 0."""
    step = trajectory.steps[number]
    calls, finishes = step.decision == "call", step.decision == "finish"
    return StepScore(
        plan_acc=plan_accuracy(step, prediction),
        action_em=action_match(step, prediction) if calls else None,
        hallucination=hallucination(trajectory.names, prediction),
        argument_f1=argument_f1(step, prediction) if calls else None,
        rouge_l=answer_overlap(trajectory.final, prediction) if finishes else None,
    )


def gold(trajectory: Trajectory, number: int) -> Prediction:
    """The reference as a prediction of itself."""
    step = trajectory.steps[number]
    return Prediction(step.decision, step.tool, step.arguments, trajectory.final if step.decision != "call" else "")


def plan_accuracy(step: ReferenceStep, prediction: Prediction) -> float:
    """Plan ACC: whether the decision is the reference's, of call, finish and give up."""
    return float(prediction.decision == step.decision)


def action_match(step: ReferenceStep, prediction: Prediction) -> float:
    """Act. EM, of a reference call: whether the same tool is called; another decision is no action."""
    return float(prediction.decision == "call" and prediction.tool == step.tool)


def hallucination(names: Collection[str], prediction: Prediction) -> float:
    """Hallu.: whether a tool is called that is not in the list; a call that names none invents none."""
    return float(prediction.decision == "call" and bool(prediction.tool) and prediction.tool not in names)


def argument_f1(step: ReferenceStep, prediction: Prediction) -> float:
    """Arg. F1, of a reference call: how far the arguments are the reference's; 0 if the tool is another."""
    return arguments_f1(step.arguments, prediction.arguments) if action_match(step, prediction) else 0.0


def arguments_f1(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The F1 of two sets of arguments: a key in both counts a half, with its value 1; two empty sets are equal."""
    if not one and not other:
        return 1.0
    matched = sum(1.0 if _same(one[key], other[key]) else 0.5 for key in one.keys() & other.keys())
    return 2 * matched / (len(one) + len(other))


def answer_overlap(final: str, prediction: Prediction) -> float:
    """R-L, of a reference that finishes: Rouge-L of the answer; another decision has no answer."""
    return rouge_l(final, prediction.answer) if prediction.decision == "finish" else 0.0


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


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; Python takes true for 1, JSON does not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
