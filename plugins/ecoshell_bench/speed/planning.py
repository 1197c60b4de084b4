"""How soon there is a plan: the knapsack beside OR-tools', what experience says of tools, and the ledger."""

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
"""Tools and units of budget: a question of BTP's experiments, and the longest shortlist there is."""
_MODEL = "script:measured"
_HASH = "0" * 16


def measure_planning(repeat: int) -> Iterator[Measurement]:
    """Seconds until there is a plan, and until it is known what experience says of the tools."""
    for tools, budget in SIZES:
        yield measure_knapsack(tools, budget, repeat)
    yield measure_experience(repeat)


def measure_knapsack(tools: int, budget: int, repeat: int) -> Measurement:
    """Mean seconds of a plan over instances of several kinds; the baseline is OR-tools', where that is installed."""
    what, made, rounds = f"knapsack_{tools}", instances(tools, budget), max(1, 100 // tools)

    def mean(plans: Sequence[Callable[[], object]]) -> Take:
        return lambda: _seconds(lambda: [plan() for _ in range(rounds) for plan in plans]) / (rounds * len(plans))

    ours = mean([partial(solve, one.values, one.costs, one.bounds, one.budget) for one in made])
    if find_spec("ortools") is None:
        return Measurement(what, median(ours() for _ in range(repeat + 1)), "s")
    return against(what, ours, mean([OrTools(one).solve for one in made]), repeat)


def measure_experience(repeat: int, uses: int = 100_000, questions: int = 20_000, tools: int = 500) -> Measurement:
    """Seconds in which a shell that has read its experience says what is known of every tool for a new question."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 10))) for _ in range(5_000)]
    asked = [" ".join(draw.choices(words, k=draw.randint(6, 20))) for _ in range(questions + repeat)]
    hashes = dict.fromkeys((f"tool_{number}" for number in range(tools)), _HASH)
    with TemporaryDirectory(prefix="ecoshell-speed-") as folder, closing(ExperienceStore(Path(folder) / "db")) as store:
        store.add(_use(draw, asked[number % questions], number, tools) for number in range(uses))
        past = Past(store)
        past.evidence(asked[0], hashes, _MODEL)
        taken = [_seconds(lambda text=text: past.evidence(text, hashes, _MODEL)) for text in asked[questions:]]
    return Measurement(f"experience_{tools}", median(taken), "s")


def _use(draw: random.Random, question: str, number: int, tools: int) -> Use:
    return Use(
        query=question,
        tool=f"tool_{draw.randrange(tools)}",
        document_hash=_HASH,
        arguments="{}",
        result="done",
        result_hash=_HASH,
        ok=True,
        helpful=draw.random() < 0.7,
        judged_by="rules",
        model=_MODEL,
        price_nano=1_000,
        step_nano=draw.randrange(10_000),
        step_tokens=draw.randrange(1_000),
        seconds=draw.random(),
        size_level=0,
        session=f"s{number}",
        turn=1,
        call="c1",
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# Knapsacks: instances of several kinds, and how OR-tools solves them

KINDS = ("unrelated", "rising", "equal")
"""How values go with costs: not at all; rising with them, which is hard; not differing."""
_SEEDS = 5
_MOST_USES = 4
_SOLVERS = (
    "KNAPSACK_DIVIDE_AND_CONQUER_SOLVER",
    "KNAPSACK_MULTIDIMENSION_BRANCH_AND_BOUND_SOLVER",
    "KNAPSACK_64ITEMS_SOLVER",
)
_FEW = 64
"""As many items as the last of them takes."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Tools to plan with; whole numbers throughout, which OR-tools wants."""

    values: Sequence[int]
    costs: Sequence[int]
    bounds: Sequence[int]
    budget: int


def instances(tools: int, budget: int) -> list[Instance]:
    """Some of each kind, always the same; costs are at most 10, as BTP draws them for 20, or a tenth of the budget."""
    made: list[Instance] = []
    for kind in KINDS:
        for seed in range(_SEEDS):
            draw, dearest = random.Random(f"{kind} {seed}"), max(10, budget // 10)
            costs = [draw.randint(1, dearest) for _ in range(tools)]
            values = {
                "unrelated": [draw.randint(1, 1_000) for _ in costs],
                "rising": [cost + dearest // 10 for cost in costs],
                "equal": [100] * tools,
            }[kind]
            made.append(Instance(values, costs, [draw.randint(1, _MOST_USES) for _ in costs], budget))
    return made


class OrTools:
    """OR-tools on one instance, by that of its exact solvers which is the quickest for it.

    Raises ModuleNotFoundError where OR-tools is not installed.
    """

    def __init__(self, instance: Instance) -> None:
        self._module: Any = import_module("ortools.algorithms.python.knapsack_solver")
        self._instance, self._limit = instance, math.inf
        solvers = _SOLVERS if sum(instance.bounds) <= _FEW else _SOLVERS[:-1]
        self._limit = 2 * self._timed(solvers[0])  # its time depends on the numbers of tools and units alone
        self._solver = min(solvers, key=self._timed)

    def solve(self) -> list[int]:
        """How often to use each tool."""
        return self._solved(self._solver)[0]

    def _timed(self, solver: str) -> float:
        """Seconds it takes; endless where it is not done before the others."""
        self._solved(solver)  # the first run is the slowest
        started = time.perf_counter()
        _, exact = self._solved(solver)
        return time.perf_counter() - started if exact else math.inf

    def _solved(self, name: str) -> tuple[list[int], bool]:
        """A tool that may be used several times is as many items to it."""
        one = self._instance
        tools = [tool for tool, bound in enumerate(one.bounds) for _ in range(bound)]
        solver = self._module.KnapsackSolver(getattr(self._module.SolverType, name), "plans")
        solver.set_time_limit(self._limit)
        solver.init([one.values[tool] for tool in tools], [[one.costs[tool] for tool in tools]], [one.budget])
        solver.solve()
        counts = [0] * len(one.bounds)
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
    """Median seconds of a hold and its settlement through the gate, under four caps, with `rows` entries before it.

    The baseline is the same on a fresh ledger, so the ratio says what the entries cost.
    """
    with TemporaryDirectory() as folder:
        fresh = asyncio.run(_settling(Path(folder) / "fresh.sqlite", 0, repeat))
        filled = asyncio.run(_settling(Path(folder) / "filled.sqlite", rows, repeat))
    return Measurement("reserve_settle", filled, "s", fresh, filled / fresh)


async def _settling(path: Path, rows: int, repeat: int) -> float:
    with closing(Ledger(path)) as ledger:
        for scope in ("turn", "session", "day", "month"):
            ledger.set_cap(_ACCOUNT.session, scope, Amount(1_000_000 * NANO, "usd"))
        for _ in range(rows):
            ledger.settle(ledger.hold(_ASK), _USAGE)
        gate, times = Gate(ledger), list[float]()
        for _ in range(repeat):
            started = time.perf_counter()
            await gate.settle(await gate.hold(_ASK), _USAGE)
            times.append(time.perf_counter() - started)
    return median(times)
