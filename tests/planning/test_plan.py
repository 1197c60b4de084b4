import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.planning.btp.plan import Candidate, TaskPlan

candidate_lists = st.lists(
    st.tuples(st.floats(0.0, 1.0), st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=6
).map(
    lambda fields: [
        Candidate(f"t{i}", value, bound, cost) for i, (value, bound, cost) in enumerate(fields)
    ]
)


def test_affordable_tools_are_planned_by_value_or_as_new():
    plan = TaskPlan([Candidate("a", 0.8, 2, 5), Candidate("b", 0.1, 1, 5, is_judged=False)]).solve(
        20
    )
    assert [(row.tool, row.state, row.why, row.planned, row.left) for row in plan.rows] == [
        ("a", "planned", "value", 2, 2),
        ("b", "planned", "new", 1, 1),
    ]
    assert plan.forbidden == {}
    assert plan.cost == 15


def test_a_tool_unaffordable_after_better_ones_is_unplanned_and_forbidden_if_strict():
    tools = [Candidate("a", 0.8, 1, 6), Candidate("b", 0.3, 1, 6)]
    assert TaskPlan(tools, strict=True).solve(10).forbidden == {"b": "budget"}
    advice = TaskPlan(tools).solve(10)
    assert advice.forbidden == {}
    assert (advice.row("b").state, advice.row("b").why) == ("unplanned", "budget")


def test_a_tool_below_the_threshold_is_unplanned_and_forbidden_if_strict():
    plan = TaskPlan([Candidate("a", 0.1, 0, 1)], strict=True).solve(10)
    assert [(row.state, row.why) for row in plan.rows] == [("unplanned", "below τ")]
    assert plan.forbidden == {"a": "below τ"}
    assert TaskPlan([Candidate("a", 0.1, 0, 1)]).solve(10).forbidden == {}


def test_a_helpful_use_extends_the_quota_only_if_uses_can_be_earned():
    for earned, expected in ((False, {"a": "quota"}), (True, {})):
        task = TaskPlan([Candidate("a", 0.8, 1, 2)], strict=True, earned=earned)
        task.count("a", helpful=True)
        assert task.solve(10).forbidden == expected


def test_an_unjudged_use_is_refunded_to_a_helpful_tool_only_if_uses_can_be_earned():
    for earned, uses_left in ((False, 0), (True, 1)):
        task = TaskPlan([Candidate("a", 0.8, 1, 2)], strict=True, earned=earned)
        task.count("a", helpful=None)
        task.count("a", helpful=True)
        assert task.solve(10).row("a").left == uses_left


def test_the_bound_of_a_tool_without_helpful_uses_is_not_raised():
    task = TaskPlan([Candidate("a", 0.8, 1, 2)], earned=True)
    for _ in range(24):
        task.count("a", helpful=None)
    row = task.solve(100).row("a")
    assert (row.bound, row.left, row.why) == (1, 0, "quota")


def test_a_strict_plan_blacklists_an_unhelpful_tool_unless_it_helped_before():
    task = TaskPlan([Candidate("a", 0.8, 3, 1), Candidate("b", 0.8, 3, 1)], strict=True)
    task.count("a", helpful=False)
    task.count("b", helpful=True)
    task.count("b", helpful=False)
    plan = task.solve(10)
    assert plan.forbidden == {"a": "blacklist"}
    assert plan.row("b").left == 1


@pytest.mark.parametrize(("value", "uses"), [(0.9, 6), (0.4, 2), (0.1, 1)])
def test_a_tool_is_blacklisted_when_its_value_in_this_task_falls_below_the_threshold(value, uses):
    task = TaskPlan([Candidate("a", value, 9, 1)])
    for _ in range(uses - 1):
        task.count("a", helpful=False)
        assert task.solve(10).forbidden == {}
    task.count("a", helpful=False)
    assert task.solve(10).forbidden == {"a": "blacklist"}
    task.count("a", helpful=True)
    assert task.solve(10).forbidden == {}


def better(plan, tool):
    return plan.better(tool, cost=plan.row(tool).cost, budget=plan.budget)


def test_call_is_refused_only_when_a_better_cheaper_use_becomes_unaffordable():
    likely = Candidate("likely", 0.8, 1, 4, chance=0.9)
    unlikely = Candidate("unlikely", 0.8, 1, 4, chance=0.1)
    requested = Candidate("requested", 0.3, 1, 8, chance=0.01)
    as_cheap = Candidate("requested", 0.3, 1, 4, chance=0.01)
    new = Candidate("requested", 0.3, 1, 8, chance=0.01, is_judged=False)
    two_uses = Candidate("likely", 0.8, 2, 4, chance=0.9)
    assert better(TaskPlan([likely, requested]).solve(10), "requested").tool == "likely"
    assert (
        better(TaskPlan([likely, requested]).solve(12), "requested") is None
    )  # both are affordable
    assert (
        better(TaskPlan([two_uses, requested]).solve(12), "requested") is None
    )  # one of the uses is affordable
    assert better(TaskPlan([likely, new]).solve(10), "requested") is None  # its value is a guess
    assert (
        better(TaskPlan([unlikely, requested]).solve(10), "requested") is None
    )  # the call shows that it is needed
    assert better(TaskPlan([likely, as_cheap]).solve(6), "requested") is None
    assert better(TaskPlan([likely, requested]).solve(None), "requested") is None
    assert better(TaskPlan([likely, requested]).solve(10), "likely") is None


@given(candidate_lists, st.integers(0, 40))
def test_allowed_calls_are_affordable_and_refused_ones_would_displace_a_planned_use(
    candidates, budget
):
    plan = TaskPlan(candidates).solve(budget)
    for row in plan.rows:
        displaced = better(plan, row.tool)
        if row.tool not in plan.forbidden:
            assert row.cost <= budget
        if displaced is not None:
            assert displaced.cost + row.cost > budget
            assert displaced.left
            assert (displaced.worth > row.value, displaced.cost < row.cost) == (True, True)


@pytest.mark.parametrize("options", [{"blacklisting": False}, {"spared": ("a",)}])
def test_an_unhelpful_tool_can_be_used_again_without_blacklisting(options):
    task = TaskPlan([Candidate("a", 0.1, 3, 1)], **options)
    task.count("a", helpful=False)
    assert task.solve(10).forbidden == {}


def test_without_a_cap_only_the_bounds_limit_the_plan():
    plan = TaskPlan([Candidate("a", 0.8, 2, 10**12)]).solve(None)
    assert plan.row("a").left == 2
    assert plan.budget is None


def test_a_negative_budget_plans_nothing():
    plan = TaskPlan([Candidate("a", 0.8, 2, 0), Candidate("b", 0.8, 2, 1)]).solve(-1)
    assert plan.forbidden == {"a": "budget", "b": "budget"}


@given(candidate_lists, st.integers(0, 40), st.integers(0, 2**32), st.booleans())
def test_planned_uses_never_exceed_the_budget_in_any_order(candidates, budget, seed, earned):
    draw = random.Random(seed)
    task, remaining = TaskPlan(candidates, earned=earned), budget
    for _ in range(20):
        plan = task.solve(remaining)
        assert plan.cost <= remaining
        allowed = [row for row in plan.rows if row.left]
        if not allowed:
            break
        row = draw.choice(allowed)
        remaining -= row.cost
        task.count(row.tool, draw.choice([True, False, None]))
    assert remaining >= 0


@given(candidate_lists, st.integers(0, 40))
def test_no_tool_is_planned_beyond_its_bound(candidates, budget):
    plan = TaskPlan(candidates).solve(budget)
    assert all(row.planned <= row.bound for row in plan.rows)
    assert sum(Fraction(row.cost) * row.planned for row in plan.rows) <= budget


def test_a_forbidden_tool_has_no_uses_left():
    task = TaskPlan([Candidate("a", 0.8, 3, 4)])
    task.count("a", helpful=True)
    row = task.solve(3).row("a")
    assert (row.used, row.planned, row.left, row.state) == (1, 1, 0, "forbidden")
    assert task.uses == {"a": 1}


def test_new_costs_replace_the_first_ones():
    task = TaskPlan([Candidate("a", 0.8, 1, 4)])
    assert task.solve(5).forbidden == {}
    assert task.solve(5, [Candidate("a", 0.8, 1, 6)]).forbidden == {"a": "budget"}


def test_a_tool_unaffordable_under_another_cap_is_not_planned():
    task = TaskPlan([Candidate("a", 0.8, 1, 1), Candidate("b", 0.1, 1, 1)])
    assert task.solve(5, unaffordable={"a"}).forbidden == {"a": "budget"}
    assert task.solve(None, unaffordable={"a"}).forbidden == {"a": "budget"}


def test_a_tool_that_is_not_a_candidate_has_no_row():
    plan = TaskPlan([Candidate("a", 0.8, 1, 4)]).solve(5)
    assert plan.row("b") is None
    with pytest.raises(AttributeError):
        plan.budget = 3


def test_an_unlikely_tool_yields_to_a_likely_one_of_less_value():
    usual = Candidate("usual", 0.9, 1, 6, chance=0.05)
    needed = Candidate("needed", 0.1, 1, 6, is_judged=False, chance=0.8)
    plan = TaskPlan([usual, needed], strict=True).solve(10)
    assert plan.forbidden == {"usual": "budget"}
    assert plan.row("needed").chance == 0.8
