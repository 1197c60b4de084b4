"""What plans must save, and let through, on LiveMCPBench's recorded runs; skipped where the data is not at hand."""

import os
import statistics
from pathlib import Path

import pytest

from ecoshell.strategies.react import REACT
from ecoshell.strategies.search import DFSDT, TOT
from ecoshell_bench.btp import Row, Sweep, measure
from ecoshell_bench.btp_replay import leave_one_out, read_tasks

_BESIDE = Path(__file__).parents[2].parent / "shared" / "data"
REPLAY = Path(os.environ.get("ECOSHELL_DATA", _BESIDE)) / "livemcp" / "replay.jsonl"
WAYS = (REACT, DFSDT, TOT)

pytestmark = pytest.mark.skipif(
    not REPLAY.is_file(), reason="no recorded runs: set ECOSHELL_DATA to the folder that has livemcp/"
)


def measured(
    caps: tuple[int, ...] = (20,), thresholds: tuple[float, ...] = (0.15,), *, gold: bool = False
) -> list[Row]:
    sweep = Sweep(WAYS, ("strict", "off"), caps, thresholds, range(5))
    return list(measure(leave_one_out(read_tasks(REPLAY), gold=gold), sweep))


def cost(rows: list[Row], **wanted: object) -> float:
    """The mean cost of the rows that are as wanted."""
    kept = [row for row in rows if all(getattr(row, key) == value for key, value in wanted.items())]
    return statistics.fmean(row.average_cost for row in kept)


def test_no_run_ends_over_budget_and_the_plan_halves_the_cost_of_every_strategy_and_draw() -> None:
    rows = measured()
    assert all(row.over_budget == 0 for row in rows if row.plan == "strict")
    for way in WAYS:
        for seed in range(5):
            free = cost(rows, plan="off", strategy=way.name, seed=seed)
            assert cost(rows, plan="strict", strategy=way.name, seed=seed) <= free / 2


def test_less_is_spent_than_was_planned_as_in_the_paper() -> None:
    rows = [row for row in measured() if row.plan == "strict"]
    assert all(row.planned_cost is not None and row.average_cost < row.planned_cost < 20 for row in rows)


def test_gold_trajectories_spend_what_was_to_be_reproduced() -> None:
    rows = measured(gold=True)
    for way in WAYS:
        assert cost(rows, plan="off", strategy=way.name) == pytest.approx(15.5, abs=0.6)
        assert cost(rows, plan="strict", strategy=way.name) == pytest.approx(7.4, abs=0.6)


def test_a_higher_cap_lets_more_be_spent_and_a_higher_threshold_less() -> None:
    rows = measured((5, 10, 20, 40), (0.0, 0.15, 0.5))
    for way in WAYS:
        by_cap = [cost(rows, plan="strict", strategy=way.name, tau=0.15, cap=cap) for cap in (5, 10, 20, 40)]
        assert by_cap == sorted(by_cap)
        by_tau = [cost(rows, plan="strict", strategy=way.name, tau=tau, cap=20) for tau in (0.0, 0.15, 0.5)]
        assert by_tau == sorted(by_tau, reverse=True)


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("gold", [False, True])
def test_the_plan_lets_through_at_least_what_a_plain_gate_does_for_at_most_its_cost(
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
            useful = [statistics.fmean(row.useful_allowed for row in part) for part in (gate, btp, oracle)]
            whole = [statistics.fmean(row.tasks_whole for row in part) for part in (gate, btp, oracle)]
            assert useful == sorted(useful)
            assert whole == sorted(whole)
            costs = [statistics.fmean(row.average_cost for row in part) for part in (btp, gate)]
            assert costs == sorted(costs)
