"""Which mode tries a question first, by what came of questions like it: the one that answers more for its cost."""

from collections.abc import Mapping
from dataclasses import dataclass

from ecoshell.budget.money import Unit, amount_text, rounded_up

CANDIDATES = ("single", "umi")
"""The modes there are to choose from; the first takes the fewest calls, so it begins where nothing is known."""
PRIOR = 0.5
PRIOR_WEIGHT = 1.0
"""A mode begins as if half of one question just like this one had been answered."""

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class ModeEvidence:
    """What past attempts in one mode say of a new question; near questions count most (`btp.attempts`)."""

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
    costs, unit = _costs(known, hour_nano)
    best = max(known, key=lambda mode: known[mode].success / costs[mode])
    ranked = (best, *(mode for mode in known if mode != best))
    shown = {mode: amount_text(rounded_up(round(costs[mode])), unit) for mode in ranked}
    told = (f"{mode} answers {known[mode].success:.0%} for about {shown[mode]}" for mode in ranked)
    return ModeChoice(best, f"of questions like this one {', '.join(told)}")


def _costs(known: Mapping[str, ModeEvidence], hour_nano: int) -> tuple[dict[str, float], Unit]:
    """What an attempt is expected to cost in each mode, above 0, in one unit for all."""
    waiting = {mode: hour_nano * one.seconds / _HOUR for mode, one in known.items()}
    prices = {mode: one.price_nano for mode, one in known.items() if one.price_nano is not None}
    if len(prices) == len(known) and any(prices[mode] + waiting[mode] > 0 for mode in known):
        return {mode: max(1.0, prices[mode] + waiting[mode]) for mode in known}, "usd"
    return {mode: max(1.0, one.tokens) for mode, one in known.items()}, "tokens"
