import dataclasses
from decimal import Decimal
from pathlib import Path

import pytest

from ecoshell.budget.price import Rates
from ecoshell.evaluation.ecoact import POLICIES, Setting, decide_for, draw_pool, measure_pools
from ecoshell.evaluation.trajectories import RecordedRun, Tools, read_runs, read_tools
from ecoshell.messages import Usage


def rates(cached: str = "1", written: str = "1") -> Rates:
    return Rates(Decimal(1), Decimal(cached), Decimal(written), Decimal(3), Decimal(3))


SETTING = Setting(rates(), len, "Be brief.")


@pytest.fixture
def tools(catalog: Path) -> Tools:
    return read_tools(catalog)


@pytest.fixture
def runs(replay: Path, tools: Tools) -> list[RecordedRun]:
    return read_runs(replay, tools)


def test_each_bucket_of_a_prompt_has_its_price() -> None:
    setting = Setting(rates("0.1", "1.25"), len, "")
    usage = Usage(input=1000, output=10, cached=600, cache_write=300)
    assert setting.price(usage) == 100 + 60 + Decimal("375.00") + 30


def test_a_pool_holds_what_the_run_used_and_is_drawn_the_same_for_the_same_seed(
    runs: list[RecordedRun], tools: Tools
) -> None:
    pools = {seed: [one.name for one in draw_pool(runs[0], tools, 5, seed)] for seed in range(20)}
    assert all(len(set(pool)) == 5 and set(runs[0].used) <= set(pool) for pool in pools.values())
    assert pools[3] == [one.name for one in draw_pool(runs[0], tools, 5, 3)]
    assert len({tuple(pool) for pool in pools.values()}) > 1


def test_a_pool_is_never_larger_than_the_catalog(runs: list[RecordedRun], tools: Tools) -> None:
    assert {one.name for one in draw_pool(runs[0], tools, 500, 0)} == set(tools.documents)


def test_every_policy_is_measured_at_every_size(runs: list[RecordedRun], tools: Tools) -> None:
    results = list(measure_pools(runs, tools, (3, 8), SETTING))
    assert [result.pool for result in results] == [3, 8]
    assert all(set(result.totals) == set(POLICIES) and result.runs == 2 for result in results)
    assert all(total.usage.input > 0 for result in results for total in result.totals.values())


def test_a_run_that_used_more_tools_than_a_pool_holds_is_left_out(runs: list[RecordedRun], tools: Tools) -> None:
    (result,) = measure_pools(runs, tools, (1,), SETTING)
    assert result.runs == 0


def test_the_oracle_is_never_dearer_than_registering_by_name(runs: list[RecordedRun], tools: Tools) -> None:
    for setting in (SETTING, dataclasses.replace(SETTING, rates=rates("0.1", "1.25"))):
        for result in measure_pools(runs, tools, (3, 5, 8), setting):
            for policy in ("grow", "stable"):
                assert result.saving("oracle", setting) >= result.saving(policy, setting)


def test_the_decision_knows_nothing_of_what_the_run_did(runs: list[RecordedRun], tools: Tools) -> None:
    pool = draw_pool(runs[0], tools, 6, 0)
    (result,) = measure_pools([runs[0]], tools, (6,), SETTING)
    decision = decide_for(runs[0].query, pool, SETTING)
    assert result.chosen == {decision.presentation.name: 1}
    assert result.upfront == len(decision.upfront)


def test_a_long_document_that_is_never_used_makes_registering_everything_dearer(
    runs: list[RecordedRun], tools: Tools
) -> None:
    name = next(name for name in tools.documents if name not in {*runs[0].used, *runs[1].used})
    long = dataclasses.replace(tools.documents[name], description="Very long. " * 5000)
    heavier = Tools({**tools.documents, name: long}, tools.names)
    (before,) = measure_pools(runs, tools, (8,), SETTING)
    (after,) = measure_pools(runs, heavier, (8,), SETTING)
    assert after.saving("grow", SETTING) > before.saving("grow", SETTING)
    assert after.totals["grow"].usage == before.totals["grow"].usage
