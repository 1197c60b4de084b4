"""A small classifier of results, trained on what the person marked: logistic regression over hashed features.

It is kept as JSON, and judging with it takes no library. Training is in `training`.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from zlib import crc32

from ecoshell.errors import StoreError, UsageError
from ecoshell.files import remedy, replacement
from ecoshell.messages import Call, Observation
from ecoshell.paths import make_private
from ecoshell.planning.judging.judges import Verdict, by_rules
from ecoshell.planning.judging.payload import Payload

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
    asked, told = _words(query), _words(said.text)
    named = {
        f"tool {call.name}": 1.0,
        f"rules {verdict}": 1.0,
        f"tool and rules {call.name} {verdict}": 1.0,
        f"failed {said.failed}": 1.0,
        f"json {said.is_json}": 1.0,
        f"length {len(said.text).bit_length()}": 1.0,
        "shared words": len(asked & told) / max(1, len(asked)),
        **_spread("asked", asked),
        **_spread("told", told),
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
    if len(data) > _LARGEST:
        raise _broken(file, "it is too large")
    try:
        record: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _broken(file, "it is not JSON") from error
    if not isinstance(record, dict):
        raise _broken(file, "it is no JSON object")
    return _revived(file, cast("Mapping[str, Any]", record))


def _revived(file: Path, record: Mapping[str, Any]) -> Classifier:
    if record.get("format") != _FORMAT:
        raise _broken(file, "it is something else")
    if record.get("version") != _VERSION or record.get("dimensions") != DIMENSIONS:
        raise _broken(file, "another version of ecoshell has written it")
    weights: object = record.get("weights")
    if not isinstance(weights, dict):
        raise _broken(file, "it has no weights")
    try:
        places = {_place(name): _number(weight) for name, weight in cast("dict[str, object]", weights).items()}
        return Classifier(_number(record.get("bias")), places)
    except ValueError as error:
        raise _broken(file, str(error)) from error


def _place(name: str) -> int:
    if not (name.isascii() and name.isdecimal() and len(name) <= 6 and int(name) < DIMENSIONS):
        raise ValueError(f"{name[:20]!r} is not a feature")
    return int(name)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e6:
        raise ValueError("a weight is not a number")
    return float(value)


def _broken(file: Path, why: str) -> StoreError:
    return StoreError(f"{file} cannot be used as a judge: {why}.", kept="It was left as it is.", fix=_TRAIN_AGAIN)


def _words(text: str) -> frozenset[str]:
    """The first words of a text, without numbers."""
    return frozenset(_first(word.lower() for word in _WORD.findall(text[:HEAD])))


def _first(words: Iterable[str]) -> Iterator[str]:
    for _, word in zip(range(_MOST_WORDS), words, strict=False):
        yield word


def _spread(kind: str, words: frozenset[str]) -> dict[str, float]:
    """The words as features whose squares add up to one, so that a long text counts no more than a short one."""
    return {f"{kind} {word}": 1 / math.sqrt(len(words)) for word in words}
