"""Knapsacks to measure: instances of several kinds, and how OR-tools solves them."""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

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
        for seed in range(_SEEDS if tools < 10_000 else 1):
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
