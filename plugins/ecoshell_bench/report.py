"""The figures of `bench ecoact` for people and for programs: costs, and the tokens and prices behind them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from ecoshell.budget.price import plain
from ecoshell_bench.ecoact import POLICIES, PoolResult, Setting, Total

_HEAD = (
    f"{'tools':>5}  {'policy':<8} {'cost':>11} {'saving':>8} {'calls':>6} {'fresh':>11} {'cached':>11} {'output':>9}"
)


def as_json(results: Sequence[PoolResult], setting: Setting, tokenizer: str) -> str:
    """One object: rows by pool, tokenizer and prices. Costs are the mean of a run, in prices of an input token."""
    record = {
        "rows": [_row(result, setting) for result in results],
        "tokenizer": tokenizer,
        "prices": {name: float(rate) for name, rate in asdict(setting.rates).items()},
        "unit": "prices of an input token, per run",
        "seed": setting.seed,
        "wrong": setting.wrong,
        "questions": setting.questions,
    }
    return json.dumps(record)


def as_table(results: Sequence[PoolResult], setting: Setting, tokenizer: str) -> str:
    """The same as a table, with the saving against registering everything."""
    lines = [_HEAD]
    for result in results:
        lines += [_line(policy, result, setting) for policy in POLICIES if result.runs]
        lines.append(_about_auto(result))
    rates = setting.rates
    lines += [
        f"Mean of a run, in prices of an input token: cached input {plain(rates.cached_input)}, cache write "
        f"{plain(rates.cache_write)}, output {plain(rates.output)}. Saving: against all.",
        f"Tokens by {tokenizer}; other tools drawn with seed {setting.seed}.",
    ]
    return "\n".join(lines)


def _row(result: PoolResult, setting: Setting) -> dict[str, Any]:
    runs = max(1, result.runs)
    return {
        "pool": result.pool,
        "runs": result.runs,
        "cost": {policy: _mean(setting.price(total.usage), runs) for policy, total in result.totals.items()},
        "saving": {policy: _share(result, policy, setting) for policy in POLICIES} if result.runs else {},
        "loses": {"share": round(result.losing, 4), "worst": round(result.worst, 4)},
        "registered": round(result.totals["grow"].documents / runs, 3),
        "tokens": {policy: _tokens(total, runs) for policy, total in result.totals.items()},
        "auto": {
            "presentations": dict(result.chosen),
            "upfront": round(result.upfront / runs, 3),
            "upfront_used": round(result.upfront_used / runs, 3),
        },
    }


def _tokens(total: Total, runs: int) -> dict[str, float]:
    """What a run reads and writes on average; `fresh` is all of the prompts that was not found in the cache."""
    use = total.usage
    counts = {
        "calls": total.calls,
        "fresh": use.input - use.cached,
        "cached": use.cached,
        "output": use.output,
        "documents": total.documents,
    }
    return {name: round(count / runs, 2) for name, count in counts.items()}


def _share(result: PoolResult, policy: str, setting: Setting) -> float:
    return round(float(result.saving(policy, setting)), 4)


def _mean(cost: Decimal, runs: int) -> float:
    return round(float(cost / runs), 2)


def _line(policy: str, result: PoolResult, setting: Setting) -> str:
    total = result.totals[policy]
    tokens = _tokens(total, result.runs)
    cost = _mean(setting.price(total.usage), result.runs)
    return (
        f"{result.pool:>5}  {policy:<8} {cost:>11,.0f} {result.saving(policy, setting):>8.1%} {tokens['calls']:>6.1f} "
        f"{tokens['fresh']:>11,.0f} {tokens['cached']:>11,.0f} {tokens['output']:>9,.0f}"
    )


def _about_auto(result: PoolResult) -> str:
    """What `auto` decided over the runs of a pool."""
    if not result.runs:
        return f"{result.pool:>5}  every run used more tools than this\n"
    words = {"plain": "registered everything", "grow": "grew the array", "stable": "kept it stable"}
    words["text"] = "registered everything as text"
    choices = ", ".join(f"{words[name]} in {count}" for name, count in result.chosen.most_common())
    upfront = f"{result.upfront} documents up front, {result.upfront_used} of them used"
    lost = f"dearer than registering everything in {result.losing:.1%}, by {result.worst:.1%} at most"
    return f"       of {result.runs} runs, auto {choices}; {upfront}\n       {lost}\n"
