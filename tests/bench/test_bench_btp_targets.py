"""Targets of plans on LiveMCPBench's recorded runs: savings and allowed calls; skipped without the data."""

import os
import statistics
from pathlib import Path

import pytest

from ecoshell.strategies.react import REACT
from ecoshell.strategies.search import DFSDT, TOT
from ecoshell_bench.btp import Row, Sweep, measure
from ecoshell_bench.btp_replay import leave_one_out, read_tasks

_DEFAULT_DATA = Path(__file__).parents[2].parent / "shared" / "data"
REPLAY = Path(os.environ.get("ECOSHELL_DATA", _DEFAULT_DATA)) / "livemcp" / "replay.jsonl"
WAYS = (REACT, DFSDT, TOT)

pytestmark = pytest.mark.skipif(
    not REPLAY.is_file(),
    reason="no recorded runs: set ECOSHELL_DATA to the folder that has livemcp/",
)


def measured(
    caps: tuple[int, ...] = (20,), thresholds: tuple[float, ...] = (0.15,), *, gold: bool = False
) -> list[Row]:
    sweep = Sweep(WAYS, ("strict", "off"), caps, thresholds, range(5))
    return list(measure(leave_one_out(read_tasks(REPLAY), gold=gold), sweep))


def cost(rows: list[Row], **setting: object) -> float:
    """Return the mean cost of the rows with this setting."""
    matching = [
        row for row in rows if all(getattr(row, key) == value for key, value in setting.items())
    ]
    return statistics.fmean(row.average_cost for row in matching)


def test_plan_stays_in_budget_and_halves_the_cost_of_every_strategy_and_draw() -> None:
    rows = measured()
    assert all(row.over_budget == 0 for row in rows if row.plan == "strict")
    for way in WAYS:
        for seed in range(5):
            unplanned = cost(rows, plan="off", strategy=way.name, seed=seed)
            assert cost(rows, plan="strict", strategy=way.name, seed=seed) <= unplanned / 2


def test_spending_stays_below_the_plan_as_in_the_paper() -> None:
    rows = [row for row in measured() if row.plan == "strict"]
    assert all(
        row.planned_cost is not None and row.average_cost < row.planned_cost < 20 for row in rows
    )


def test_gold_trajectories_reproduce_the_published_costs() -> None:
    rows = measured(gold=True)
    for way in WAYS:
        assert cost(rows, plan="off", strategy=way.name) == pytest.approx(15.5, abs=0.6)
        assert cost(rows, plan="strict", strategy=way.name) == pytest.approx(7.4, abs=0.6)


def test_spending_grows_with_the_cap_and_falls_with_the_threshold() -> None:
    rows = measured((5, 10, 20, 40), (0.0, 0.15, 0.5))
    for way in WAYS:
        by_cap = [
            cost(rows, plan="strict", strategy=way.name, tau=0.15, cap=cap)
            for cap in (5, 10, 20, 40)
        ]
        assert by_cap == sorted(by_cap)
        by_tau = [
            cost(rows, plan="strict", strategy=way.name, tau=tau, cap=20)
            for tau in (0.0, 0.15, 0.5)
        ]
        assert by_tau == sorted(by_tau, reverse=True)


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("gold", [False, True])
def test_plan_allows_at_least_the_useful_calls_of_a_plain_gate_at_no_higher_cost(
    *, gold: bool, halves: bool
) -> None:
    caps = (5, 10, 20, 40)
    sweep = Sweep(WAYS, ("btp", "gate", "oracle"), caps, (0.15,), range(5))
    rows = list(measure(leave_one_out(read_tasks(REPLAY), gold=gold, halves=halves), sweep))
    assert all(row.over_budget == 0 for row in rows)
    for way in WAYS:
        for cap in caps:
            btp, gate, oracle = (
                [row for row in rows if (row.strategy, row.cap, row.plan) == (way.name, cap, plan)]
                for plan in sweep.plans
            )
            useful = [
                statistics.fmean(row.useful_allowed for row in part) for part in (gate, btp, oracle)
            ]
            complete = [
                statistics.fmean(row.tasks_whole for row in part) for part in (gate, btp, oracle)
            ]
            assert useful == sorted(useful)
            assert complete == sorted(complete)
            costs = [statistics.fmean(row.average_cost for row in part) for part in (btp, gate)]
            assert costs == sorted(costs)
