"""The figures of `bench catp` for people and for programs."""

import json
from typing import Any

from ecoshell_bench.catp.measure import Figures

_DIGITS = 6


def as_json(figures: Figures) -> str:
    """One object; shares are 0 to 1, what could not be measured is null."""
    choice, parallel = figures.choice, figures.parallel
    record: dict[str, Any] = {
        "price_error_max": figures.price_error_max,
        "qop_rows": figures.qop_rows,
        "qop_error_max": round(figures.qop_error_max, _DIGITS),
        "validity": [{"task": one.task, "masked": one.masked, "unmasked": one.unmasked} for one in figures.validity],
        "choice": choice and _rounded(ours=choice.ours, best=choice.best, cheapest=choice.cheapest),
        "parallel": parallel
        and _rounded(sum_s=parallel.sum_s, critical_s=parallel.critical_s, clock_s=parallel.clock_s),
    }
    return json.dumps(record)


def as_table(figures: Figures) -> str:
    """The same for people, part by part."""
    shown = [
        f"Price of {figures.plans:,} recorded plans, recomputed: off by {figures.price_error_max:.2g} of it at most.",
        f"QoP of {figures.qop_rows} rows of Tables 2 and 3, recomputed: off by {figures.qop_error_max:.4f} at most.",
    ]
    if figures.validity:
        width = max(len(one.task) for one in figures.validity)
        drawn = figures.validity[0].plans
        shown += ["", f"{f'valid of {drawn:,} random plans':<{width}}    masked  unmasked"]
        shown += [f"{one.task:<{width}}  {one.masked:>8.2%}  {one.unmasked:>8.2%}" for one in figures.validity]
    if choice := figures.choice:
        shown += [
            "",
            f"Mean QoP of a plan for {choice.samples:,} samples that have several",
            f"  best in hindsight      {choice.best:.4f}",
            f"  cheapest in hindsight  {choice.cheapest:.4f}",
            f"  ours, foreseen         {choice.ours:.4f}",
            f"  drawn at random        {choice.average:.4f}",
        ]
    if parallel := figures.parallel:
        shown += [
            "",
            f"Mean time of {parallel.plans:,} plans with branches",
            f"  tool after tool        {parallel.sum_s:.3f} s",
            f"  longest path           {parallel.critical_s:.3f} s",
            f"  by the clock           {parallel.clock_s:.3f} s",
        ]
    return "\n".join(shown)


def _rounded(**figures: float) -> dict[str, float]:
    return {name: round(figure, _DIGITS) for name, figure in figures.items()}
