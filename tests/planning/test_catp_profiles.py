"""Profiles of tools: measured runs, stored in a file."""

from contextlib import closing
from decimal import Decimal

import pytest

from ecoshell.catalog import Catalog
from ecoshell.errors import StoreError
from ecoshell.messages import Footprint
from ecoshell.planning.btp.costs import StepCost, ToolCosts
from ecoshell.planning.catp.costs import CostTable, Profile, ProfiledRun, ProfileStore, cost_table
from ecoshell.tools.function import FunctionTool

AT = "2026-11-21T10:00:00+00:00"
SMALL = ProfiledRun(100, 2.0, Footprint(50.0, 1.0, 0.0, 0.0))
LARGE = ProfiledRun(10_000, 40.0, Footprint(50.0, 3.0, None, None))


def test_a_profile_has_a_cost_per_size_level_and_one_for_unknown_sizes():
    profile = Profile.of([SMALL, LARGE])
    assert profile is not None
    assert profile.levels == pytest.approx((100, 10_000))
    assert profile.vector.costs == (SMALL.price(), LARGE.price())
    assert profile.usual == (SMALL.price() + LARGE.price()) / 2
    assert Profile.of([]) is None


def test_profiles_are_stored(tmp_path):
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        store.replace("read_file", AT, [SMALL, LARGE])
        store.replace("count_text", AT, [SMALL])
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        assert store.profiles() == {
            "read_file": Profile.of([SMALL, LARGE]),
            "count_text": Profile.of([SMALL]),
        }


def test_a_new_profile_replaces_the_previous_one(tmp_path):
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        store.replace("read_file", AT, [SMALL])
        store.replace("read_file", AT, [LARGE])
        assert store.profiles()["read_file"].vector.costs == (LARGE.price(),)


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    (tmp_path / "profiles.sqlite").write_text("no database" * 100)
    with pytest.raises(StoreError, match=r"profiles\.sqlite"):
        ProfileStore(tmp_path / "profiles.sqlite")


def test_resource_costs_count_in_dollars_and_not_in_tokens():
    def look() -> str:
        """Look."""
        return ""

    catalog = Catalog([FunctionTool(look, effects=(), price_nano=7)])
    costs = ToolCosts(catalog, {}, ["look"], resources={"look": 500, "gone": 9})
    step = StepCost(nano=100, tokens=20)
    assert costs.expected("usd", step, hour_nano=0, registers=True)["look"].tool == 507
    assert costs.expected("tokens", step, hour_nano=0, registers=True)["look"].total == 20


def test_small_prices_are_exact():
    assert SMALL.price() == Decimal("2e-7") + 2 * (50 * Decimal("2.1e-9") + Decimal("3.02e-14"))


def test_tools_share_size_levels():
    table = cost_table({"read_file": [SMALL, LARGE], "count_text": [SMALL]})
    assert table.levels == Profile.of([SMALL, LARGE]).levels
    assert table.vectors["read_file"].costs == (SMALL.price(), LARGE.price())
    assert table.vectors["count_text"].costs == (SMALL.price(), SMALL.price())
    assert table.seconds("read_file") == pytest.approx(
        (SMALL.milliseconds + LARGE.milliseconds) / 2_000
    )
    assert table.seconds("read_file", SMALL.size) == pytest.approx(SMALL.milliseconds / 1_000)
    assert table.seconds("read_file", LARGE.size) == pytest.approx(LARGE.milliseconds / 1_000)
    assert table.seconds("no_such_tool") is None
    assert "- count_text: ×1.0" in table.prompt(["count_text", "no_such_tool"], SMALL.size)
    assert "no_such_tool" not in table.prompt(["count_text", "no_such_tool"], SMALL.size)


def test_the_prompt_is_empty_without_profiles():
    assert cost_table({}) == CostTable()
    assert CostTable().prompt(["read_file"], 10) == ""
    assert cost_table({"read_file": [SMALL]}).prompt(["count_text"], 10) == ""
