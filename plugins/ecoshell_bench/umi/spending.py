"""What the trio takes beside one model, turn by turn, and how far the ratio can be trusted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from ecoshell.budget.money import NANO
from ecoshell.budget.price import Price
from ecoshell_bench.umi.scoring import TAILS, Interval, resamples
from ecoshell_bench.umi.turns import CASTS, Turn

Measure = Callable[[Turn], float]


@dataclass(frozen=True, slots=True)
class Spending:
    """One measure of a set of turns: means and medians by mode, and the mean of umi over that of single."""

    mean: Mapping[str, float]
    median: Mapping[str, float]
    ratio: float | None
    """None where single takes nothing."""
    interval: Interval | None
    """Of 95 %, turns being drawn; None without a ratio."""


def measures(price: Price) -> dict[str, Measure]:
    """What is measured of a turn: calls, tokens, and dollars at this price.

    `raw` is all that is read and written, `fresh` is that without what is found cached.
    """
    return {
        "calls": len,
        "input": lambda turn: sum(usage.input for usage in turn),
        "cached": lambda turn: sum(usage.cached for usage in turn),
        "output": lambda turn: sum(usage.output for usage in turn),
        "raw": lambda turn: sum(usage.total for usage in turn),
        "fresh": lambda turn: sum(usage.total - usage.cached for usage in turn),
        "price": lambda turn: sum(map(price.cost, turn)) / NANO,
    }


def spending(turns: Sequence[Mapping[str, Turn]], measure: Measure) -> Spending:
    """A measure of these turns; raises ValueError when there is none."""
    values = {mode: [float(measure(turn[mode])) for turn in turns] for mode in CASTS}
    mean = {mode: fmean(each) for mode, each in values.items()}
    if not mean["single"]:
        return Spending(mean, _medians(values), None, None)
    return Spending(mean, _medians(values), mean["umi"] / mean["single"], _interval(values["single"], values["umi"]))


def _medians(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {mode: median(each) for mode, each in values.items()}


def _interval(single: Sequence[float], umi: Sequence[float]) -> Interval:
    """The percentile bootstrap of the ratio; both modes of a turn are drawn together."""
    import numpy as np

    draws = resamples(len(single))
    below = draws @ np.array(single)
    some = below > 0
    low, high = np.percentile((draws @ np.array(umi))[some] / below[some], TAILS)
    return float(low), float(high)
