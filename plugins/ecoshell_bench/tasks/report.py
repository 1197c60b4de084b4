"""The figures of `bench tasks` for people and for programs."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import comb, sqrt
from operator import attrgetter
from typing import Any

from ecoshell.budget.money import amount_text, nano_to_usd_text
from ecoshell_bench.tasks.results import Result

_Z = 1.959964
"""Of a 95 % interval."""
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Played:
    """What a run came to: the results of each side, and the models' names."""

    model: str
    ecoshell: Sequence[Result]
    baseline_model: str | None
    """None where the plain loop was not asked for."""
    baseline: Sequence[Result]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Tasks that both sides have played (McNemar's test, exact)."""

    n: int
    better: int
    """Tasks only ecoshell got right."""
    worse: int
    """Tasks only the baseline got right."""

    @classmethod
    def of(cls, ecoshell: Sequence[Result], baseline: Sequence[Result]) -> "Pairs":
        """The pairs among these results."""
        other = {result.id: result.ok for result in baseline}
        both = [(result.ok, other[result.id]) for result in ecoshell if result.id in other]
        return cls(len(both), both.count((True, False)), both.count((False, True)))

    @property
    def difference(self) -> float | None:
        """ecoshell's share of right tasks less the baseline's."""
        return (self.better - self.worse) / self.n if self.n else None

    @property
    def p(self) -> float | None:
        """How likely so large a difference is where there is none; two-sided."""
        if not self.n:
            return None
        apart, fewer = self.better + self.worse, min(self.better, self.worse)
        return min(1.0, 2 * sum(comb(apart, k) for k in range(fewer + 1)) / 2**apart)


def wilson(right: int, n: int) -> tuple[float, float] | None:
    """The 95 % interval of a share (Wilson's score); None of nothing."""
    if not n:
        return None
    share, square = right / n, _Z * _Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = _Z * sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def as_json(played: Played) -> str:
    """One object, as docs/bench-tasks.md says."""
    baseline = None
    if played.baseline_model is not None:
        baseline = _side(played.baseline_model, played.baseline)
    return json.dumps({**_side(played.model, played.ecoshell), "baseline": baseline, **_compared(played)})


def _compared(played: Played) -> dict[str, Any]:
    if played.baseline_model is None:
        return {"paired": None, "ratio": None}
    ours, theirs = _paired(played)
    pairs = Pairs.of(ours, theirs)
    paired = {"n": pairs.n, "better": pairs.better, "worse": pairs.worse}
    paired |= {"difference": _rounded(pairs.difference), "p": _rounded(pairs.p)}
    kinds = {
        kind: {"n": one.n, "better": one.better, "worse": one.worse, "difference": _rounded(one.difference)}
        for kind, some in _by_kind(ours).items()
        for one in [Pairs.of(some, theirs)]
    }
    ratio = {name: _rounded(_ratio(ours, theirs, name)) for name in ("prompt", "cached", "output", "seconds")}
    return {"paired": {**paired, "kinds": kinds}, "ratio": ratio}


def _paired(played: Played) -> tuple[list[Result], list[Result]]:
    """The results of the tasks that both have played."""
    both = {result.id for result in played.ecoshell} & {result.id for result in played.baseline}
    ours = [result for result in played.ecoshell if result.id in both]
    return ours, [result for result in played.baseline if result.id in both]


def _side(model: str, results: Sequence[Result]) -> dict[str, Any]:
    kinds = {kind: _figures(some) for kind, some in _by_kind(results).items()}
    return {"model": model, **_figures(results), "kinds": kinds, "rows": [_row(result) for result in results]}


def _figures(results: Sequence[Result]) -> dict[str, Any]:
    n, right = len(results), sum(result.ok for result in results)
    interval = wilson(right, n)
    spent = _spent(results)
    return {
        "n": n,
        "success": _rounded(right / n) if n else None,
        "interval": None if interval is None else [_rounded(one) for one in interval],
        "calls": sum(result.calls for result in results),
        "steps": sum(result.steps for result in results),
        "tokens": {name: _sum(results, name) for name in ("prompt", "cached", "output")},
        "seconds": round(_sum(results, "seconds"), 2),
        "price_usd": None if spent is None else nano_to_usd_text(spent),
        "repeats_max": max((result.repeats for result in results), default=0),
        "stuck": sum(result.stuck for result in results),
        "ended": {
            status: sum(result.status == status for result in results)
            for status in sorted({result.status for result in results})
        },
    }


def _row(result: Result) -> dict[str, Any]:
    return {
        "id": result.id,
        "kind": result.kind,
        "ok": result.ok,
        "answer": result.answer,
        "registered": result.registered,
        "calls": result.calls,
        "steps": result.steps,
        "repeats_max": result.repeats,
        "tokens": {"prompt": result.prompt, "cached": result.cached, "output": result.output},
        "seconds": round(result.seconds, 3),
        "price_usd": None if result.spent_nano is None else nano_to_usd_text(result.spent_nano),
        "status": result.status,
        "wrong": result.wrong,
        "error": result.error,
        "called": result.called,
    }


def as_table(played: Played) -> str:
    """Success, calls, tokens and time, per kind and in all, with the plain loop beside it where there is one."""
    blocks: list[str] = []
    if played.ecoshell or played.baseline_model is None:
        blocks.append(_table(f"ecoshell, {played.model}", played.ecoshell))
    if played.baseline_model is not None:
        blocks.append(_table(f"plain loop, {played.baseline_model}", played.baseline))
        ours, theirs = _paired(played)
        if ours:
            blocks.append(_comparison(ours, theirs))
    return "\n\n".join(blocks)


def _table(title: str, results: Sequence[Result]) -> str:
    """The means of a task's calls, tokens and seconds."""
    head = f"{title}\n{'kind':<14} {'n':>4} {'right':>6} {'95 % interval':>15} {'calls':>6} {'steps':>6}"
    head += f" {'prompt':>8} {'cached':>8} {'output':>7} {'seconds':>8} {'repeats':>8}"
    rows = [_line(kind, some) for kind, some in _by_kind(results).items()]
    spent = _spent(results)
    price = "of unknown price" if spent is None else amount_text(spent, "usd")
    total = f"{_sum(results, 'prompt'):,} prompt tokens, {_sum(results, 'output'):,} written, {price} in all."
    return "\n".join([head, *rows, _line("all", results), total])


def _line(kind: str, results: Sequence[Result]) -> str:
    n, right = len(results), sum(result.ok for result in results)
    if not n:
        return f"{kind:<14} {0:>4}"
    low, high = wilson(right, n) or (0.0, 0.0)
    means = [sum(map(attrgetter(name), results)) / n for name in ("calls", "steps")]
    tokens = [_sum(results, name) / n for name in ("prompt", "cached", "output")]
    return (
        f"{kind:<14} {n:>4} {right / n:>6.1%} {f'{low:.1%} – {high:.1%}':>15} {means[0]:>6.1f} {means[1]:>6.1f}"
        f" {tokens[0]:>8,.0f} {tokens[1]:>8,.0f} {tokens[2]:>7,.0f} {_sum(results, 'seconds') / n:>8.1f}"
        f" {max(result.repeats for result in results):>8}"
    )


def _comparison(ours: Sequence[Result], theirs: Sequence[Result]) -> str:
    """The paired difference and the ratios, per kind and in all; only tasks that both have played."""
    lines = [f"{'paired':<14} {'n':>4} {'points':>7} {'only us':>8} {'only loop':>10} {'prompt':>7} {'output':>7}"]
    groups = [*_by_kind(ours).items(), ("all", ours)]
    for kind, some in groups:
        ids = {result.id for result in some}
        others = [result for result in theirs if result.id in ids]
        pairs = Pairs.of(some, others)
        ratios = [_shown(_ratio(some, others, name)) for name in ("prompt", "output")]
        points = 100 * (pairs.difference or 0.0)
        lines.append(
            f"{kind:<14} {pairs.n:>4} {points:>+7.1f} {pairs.better:>8} {pairs.worse:>10} {ratios[0]:>7} {ratios[1]:>7}"
        )
    p = Pairs.of(ours, theirs).p
    lines.append(
        f"McNemar's exact p = {0.0 if p is None else p:.3g}; prompt and output are ratios to the plain loop's."
    )
    return "\n".join(lines)


def _by_kind(results: Sequence[Result]) -> dict[str, list[Result]]:
    kind = attrgetter("kind")
    return {name: list(some) for name, some in groupby(sorted(results, key=kind), key=kind)}


def _sum(results: Sequence[Result], name: str) -> Any:
    return sum(map(attrgetter(name), results))


def _spent(results: Sequence[Result]) -> int | None:
    known = [result.spent_nano for result in results if result.spent_nano is not None]
    return sum(known) if len(known) == len(results) else None


def _ratio(ours: Sequence[Result], theirs: Sequence[Result], name: str) -> float | None:
    below = _sum(theirs, name)
    return _sum(ours, name) / below if below else None


def _shown(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _rounded(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, _DIGITS)
