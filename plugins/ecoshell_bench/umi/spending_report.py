"""The figures of `bench umi --tokens` for people and for programs."""

import json
from dataclasses import dataclass
from typing import Any

from ecoshell.budget.price import Price
from ecoshell_bench.umi.spending import Spending

Measured = dict[str, dict[str, Spending]]
"""Spending by how tools are sent, and by measure."""
_CALLED = {
    "calls": "model calls",
    "input": "tokens in",
    "cached": "  of them cached",
    "output": "tokens out",
    "raw": "in and out",
    "fresh": "not cached",
    "price": "price, $",
}
_FORMS = {"native": "Tools as an array, calls of the provider's own kind", "text": "Tools and calls as text"}
_DIGITS = 4
_DOLLAR_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Priced:
    """By whose price and with which tokenizer was counted, over how many turns."""

    model: str
    price: Price
    tokenizer: str
    turns: int


def as_json(measured: Measured, priced: Priced) -> str:
    """One object: the spending by how tools are sent and by measure, and what it was counted with."""
    rates = priced.price.rates
    record = {
        "n": priced.turns,
        **{form: {name: _record(one) for name, one in by.items()} for form, by in measured.items()},
        "tokenizer": priced.tokenizer,
        "prices": {
            "model": priced.model,
            "input": float(rates.input),
            "cached_input": float(rates.cached_input),
            "output": float(rates.output),
        },
    }
    return json.dumps(record)


def as_table(measured: Measured, priced: Priced) -> str:
    """The same as tables, one for each way to send tools."""
    lines: list[str] = []
    for form, by in measured.items():
        lines += [f"{_FORMS[form]}:", _head(), *(_line(name, one) for name, one in by.items()), ""]
    lines += [
        f"{priced.turns:,} turns; mean and median of a turn. Not cached: in and out, but for what an earlier prompt",
        f"of the turn began with. Price of {priced.model}: {priced.price.summary()}. Tokens by {priced.tokenizer}.",
    ]
    return "\n".join(lines)


def _head() -> str:
    return f"{'':<17} {'single':>11} {'median':>11} {'umi':>11} {'median':>11}  {'umi/single':>10}   95 % interval"


def _line(name: str, one: Spending) -> str:
    shown = [f"{_shown(name, value):>11}" for mode in one.mean for value in (one.mean[mode], one.median[mode])]
    ratio = "–" if one.ratio is None else f"{one.ratio:.3f}"
    between = "–" if one.interval is None else f"{one.interval[0]:.3f} to {one.interval[1]:.3f}"
    return f"{_CALLED[name]:<17} {' '.join(shown)}  {ratio:>10}   {between}"


def _shown(name: str, value: float) -> str:
    if name == "price":
        return f"{value:.5f}"
    return f"{value:,.1f}" if name == "calls" else f"{value:,.0f}"


def _record(one: Spending) -> dict[str, Any]:
    return {
        **{mode: {"mean": _rounded(one.mean[mode]), "median": _rounded(one.median[mode])} for mode in one.mean},
        "ratio": None if one.ratio is None else round(one.ratio, _DIGITS),
        "interval": None if one.interval is None else [round(end, _DIGITS) for end in one.interval],
    }


def _rounded(value: float) -> float:
    return round(value, _DOLLAR_DIGITS)
