"""One-line descriptions of plans, shared by all interfaces."""

from dataclasses import replace

import pytest
from plan_play import ADVICE, BLACKLISTED, PLANNED, PROMPT, QUOTA, SPENT, USED, plan_of_many

from ecoshell.events.describe import describe, plan_news, planned_share, price_range


def test_the_first_plan_shows_its_tools_and_price_range():
    assert describe(PLANNED) == "plan: 3 of 5 tools, about $0.002 to $0.011"


def test_a_plan_that_is_not_enforced_says_why():
    assert describe(ADVICE).endswith("; no cap: advice only")
    assert describe(PROMPT).endswith("; nothing is blocked")


def test_a_plan_over_thousands_of_tools_shows_a_lower_bound():
    assert planned_share(plan_of_many()) == "60+ of 16,464"
    barred = replace(plan_of_many().rows[-1], planned=0, state="forbidden", why="budget")
    assert (
        planned_share(replace(plan_of_many(), rows=(*plan_of_many().rows[:-1], barred)))
        == "59 of 16,464"
    )
    assert planned_share(replace(PLANNED, rows=())) == "0 of 0"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (None, 5, "price unknown"),
        (5, None, "price unknown"),
        (0, 0, "$0"),
        (1_000_000, 1_000_000, "about $0.001"),
        (0, 1_000_000, "about $0 to $0.001"),
    ],
)
def test_an_unknown_price_is_not_shown_as_zero(low, high, text):
    assert price_range(replace(PLANNED, low=low, high=high)) == text


def test_newly_forbidden_tools_are_reported_once():
    assert plan_news(PLANNED, USED) == ""
    assert plan_news(USED, QUOTA) == "plan: count_text (quota) may no longer be used"
    assert plan_news(QUOTA, QUOTA) == ""
    assert (
        plan_news(USED, BLACKLISTED)
        == "plan: count_text (quota) and read_file (blacklist) may no longer be used"
    )


def test_a_plan_without_any_usable_tool_says_so():
    assert plan_news(BLACKLISTED, SPENT) == "plan: no tool may be used now (budget)"


def test_first_plans_and_advisory_plans_report_no_forbidden_tools():
    assert plan_news(None, QUOTA) == ""
    assert "not be used" not in plan_news(USED, replace(QUOTA, number=1))
    assert plan_news(USED, replace(QUOTA, enforced=False)) == ""


def test_a_cap_set_during_the_turn_reports_every_forbidden_tool():
    assert plan_news(ADVICE, replace(QUOTA, number=2)).startswith(
        "plan: count_text (quota) and fetch_url (budget)"
    )


def test_only_three_forbidden_tools_are_named():
    rows = tuple(replace(row, state="forbidden", why="budget") for row in plan_of_many().rows[3:10])
    news = plan_news(PLANNED, replace(QUOTA, rows=(*rows, *PLANNED.rows[:1])))
    assert news.endswith("service_02_operation_002 (budget) and 4 more may no longer be used")


def test_control_characters_in_tool_names_are_escaped():
    hostile = replace(
        PLANNED.rows[0], tool="tool\x1b[31mred\u202e\n", state="forbidden", why="quota"
    )
    news = plan_news(PLANNED, replace(QUOTA, rows=(hostile, *PLANNED.rows)))
    assert news == "plan: tool␛[31mred\\u202e (quota) may no longer be used"
