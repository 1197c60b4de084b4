"""What each side did at each task, and the figures of `bench tasks` for people and for programs."""

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
_SHOWN = 300
"""Characters of a call's result that are kept."""
_Z = 1.959964
"""Of a 95 % interval."""


@dataclass(slots=True)
class Result:
    """One side at one task: filled in while it runs, so that it says what was done also when that is cut short."""

    id: str
    kind: str
    side: Side
    task: str
    """The digest of the task."""
    ok: bool = False
    wrong: list[str] = field(default_factory=list[str])
    """What the check found wrong; empty when all is right."""
    answer: str = ""
    status: str = "error"
    """How it ended: answered, gave_up, limit (of steps), timeout, error, or setup (the task could not be prepared)."""
    error: str = ""
    steps: int = 0
    registered: list[str] = field(default_factory=list[str])
    called: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Calls in order: name, arguments, ok, which guard refused it (refused), and how the result begins (result)."""
    prompt: int = 0
    cached: int = 0
    output: int = 0
    seconds: float = 0.0
    spent_nano: int | None = 0

    @property
    def key(self) -> tuple[str, Side]:
        """Which result it is."""
        return self.id, self.side

    @property
    def calls(self) -> int:
        """How many tools were called, also in vain; registering and searching are no use of a tool."""
        return sum(call["name"] not in META_TOOLS for call in self.called)

    @property
    def repeats(self) -> int:
        """How often the call that was made most was made; one that a guard refused was not made."""
        made = Counter(
            json.dumps([call["name"], call["arguments"]], sort_keys=True, default=str)
            for call in self.called
            if call["name"] != FINISH and not call["refused"]
        )
        return max(made.values(), default=0)

    @property
    def stuck(self) -> bool:
        """Whether it ended without an answer of its own, its last two calls having failed in the same words."""
        last = [call["result"] for call in self.called[-2:] if not call["ok"]]
        return self.status != "answered" and len(last) == 2 and last[0] == last[1]

    def begin_call(self, name: str, arguments: Mapping[str, Any]) -> Callable[..., None]:
        """Note a call; what is given back is called when it has ended, with `ok`, its `text` and who `refused` it."""
        noted = {"name": name, "arguments": dict(arguments), "ok": False, "refused": "", "result": ""}
        self.called.append(noted)

        def end(*, ok: bool, text: str, refused: str = "") -> None:
            noted.update(ok=ok, refused=refused, result=text[:_SHOWN])

        return end

    def count(self, usage: Usage) -> None:
        """Add the tokens of a model call."""
        self.prompt += usage.input
        self.cached += usage.cached
        self.output += usage.output


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


def as_record(model: str, results: Sequence[Result], loop: str | None, baseline: Sequence[Result]) -> dict[str, Any]:
    """What is printed, as docs/benchmarks.md says; `loop` is the plain loop's model, None without one."""
    record = {**_side(model, results), "baseline": None, "paired": None, "ratio": None}
    if loop is not None:
        ids = {result.id for result in results} & {result.id for result in baseline}
        ours, theirs = ([result for result in side if result.id in ids] for side in (results, baseline))
        pairs = Pairs.of(ours, theirs)
        kinds = {kind: _pairs(Pairs.of(some, theirs)) for kind, some in _by_kind(ours).items()}
        record["baseline"] = _side(loop, baseline)
        record["paired"] = {**_pairs(pairs), "p": _rounded(pairs.p), "kinds": kinds}
        record["ratio"] = _ratios(ours, theirs)
    return record


def _ratios(ours: Sequence[Result], theirs: Sequence[Result]) -> dict[str, float | None]:
    """Return sums over the same tasks in those of the plain loop; None where a sum is unknown or the loop's is zero."""
    names = ("prompt", "cached", "output", "steps", "seconds")
    sums = {name: (_sum(ours, name), _sum(theirs, name)) for name in names}
    sums["price"] = known_sum(result.spent_nano for result in ours), known_sum(result.spent_nano for result in theirs)
    return {name: _rounded(our / their) if our is not None and their else None for name, (our, their) in sums.items()}


def _pairs(pairs: Pairs) -> dict[str, Any]:
    return {"n": pairs.n, "better": pairs.better, "worse": pairs.worse, "difference": _rounded(pairs.difference)}


def _side(model: str, results: Sequence[Result]) -> dict[str, Any]:
    kinds = {kind: _figures(some) for kind, some in _by_kind(results).items()}
    return {"model": model, **_figures(results), "kinds": kinds, "rows": [_row(result) for result in results]}


def _figures(results: Sequence[Result]) -> dict[str, Any]:
    n, right = len(results), sum(result.ok for result in results)
    interval = wilson(right, n)
    prompt = _sum(results, "prompt")
    return {
        "n": n,
        "success": _rounded(right / n) if n else None,
        "interval": None if interval is None else [_rounded(one) for one in interval],
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
    return {name: list(some) for name, some in groupby(sorted(results, key=kind), key=kind)}


def _sum(results: Sequence[Result], name: str) -> Any:
    return sum(map(attrgetter(name), results))
