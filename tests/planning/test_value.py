"""Value, frequency bound and chance: arithmetic over what is known of one tool."""

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
    """Evidence of a tool that was used, as sums over uses can come out."""
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


def test_a_tool_without_history_is_worth_a_tenth_and_may_be_tried_once_whatever_the_threshold():
    assert value(NO_EVIDENCE) == 0.1
    assert frequency_bound(NO_EVIDENCE, value(NO_EVIDENCE), 1.0) == 1


def test_a_tool_that_helped_with_the_same_question_is_worth_more_than_half():
    assert value(Evidence(uses=1, weight=1.0, helpful_weight=1.0)) == pytest.approx(1.1 / 2.0)


@given(histories())
def test_a_value_lies_between_what_no_helpful_use_leaves_and_one(past: Evidence):
    assert 0.1 / (1.0 + past.weight) <= value(past) < 1.0


@given(histories(), shares)
def test_more_help_is_never_worth_less(past: Evidence, less: float):
    assert value(replace(past, helpful_weight=past.helpful_weight * less)) <= value(past)


@given(histories(), st.floats(0, 1))
def test_a_tool_with_history_is_barred_exactly_when_its_value_is_below_the_threshold(past: Evidence, threshold: float):
    bound = frequency_bound(past, value(past), threshold)
    assert (bound == 0) == (value(past) < threshold)


@given(histories())
def test_a_bound_is_the_mean_number_of_uses_within_half_a_use(past: Evidence):
    bound = frequency_bound(past, value(past), 0.0)
    assert abs(bound - past.frequency_weight / past.query_weight) <= 0.5 + 1e-6


@pytest.mark.parametrize(
    ("mean", "bound"), [(0.3, 1), (1.0, 1), (1.49, 1), (1.5, 2), (2.5, 3), (math.nextafter(2.5, 0), 3)]
)
def test_halves_are_rounded_up_and_no_used_tool_is_bound_to_nothing(mean: float, bound: int):
    past = Evidence(uses=3, weight=1.0, helpful_weight=1.0, query_weight=1.0, frequency_weight=mean)
    assert frequency_bound(past, value(past), 0.15) == bound


def test_uses_that_nobody_could_judge_do_not_bar_a_tool():
    unjudged = Evidence(uses=5, query_weight=2.0, frequency_weight=2.0)
    assert frequency_bound(unjudged, value(unjudged), 0.15) == 1


@given(st.floats(0, 0.99), st.floats(0.001, 0.9))
def test_without_experience_the_chance_is_the_rankers(prior: float, usual: float):
    assert chance(NO_EVIDENCE, prior, usual) == pytest.approx(prior, abs=1e-5)


@given(histories(), st.floats(0.001, 0.9), st.floats(0.001, 0.9))
def test_a_tool_that_past_tasks_used_more_than_a_usual_one_is_likelier_than_by_its_fit(
    past: Evidence, prior: float, usual: float
):
    found = chance(past, prior, usual)
    assert found >= prior - 1e-9 if past.chance >= usual else found <= prior + 1e-9
    assert found <= max(prior, MAX_CHANCE)


@given(histories(), st.floats(0.001, 0.9), shares, st.floats(0.001, 0.9))
def test_more_past_uses_never_make_a_tool_less_likely(past: Evidence, prior: float, less: float, usual: float):
    rarer = replace(past, chance=past.chance * less)
    assert chance(rarer, prior, usual) <= chance(past, prior, usual) + 1e-9


def test_a_tool_that_no_past_task_used_keeps_a_part_of_its_odds_for_it_may_be_new():
    odds = 0.6 / 0.4 * MIN_LIFT
    assert chance(Evidence(chance_weight=1e6), 0.6, 0.1) == pytest.approx(odds / (1 + odds))


def test_one_past_task_with_the_same_question_outweighs_the_ranker():
    assert chance(Evidence(uses=1, chance=1.0, chance_weight=1.0), 0.1, 0.1) > 0.8


def test_without_any_experience_a_tool_begins_with_its_fit_and_never_below_a_tenth():
    assert priors({}, {"a": 0.7, "b": 0.01}, {"a": "", "b": ""}) == pytest.approx({"a": 0.7, "b": 0.1})


def test_a_tool_that_was_never_used_is_worth_what_tools_like_it_have_brought():
    good, bad = Evidence(uses=9, weight=9.0, helpful_weight=8.1), Evidence(uses=9, weight=9.0, helpful_weight=0.9)
    kinds = {"used": "one", "new": "one", "failing": "two", "other": "two", "alone": "three"}
    found = priors({"used": good, "failing": bad}, {}, kinds)
    assert found["other"] < found["alone"] < found["new"]
    assert found["new"] > 0.8


@given(st.dictionaries(st.sampled_from("abcdef"), histories()), st.dictionaries(st.sampled_from("abcdef"), shares))
def test_a_value_that_begins_with_the_fit_and_tools_like_it_is_a_share(evidence, fits):
    found = priors(evidence, fits, dict(zip("abcdef", "xxyyzz", strict=True)))
    assert all(0 < prior < 1 + 1e-9 for prior in found.values())
    assert all(0 < value(past, found[tool]) < 1 + 1e-9 for tool, past in evidence.items())


def test_the_history_of_a_tool_is_no_part_of_what_it_begins_with():
    own = Evidence(uses=9, weight=9.0, helpful_weight=9.0)
    assert priors({"a": own}, {"a": 0.3}, {"a": "", "b": ""})["a"] == pytest.approx(0.3)
