"""Costs of tool graphs: prices of runs, size levels, QoP and longest paths."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.messages import Footprint
from ecoshell.planning.catp.costs import (
    LEVELS,
    OPENCATP_MAX_COST,
    TABLE_B2,
    CostTable,
    CostVector,
    cost_vector,
    importance,
    level_of,
    quality,
    size_levels,
    worth,
)
from ecoshell.planning.catp.plan import TASK, longest_path

PRINTED_TIERS = {
    128: ("2.1e-9", "6.3e-9"),
    512: ("8.3e-9", "2.49e-8"),
    1024: ("1.67e-8", "5.01e-8"),
    1536: ("2.5e-8", "7.5e-8"),
    2048: ("3.33e-8", "9.99e-8"),
    3072: ("5e-8", "1.5e-7"),
    4096: ("6.67e-8", "2.001e-7"),
    5120: ("8.33e-8", "2.499e-7"),
    6144: ("1e-7", "3e-7"),
    7168: ("1.167e-7", "3.501e-7"),
    8192: ("1.333e-7", "3.999e-7"),
    9216: ("1.5e-7", "4.5e-7"),
    10240: ("1.667e-7", "5.001e-7"),
}
IMAGE_CENTRES = (196_980, 336_396, 768_924, 5_040_704)
sizes = st.lists(st.floats(1, 1e9), min_size=1, max_size=9)


@pytest.mark.parametrize(("megabytes", "rates"), PRINTED_TIERS.items())
def test_each_tier_of_table_b2_applies_up_to_its_last_megabyte(megabytes, rates):
    cpu = TABLE_B2.price(1000, Footprint(cpu_mb=megabytes)) - TABLE_B2.run
    gpu = TABLE_B2.price(1000, Footprint(gpu_mb=megabytes)) - TABLE_B2.run
    assert (cpu, gpu) == tuple(1000 * megabytes * Decimal(rate) for rate in rates)


def test_the_last_tier_applies_to_more_memory():
    assert TABLE_B2.price(1, Footprint(cpu_mb=20_000)) == Decimal("2e-7") + 20_000 * Decimal(
        "1.667e-7"
    )


def test_constant_and_instant_memory_add_up_over_the_run():
    price = TABLE_B2.price(250.5, Footprint(100.0, 50.0, 200.0, 25.0))
    by_hand = Decimal("2e-7") + Decimal("250.5") * (
        100 * Decimal("2.1e-9")
        + 50 * Decimal("3.02e-14")
        + 200 * Decimal("2.49e-8")
        + 25 * Decimal("9.06e-14")
    )
    assert price == by_hand


def test_unknown_memory_costs_only_the_fee():
    assert TABLE_B2.price(1e6, Footprint()) == Decimal("2e-7")


def test_quality_weighs_performance_against_cost_without_clipping():
    assert quality(1.0, Decimal(0)) == 0.5
    assert quality(0.0, 3 * OPENCATP_MAX_COST) == pytest.approx(-1.5)
    assert quality(0.8, Decimal("0.1"), alpha=1.0) == 0.8
    assert quality(0.8, Decimal(2), alpha=0.25, max_cost=Decimal(8)) == pytest.approx(
        0.2 - 0.75 * 0.25
    )


@given(st.floats(0, 1), st.integers(0, 10**12), st.floats(0, 1), st.integers(1, 10**12))
def test_worth_is_quality_with_costs_in_nano_dollars_or_unknown(performance, cost, alpha, max_cost):
    expected = alpha * performance - (1 - alpha) * cost / max_cost
    assert worth(performance, cost, alpha=alpha, most_nano=max_cost) == pytest.approx(expected)
    assert worth(None, cost, alpha=alpha, most_nano=max_cost) is None
    assert worth(performance, None, alpha=alpha, most_nano=max_cost) is None


def test_the_longest_path_goes_through_the_latest_dependency():
    waits = {"a": [TASK], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["b"]}
    times = {"a": 1.0, "b": 2.0, "c": 5.0, "d": 1.0, "e": 3.0}
    assert longest_path(waits, times) == (7.0, ("a", "c", "d"))
    assert longest_path({}, {}) == (0.0, ())


@given(st.data())
def test_the_longest_path_is_the_longest_of_all_paths(data):
    """A breadth-first search that marks nodes as visited would reach a node by its shortest path."""
    waits, times = {}, {}
    for label in "abcdefg"[: data.draw(st.integers(1, 7))]:
        waits[label] = data.draw(st.sets(st.sampled_from([TASK, *waits]), min_size=1))
        times[label] = data.draw(st.floats(0, 100))

    def paths(node):
        return [(*path, node) for earlier in waits[node] - {TASK} for path in paths(earlier)] or [
            (node,)
        ]

    length, path = longest_path(waits, times)
    all_paths = [path for node in waits for path in paths(node)]
    assert length == pytest.approx(max(sum(times[node] for node in path) for path in all_paths))
    assert path in all_paths


def test_four_groups_of_sizes_are_four_levels():
    spread = [centre * factor for centre in IMAGE_CENTRES for factor in (0.9, 0.95, 1.0, 1.05, 1.1)]
    assert size_levels(spread) == pytest.approx(IMAGE_CENTRES, rel=0.02)


def test_few_sizes_have_a_level_each_and_many_the_papers_number():
    assert size_levels([10, 1000, 10]) == pytest.approx((10, 1000))
    assert size_levels([]) == ()
    assert size_levels([0, 0]) == (1.0,)
    assert len(size_levels([2.0**place for place in range(12)])) == LEVELS


@given(sizes)
def test_levels_do_not_depend_on_order_and_their_number_is_limited(drawn_sizes):
    levels = size_levels(drawn_sizes)
    assert levels == size_levels(list(reversed(drawn_sizes)))
    assert 1 <= len(levels) <= min(LEVELS, len(set(drawn_sizes)))
    assert list(levels) == sorted(levels)


def test_a_size_belongs_to_the_level_whose_centre_is_nearest_by_ratio():
    assert [level_of(size, IMAGE_CENTRES) for size in (1, 250_000, 270_000, 1_345_584, 9e9)] == [
        0,
        0,
        1,
        2,
        3,
    ]


def test_the_importance_vector_follows_equation_2():
    assert importance(4, 1) == pytest.approx(
        [math.cos(math.pi / 8), 1.0, math.cos(math.pi / 8), math.cos(math.pi / 4)]
    )
    assert max(importance(4, 3)) == importance(4, 3)[3] == 1.0


def test_levels_without_runs_are_interpolated_and_marked():
    runs = [(100, Decimal(2)), (100, Decimal(4)), (400, Decimal(9))]
    vector = cost_vector(runs, (10, 100, 200, 400, 4000))
    assert vector is not None
    assert [float(cost) for cost in vector.costs] == pytest.approx([3, 3, 5, 9, 9])
    assert vector.measured == (False, True, False, True, False)
    assert cost_vector([], (10,)) is None


def test_the_prompt_lists_costs_for_the_input_and_their_growth():
    costs = {
        "count_text": CostVector((Decimal("2e-7"), Decimal("2e-7")), (True, True)),
        "embed_text": CostVector((Decimal("4e-7"), Decimal("8e-6")), (True, True)),
    }
    table = CostTable((10.0, 1_000.0), costs)
    assert table.prompt(costs, 1_000).splitlines() == [
        "Cost of one use of each tool for this input, in uses of the cheapest:",
        "- count_text: ×1.0",
        "- embed_text: ×40 (large inputs cost ×20 of small ones)",
    ]
    assert "- embed_text: ×2.0" in table.prompt(costs, 10)
    assert table.prompt(["no_such_tool"], 10) == ""


def test_costs_for_an_unknown_size_are_weighted_by_importance_for_the_middle_level():
    vector = CostVector((Decimal(1), Decimal(2), Decimal(6)), (True,) * 3)
    outer = Decimal(repr(math.cos(math.pi / 6)))  # importance of the levels around the middle one
    assert float(vector.at(None)) == pytest.approx(
        float((outer * 1 + 2 + outer * 6) / (1 + 2 * outer))
    )
    assert CostVector((Decimal(7),), (True,)).at(None) == 7
    vectors = {"a": vector, "b": CostVector((Decimal(1),) * 3, (True,) * 3)}
    assert CostTable((1.0, 2.0, 3.0), vectors).prompt(vectors, None).splitlines() == [
        "Cost of one use of each tool for a usual input, in uses of the cheapest:",
        "- a: ×3.0 (large inputs cost ×6.0 of small ones)",
        "- b: ×1.0",
    ]


@given(st.lists(st.decimals(0, 10**6, places=6), min_size=1, max_size=LEVELS))
def test_the_cost_for_an_unknown_size_lies_between_the_lowest_and_the_highest(costs):
    mean = CostVector(tuple(costs), (True,) * len(costs)).at(None)
    assert min(costs) - Decimal("1e-9") <= mean <= max(costs) + Decimal("1e-9")
