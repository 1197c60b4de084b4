"""Which mode tries a question first, by what came of questions like it: the one that answers more for its cost."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING

from ecoshell.budget import Unit, amount_text, rounded_up

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CANDIDATES = ("single", "umi")
"""The modes there are to choose from; the first takes the fewest calls, so it begins where nothing is known."""
PRIOR = 0.5
PRIOR_WEIGHT = 1.0
"""A mode begins as if half of one question just like this one had been answered."""

SHARPNESS = 4.0
"""k of `w = exp(k·(cos − 1))`: 1 for the same question, a seventh at a cosine of ½, a fiftieth at 0.

The plan's k of 1 (BTP §2.2) hardly tells near from far (`btp.evidence.NEARNESS`): there a tool's value should come
from all its uses, while here forty easy questions of another kind must not outvote five hard ones like the new one.
"""
_TELLING = {"answered": 1.0, "gave_up": 0.0}
"""Outcomes that say something of the mode: a limit, a failure and a stop come from elsewhere."""
_HOUR = 3600


@dataclass(frozen=True, slots=True)
class ModeEvidence:
    """What past attempts in one mode say of a new question; near questions count most."""

    attempts: int = 0
    """Those that were answered or given up."""
    weight: float = 0.0
    """Σ w over them."""
    answered_weight: float = 0.0
    """Σ w·answered."""
    price_nano: float | None = None
    """The weighted mean; None when one is unknown, or nothing is."""
    tokens: float = 0.0
    """The weighted mean, as that of the seconds."""
    seconds: float = 0.0

    @property
    def success(self) -> float:
        """(Σ w·answered + ½) / (Σ w + 1), how likely the mode answers; in (0, 1)."""
        return (self.answered_weight + PRIOR * PRIOR_WEIGHT) / (self.weight + PRIOR_WEIGHT)


NOTHING_KNOWN = ModeEvidence()


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


_Counted = tuple[int, float, AttemptRow]
"""Where the question stands among the cosines, 1 where it was answered and 0 where not, and the attempt."""


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
            if not all(map(math.isfinite, (row.price_nano or 0, row.tokens, row.seconds))):
                raise ValueError("an attempt has a price, a time or a length that is no number")
            self._counted[row.mode, row.models].append((place, answered, row))

    def evidence(self, cosines: "NDArray[np.float64]", models: Mapping[str, str]) -> dict[str, ModeEvidence]:
        """What is known of each mode in `models`, which says who would play in it: of others nothing follows."""
        found: dict[str, ModeEvidence] = {}
        for mode, played in models.items():
            counted = self._counted.get((mode, played))
            if not counted:
                found[mode] = NOTHING_KNOWN
                continue
            rows = [row for _, _, row in counted]
            weights = [math.exp(SHARPNESS * (float(cosines[place]) - 1)) for place, _, _ in counted]
            total = math.fsum(weights)
            prices = [row.price_nano for row in rows if row.price_nano is not None]
            found[mode] = ModeEvidence(
                attempts=len(rows),
                weight=total,
                answered_weight=math.fsum(map(mul, weights, (answered for _, answered, _ in counted))),
                price_nano=math.fsum(map(mul, weights, prices)) / total if len(prices) == len(rows) else None,
                tokens=math.fsum(map(mul, weights, (row.tokens for row in rows))) / total,
                seconds=math.fsum(map(mul, weights, (row.seconds for row in rows))) / total,
            )
        return found


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """The mode that tries first, and why in a sentence without its end."""

    mode: str
    why: str


def choose(evidence: Mapping[str, ModeEvidence], hour_nano: int = 0) -> ModeChoice:
    """The mode with the greatest success / cost; the earlier of CANDIDATES where two are alike.

    Where one mode goes on when the other gives up, both orders answer the same questions, and trying a before b costs
    c_a + (1 − s_a)·c_b on average, b before a c_b + (1 − s_b)·c_a. The first is less exactly where
    s_a / c_a > s_b / c_b: the rule for tests in a row (Mitten, *An analytic solution to the least cost testing sequence
    problem*, 1960). The cost is the price, with waiting at `hour_nano` an hour, and tokens where a price is unknown or
    nothing costs anything. A mode that was never tried is not tried first, but for the first of CANDIDATES: what it
    does not answer goes to the other, which is how that comes to be known.
    """
    first = CANDIDATES[0]
    known = {mode: evidence[mode] for mode in CANDIDATES if evidence.get(mode, NOTHING_KNOWN).attempts}
    if first not in known:
        return ModeChoice(first, f"nothing is known yet of {first} with these models, and it takes the fewest calls")
    if len(known) < len(CANDIDATES):
        others = " and ".join(mode for mode in CANDIDATES if mode not in known)
        return ModeChoice(first, f"{others} was not tried with these models yet, and is where {first} gives up")
    waiting = {mode: hour_nano * one.seconds / _HOUR for mode, one in known.items()}
    prices = {mode: one.price_nano for mode, one in known.items() if one.price_nano is not None}
    unit: Unit = "usd"
    if len(prices) == len(known) and any(prices[mode] + waiting[mode] > 0 for mode in known):
        costs = {mode: max(1.0, prices[mode] + waiting[mode]) for mode in known}
    else:
        costs, unit = {mode: max(1.0, one.tokens) for mode, one in known.items()}, "tokens"
    best = max(known, key=lambda mode: known[mode].success / costs[mode])
    ranked = (best, *(mode for mode in known if mode != best))
    shown = {mode: amount_text(rounded_up(round(costs[mode])), unit) for mode in ranked}
    told = (f"{mode} answers {known[mode].success:.0%} for about {shown[mode]}" for mode in ranked)
    return ModeChoice(best, f"of questions like this one {', '.join(told)}")
