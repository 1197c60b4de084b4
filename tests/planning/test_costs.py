import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.catalog import Catalog
from ecoshell.planning.btp.costs import (
    PricedPlan,
    StepCost,
    ToolCosts,
    expected_cost,
    pooled,
    with_sample,
)
from ecoshell.planning.btp.evidence import NO_EVIDENCE, Evidence, Figure
from ecoshell.planning.btp.explanations import after_result
from ecoshell.planning.btp.plan import Candidate, TaskPlan
from ecoshell.tools.function import FunctionTool

STEP = StepCost(nano=2_000, tokens=300)


def test_an_unused_tool_costs_its_declared_price_and_the_estimated_step():
    cost = expected_cost(NO_EVIDENCE, 500, STEP, "usd")
    assert (cost.tool, cost.step, cost.time, cost.total, cost.spread, cost.sample_count) == (
        500,
        2_000,
        0,
        2_500,
        0,
        0,
    )


def test_means_of_past_uses_replace_declared_prices_and_estimates():
    past = Evidence(
        uses=4,
        price=Figure(4, 700.2, 3.0),
        step_nano=Figure(4, 1_000.0, 4.0),
        seconds=Figure(4, 2.0, 0.0),
    )
    cost = expected_cost(past, 500, STEP, "usd")
    assert (cost.tool, cost.step, cost.total) == (701, 1_000, 1_701)
    assert cost.spread == 5


def test_waiting_time_costs_its_price_per_hour():
    past = Evidence(uses=1, seconds=Figure(1, 36.0, 0.0))
    cost = expected_cost(past, 0, STEP, "usd", hour_nano=1_000_000)
    assert cost.time == 10_000


def test_only_the_model_step_counts_in_tokens():
    past = Evidence(uses=2, price=Figure(2, 9e9, 0.0), step_tokens=Figure(2, 250.5, 1.5))
    cost = expected_cost(past, 500, STEP, "tokens", hour_nano=10**9)
    assert (cost.tool, cost.step, cost.time, cost.total, cost.spread) == (0, 251, 0, 251, 2)


def test_a_step_of_unknown_price_counts_only_tool_and_time():
    assert expected_cost(NO_EVIDENCE, 500, StepCost(None, 300), "usd").total == 500


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_a_running_figure_is_the_mean_and_the_deviation_of_its_samples(samples):
    figure = Figure()
    for sample in samples:
        figure = with_sample(figure, sample)
    assert figure.count == len(samples)
    assert figure.mean == pytest.approx(statistics.fmean(samples), abs=1e-3)
    assert figure.spread == pytest.approx(statistics.pstdev(samples), abs=1.0)


def test_a_use_in_this_task_changes_the_expected_cost_of_the_next():
    def look() -> str:
        """Look."""
        return ""

    past = Evidence(uses=1, price=Figure(1, 100.0, 0.0), seconds=Figure(1, 2.5, 0.0))
    costs = ToolCosts(
        Catalog([FunctionTool(look, effects=())]), {"look": past}, ["look"], resources={}
    )
    twin = costs.copy()
    costs.learn("look", StepCost(None, 40, 0.5), price=300, seconds=1.0)
    now, unchanged = (
        each.expected("usd", STEP, hour_nano=3_600, registers=True)["look"]
        for each in (costs, twin)
    )
    assert (now.tool, now.step, now.time, now.sample_count) == (200, 2_000, 2, 2)
    assert (unchanged.tool, unchanged.time, unchanged.sample_count) == (100, 3, 1)
    assert costs.expected("tokens", STEP, hour_nano=0, registers=True)["look"].total == 40
    assert costs.of_one_use("look") == (200, 2.0)


def test_the_price_of_a_subagent_counts_for_its_model():
    past = Evidence(uses=1, subagent_prices={"small": Figure(1, 100.0, 0.0)})
    costs = ToolCosts(Catalog([]), {"task": past}, [], resources={})
    twin = costs.copy()
    for price, model in ((300, "small"), (9_000, "large")):
        costs.learn("task", StepCost(), price=price, seconds=1.0, subagent_model=model)
    assert costs.subagent_prices("task") == {
        "small": Figure(2, 200.0, 100.0),
        "large": Figure(1, 9_000.0, 0.0),
    }
    assert twin.subagent_prices("task") == past.subagent_prices


def test_figures_are_pooled_by_count_and_empty_ones_are_ignored():
    assert pooled([Figure(), Figure(1, 10.0, 2.0), Figure(3, 2.0, 0.0)]) == Figure(4, 4.0)
    assert pooled([Figure()]) == Figure()


def test_in_milliseconds_a_use_costs_its_time_with_the_step_that_leads_to_it():
    past = Evidence(uses=3, seconds=Figure(3, 1.25, 0.5))
    cost = expected_cost(past, 500, StepCost(0, 10, 9.0), "ms", hour_nano=10**9)
    assert (cost.total, cost.spread, cost.is_known) == (1_250, 500, True)
    estimated = expected_cost(NO_EVIDENCE, 500, StepCost(0, 10, 9.0), "ms")
    assert (estimated.total, estimated.is_known) == (9_000, True)
    unknown = expected_cost(NO_EVIDENCE, 500, StepCost(0, 10), "ms")
    assert (unknown.total, unknown.is_known) == (0, False)


@pytest.mark.parametrize(
    ("forbidden", "allowed", "note"),
    [
        ({}, ["a", "b"], "All tools may be used again."),
        ({"b": "quota"}, ["a"], "May be used now: a."),
        ({"b": "quota"}, [], ""),
    ],
)
def test_the_note_after_a_result_lists_allowed_tools_only_while_others_are_forbidden(
    forbidden, allowed, note
):
    plan = PricedPlan(TaskPlan([Candidate(name, 0.5, 1, 100) for name in "ab"]).solve(None))
    assert after_result(plan, forbidden, [], allowed, tells=False) == note
