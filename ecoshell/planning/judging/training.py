"""Training the classifier of results on what the person marked, and how well it does on marks it has not seen."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from ecoshell.errors import UsageError
from ecoshell.messages import Call, Observation
from ecoshell.planning.btp.base import Use
from ecoshell.planning.judging.classifier import DIMENSIONS, Classifier, features, judgeable
from ecoshell.planning.judging.judges import by_rules

LEAST = 10
"""Marks of either kind that training takes."""
MOST = 20_000
"""Uses learnt from at most, the latest."""
_FOLDS = 5
_SEED = 0
_NEGLIGIBLE = 1e-6
"""Weights below this are left out of the file."""
_EVERYBODY = frozenset({"you", "model", "rules"})
"""Whose judgments count when all do; the classifier does not learn from itself."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The mean share of right verdicts over the folds, and its standard deviation between them."""

    mean: float
    spread: float


@dataclass(frozen=True, slots=True)
class Training:
    """A trained classifier, and how it compares, on the same folds, with the rules and with always saying the same."""

    classifier: Classifier
    helpful: int
    unhelpful: int
    left_out: int
    """Judged uses that say nothing about their tool: refused calls and mistakes of the caller."""
    folds: int
    accuracy: Accuracy
    rules: Accuracy
    """Where the rules could not tell counts as wrong."""
    majority: Accuracy

    @property
    def pays(self) -> bool:
        """Whether it does better than the rules and than always saying what is said most often."""
        return self.accuracy.mean > max(self.rules.mean, self.majority.mean)


@dataclass(frozen=True, slots=True)
class _Example:
    query: str
    features: Mapping[int, float]
    helpful: bool
    ruled: bool | None


def train(uses: Iterable[Use], *, all_judged: bool = False) -> Training:
    """The classifier that the marked uses make, or all judged ones; the same uses always make the same.

    Raises UsageError when there are too few of either kind, or scikit-learn is not installed.
    """
    judges = _EVERYBODY if all_judged else frozenset({"you"})
    judged = [use for use in uses if use.helpful is not None and use.judged_by in judges]
    examples = [example for use in judged[-MOST:] if (example := _example(use)) is not None]
    kinds = [example.helpful for example in examples]
    if min(kinds.count(True), kinds.count(False)) < LEAST:
        raise _too_few(kinds.count(True), kinds.count(False), all_judged=all_judged)
    folds = _folds(examples)
    matrix, wanted = _matrix(examples), [int(example.helpful) for example in examples]
    rows: list[tuple[float, float, float]] = []
    for learnt, held in folds:
        model = _fitted(matrix[learnt], [wanted[row] for row in learnt])
        said = [bool(value) for value in model.predict(matrix[held])]
        common = 2 * sum(wanted[row] for row in learnt) >= len(learnt)
        truth = [examples[row].helpful for row in held]
        ruled = [examples[row].ruled for row in held]
        rows.append((_share(said, truth), _share(ruled, truth), _share([common] * len(held), truth)))
    by_classifier, by_the_rules, by_majority = (_accuracy(column) for column in zip(*rows, strict=True))
    return Training(
        classifier=_kept(_fitted(matrix, wanted)),
        helpful=kinds.count(True),
        unhelpful=kinds.count(False),
        left_out=len(judged[-MOST:]) - len(examples),
        folds=len(folds),
        accuracy=by_classifier,
        rules=by_the_rules,
        majority=by_majority,
    )


def _example(use: Use) -> _Example | None:
    """A use as the classifier sees it; None for one that says nothing about its tool."""
    call, seen = Call(use.tool, _arguments(use.arguments)), Observation(use.result, use.ok)
    ruled = by_rules(use.query, call, seen)
    if not judgeable(ruled):
        return None
    return _Example(use.query, features(use.query, call, seen), bool(use.helpful), ruled.helpful)


def _arguments(text: str) -> Mapping[str, Any]:
    """The arguments of a recorded use; none where they were shortened too far to be read."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _folds(examples: Sequence[_Example]) -> list[tuple[list[int], list[int]]]:
    """Rows to learn from and rows to test on, in equal shares of both kinds.

    All uses of a question stand in one fold, so that no fold is tested on what it has seen, unless there are too few
    questions for that.
    """
    selection = _sklearn("model_selection")
    kinds = [int(example.helpful) for example in examples]
    options = {"n_splits": _FOLDS, "shuffle": True, "random_state": _SEED}
    if len({example.query for example in examples}) >= 2 * _FOLDS:
        grouped = selection.StratifiedGroupKFold(**options)
        folds = _rows(grouped.split(kinds, kinds, [example.query for example in examples]))
        if all(held and len({kinds[row] for row in learnt}) == 2 for learnt, held in folds):
            return folds
    return _rows(selection.StratifiedKFold(**options).split(kinds, kinds))


def _rows(split: Any) -> list[tuple[list[int], list[int]]]:
    return [(learnt.tolist(), held.tolist()) for learnt, held in split]


def _matrix(examples: Sequence[_Example]) -> Any:
    """One sparse row of features for each example."""
    sparse: Any = import_module("scipy.sparse")
    places = [place for example in examples for place in example.features]
    values = [value for example in examples for value in example.features.values()]
    starts = [0]
    for example in examples:
        starts.append(starts[-1] + len(example.features))
    return sparse.csr_matrix((values, places, starts), shape=(len(examples), DIMENSIONS))


def _fitted(matrix: Any, wanted: Sequence[int]) -> Any:
    model = _sklearn("linear_model").LogisticRegression(max_iter=1000, class_weight="balanced", random_state=_SEED)
    return model.fit(matrix, wanted)


def _kept(model: Any) -> Classifier:
    weights = {place: round(float(weight), 6) for place, weight in enumerate(model.coef_[0].tolist())}
    return Classifier(
        round(float(model.intercept_[0]), 6), {place: w for place, w in weights.items() if abs(w) > _NEGLIGIBLE}
    )


def _share(said: Sequence[bool | None], truth: Sequence[bool]) -> float:
    return sum(told is right for told, right in zip(said, truth, strict=True)) / len(truth)


def _accuracy(shares: Sequence[float]) -> Accuracy:
    mean = sum(shares) / len(shares)
    return Accuracy(mean, (sum((share - mean) ** 2 for share in shares) / len(shares)) ** 0.5)


def _sklearn(part: str) -> Any:
    try:
        return import_module(f"sklearn.{part}")
    except ModuleNotFoundError as error:
        raise UsageError(
            "Training needs scikit-learn, which is not installed.", fix="pip install 'ecoshell[learn]'"
        ) from error


def _too_few(helpful: int, unhelpful: int, *, all_judged: bool) -> UsageError:
    what = "judged" if all_judged else "marked by you"
    return UsageError(
        f"Training takes at least {LEAST} results of either kind; {helpful} helpful and {unhelpful} unhelpful ones are"
        f" {what} so far.",
        fix="In the chat, go to a result and press + or - to mark it"
        + ("." if all_judged else ", or learn from all judgments: ecoshell experience train --all-judged."),
    )
