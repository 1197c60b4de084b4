"""What is told of a plan in a line, by any interface."""

from dataclasses import replace

import pytest
from plan_play import ADVICE, BLACKLISTED, PLANNED, PROMPT, QUOTA, SPENT, USED, plan_of_many

from ecoshell.events.describe import describe, plan_news, planned_share, price_range


def test_a_first_plan_counts_its_tools_and_gives_the_price_range_of_the_turn():
    assert describe(PLANNED) == "plan: 3 of 5 tools, about $0.002 to $0.011"


def test_a_plan_that_forbids_nothing_says_why():
    assert describe(ADVICE).endswith("; no cap: advice only")
    assert describe(PROMPT).endswith("; nothing is blocked")


def test_of_thousands_of_tools_more_may_be_planned_than_are_told():
    assert planned_share(plan_of_many()) == "60+ of 16,464"
    barred = replace(plan_of_many().rows[-1], planned=0, state="forbidden", why="budget")
    assert planned_share(replace(plan_of_many(), rows=(*plan_of_many().rows[:-1], barred))) == "59 of 16,464"
    assert planned_share(replace(PLANNED, rows=())) == "0 of 0"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (None, 5, "price unknown"),
        (5, None, "price unknown"),
        (0, 0, "$0"),
        (1_000_000, 1_000_000, "about $0.001"),
        (0, 1_000_000, "about $0 to $0.001"),
    ],
)
def test_a_price_that_is_unknown_is_never_told_as_nothing(low, high, said):
    assert price_range(replace(PLANNED, low=low, high=high)) == said


def test_what_a_plan_has_come_to_forbid_is_told_once():
    assert plan_news(PLANNED, USED) == ""
    assert plan_news(USED, QUOTA) == "plan: count_text (quota) may not be used any more"
    assert plan_news(QUOTA, QUOTA) == ""
    assert plan_news(USED, BLACKLISTED) == "plan: count_text (quota) and read_file (blacklist) may not be used any more"


def test_when_nothing_is_left_it_says_so_of_all():
    assert plan_news(BLACKLISTED, SPENT) == "plan: no tool may be used any more (budget)"


def test_a_first_plan_and_one_that_is_not_enforced_have_nothing_new_to_forbid():
    assert plan_news(None, QUOTA) == ""
    assert "not be used" not in plan_news(USED, replace(QUOTA, number=1))
    assert plan_news(USED, replace(QUOTA, enforced=False)) == ""


def test_with_a_cap_that_was_set_in_the_turn_everything_it_forbids_is_new():
    assert plan_news(ADVICE, replace(QUOTA, number=2)).startswith("plan: count_text (quota) and fetch_url (budget)")


def test_many_are_counted_after_the_first_three():
    rows = tuple(replace(row, state="forbidden", why="budget") for row in plan_of_many().rows[3:10])
    told = plan_news(PLANNED, replace(QUOTA, rows=(*rows, *PLANNED.rows[:1])))
    assert told.endswith("service_02_operation_002 (budget) and 4 more may not be used any more")


def test_names_of_tools_are_shown_and_never_obeyed():
    hostile = replace(PLANNED.rows[0], tool="tool\x1b[31mred\u202e\n", state="forbidden", why="quota")
    told = plan_news(PLANNED, replace(QUOTA, rows=(hostile, *PLANNED.rows)))
    assert told == "plan: tool␛[31mred\\u202e (quota) may not be used any more"
