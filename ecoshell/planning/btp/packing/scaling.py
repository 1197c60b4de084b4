"""Real costs become whole units of the budget (BTP Appendix A.1): costs rounded up, the budget rounded down."""

from collections.abc import Sequence


def scaled(costs: Sequence[int], budget: int, bits: int) -> tuple[list[int], int]:
    """Costs and budget in units of `2**shift`, the smallest with which the budget has at most so many bits.

    Whatever fits the scaled budget fits the true one: `Σ ⌈c/u⌉ ≤ ⌊R/u⌋` gives `Σ c ≤ R`. With N uses, what remains
    of the budget is underrated by less than `ε = (N + 1)·u`, where `u = 1/λ` (BTP Appendix A.1, equations 8 to 15);
    of a budget with more than `bits` bits that is less than `(N + 1) / 2**(bits - 1)` of it. A power of two, and whole
    numbers on both sides, keep the arithmetic exact.
    """
    shift = max(0, budget.bit_length() - bits)
    return [-(-cost >> shift) for cost in costs], budget >> shift
