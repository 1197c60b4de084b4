"""What registering by name saves on recorded runs, per number of tools (EcoAct §3.2, Figure 3).

Each run gets a pool of tools: those it used and a plain random draw of others. Policies:

- all: every document in the tool array from the start;
- grow, stable: names only, in that presentation;
- auto: what the shell decides from the question, the documents and the prices alone (catalog/registration);
- oracle: knows what will be used and has exactly that registered up front, in the cheaper of the two presentations.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from ecoshell.budget.price import Rates
from ecoshell.catalog.presentation import GROW, STABLE
from ecoshell.catalog.registration import Decision, Workload, candidates_of, decide
from ecoshell.catalog.search import Ranker
from ecoshell.evaluation.replay import Bill, Scenario, replay_all
from ecoshell.evaluation.trajectories import RecordedRun, Tools
from ecoshell.messages import ToolDocument, Usage

POLICIES = ("all", "grow", "stable", "auto", "oracle")


@dataclass(frozen=True, slots=True)
class Setting:
    """How runs are replayed; `rates` are relative to the price of an input token, `count` counts a text's tokens."""

    rates: Rates
    count: Callable[[str], int]
    system: str
    seed: int = 0

    def price(self, usage: Usage) -> Decimal:
        """What the usage costs, in prices of an input token."""
        fresh = usage.input - usage.cached - usage.cache_write
        read = fresh * self.rates.input + usage.cached * self.rates.cached_input
        return read + usage.cache_write * self.rates.cache_write + usage.output * self.rates.output


@dataclass(slots=True)
class Total:
    """Sums over runs under one policy; `documents` counts the documents registered by the end of each."""

    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    documents: int = 0

    def add(self, bill: Bill, documents: int) -> None:
        """Add one run."""
        self.usage += bill.usage
        self.calls += bill.calls
        self.documents += documents


@dataclass(slots=True)
class PoolResult:
    """All policies at one pool size, and what `auto` did: its choices, its documents up front, those that were used."""

    pool: int
    runs: int = 0
    totals: dict[str, Total] = field(default_factory=lambda: {policy: Total() for policy in POLICIES})
    chosen: Counter[str] = field(default_factory=Counter[str])
    upfront: int = 0
    upfront_used: int = 0

    def saving(self, policy: str, setting: Setting) -> Decimal:
        """The share of the cost of registering everything that a policy saves; negative when it is dearer."""
        return 1 - setting.price(self.totals[policy].usage) / setting.price(self.totals["all"].usage)


def measure_pools(
    runs: Sequence[RecordedRun], tools: Tools, pools: Sequence[int], setting: Setting
) -> Iterator[PoolResult]:
    """One result per pool size, in order; a run that used more tools than a pool holds has no place in it."""
    for size in pools:
        result = PoolResult(size)
        for run in runs:
            if len(run.used) <= size:
                _measure(run, draw_pool(run, tools, size, setting.seed), setting, result)
        yield result


def draw_pool(run: RecordedRun, tools: Tools, size: int, seed: int) -> list[ToolDocument]:
    """What the run used and a random draw of what it did not, up to `size`, shuffled; the same for the same seed."""
    draw = random.Random(f"{seed}/{run.id}/{size}")
    used = set(run.used)
    others = [name for name in tools.documents if name not in used]
    names = [*run.used, *draw.sample(others, max(0, min(size - len(used), len(others))))]
    draw.shuffle(names)
    return [tools.documents[name] for name in names]


def decide_for(question: str, pool: Sequence[ToolDocument], setting: Setting) -> Decision:
    """The shell's own decision, which knows the question, the documents and the prices, and nothing of the run."""
    work = Workload(base=setting.count(setting.system) + setting.count(question))
    candidates = candidates_of(pool, Ranker(pool).chances(question), setting.count)
    return decide(candidates, setting.rates, work)


def _measure(run: RecordedRun, pool: Sequence[ToolDocument], setting: Setting, result: PoolResult) -> None:
    """Add one run, under all policies, to the result."""
    used = [document for document in pool if document.name in run.used]
    scenarios = [Scenario(presentation, setting.system, setting.count) for presentation in (GROW, STABLE)]
    result.runs += 1
    result.totals["all"].add(replay_all(run, setting.system, pool, setting.count), len(pool))
    for scenario in scenarios:
        result.totals[scenario.presentation.name].add(scenario.replay(run, pool), len(used))
    known = (scenario.replay(run, pool, used) for scenario in scenarios)
    result.totals["oracle"].add(min(known, key=lambda bill: setting.price(bill.usage)), len(used))
    _measure_auto(run, pool, setting, result)


def _measure_auto(run: RecordedRun, pool: Sequence[ToolDocument], setting: Setting, result: PoolResult) -> None:
    decision = decide_for(run.query, pool, setting)
    upfront = [document for document in pool if document.name in decision.upfront]
    bill = Scenario(decision.presentation, setting.system, setting.count).replay(run, pool, upfront)
    result.totals["auto"].add(bill, len({*decision.upfront, *run.used}))
    result.chosen[decision.presentation.name] += 1
    result.upfront += len(upfront)
    result.upfront_used += len({*decision.upfront} & {*run.used})
