"""Value, frequency bound and chance of one tool, computed from evidence."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.planning.btp.evidence import NO_EVIDENCE, Evidence
from ecoshell.planning.btp.value import MAX_CHANCE, MIN_LIFT, chance, frequency_bound, priors, value

weights = st.floats(0.01, 1e4)
shares = st.floats(0, 1)


@st.composite
def histories(draw: st.DrawFn) -> Evidence:
    """Evidence of a used tool, with possible sums over uses."""
    weight, query_weight = draw(weights), draw(weights)
    return Evidence(
        uses=draw(st.integers(1, 1000)),
        weight=weight,
        helpful_weight=weight * draw(shares),
        query_weight=query_weight,
        frequency_weight=query_weight * draw(st.floats(1, 40)),
        chance=draw(shares),
        chance_weight=draw(weights),
    )


def test_a_tool_without_history_has_value_a_tenth_and_one_use_at_any_threshold():
    assert value(NO_EVIDENCE) == 0.1
    assert frequency_bound(NO_EVIDENCE, value(NO_EVIDENCE), 1.0) == 1


def test_a_tool_that_helped_with_the_same_question_has_a_value_over_half():
    assert value(Evidence(uses=1, weight=1.0, helpful_weight=1.0)) == pytest.approx(1.1 / 2.0)


@given(histories())
def test_a_value_lies_between_that_of_no_helpful_use_and_one(past: Evidence):
    assert 0.1 / (1.0 + past.weight) <= value(past) < 1.0


@given(histories(), shares)
def test_more_helpful_uses_never_lower_the_value(past: Evidence, less: float):
    assert value(replace(past, helpful_weight=past.helpful_weight * less)) <= value(past)


@given(histories(), st.floats(0, 1))
def test_a_used_tool_has_bound_zero_exactly_if_its_value_is_below_the_threshold(
    past: Evidence, threshold: float
):
    bound = frequency_bound(past, value(past), threshold)
    assert (bound == 0) == (value(past) < threshold)


@given(histories())
def test_a_bound_is_the_mean_number_of_uses_within_half_a_use(past: Evidence):
    bound = frequency_bound(past, value(past), 0.0)
    assert abs(bound - past.frequency_weight / past.query_weight) <= 0.5 + 1e-6


@pytest.mark.parametrize(
    ("mean", "bound"),
    [(0.3, 1), (1.0, 1), (1.49, 1), (1.5, 2), (2.5, 3), (math.nextafter(2.5, 0), 3)],
)
def test_bounds_round_half_up_and_are_at_least_one(mean: float, bound: int):
    past = Evidence(uses=3, weight=1.0, helpful_weight=1.0, query_weight=1.0, frequency_weight=mean)
    assert frequency_bound(past, value(past), 0.15) == bound


def test_unjudged_uses_do_not_disable_a_tool():
    unjudged = Evidence(uses=5, query_weight=2.0, frequency_weight=2.0)
    assert frequency_bound(unjudged, value(unjudged), 0.15) == 1


@given(st.floats(0, 0.99), st.floats(0.001, 0.9))
def test_the_chance_without_experience_is_the_rankers(prior: float, usual: float):
    assert chance(NO_EVIDENCE, prior, usual) == pytest.approx(prior, abs=1e-5)


@given(histories(), st.floats(0.001, 0.9), st.floats(0.001, 0.9))
def test_a_tool_used_more_than_average_is_likelier_than_its_fit(
    past: Evidence, prior: float, usual: float
):
    result = chance(past, prior, usual)
    assert result >= prior - 1e-9 if past.chance >= usual else result <= prior + 1e-9
    assert result <= max(prior, MAX_CHANCE)


@given(histories(), st.floats(0.001, 0.9), shares, st.floats(0.001, 0.9))
def test_more_past_uses_never_make_a_tool_less_likely(
    past: Evidence, prior: float, less: float, usual: float
):
    rarer = replace(past, chance=past.chance * less)
    assert chance(rarer, prior, usual) <= chance(past, prior, usual) + 1e-9


def test_a_tool_unused_by_past_tasks_keeps_a_part_of_its_odds():
    odds = 0.6 / 0.4 * MIN_LIFT
    assert chance(Evidence(chance_weight=1e6), 0.6, 0.1) == pytest.approx(odds / (1 + odds))


def test_one_past_task_with_the_same_question_outweighs_the_ranker():
    assert chance(Evidence(uses=1, chance=1.0, chance_weight=1.0), 0.1, 0.1) > 0.8


def test_the_prior_without_experience_is_the_fit_and_at_least_a_tenth():
    assert priors({}, {"a": 0.7, "b": 0.01}, {"a": "", "b": ""}) == pytest.approx(
        {"a": 0.7, "b": 0.1}
    )


def test_the_prior_of_an_unused_tool_follows_similar_tools():
    good, bad = (
        Evidence(uses=9, weight=9.0, helpful_weight=8.1),
        Evidence(uses=9, weight=9.0, helpful_weight=0.9),
    )
    kinds = {"used": "one", "new": "one", "failing": "two", "other": "two", "alone": "three"}
    values = priors({"used": good, "failing": bad}, {}, kinds)
    assert values["other"] < values["alone"] < values["new"]
    assert values["new"] > 0.8


@given(
    st.dictionaries(st.sampled_from("abcdef"), histories()),
    st.dictionaries(st.sampled_from("abcdef"), shares),
)
def test_priors_and_the_values_based_on_them_lie_between_zero_and_one(evidence, fits):
    values = priors(evidence, fits, dict(zip("abcdef", "xxyyzz", strict=True)))
    assert all(0 < prior < 1 + 1e-9 for prior in values.values())
    assert all(0 < value(past, values[tool]) < 1 + 1e-9 for tool, past in evidence.items())


def test_the_prior_of_a_tool_ignores_its_own_history():
    own = Evidence(uses=9, weight=9.0, helpful_weight=9.0)
    assert priors({"a": own}, {"a": 0.3}, {"a": "", "b": ""})["a"] == pytest.approx(0.3)
