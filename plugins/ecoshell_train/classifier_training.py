"""Train the classifier of tool results with scikit-learn, and compare it with simpler judges."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from statistics import fmean, pstdev
from typing import Any, cast

from ecoshell.errors import UsageError
from ecoshell.messages import Call, Observation
from ecoshell.planning.btp.experience import Use
from ecoshell.planning.judging import by_rules, judgeable
from ecoshell_train.classifier import DIMENSIONS, Classifier, features

MIN_PER_CLASS = 10
MAX_USES = 20_000
"""Training reads the latest uses up to this number."""
_FOLDS = 5
_SEED = 0
_NEGLIGIBLE_WEIGHT = 1e-6
_JUDGES = frozenset({"you", "model", "rules"})
"""Sources of labels with `all_judged`; the classifier never learns from its own verdicts."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Mean and standard deviation, over the folds, of the share of correct verdicts."""

    mean: float
    spread: float


@dataclass(frozen=True, slots=True)
class Training:
    """A trained classifier, and its accuracy compared with rules and the most frequent label on the same folds."""

    classifier: Classifier
    helpful: int
    unhelpful: int
    skipped: int
    """Judged uses that say nothing about their tool: refused calls and mistakes of the caller."""
    folds: int
    accuracy: Accuracy
    rules: Accuracy
    """Counts undecided results as wrong."""
    majority: Accuracy

    @property
    def pays(self) -> bool:
        """Whether the classifier beats both the rules and the most frequent label."""
        return self.accuracy.mean > max(self.rules.mean, self.majority.mean)


@dataclass(frozen=True, slots=True)
class _Example:
    query: str
    features: Mapping[int, float]
    helpful: bool
    ruled: bool | None


def train(uses: Iterable[Use], *, all_judged: bool = False) -> Training:
    """Train on the uses that the user marked, or on all judged ones; deterministic.

    Raises UsageError if a class has too few examples or scikit-learn is not installed.
    """
    judges = _JUDGES if all_judged else frozenset({"you"})
    judged = [use for use in uses if use.helpful is not None and use.judged_by in judges][
        -MAX_USES:
    ]
    examples = [example for use in judged if (example := _example(use)) is not None]
    labels = [example.helpful for example in examples]
    helpful, unhelpful = labels.count(True), labels.count(False)
    if min(helpful, unhelpful) < MIN_PER_CLASS:
        label, more = "judged", "."
        if not all_judged:
            label, more = (
                "marked by you",
                ", or learn from all judgments: ecoshell experience train --all-judged.",
            )
        raise UsageError(
            f"Training needs at least {MIN_PER_CLASS} results of each kind; {helpful} helpful and "
            f"{unhelpful} unhelpful ones are {label} so far.",
            fix=f"In the chat, go to a result and press + or - to mark it{more}",
        )
    folds = _folds(examples)
    classifier, (accuracy, rules, majority) = _fit(examples, labels, folds)
    return Training(
        classifier=classifier,
        helpful=helpful,
        unhelpful=unhelpful,
        skipped=len(judged) - len(examples),
        folds=len(folds),
        accuracy=accuracy,
        rules=rules,
        majority=majority,
    )


def _example(use: Use) -> _Example | None:
    """Return the example of a judged use, or None if the result says nothing about its tool."""
    arguments: Any = {}
    with suppress(ValueError, RecursionError):  # Stored arguments may be truncated.
        arguments = json.loads(use.arguments)
    call = Call(
        use.tool, cast("Mapping[str, Any]", arguments) if isinstance(arguments, dict) else {}
    )
    observation = Observation(use.result, use.ok)
    ruled = by_rules(use.query, call, observation)
    if not judgeable(ruled):
        return None
    return _Example(
        use.query, features(use.query, call, observation), bool(use.helpful), ruled.helpful
    )


def _fit(
    examples: Sequence[_Example],
    labels: Sequence[bool],
    folds: Sequence[tuple[list[int], list[int]]],
) -> tuple[Classifier, list[Accuracy]]:
    """Fit all examples; the accuracies of classifier, rules and majority come from the folds."""
    import numpy as np

    sparse: Any = import_module("scipy.sparse")
    model = _sklearn("linear_model").LogisticRegression(
        max_iter=1000, class_weight="balanced", random_state=_SEED
    )
    indices = [index for example in examples for index in example.features]
    values = [value for example in examples for value in example.features.values()]
    starts = [0, *accumulate(len(example.features) for example in examples)]
    matrix: Any = sparse.csr_matrix((values, indices, starts), shape=(len(examples), DIMENSIONS))
    target: Any = np.array(labels)
    rules_right: Any = np.array([example.ruled is example.helpful for example in examples])
    rows: list[tuple[float, ...]] = []
    for training, test in folds:
        predicted = model.fit(matrix[training], target[training]).predict(matrix[test])
        majority = 2 * target[training].sum() >= len(training)
        correct = (predicted == target[test], rules_right[test], target[test] == majority)
        rows.append(tuple(float(column.mean()) for column in correct))
    model.fit(matrix, target)
    weights = {
        index: round(float(weight), 6) for index, weight in enumerate(model.coef_[0].tolist())
    }
    weights = {
        index: weight for index, weight in weights.items() if abs(weight) > _NEGLIGIBLE_WEIGHT
    }
    classifier = Classifier(round(float(model.intercept_[0]), 6), weights)
    return classifier, [
        Accuracy(fmean(column), pstdev(column)) for column in zip(*rows, strict=True)
    ]


def _folds(examples: Sequence[_Example]) -> list[tuple[list[int], list[int]]]:
    """Split the rows into training and test rows, stratified by label.

    All uses of a question share a fold, unless there are too few questions for that, so that no fold is tested on a
    question it was trained on.
    """
    selection = _sklearn("model_selection")
    labels, questions = (
        [int(example.helpful) for example in examples],
        [example.query for example in examples],
    )
    options = {"n_splits": _FOLDS, "shuffle": True, "random_state": _SEED}
    if len({*questions}) >= 2 * _FOLDS:
        folds: list[tuple[list[int], list[int]]] = [
            *selection.StratifiedGroupKFold(**options).split(labels, labels, questions)
        ]
        if all(
            len(test) and len({labels[row] for row in training}) == 2 for training, test in folds
        ):
            return folds
    return [*selection.StratifiedKFold(**options).split(labels, labels)]


def _sklearn(part: str) -> Any:
    try:
        return import_module(f"sklearn.{part}")
    except ModuleNotFoundError as error:
        raise UsageError(
            "Training needs scikit-learn, which is not installed.",
            fix="pip install 'ecoshell[learn]'",
        ) from error
