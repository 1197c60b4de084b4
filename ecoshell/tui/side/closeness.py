"""How close a cap is to being reached, and which of several is the closest."""

from collections.abc import Sequence

from ecoshell.budget.caps import CapState

NEAR = 0.8
"""The share of a cap from which on it is called near."""


def cap_word(cap: CapState) -> str:
    """How a cap stands, in a word: the colour of its bar says no more than this."""
    if cap.left == 0:
        return "reached"
    return "near" if cap.spent + cap.held >= NEAR * cap.limit else ""


def tightest(caps: Sequence[CapState]) -> CapState | None:
    """The cap of which the smallest share is left."""
    return min(caps, key=lambda cap: cap.left / max(1, cap.limit), default=None)
