"""What evidence says of one tool: its expected value, how often it may be used, how likely it is used (BTP §2.2)."""

import math
from collections.abc import Mapping

from ecoshell.planning.btp.base import NO_EVIDENCE, Evidence

HELPFUL_PRIOR = 0.1
WEIGHT_PRIOR = 1.0
"""A tool begins as if used once for the same question with a tenth of a helpful result; not in the paper, but in its
authors' code: without it a tool that nobody tried has no value at all (SPEC §2)."""

RANKER_WEIGHT = 0.2
"""How much the chance of a usual tool weighs beside past tasks, of which one with the same question weighs 1.

Chosen together with `weighing.NEARNESS`, which says how; on runs left out in turn the product of odds has a
log-likelihood of −533, where the average of both had −544 and the ranker alone −620.
"""
LEAST_LIFT = 0.2
"""A tool that past tasks did not use may be new: its odds fall to this part of the ranker's, and no further."""
SUREST = 0.97
"""No experience makes a tool surer than this to be used."""


def value(evidence: Evidence, prior: float = HELPFUL_PRIOR) -> float:
    """v = (Σ w·helpful + 0.1) / (Σ w + 1.0), the expected value of one use (BTP §2.2, eq. 3; SPEC §2); in (0, 1).

    `prior` is what a tool is worth that nobody tried: the paper's flat 0.1, or what `priors` gives.
    """
    return (evidence.helpful_weight + prior * WEIGHT_PRIOR) / (evidence.weight + WEIGHT_PRIOR)


def priors(evidence: Mapping[str, Evidence], fits: Mapping[str, float], kinds: Mapping[str, str]) -> dict[str, float]:
    """What each tool in `kinds`, which gives its server, is worth before its own history: 0 to 1.

    The share of helpful uses among the other tools of its server, which begin with that of all other tools, and these
    with how well the tool fits the question (the local ranker's chance), so that it decides while nothing was used.
    """
    sums: dict[str, tuple[float, float]] = {}
    for tool, kind in kinds.items():
        past, (helpful, weight) = evidence.get(tool, NO_EVIDENCE), sums.get(kind, (0.0, 0.0))
        sums[kind] = helpful + past.helpful_weight, weight + past.weight
    helpful, weight = (math.fsum(parts) for parts in zip(*sums.values(), strict=True)) if sums else (0.0, 0.0)
    found: dict[str, float] = {}
    for tool, kind in kinds.items():
        own, (like_helpful, like_weight) = evidence.get(tool, NO_EVIDENCE), sums[kind]
        fit = max(HELPFUL_PRIOR, fits.get(tool, 0.0))
        usual = (helpful - own.helpful_weight + fit) / (weight - own.weight + WEIGHT_PRIOR)
        found[tool] = (like_helpful - own.helpful_weight + usual) / (like_weight - own.weight + WEIGHT_PRIOR)
    return found


def frequency_bound(evidence: Evidence, value: float, threshold: float) -> int:
    """F, how often the tool may be used in one task (BTP §2.2, eq. 4; SPEC §2).

    Without a judged use it is 1, whatever the threshold; below the threshold 0; else the weighted mean of the uses per
    past task, halves rounded up, at least 1.
    """
    if evidence.weight <= 0:
        return 1
    if value < threshold:
        return 0
    mean = round(mean_frequency(evidence), 9)  # a half is one whatever the order in which it was summed
    return max(1, math.floor(mean + 0.5))


def mean_frequency(evidence: Evidence) -> float:
    """How often past questions that used the tool did so, by weight; 1 where none tells."""
    return evidence.frequency_weight / evidence.query_weight if evidence.query_weight else 1.0


def chance(evidence: Evidence, prior: float, usual: float) -> float:
    """How likely a task uses the tool: the odds the ranker gives it, times those it has by past tasks like this one.

    The latter are told beside the odds of a usual tool, whose chance `usual` is: its fit with the question and its
    record are taken as independent evidence (naive Bayes).
    """
    weight = evidence.chance_weight
    share = (RANKER_WEIGHT * usual + weight * evidence.chance) / (RANKER_WEIGHT + weight)
    odds = _odds(prior) * max(_odds(share) / _odds(usual), LEAST_LIFT)
    return min(odds / (1 + odds), max(SUREST, prior))


def _odds(chance: float) -> float:
    bounded = min(max(chance, 1e-6), 1 - 1e-6)
    return bounded / (1 - bounded)
