"""One-line descriptions of plans, shared by all interfaces."""

from dataclasses import replace

import pytest
from plan_play import ADVICE, BLACKLISTED, PLANNED, PROMPT, QUOTA, SPENT, USED, plan_of_many

from ecoshell.events import PlanChanged
from ecoshell.events.plan import planned_share, price_range


def words(plan: PlanChanged, previous: PlanChanged | None = None) -> str:
    line = plan.render(previous)
    return line.words if line else ""


def test_the_first_plan_shows_its_tools_and_price_range():
    assert words(PLANNED) == "plan: 3 of 5 tools, about $0.002 to $0.011"


def test_a_plan_that_is_not_enforced_says_why():
    assert words(ADVICE).endswith(" · no cap: advice only")
    assert words(PROMPT).endswith(" · nothing is blocked")


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
    assert words(USED, PLANNED) == ""
    assert words(QUOTA, USED) == "plan: count_text (quota) may no longer be used"
    assert words(QUOTA, QUOTA) == ""
    assert (
        words(BLACKLISTED, USED)
        == "plan: count_text (quota) and read_file (blacklist) may no longer be used"
    )


def test_a_plan_without_any_usable_tool_says_so():
    assert words(SPENT, BLACKLISTED) == "plan: no tool may be used now (budget)"


def test_first_plans_and_advisory_plans_report_no_forbidden_tools():
    assert words(QUOTA, None) == ""
    assert "not be used" not in words(replace(QUOTA, number=1), USED)
    assert words(replace(QUOTA, enforced=False), USED) == ""


def test_a_cap_set_during_the_turn_reports_every_forbidden_tool():
    assert words(replace(QUOTA, number=2), ADVICE).startswith(
        "plan: count_text (quota) and fetch_url (budget)"
    )


def test_only_three_forbidden_tools_are_named():
    rows = tuple(replace(row, state="forbidden", why="budget") for row in plan_of_many().rows[3:10])
    news = words(replace(QUOTA, rows=(*rows, *PLANNED.rows[:1])), PLANNED)
    assert news.endswith("service_02_operation_002 (budget) and 4 more may no longer be used")


def test_control_characters_in_tool_names_are_escaped():
    hostile = replace(
        PLANNED.rows[0], tool="tool\x1b[31mred\u202e\n", state="forbidden", why="quota"
    )
    news = words(replace(QUOTA, rows=(hostile, *PLANNED.rows)), PLANNED)
    assert news == "plan: tool␛[31mred\\u202e (quota) may no longer be used"
