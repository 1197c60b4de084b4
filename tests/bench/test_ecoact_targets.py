"""Targets of registration by name on LiveMCPBench's recorded runs; skipped without the data."""

import os
import statistics
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest

from ecoshell.budget import Rates
from ecoshell.models.tokens import counter_for
from ecoshell.modes.requests import system_text
from ecoshell_bench.ecoact import POLICIES, Setting, measure_pools
from ecoshell_bench.reading import read_runs, read_tools

_SHARED = Path(__file__).parents[2].parent / "shared" / "data"
DATA = Path(os.environ.get("ECOSHELL_DATA", _SHARED)) / "livemcp"
POOLS = (5, 10, 20, 40, 64, 527)
SEEDS = (0, 1, 2)

pytestmark = pytest.mark.skipif(
    not (DATA / "replay.jsonl").is_file(),
    reason="no recorded runs: set ECOSHELL_DATA to the folder that has livemcp/",
)

Savings = dict[int, dict[str, float]]
"""Mean percentage saved compared with registering everything, by pool and policy.

`lost` is the percentage of runs in which `auto` costs more than the cheaper form of registering everything, and `worst`
the highest excess in percent.
"""


@pytest.fixture(scope="module")
def count() -> Iterator[Callable[[str], int]]:
    counter = counter_for("gpt-4")
    if not counter.wait():
        pytest.skip("cl100k_base is not available")
    yield cache(counter.count)
    counter.close()


def measure(count: Callable[[str], int], cached: str, written: str) -> Savings:
    tools = read_tools(DATA / "tools_flat.jsonl")
    runs = read_runs(DATA / "replay.jsonl", tools)
    prices = Rates(Decimal(1), Decimal(cached), Decimal(written), Decimal(3), Decimal(3))
    samples: dict[int, dict[str, list[float]]] = {
        size: {policy: [] for policy in POLICIES} for size in POOLS
    }
    for seed in SEEDS:
        setting = Setting(prices, count, system_text, seed)
        sizes = (
            POOLS if seed == SEEDS[0] else POOLS[:-1]
        )  # a pool of all 527 tools has only one draw
        for result in measure_pools(runs, tools, sizes, setting):
            for policy in POLICIES:
                samples[result.pool][policy].append(100 * float(result.saving(policy, setting)))
            samples[result.pool].setdefault("lost", []).append(100 * result.losing)
            samples[result.pool].setdefault("worst", []).append(100 * result.worst)
    savings = {
        size: {policy: statistics.mean(values) for policy, values in row.items()}
        for size, row in samples.items()
    }
    return {size: row | {"worst": max(samples[size]["worst"])} for size, row in savings.items()}


@pytest.fixture(scope="module")
def plain_prices(count: Callable[[str], int]) -> Savings:
    return measure(count, "1", "1")


@pytest.fixture(scope="module")
def cache_prices(count: Callable[[str], int]) -> Savings:
    return measure(count, "0.1", "1.25")


def test_grow_reaches_the_savings_of_the_paper_without_cache_prices(plain_prices: Savings) -> None:
    for size, percent in {10: 9, 20: 33, 40: 56, 64: 68, 527: 92}.items():
        assert plain_prices[size]["grow"] >= percent - 1


def test_growing_the_array_costs_more_with_five_tools(
    plain_prices: Savings, cache_prices: Savings
) -> None:
    assert plain_prices[5]["grow"] < 0
    assert cache_prices[5]["grow"] < 0


def test_growing_the_array_costs_more_with_few_tools_and_cache_prices(
    cache_prices: Savings,
) -> None:
    assert cache_prices[10]["grow"] < -10
    assert cache_prices[20]["grow"] < 10


def test_stable_array_saves_from_ten_tools_up_with_cache_prices(cache_prices: Savings) -> None:
    for size, percent in {10: 8, 20: 25, 40: 45, 64: 58, 527: 88}.items():
        assert cache_prices[size]["stable"] >= percent


def test_decision_never_costs_more_than_registering_everything(
    plain_prices: Savings, cache_prices: Savings
) -> None:
    for savings in (plain_prices, cache_prices):
        assert all(row["auto"] >= 0 for row in savings.values())


def test_decision_is_within_two_points_of_the_best_fixed_policy(
    plain_prices: Savings, cache_prices: Savings
) -> None:
    for savings in (plain_prices, cache_prices):
        assert all(
            row["auto"] >= max(0, row["all_text"], row["grow"], row["stable"]) - 2
            for row in savings.values()
        )


def test_decision_is_within_nine_points_of_the_oracle_from_twenty_tools_up(
    plain_prices: Savings, cache_prices: Savings
) -> None:
    for savings in (plain_prices, cache_prices):
        assert all(row["oracle"] - row["auto"] <= 9 for size, row in savings.items() if size >= 20)


def test_single_runs_rarely_lose(plain_prices: Savings, cache_prices: Savings) -> None:
    for savings in (plain_prices, cache_prices):
        assert all(row["lost"] == 0 for size, row in savings.items() if size >= 40)
        assert all(row["lost"] <= 10 for row in savings.values())
