"""Values, chances and frequency bounds of tools, from the evidence of past uses (BTP §2.2, SPEC §2)."""

import math
from collections.abc import Mapping

from ecoshell.planning.btp.evidence import NO_EVIDENCE, Evidence

TAU = 0.15
"""The value below which a tool gets no use (BTP §2.2)."""
HELPFUL_PRIOR = 0.1
WEIGHT_PRIOR = 1.0
"""A tool starts as if used once for the same question with a tenth of a helpful result.

This follows the authors' code, not the paper: without it an untried tool has no value (SPEC §2).
"""

RANKER_WEIGHT = 0.2
"""Weight of the usual chance of a tool, relative to a past task with the same question.

Chosen together with `evidence.NEARNESS`. In leave-one-out evaluation, the product of odds has a log-likelihood of
−533, the average of both chances −544, and the ranker alone −620.
"""
MIN_LIFT = 0.2
"""Factor below which past tasks cannot reduce the ranker's odds: a tool they did not use may be new."""
MAX_CHANCE = 0.97
"""Upper bound that experience sets to a tool's chance of use."""


def value(evidence: Evidence, prior: float = HELPFUL_PRIOR) -> float:
    """Return v = (Σ w·helpful + 0.1) / (Σ w + 1.0), the expected value of one use in (0, 1) (BTP §2.2, eq. 3).

    `prior` is the value of an untried tool: 0.1 in the paper, or a result of `priors`.
    """
    return (evidence.helpful_weight + prior * WEIGHT_PRIOR) / (evidence.weight + WEIGHT_PRIOR)


def priors(
    evidence: Mapping[str, Evidence], fits: Mapping[str, float], kinds: Mapping[str, str]
) -> dict[str, float]:
    """Return the prior value, 0 to 1, of each tool in `kinds`, which maps tools to servers.

    The prior is the share of helpful uses of the server's other tools, smoothed by the share of all other tools, which
    is smoothed by the tool's fit to the question (the local ranker's chance).
    """
    sums: dict[str, tuple[float, float]] = {}
    for tool, kind in kinds.items():
        past = evidence.get(tool, NO_EVIDENCE)
        helpful, weight = sums.get(kind, (0.0, 0.0))
        sums[kind] = helpful + past.helpful_weight, weight + past.weight
    helpful, weight = (
        (math.fsum(parts) for parts in zip(*sums.values(), strict=True)) if sums else (0.0, 0.0)
    )
    priors: dict[str, float] = {}
    for tool, kind in kinds.items():
        own = evidence.get(tool, NO_EVIDENCE)
        server_helpful, server_weight = sums[kind]
        fit = max(HELPFUL_PRIOR, fits.get(tool, 0.0))
        usual = (helpful - own.helpful_weight + fit) / (weight - own.weight + WEIGHT_PRIOR)
        priors[tool] = (server_helpful - own.helpful_weight + usual) / (
            server_weight - own.weight + WEIGHT_PRIOR
        )
    return priors


def frequency_bound(evidence: Evidence, value: float, threshold: float) -> int:
    """Return F, the maximum number of uses in one task (BTP §2.2, eq. 4; SPEC §2).

    F is 1 without a judged use, 0 for a value below the threshold, and otherwise the weighted mean of uses per past
    task, rounded half up and at least 1.
    """
    if evidence.weight <= 0:
        return 1
    if value < threshold:
        return 0
    mean = round(mean_frequency(evidence), 9)  # makes halves independent of the order of summation
    return max(1, math.floor(mean + 0.5))


def mean_frequency(evidence: Evidence) -> float:
    """Return the weighted mean of uses per past question with the tool; 1 without any."""
    return evidence.frequency_weight / evidence.query_weight if evidence.query_weight else 1.0


def chance(evidence: Evidence, prior: float, usual: float) -> float:
    """Return the chance that a task uses the tool: the ranker's odds (`prior`) times the lift of similar past tasks.

    The lift is relative to the odds of a usual tool with chance `usual`. Fit and record count as independent evidence
    (naive Bayes).
    """
    weight = evidence.chance_weight
    odds = _odds(prior)
    if weight:
        share = (RANKER_WEIGHT * usual + weight * evidence.chance) / (RANKER_WEIGHT + weight)
        odds *= max(_odds(share) / _odds(usual), MIN_LIFT)
    return min(odds / (1 + odds), max(MAX_CHANCE, prior))


def _odds(chance: float) -> float:
    bounded = min(max(chance, 1e-6), 1 - 1e-6)
    return bounded / (1 - bounded)
