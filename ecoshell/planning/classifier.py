"""A small classifier of results, trained on what the person marked: logistic regression over hashed features.

It is kept as JSON, and judging with it takes no library; training takes scikit-learn.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate, islice
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, cast
from zlib import crc32

from ecoshell.errors import StoreError, UsageError
from ecoshell.messages import Call, Observation
from ecoshell.paths import make_private, remedy, replacement
from ecoshell.planning.btp.experience import Use
from ecoshell.planning.judging import Payload, Verdict, by_rules

DIMENSIONS = 4096
HEAD = 400
"""Characters of a result that count: of a recorded use, no more is sure to be kept."""
_FORMAT = "ecoshell judge"
_VERSION = 1
_LARGEST = 4_000_000
"""Bytes of a judge's file, which has a few ten thousand."""
_MOST_WORDS = 60
_WORD = re.compile(r"[^\W\d_]{2,}")
_TRAIN_AGAIN = "Train it again: ecoshell experience train."
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
class Classifier:
    """A linear judge: `bias` and one weight for each feature that matters."""

    bias: float
    weights: Mapping[int, float]

    def chance(self, query: str, call: Call, observation: Observation) -> float:
        """How likely it is that the person would mark this result as helpful, 0 to 1."""
        found = features(query, call, observation)
        score = self.bias + sum(self.weights.get(place, 0.0) * value for place, value in found.items())
        return 1 / (1 + math.exp(-max(-500.0, min(500.0, score))))

    def judge(self, query: str, call: Call, observation: Observation) -> Verdict:
        """The classifier's verdict; where a result says nothing about the tool, the rules' stands."""
        ruled = by_rules(query, call, observation)
        if not judgeable(ruled):
            return ruled
        chance = self.chance(query, call, observation)
        told = f"{chance:.0%} likely to help, by what you marked before"
        return Verdict(chance >= 0.5, "classifier", told)


def judgeable(ruled: Verdict) -> bool:
    """Whether a result says anything about its tool: not so where the call did not run or was the caller's mistake."""
    return ruled.helpful is not None or not ruled.sure


def features(query: str, call: Call, observation: Observation) -> dict[int, float]:
    """Hashed features of one use (places below DIMENSIONS): tool, verdict of the rules, words, length."""
    head = Observation(observation.text[:HEAD], observation.ok, refused=observation.refused)
    said, ruled = Payload.of(head), by_rules(query, call, head)
    verdict = f"{ruled.helpful} {ruled.sure}"
    asked, told = (
        {word[0].lower() for word in islice(_WORD.finditer(text[:HEAD]), _MOST_WORDS)} for text in (query, said.text)
    )
    named = {
        f"tool {call.name}": 1.0,
        f"rules {verdict}": 1.0,
        f"tool and rules {call.name} {verdict}": 1.0,
        f"failed {said.failed}": 1.0,
        f"json {said.is_json}": 1.0,
        f"length {len(said.text).bit_length()}": 1.0,
        "shared words": len(asked & told) / max(1, len(asked)),
        # their squares add up to one, so that a long text counts no more than a short one
        **{f"asked {word}": 1 / math.sqrt(len(asked)) for word in asked},
        **{f"told {word}": 1 / math.sqrt(len(told)) for word in told},
    }
    found: dict[int, float] = {}
    for name, value in named.items():
        place = crc32(name.encode("utf-8", "surrogatepass")) % DIMENSIONS
        found[place] = found.get(place, 0.0) + value
    return found


def save(classifier: Classifier, file: Path) -> None:
    """Write the classifier in the place of the one before; raises StoreError."""
    record = {
        "format": _FORMAT,
        "version": _VERSION,
        "dimensions": DIMENSIONS,
        "bias": classifier.bias,
        "weights": {str(place): weight for place, weight in sorted(classifier.weights.items())},
    }
    try:
        make_private(file.parent)
        with replacement(file) as fresh:
            fresh.write(f"{json.dumps(record)}\n".encode())
    except OSError as error:
        fix = remedy(error, "Make the file and its folder writable.")
        raise StoreError(
            f"{file} cannot be written: {error.strerror}.", kept="The judge is as it was.", fix=fix
        ) from error


def load(file: Path) -> Classifier:
    """The classifier in a file; raises UsageError when there is none, and StoreError, naming it, when it is broken."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_LARGEST + 1)
    except FileNotFoundError as error:
        raise UsageError("No classifier has been trained yet.", fix="Train one: ecoshell experience train.") from error
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}.", fix=_TRAIN_AGAIN) from error
    why = "it is not what ecoshell has written"
    try:
        if len(data) > _LARGEST:
            why = "it is too large"
            raise ValueError
        record: Any = json.loads(data)
        if [record[name] for name in ("format", "version", "dimensions")] != [_FORMAT, _VERSION, DIMENSIONS]:
            why = "another version of ecoshell has written it"
            raise ValueError
        weights = {int(place): weight for place, weight in record["weights"].items()}
        numbers = [record["bias"], *weights.values()]
        if not {*map(type, numbers)} <= {int, float} or not all(abs(number) < 1e6 for number in numbers):
            why = "a weight is not a number"
            raise ValueError
        if not all(0 <= place < DIMENSIONS for place in weights):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        told = f"{file} cannot be used as a judge: {why}."
        raise StoreError(told, kept="It was left as it is.", fix=_TRAIN_AGAIN) from error
    return Classifier(float(record["bias"]), {place: float(weight) for place, weight in weights.items()})


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
    import numpy as np

    judges = _EVERYBODY if all_judged else frozenset({"you"})
    judged = [use for use in uses if use.helpful is not None and use.judged_by in judges]
    examples: list[_Example] = []
    for use in judged[-MOST:]:
        arguments: Any = {}
        with suppress(ValueError, RecursionError):  # they may have been shortened too far to be read
            arguments = json.loads(use.arguments)
        call = Call(use.tool, cast("Mapping[str, Any]", arguments) if isinstance(arguments, dict) else {})
        seen = Observation(use.result, use.ok)
        ruled = by_rules(use.query, call, seen)
        if judgeable(ruled):
            found = features(use.query, call, seen)
            examples.append(_Example(use.query, found, bool(use.helpful), ruled.helpful))
    kinds = [example.helpful for example in examples]
    if min(kinds.count(True), kinds.count(False)) < LEAST:
        what, more = "judged", "."
        if not all_judged:
            what, more = "marked by you", ", or learn from all judgments: ecoshell experience train --all-judged."
        raise UsageError(
            f"Training takes at least {LEAST} results of either kind; {kinds.count(True)} helpful and "
            f"{kinds.count(False)} unhelpful ones are {what} so far.",
            fix=f"In the chat, go to a result and press + or - to mark it{more}",
        )
    folds = _folds(examples)
    sparse: Any = import_module("scipy.sparse")
    model = _sklearn("linear_model").LogisticRegression(max_iter=1000, class_weight="balanced", random_state=_SEED)
    places = [place for example in examples for place in example.features]
    values = [value for example in examples for value in example.features.values()]
    starts = [0, *accumulate(len(example.features) for example in examples)]
    matrix: Any = sparse.csr_matrix((values, places, starts), shape=(len(examples), DIMENSIONS))
    wanted: Any = np.array(kinds)
    ruled_right: Any = np.array([example.ruled is example.helpful for example in examples])
    rows: list[tuple[float, ...]] = []
    for learnt, held in folds:
        said = model.fit(matrix[learnt], wanted[learnt]).predict(matrix[held])
        common = 2 * wanted[learnt].sum() >= len(learnt)
        right = (said == wanted[held], ruled_right[held], wanted[held] == common)
        rows.append(tuple(float(one.mean()) for one in right))
    by_classifier, by_the_rules, by_majority = (
        Accuracy(fmean(column), pstdev(column)) for column in zip(*rows, strict=True)
    )
    model.fit(matrix, wanted)
    weights = {place: round(float(weight), 6) for place, weight in enumerate(model.coef_[0].tolist())}
    kept = {place: weight for place, weight in weights.items() if abs(weight) > _NEGLIGIBLE}
    return Training(
        classifier=Classifier(round(float(model.intercept_[0]), 6), kept),
        helpful=kinds.count(True),
        unhelpful=kinds.count(False),
        left_out=len(judged[-MOST:]) - len(examples),
        folds=len(folds),
        accuracy=by_classifier,
        rules=by_the_rules,
        majority=by_majority,
    )


def _folds(examples: Sequence[_Example]) -> list[tuple[list[int], list[int]]]:
    """Rows to learn from and rows to test on, in equal shares of both kinds.

    All uses of a question stand in one fold, so that no fold is tested on what it has seen, unless there are too few
    questions for that.
    """
    selection = _sklearn("model_selection")
    kinds, questions = [int(example.helpful) for example in examples], [example.query for example in examples]
    options = {"n_splits": _FOLDS, "shuffle": True, "random_state": _SEED}
    if len({*questions}) >= 2 * _FOLDS:
        folds: list[tuple[list[int], list[int]]] = [
            *selection.StratifiedGroupKFold(**options).split(kinds, kinds, questions)
        ]
        if all(len(held) and len({kinds[row] for row in learnt}) == 2 for learnt, held in folds):
            return folds
    return [*selection.StratifiedKFold(**options).split(kinds, kinds)]


def _sklearn(part: str) -> Any:
    try:
        return import_module(f"sklearn.{part}")
    except ModuleNotFoundError as error:
        raise UsageError(
            "Training needs scikit-learn, which is not installed.", fix="pip install 'ecoshell[learn]'"
        ) from error
