"""The figures of `bench umi` for people and for programs."""

import json
from dataclasses import dataclass

from ecoshell.budget.money import amount_text
from ecoshell_bench.umi.scoring import METRICS, Interval, Result

_CALLED = dict(zip(METRICS, ("Plan ACC", "Act. EM", "Hallu.", "Arg. F1", "R-L"), strict=True))
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class About:
    """What was measured, and what it took; the price is None where one is not known."""

    model: str
    mode: str
    tasks: int
    input_tokens: int = 0
    output_tokens: int = 0
    spent_nano: int | None = 0
    seconds: float = 0.0


def as_json(result: Result) -> str:
    """One object: n, the metrics in percent, and their 95 % intervals."""
    return json.dumps(
        {
            "n": result.n,
            **{metric: _rounded(value) for metric, value in result.percent.items()},
            "intervals": {metric: _rounded_interval(one) for metric, one in result.intervals.items()},
        }
    )


def as_table(result: Result, about: About) -> str:
    """The same as a table, and what it took to ask."""
    lines = [f"{'metric':<9} {'%':>7}   95 % interval"]
    lines += [_row(_CALLED[metric], result.percent[metric], result.intervals[metric]) for metric in METRICS]
    lines.append(f"{about.model}, mode {about.mode}: {result.n:,} steps of {about.tasks:,} tasks.")
    if about.input_tokens:
        price = "unknown" if about.spent_nano is None else amount_text(about.spent_nano, "usd")
        lines.append(
            f"Tokens in {about.input_tokens:,}, out {about.output_tokens:,}; price {price}; {about.seconds:,.1f} s."
        )
    return "\n".join(lines)


def _row(name: str, value: float | None, interval: Interval | None) -> str:
    shown = "–" if value is None else f"{value:.2f}"
    between = "–" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"
    return f"{name:<9} {shown:>7}   {between}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _rounded_interval(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [round(end, _DIGITS) for end in interval]
