"""The knapsack compared with brute force: bounds and budget hold, and ties choose the cheaper plan."""

import random
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import inf, nan
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ecoshell.planning.btp import knapsack
from ecoshell.planning.btp.knapsack import solve

Instance = tuple[list[Any], list[Any], list[int], Any]


def totals(
    counts: Sequence[int], values: Sequence[Any], costs: Sequence[Any]
) -> tuple[Fraction, Fraction]:
    """Value and cost of a plan, exactly."""
    return (
        sum(
            (Fraction(value) * count for value, count in zip(values, counts, strict=True)),
            Fraction(),
        ),
        sum(
            (Fraction(cost) * count for cost, count in zip(costs, counts, strict=True)), Fraction()
        ),
    )


def brute(
    values: Sequence[int], costs: Sequence[int], bounds: Sequence[int], budget: int
) -> tuple[int, int]:
    """The greatest value and the smallest cost that has it, by trying every plan."""
    plans = product(*(range(bound + 1) for bound in bounds))
    figures = (
        (sum(map(int.__mul__, values, plan)), -sum(map(int.__mul__, costs, plan)))
        for plan in plans
        if sum(map(int.__mul__, costs, plan)) <= budget
    )
    value, negative = max(figures)
    return value, -negative


def small_instance(draw: random.Random) -> Instance:
    """A few tools, hard to plan in different ways."""
    number, budget = draw.randint(0, 5), draw.randint(0, 30)
    costs = [draw.randint(0, draw.choice((3, 10, 25))) for _ in range(number)]
    values = {
        "any": [draw.randint(-1, 20) for _ in costs],
        "alike": [draw.randint(1, 2) for _ in costs],
        "by cost": [cost + 2 for cost in costs],
        "as cost": [*costs],
    }[draw.choice(("any", "any", "alike", "by cost", "as cost"))]
    return values, costs, [draw.randint(0, 3) for _ in costs], budget


def test_no_plan_is_better_or_cheaper_than_the_solution() -> None:
    draw = random.Random(20)
    for _ in range(1_000):
        values, costs, bounds, budget = small_instance(draw)
        counts = solve(values, costs, bounds, budget)
        value, cost = totals(counts, values, costs)
        assert all(0 <= count <= bound for count, bound in zip(counts, bounds, strict=True))
        assert (value, cost) == brute(values, costs, bounds, budget), (
            values,
            costs,
            bounds,
            budget,
        )


def algorithm_1(
    values: Sequence[int], costs: Sequence[int], bounds: Sequence[int], budget: int
) -> int:
    """The value of Algorithm 1 as printed, which reads the row it is writing (`V[i]`)."""
    row = [0] * (budget + 1)
    for value, cost, bound in zip(values, costs, bounds, strict=True):
        for j in range(budget + 1):
            for k in range(1, bound + 1):
                if j >= k * cost:
                    row[j] = max(row[j], row[j - k * cost] + k * value)
    return max(row)


def test_bounds_hold_unlike_in_algorithm_1_as_printed() -> None:
    values, costs, bounds, budget = [10, 1], [2, 3], [1, 1], 8
    assert algorithm_1(values, costs, bounds, budget) == 40  # the first tool four times
    assert solve(values, costs, bounds, budget) == [1, 1]


def test_the_cheapest_of_equal_plans_is_chosen() -> None:
    assert solve([5, 5, 5], [4, 2, 3], [1, 1, 1], 6) == [0, 1, 1]
    assert solve([6, 3, 3], [7, 3, 3], [1, 1, 1], 7) == [0, 1, 1]


def test_scaling_integer_values_to_reals_does_not_change_the_plan() -> None:
    draw = random.Random(21)
    for _ in range(1_000):
        integers, costs, bounds, budget = small_instance(draw)
        unusable = [
            1e300 if cost > budget else value / 1_000
            for value, cost in zip(integers, costs, strict=True)
        ]
        expected = brute([value if value > 0 else -1 for value in integers], costs, bounds, budget)
        for values in ([value / 1_000 for value in integers], unusable):
            assert totals(solve(values, costs, bounds, budget), integers, costs) == expected, (
                values,
                costs,
                bounds,
            )


def test_values_that_differ_by_float_rounding_are_equal() -> None:
    assert 0.1 + 0.2 != 0.3
    assert solve([0.1 + 0.2, 0.3], [5, 4], [1, 1], 5) == [0, 1]
    assert solve([0.3, 0.1, 0.2], [4, 1, 2], [1, 1, 1], 4) == [0, 1, 1]


REALS = st.one_of(
    st.floats(0, 100), st.floats(0, 1e-3), st.floats(0, 1.7e308), st.integers(0, 10**6)
)


@given(st.lists(st.tuples(REALS, REALS, st.integers(0, 5)), max_size=8), REALS)
@example([(1.0, 0.1, 5)], 0.3)
@example([(1.0, 1 / 3, 3)], 1.0)
@example([(1.0, 2.0**53 + 2, 2), (1, 2**53 + 1, 2)], 2**54 + 2)
@example([(5e-324, 5e-324, 5), (1.7e308, 1.7e308, 5)], 1.7e308)
def test_no_plan_exceeds_the_exact_budget(tools: list[tuple[Any, Any, int]], budget: Any) -> None:
    values, costs, bounds = ([tool[field] for tool in tools] for field in range(3))
    counts = solve(values, costs, bounds, budget)
    assert totals(counts, values, costs)[1] <= Fraction(budget)
    assert all(0 <= count <= bound for count, bound in zip(counts, bounds, strict=True))


def hard_instance(seed: int, number: int) -> Instance:
    """Real costs with values that rise with them, which is slow to search; half of the uses are affordable."""
    draw = random.Random(seed)
    costs = [draw.uniform(1, 10) for _ in range(number)]
    bounds = [draw.randint(1, 3) for _ in costs]
    return (
        [cost + 1 for cost in costs],
        costs,
        bounds,
        sum(map(float.__mul__, costs, map(float, bounds))) / 2,
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_loss_with_too_many_plans_is_below_epsilon(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, costs, bounds, budget = hard_instance(seed, 12)
    epsilon = (sum(bounds) + 1) * budget / 2**14  # BTP Appendix A.1
    lower_value, _ = totals(solve(values, costs, bounds, budget - epsilon), values, costs)
    monkeypatch.setattr(knapsack, "_MAX_PLANS", 1)
    value, cost = totals(solve(values, costs, bounds, budget), values, costs)
    assert cost <= Fraction(budget)
    assert value >= lower_value


def test_the_cheapest_of_thousands_of_equal_tools_are_used() -> None:
    draw = random.Random(3)
    costs = [draw.randint(1, 200) for _ in range(5_000)]
    counts = solve([0.7] * len(costs), costs, [1] * len(costs), 10_000)
    uses, spent = 0, 0
    for cost in sorted(costs):
        if spent + cost <= 10_000:
            uses, spent = uses + 1, spent + cost
    assert (sum(counts), totals(counts, costs, costs)[0]) == (uses, spent)
    assert solve([1] * 5_000, [3] * 5_000, [2] * 5_000, 10_000) == [*[2] * 1_666, 1, *[0] * 3_333]


@pytest.mark.parametrize(
    ("tools", "budget", "counts"),
    [
        (([], [], []), 5, []),
        (([1], [3], [4]), 10, [3]),
        (([1], [3], [4]), 0, [0]),
        (([1], [3], [4]), 2, [0]),
        (([1, 1], [0, 3], [4, 4]), 0, [4, 0]),
        (([1, 1], [0, 3], [4, 4]), -1, [0, 0]),
        (([1, 1], [0, 3], [4, 4]), -inf, [0, 0]),
        (([1, 0, -1], [5, 5, 0], [4, 4, 4]), inf, [4, 0, 0]),
        (([0, -1, 0.0], [0, 0, 0.0], [4, 4, 4]), 9, [0, 0, 0]),
        (([1, 2], [2**70, 3], [1, 1]), 2**63, [0, 1]),
        (([1, 2], [2**70, 2**69], [1, 3]), 2**71, [0, 3]),
        (([1, 2.0], [1e300, 1e-300], [9, 9]), 1.0, [0, 9]),
        (([10**400, 1], [3, 3], [1, 1]), 3, [1, 0]),
        (([10**400, 0.5], [3, 3], [1, 1]), 3, [1, 0]),
        (([1e308, 1e308], [1, 1], [9, 9]), 10, [9, 1]),
        (([0.9], [1], [10**18]), 10**17, [10**17]),
        (([1, 1], [1, 1], [2.0, 0]), 5, [2, 0]),
        (([1] * 60, [2**80] * 60, [1] * 60), 2**81, [*[1, 1], *[0] * 58]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_edge_cases(
    tools: tuple[list[Any], list[Any], list[Any]], budget: Any, counts: list[int]
) -> None:
    assert solve(*tools, budget) == counts


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [3, 60])
def test_arrays_are_accepted_and_plain_integers_returned(number: int) -> None:
    import numpy as np

    values, costs = np.full(number, 0.5, np.float32), np.arange(1, number + 1)
    counts = solve(values, costs, np.ones(number, np.int8), np.int64(3))  # pyright: ignore[reportArgumentType]
    assert counts == [1, 1, *[0] * (number - 2)]
    assert {*map(type, counts)} == {int}


@pytest.mark.filterwarnings("error")
def test_narrow_integer_arrays_do_not_overflow() -> None:
    import numpy as np

    short = np.full(10, 100, np.int8)
    assert solve(short, [*short], short, 1_000) == [10, *[0] * 9]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("tools", "budget", "wrong"),
    [
        (([1], [1, 2], [1]), 3, "1 values, 2 costs and 1 bounds"),
        (([1, nan], [1, 1], [1, 1]), 3, "value 1 is nan"),
        (([1, -inf], [1, 1], [1, 1]), 3, "value 1 is -inf"),
        (([1, 1], [1, nan], [1, 1]), 3, "cost 1 is nan"),
        (([1, 1], [1, inf], [1, 1]), 3, "cost 1 is inf"),
        (([1, 1], [1, -2], [1, 1]), 3, "cost 1 is -2"),
        (([1, 1], [1, 2], [1, -1]), 3, "bound 1 is -1"),
        (([1, 1], [1, 2], [1, 1.5]), 3, "bound 1 is 1.5"),
        (([1, 1], [1, 2], [1, inf]), 3, "bound 1 is inf"),
        (([1, 1], [1, 2], [1, 1]), nan, "the budget is not a number"),
        (([1, 1], [1, 2], [1, 1]), None, "the budget is None"),
        (([1, "2"], [1, 2], [1, 1]), 3, "value 1 is '2'"),
    ],
)
def test_invalid_arguments_are_refused_by_name(
    tools: tuple[Any, Any, Any], budget: Any, wrong: str
) -> None:
    with pytest.raises(ValueError, match=wrong):
        solve(*tools, budget)


def test_a_fully_affordable_plan_does_not_load_numpy() -> None:
    program = """if True:
        import sys
        from ecoshell.planning.btp.knapsack import solve
        print(solve([3, 2], [2, 1], [2, 2], 6), "numpy" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[2, 2] False\n"


@pytest.mark.parametrize("seed", range(5))
def test_ortools_finds_no_better_plan(seed: int) -> None:
    solver = pytest.importorskip("ortools.algorithms.python.knapsack_solver")
    draw = random.Random(seed)
    costs = [draw.randint(1, 1_000) for _ in range(300)]
    values = [cost + draw.randint(1, 100) for cost in costs]
    reference = solver.KnapsackSolver(solver.SolverType.KNAPSACK_DIVIDE_AND_CONQUER_SOLVER, "plans")
    reference.init(values, [costs], [5_000])
    counts = solve(values, costs, [1] * len(costs), 5_000)
    assert totals(counts, values, costs)[0] == reference.solve()
