"""Past attempts at questions: read once, and weighed for each new question by how near theirs are to it."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ecoshell.planning.mode_choice import NOTHING_KNOWN, ModeEvidence

if TYPE_CHECKING:
    from ecoshell.planning.btp.weighing import Floats

SHARPNESS = 4.0
"""k of `w = exp(k·(cos − 1))`: 1 for the same question, a seventh at a cosine of ½, a fiftieth at 0.

The plan's k of 1 (BTP §2.2) hardly tells near from far (`weighing.NEARNESS`): there a tool's value should come from all
its uses, while here forty easy questions of another kind must not outvote five hard ones like the new one.
"""
_TELLING = {"answered": 1.0, "gave_up": 0.0}
"""Outcomes that say something of the mode: a limit, a failure and a stop come from elsewhere."""


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt as the experience store reads it; `query` is the question's id."""

    id: int
    query: int
    mode: str
    models: str
    outcome: str
    price_nano: int | None
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Counted:
    place: int
    answered: float
    price: float
    """NaN is unknown."""
    tokens: float
    seconds: float


class PastAttempts:
    """All attempts that were read so far and that count; not thread-safe."""

    def __init__(self) -> None:
        self._counted: defaultdict[tuple[str, str], list[_Counted]] = defaultdict(list)

    def add(self, rows: Iterable[AttemptRow], places: Mapping[int, int]) -> None:
        """Take in further attempts; `places` says where each query stands among the cosines.

        One whose query was forgotten between two looks at the store is left out. Raises ValueError and TypeError for
        what is no number.
        """
        for row in rows:
            place, answered = places.get(row.query), _TELLING.get(row.outcome)
            if place is None or answered is None:
                continue
            price = math.nan if row.price_nano is None else float(row.price_nano)
            found = _Counted(place, answered, price, float(row.tokens), float(row.seconds))
            if math.isinf(price) or not math.isfinite(found.tokens) or not math.isfinite(found.seconds):
                raise ValueError("an attempt has a price, a time or a length that is no number")
            self._counted[row.mode, row.models].append(found)

    def evidence(self, cosines: "Floats", models: Mapping[str, str]) -> dict[str, ModeEvidence]:
        """What is known of each mode in `models`, which says who would play in it: of others nothing follows."""
        return {mode: _weighed(self._counted.get((mode, played), ()), cosines) for mode, played in models.items()}


def _weighed(counted: Sequence[_Counted], cosines: "Floats") -> ModeEvidence:
    if not counted:
        return NOTHING_KNOWN
    weights = [math.exp(SHARPNESS * (float(cosines[one.place]) - 1)) for one in counted]
    total = math.fsum(weights)

    def mean(values: Iterable[float]) -> float:
        return math.fsum(weight * value for weight, value in zip(weights, values, strict=True)) / total

    price = mean(one.price for one in counted)
    return ModeEvidence(
        attempts=len(counted),
        weight=total,
        answered_weight=math.fsum(weight * one.answered for weight, one in zip(weights, counted, strict=True)),
        price_nano=None if math.isnan(price) else price,
        tokens=mean(one.tokens for one in counted),
        seconds=mean(one.seconds for one in counted),
    )
