"""The result of a side at a task, and the figures of `bench tasks`."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import comb, sqrt
from operator import attrgetter
from typing import Any, Literal

from ecoshell.budget import nano_to_usd_text
from ecoshell.messages import FINISH, META_TOOLS, Usage
from ecoshell_bench.results import known_sum

Side = Literal["ecoshell", "baseline"]
_STORED_RESULT_CHARACTERS = 300
_Z = 1.959964
"""The normal quantile of a 95 % interval."""


@dataclass(slots=True)
class Result:
    """The result of a side at a task, updated while the task runs so that an interrupted one is recorded too."""

    id: str
    kind: str
    side: Side
    task: str
    """The digest of the task."""
    ok: bool = False
    wrong: list[str] = field(default_factory=list[str])
    """Failed conditions of the check."""
    answer: str = ""
    status: str = "error"
    """How it ended: answered, gave_up, limit (of steps), timeout, error, or setup (the task could not be prepared)."""
    error: str = ""
    steps: int = 0
    registered: list[str] = field(default_factory=list[str])
    called: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Calls in order: name, arguments, ok, refused (the guard that refused it), result (its beginning)."""
    prompt: int = 0
    cached: int = 0
    output: int = 0
    seconds: float = 0.0
    spent_nano: int | None = 0

    @property
    def key(self) -> tuple[str, Side]:
        return self.id, self.side

    @property
    def calls(self) -> int:
        """The number of tool calls, including failed ones; registering and searching do not count."""
        return sum(call["name"] not in META_TOOLS for call in self.called)

    @property
    def repeats(self) -> int:
        """The count of the most frequent call; calls refused by a guard do not count."""
        counts = Counter(
            json.dumps([call["name"], call["arguments"]], sort_keys=True, default=str)
            for call in self.called
            if call["name"] != FINISH and not call["refused"]
        )
        return max(counts.values(), default=0)

    @property
    def stuck(self) -> bool:
        """Whether the model gave no answer and its last two calls failed with the same message."""
        last_failures = [call["result"] for call in self.called[-2:] if not call["ok"]]
        return self.status != "answered" and len(last_failures) == 2 and len({*last_failures}) == 1

    def begin_call(self, name: str, arguments: Mapping[str, Any]) -> Callable[..., None]:
        """Record a call; the returned function records its end: `ok`, the `text`, the guard that `refused` it."""
        record = {
            "name": name,
            "arguments": dict(arguments),
            "ok": False,
            "refused": "",
            "result": "",
        }
        self.called.append(record)

        def end(*, ok: bool, text: str, refused: str = "") -> None:
            record.update(ok=ok, refused=refused, result=text[:_STORED_RESULT_CHARACTERS])

        return end

    def count(self, usage: Usage) -> None:
        """Add the tokens of a model call."""
        self.prompt += usage.input
        self.cached += usage.cached
        self.output += usage.output


@dataclass(frozen=True, slots=True)
class Pairs:
    """Tasks with results of both sides (McNemar's test, exact)."""

    n: int
    better: int
    """Tasks only ecoshell got right."""
    worse: int
    """Tasks only the baseline got right."""

    @classmethod
    def of(cls, ecoshell: Sequence[Result], baseline: Sequence[Result]) -> "Pairs":
        baseline_ok = {result.id: result.ok for result in baseline}
        pairs = [
            (result.ok, baseline_ok[result.id]) for result in ecoshell if result.id in baseline_ok
        ]
        return cls(len(pairs), pairs.count((True, False)), pairs.count((False, True)))

    @property
    def difference(self) -> float | None:
        """ecoshell's success rate minus the baseline's."""
        return (self.better - self.worse) / self.n if self.n else None

    @property
    def p(self) -> float | None:
        """The two-sided p-value of the difference."""
        if not self.n:
            return None
        discordant, fewer = self.better + self.worse, min(self.better, self.worse)
        return min(1.0, 2 * sum(comb(discordant, k) for k in range(fewer + 1)) / 2**discordant)


def wilson(right: int, n: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a share (Wilson's score), or None without cases."""
    if not n:
        return None
    share, square = right / n, _Z * _Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = _Z * sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def as_record(
    model: str, results: Sequence[Result], loop: str | None, baseline: Sequence[Result]
) -> dict[str, Any]:
    """Return the record described in docs/benchmarks.md; `loop` is the plain loop's model, None without a baseline."""
    record = {**_side(model, results), "baseline": None, "paired": None, "ratio": None}
    if loop is not None:
        ids = {result.id for result in results} & {result.id for result in baseline}
        ours, theirs = (
            [result for result in side if result.id in ids] for side in (results, baseline)
        )
        pairs = Pairs.of(ours, theirs)
        kinds = {kind: _pairs(Pairs.of(group, theirs)) for kind, group in _by_kind(ours).items()}
        record["baseline"] = _side(loop, baseline)
        record["paired"] = {**_pairs(pairs), "p": _rounded(pairs.p), "kinds": kinds}
        record["ratio"] = _ratios(ours, theirs)
    return record


def _ratios(ours: Sequence[Result], theirs: Sequence[Result]) -> dict[str, float | None]:
    """Return ecoshell's sums divided by the plain loop's; None if a sum is unknown or the loop's is zero."""
    names = ("prompt", "cached", "output", "steps", "seconds")
    sums = {name: (_sum(ours, name), _sum(theirs, name)) for name in names}
    sums["price"] = (
        known_sum(result.spent_nano for result in ours),
        known_sum(result.spent_nano for result in theirs),
    )
    return {
        name: _rounded(our / their) if our is not None and their else None
        for name, (our, their) in sums.items()
    }


def _pairs(pairs: Pairs) -> dict[str, Any]:
    return {
        "n": pairs.n,
        "better": pairs.better,
        "worse": pairs.worse,
        "difference": _rounded(pairs.difference),
    }


def _side(model: str, results: Sequence[Result]) -> dict[str, Any]:
    kinds = {kind: _figures(group) for kind, group in _by_kind(results).items()}
    return {
        "model": model,
        **_figures(results),
        "kinds": kinds,
        "rows": [_row(result) for result in results],
    }


def _figures(results: Sequence[Result]) -> dict[str, Any]:
    n, right = len(results), sum(result.ok for result in results)
    interval = wilson(right, n)
    prompt = _sum(results, "prompt")
    return {
        "n": n,
        "success": _rounded(right / n) if n else None,
        "interval": None if interval is None else [*map(_rounded, interval)],
        "calls": _sum(results, "calls"),
        "steps": _sum(results, "steps"),
        "tokens": {name: _sum(results, name) for name in ("prompt", "cached", "output")},
        "cached_share": _rounded(_sum(results, "cached") / prompt) if prompt else None,
        "seconds": round(_sum(results, "seconds"), 2),
        "price_usd": _price(results),
        "repeats_max": max((result.repeats for result in results), default=0),
        "stuck": _sum(results, "stuck"),
        "ended": dict(sorted(Counter(result.status for result in results).items())),
    }


def _row(result: Result) -> dict[str, Any]:
    def of(*names: str) -> dict[str, Any]:
        return {name: getattr(result, name) for name in names}

    return {
        **of("id", "kind", "ok", "answer", "registered", "calls", "steps"),
        "repeats_max": result.repeats,
        "tokens": of("prompt", "cached", "output"),
        "seconds": round(result.seconds, 3),
        "price_usd": _price([result]),
        **of("status", "wrong", "error", "called"),
    }


def _price(results: Sequence[Result]) -> str | None:
    spent = known_sum(result.spent_nano for result in results)
    return None if spent is None else nano_to_usd_text(spent)


def _rounded(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 4)


def _by_kind(results: Sequence[Result]) -> dict[str, list[Result]]:
    kind = attrgetter("kind")
    return {name: list(group) for name, group in groupby(sorted(results, key=kind), key=kind)}


def _sum(results: Sequence[Result], name: str) -> Any:
    return sum(map(attrgetter(name), results))
