"""Measure planning: the knapsack solver compared with OR-tools, evidence from experience, and the ledger."""

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from ecoshell.budget import NANO, Account, Amount, Ask, Price, Rates
from ecoshell.budget.gate import Gate
from ecoshell.budget.ledger import Ledger
from ecoshell.messages import Usage
from ecoshell.planning.btp.evidence import Past
from ecoshell.planning.btp.experience import ExperienceStore, Use
from ecoshell.planning.btp.knapsack import solve
from ecoshell_bench.speed.measuring import Measurement, Take, against

SIZES = ((5, 20), (500, 10_000))
"""Tools and units of budget: a question of BTP's experiments, and the longest possible shortlist."""
_MODEL = "script:measured"
_HASH = "0" * 16


def measure_planning(repeat: int) -> Iterator[Measurement]:
    """Measure the seconds for a plan and for the evidence about all tools."""
    for tools, budget in SIZES:
        yield measure_knapsack(tools, budget, repeat)
    yield measure_experience(repeat)


def measure_knapsack(tools: int, budget: int, repeat: int) -> Measurement:
    """Measure mean seconds of a plan over instances of several kinds; the baseline is OR-tools, if installed."""
    name, problems, rounds = f"knapsack_{tools}", instances(tools, budget), max(1, 100 // tools)

    def mean(plans: Sequence[Callable[[], object]]) -> Take:
        return lambda: (
            _seconds(lambda: [plan() for _ in range(rounds) for plan in plans])
            / (rounds * len(plans))
        )

    ours = mean(
        [partial(solve, each.values, each.costs, each.bounds, each.budget) for each in problems]
    )
    if find_spec("ortools") is None:
        return Measurement(name, median(ours() for _ in range(repeat + 1)), "s")
    return against(name, ours, mean([OrTools(problem).solve for problem in problems]), repeat)


def measure_experience(
    repeat: int, uses: int = 100_000, questions: int = 20_000, tools: int = 500
) -> Measurement:
    """Measure the seconds to get the evidence about every tool for a new question, with experience already read."""
    rng = random.Random(0)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 10)))
        for _ in range(5_000)
    ]
    texts = [" ".join(rng.choices(words, k=rng.randint(6, 20))) for _ in range(questions + repeat)]
    hashes = dict.fromkeys((f"tool_{number}" for number in range(tools)), _HASH)
    with (
        TemporaryDirectory(prefix="ecoshell-speed-") as folder,
        closing(ExperienceStore(Path(folder) / "db")) as store,
    ):
        store.add(_use(rng, texts[number % questions], number, tools) for number in range(uses))
        past = Past(store)
        past.evidence(texts[0], hashes, _MODEL)
        seconds = [
            _seconds(lambda text=text: past.evidence(text, hashes, _MODEL))
            for text in texts[questions:]
        ]
    return Measurement(f"experience_{tools}", median(seconds), "s")


def _use(rng: random.Random, question: str, number: int, tools: int) -> Use:
    return Use(
        query=question,
        tool=f"tool_{rng.randrange(tools)}",
        document_hash=_HASH,
        arguments="{}",
        result="done",
        result_hash=_HASH,
        ok=True,
        helpful=rng.random() < 0.7,
        judged_by="rules",
        model=_MODEL,
        price_nano=1_000,
        step_nano=rng.randrange(10_000),
        step_tokens=rng.randrange(1_000),
        seconds=rng.random(),
        size_level=0,
        session=f"s{number}",
        turn=1,
        call="c1",
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# Knapsack instances, and OR-tools

KINDS = ("unrelated", "rising", "equal")
"""Values independent of costs; values rising with costs, which is hard; equal values."""
_SEEDS = 5
_MAX_USES = 4
_SOLVERS = (
    "KNAPSACK_DIVIDE_AND_CONQUER_SOLVER",
    "KNAPSACK_MULTIDIMENSION_BRANCH_AND_BOUND_SOLVER",
    "KNAPSACK_64ITEMS_SOLVER",
)
_MAX_ITEMS = 64
"""The item limit of the last solver."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A bounded knapsack; all figures are integers, as OR-tools requires."""

    values: Sequence[int]
    costs: Sequence[int]
    bounds: Sequence[int]
    budget: int


def instances(tools: int, budget: int) -> list[Instance]:
    """Return reproducible instances of each kind; costs are at most 10, as in BTP, or a tenth of the budget."""
    problems: list[Instance] = []
    for kind in KINDS:
        for seed in range(_SEEDS):
            rng, max_cost = random.Random(f"{kind} {seed}"), max(10, budget // 10)
            costs = [rng.randint(1, max_cost) for _ in range(tools)]
            values = {
                "unrelated": [rng.randint(1, 1_000) for _ in costs],
                "rising": [cost + max_cost // 10 for cost in costs],
                "equal": [100] * tools,
            }[kind]
            problems.append(
                Instance(values, costs, [rng.randint(1, _MAX_USES) for _ in costs], budget)
            )
    return problems


class OrTools:
    """The fastest exact solver of OR-tools for an instance; raises ModuleNotFoundError if it is not installed."""

    def __init__(self, instance: Instance) -> None:
        self._module: Any = import_module("ortools.algorithms.python.knapsack_solver")
        self._instance, self._limit = instance, math.inf
        solvers = _SOLVERS if sum(instance.bounds) <= _MAX_ITEMS else _SOLVERS[:-1]
        self._limit = 2 * self._seconds(
            solvers[0]
        )  # its time depends only on the numbers of tools and units
        self._solver = min(solvers, key=self._seconds)

    def solve(self) -> list[int]:
        """Return the number of uses of each tool."""
        return self._solve(self._solver)[0]

    def _seconds(self, solver: str) -> float:
        """Return the seconds a solver takes; infinite if it reaches the time limit."""
        self._solve(solver)  # the first run is the slowest
        started = time.perf_counter()
        _, exact = self._solve(solver)
        return time.perf_counter() - started if exact else math.inf

    def _solve(self, name: str) -> tuple[list[int], bool]:
        """Solve with one item for each possible use of a tool; return the uses and whether they are optimal."""
        instance = self._instance
        tools = [tool for tool, bound in enumerate(instance.bounds) for _ in range(bound)]
        values, costs = (
            [figures[tool] for tool in tools] for figures in (instance.values, instance.costs)
        )
        solver = self._module.KnapsackSolver(getattr(self._module.SolverType, name), "plans")
        solver.set_time_limit(self._limit)
        solver.init(values, [costs], [instance.budget])
        solver.solve()
        counts = [0] * len(instance.bounds)
        for item, tool in enumerate(tools):
            if solver.best_solution_contains(item):
                counts[tool] += 1
        return counts, solver.is_solution_optimal()


# The ledger

_ACCOUNT = Account(session="bench", turn=1, role="single", model="bench", purpose="step")
_RATES = Rates(Decimal("2.5"), Decimal("1.25"), Decimal("2.5"), Decimal(10), Decimal(10))
_ASK = Ask(Price(_RATES), prompt_tokens=2000, max_tokens=500, account=_ACCOUNT)
_USAGE = Usage(input=1500, output=120, cached=1000)


def measure_reserve_settle(rows: int = 10_000, repeat: int = 200) -> Measurement:
    """Measure the median seconds to reserve and settle under four caps, with `rows` entries in the ledger.

    The baseline is an empty ledger.
    """
    with TemporaryDirectory() as folder:
        empty = asyncio.run(_reserve_settle_seconds(Path(folder) / "empty.sqlite", 0, repeat))
        filled = asyncio.run(_reserve_settle_seconds(Path(folder) / "filled.sqlite", rows, repeat))
    return Measurement("reserve_settle", filled, "s", empty, filled / empty)


async def _reserve_settle_seconds(path: Path, rows: int, repeat: int) -> float:
    with closing(Ledger(path)) as ledger:
        for scope in ("turn", "session", "day", "month"):
            ledger.set_cap(_ACCOUNT.session, scope, Amount(1_000_000 * NANO, "usd"))
        for _ in range(rows):
            ledger.settle(ledger.hold(_ASK), _USAGE)
        gate, times = Gate(ledger), list[float]()
        for _ in range(repeat):
            started = time.perf_counter()
            await gate.settle(await gate.hold(lambda: _ASK), _USAGE)
            times.append(time.perf_counter() - started)
    return median(times)
