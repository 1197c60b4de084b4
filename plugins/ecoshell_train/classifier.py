"""A linear classifier of tool results: logistic regression over hashed features.

The weights are stored as JSON. Loading and judging need no library.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any
from zlib import crc32

from ecoshell.errors import StoreError, UsageError
from ecoshell.messages import Call, Observation
from ecoshell.paths import make_private, remedy, replacement
from ecoshell.planning.judging import Payload, Verdict, by_rules, judgeable

DIMENSIONS = 4096
RESULT_CHARACTERS = 400
"""Features read no more of a result, because stored experience guarantees no more."""
_FORMAT = "ecoshell judge"
_VERSION = 1
_FILE_BYTES_LIMIT = 4_000_000
_WORD_LIMIT = 60
_WORD = re.compile(r"[^\W\d_]{2,}")
_TRAIN_AGAIN = "Train it again: ecoshell experience train."


@dataclass(frozen=True, slots=True)
class Classifier:
    """A linear classifier: `bias` and the weights of the features that matter, by index."""

    bias: float
    weights: Mapping[int, float]

    def chance(self, query: str, call: Call, observation: Observation) -> float:
        """Estimate the probability that the user would mark this result as helpful."""
        values = features(query, call, observation)
        score = self.bias + sum(
            self.weights.get(index, 0.0) * value for index, value in values.items()
        )
        return 1 / (1 + math.exp(-max(-500.0, min(500.0, score))))

    def judge(self, query: str, call: Call, observation: Observation) -> Verdict:
        """Judge a result; the verdict of the rules applies if the result says nothing about the tool."""
        ruled = by_rules(query, call, observation)
        if not judgeable(ruled):
            return ruled
        chance = self.chance(query, call, observation)
        return Verdict(
            chance >= 0.5, "classifier", f"{chance:.0%} likely to help, by what you marked before"
        )


@dataclass(slots=True)
class TrainedJudge:
    """Judges with the classifier in a file and reloads it when the file changes."""

    file: Path
    _loaded: tuple[tuple[int, int], Classifier] | None = None
    _lock: Lock = field(default_factory=Lock)

    def judge(self, query: str, call: Call, observation: Observation) -> Verdict:
        """Judge a result; raises UsageError and StoreError."""
        return self._current().judge(query, call, observation)

    def _current(self) -> Classifier:
        with self._lock:
            try:
                status = self.file.stat()
            except OSError:
                return load(self.file)  # Raises the error that explains why.
            version = (status.st_mtime_ns, status.st_size)
            if self._loaded is None or self._loaded[0] != version:
                self._loaded = (version, load(self.file))
            return self._loaded[1]


def features(query: str, call: Call, observation: Observation) -> dict[int, float]:
    """Return hashed features of one use (indices below DIMENSIONS): tool, verdict of the rules, words, length."""
    head = Observation(
        observation.text[:RESULT_CHARACTERS], observation.ok, refused=observation.refused
    )
    payload, ruled = Payload.of(head), by_rules(query, call, head)
    verdict = f"{ruled.helpful} {ruled.sure}"
    query_words, result_words = (
        {word[0].lower() for word in islice(_WORD.finditer(text[:RESULT_CHARACTERS]), _WORD_LIMIT)}
        for text in (query, payload.text)
    )
    values_by_name = {
        f"tool {call.name}": 1.0,
        f"rules {verdict}": 1.0,
        f"tool and rules {call.name} {verdict}": 1.0,
        f"failed {payload.failed}": 1.0,
        f"json {payload.is_json}": 1.0,
        f"length {len(payload.text).bit_length()}": 1.0,
        "shared words": len(query_words & result_words) / max(1, len(query_words)),
        # The squares of a text's word values sum to 1, so that long and short texts weigh the same.
        **{f"asked {word}": 1 / math.sqrt(len(query_words)) for word in query_words},
        **{f"told {word}": 1 / math.sqrt(len(result_words)) for word in result_words},
    }
    values: dict[int, float] = {}
    for name, value in values_by_name.items():
        index = crc32(name.encode("utf-8", "surrogatepass")) % DIMENSIONS
        values[index] = values.get(index, 0.0) + value
    return values


def save(classifier: Classifier, file: Path) -> None:
    """Write the classifier, replacing the previous one; raises StoreError."""
    record = {
        "format": _FORMAT,
        "version": _VERSION,
        "dimensions": DIMENSIONS,
        "bias": classifier.bias,
        "weights": {str(index): weight for index, weight in sorted(classifier.weights.items())},
    }
    try:
        make_private(file.parent)
        with replacement(file) as fresh:
            fresh.write(f"{json.dumps(record)}\n".encode())
    except OSError as error:
        fix = remedy(error, "Make the file and its folder writable.")
        raise StoreError(
            f"{file} cannot be written: {error.strerror}.", kept="The judge is unchanged.", fix=fix
        ) from error


def load(file: Path) -> Classifier:
    """Read a classifier; raises UsageError if the file is missing, and StoreError if it is damaged."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_FILE_BYTES_LIMIT + 1)
    except FileNotFoundError as error:
        raise UsageError(
            "No classifier has been trained yet.", fix="Train one: ecoshell experience train."
        ) from error
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}.", fix=_TRAIN_AGAIN) from error
    why = "ecoshell did not write it"
    try:
        if len(data) > _FILE_BYTES_LIMIT:
            why = "it is too large"
            raise ValueError
        record: Any = json.loads(data)
        if [record[name] for name in ("format", "version", "dimensions")] != [
            _FORMAT,
            _VERSION,
            DIMENSIONS,
        ]:
            why = "another version of ecoshell wrote it"
            raise ValueError
        weights = {int(index): weight for index, weight in record["weights"].items()}
        numbers = [record["bias"], *weights.values()]
        if not {*map(type, numbers)} <= {int, float} or not all(
            abs(number) < 1e6 for number in numbers
        ):
            why = "a weight is not a number"
            raise ValueError
        if not all(0 <= index < DIMENSIONS for index in weights):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{file} cannot be used as a judge: {why}.",
            kept="The file is unchanged.",
            fix=_TRAIN_AGAIN,
        ) from error
    return Classifier(
        float(record["bias"]), {index: float(weight) for index, weight in weights.items()}
    )
