"""The quality of a plan: what it achieved, less what it cost (CATP-LLM eq. 5)."""

from decimal import Decimal

ALPHA = 0.5
"""How much performance weighs beside cost, 0 to 1."""

OPENCATP_MOST = Decimal("0.5669374317944147")
"""C_max of OpenCATP: the dearest plan that was measured for it, in its price units."""


def quality(performance: float, cost: Decimal, *, alpha: float = ALPHA, most: Decimal = OPENCATP_MOST) -> float:
    """QoP = α·P − (1 − α)·C/C_max, with P in 0..1 and cost and most in one unit.

    Nothing is clipped: a plan that costs more than `most` is that much worse.
    """
    return alpha * performance - (1 - alpha) * float(cost / most)


def worth(performance: float | None, cost_nano: int | None, *, alpha: float, most_nano: int) -> float | None:
    """The same of amounts in nano-dollars; None where performance or cost is unknown."""
    if performance is None or cost_nano is None:
        return None
    return quality(performance, Decimal(cost_nano), alpha=alpha, most=Decimal(most_nano))
