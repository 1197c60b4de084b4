"""`ecoshell bench catp` on an excerpt of OpenCATP's recorded plans and, if available, on all of them."""

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import bench_play
import pytest
from bench_play import written

from ecoshell.errors import UsageError
from ecoshell.planning.catp.plan import TASK
from ecoshell_bench.catp import (
    QopModel,
    choose,
    price_error,
    printed_rows,
    read_constants,
    read_plans,
)

bench = partial(bench_play.bench, "catp")
EXCERPT = Path(__file__).parents[1] / "data" / "opencatp"
CONSTANTS, PLANS = EXCERPT / "constants.json", EXCERPT / "plans.jsonl"
_DEFAULT_DATA = Path(__file__).parents[2].parent / "shared" / "data"
FULL_DATA = Path(os.environ.get("ECOSHELL_DATA", _DEFAULT_DATA)) / "opencatp"
needs_full_data = pytest.mark.skipif(
    not (FULL_DATA / "constants.json").is_file(),
    reason="no recorded plans: set ECOSHELL_DATA to the folder of opencatp/",
)


def record(**changes):
    original = json.loads(PLANS.read_text(encoding="utf-8").splitlines()[0])
    return {**original, **changes}


def test_qop_of_all_44_printed_rows_recomputes_within_rounding():
    rows = printed_rows()
    assert [sum(row.table == table for row in rows) for table in (2, 3)] == [22, 22]
    assert len({(row.table, row.tasks, row.method) for row in rows}) == 44
    assert max(row.error for row in rows) <= 0.0015
    ours = next(
        row
        for row in rows
        if row.tasks == "image-in-image-text-out" and row.method.startswith("CATP-LLM")
    )
    assert (ours.score, str(ours.price), ours.qop) == (0.528, "0.134", 0.145)


def test_prices_of_recorded_plans_recompute():
    plans = read_plans([PLANS], read_constants(CONSTANTS))
    assert len(plans) == 13
    assert max(map(price_error, plans)) < 1e-12
    assert plans[-1].plan.nodes[0].after == (TASK,)


def test_json_has_the_documented_fields(capsys):
    assert bench("--pool", PLANS, "--constants", CONSTANTS, "--plans", 20, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures) == [
        "price_error_max",
        "qop_rows",
        "qop_error_max",
        "validity",
        "choice",
        "parallel",
    ]
    assert figures["price_error_max"] < 0.001
    assert figures["qop_rows"] == 44
    assert figures["qop_error_max"] <= 0.0015
    assert [set(row) for row in figures["validity"]] == [{"task", "masked", "unmasked"}] * 9
    assert {row["masked"] for row in figures["validity"]} == {1.0}
    assert max(row["unmasked"] for row in figures["validity"]) < 0.5
    assert figures["choice"]["cheapest"] <= figures["choice"]["best"]
    assert figures["choice"]["ours"] <= figures["choice"]["best"]
    parallel = figures["parallel"]
    assert parallel["critical_s"] < parallel["sum_s"]
    assert parallel["clock_s"] >= parallel["critical_s"]


@pytest.mark.slow
def test_text_output_has_the_same_figures(capsys):
    assert bench("--pool", PLANS, "--constants", CONSTANTS, "--plans", 5) == 0
    figures = capsys.readouterr().out
    assert "13 recorded plans" in figures
    assert "image→text+text" in figures
    assert "choice.cheapest" in figures


def test_figures_are_null_for_a_pool_without_branches_or_choices(tmp_path, capsys):
    pool = written(tmp_path / "pool.jsonl", record())
    assert bench("--pool", pool, "--constants", CONSTANTS, "--plans", 1, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["choice"], figures["parallel"]) == (None, None)


def test_estimate_ignores_the_recorded_score_and_price_of_the_plan():
    constants = read_constants(CONSTANTS)
    plans = read_plans([PLANS], constants)
    task_plans = [plan for plan in plans if plan.task == 68]
    altered = [
        replace(plan, score=1 - plan.score, price=other.price, prices=tuple(reversed(other.prices)))
        for plan, other in zip(task_plans, reversed(task_plans), strict=True)
    ]
    model = QopModel.of([plan for plan in plans if plan.task != 68], constants)
    assert [*map(model.estimate, altered)] == [*map(model.estimate, task_plans)]
    assert len({*map(model.estimate, plans)}) > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": []}, "empty"),
        ({"plan": ["image_denoising", []]}, "names no dependency"),
        ({"plan": ["image_denoising", ["nowhere"]]}, "waits for `nowhere`"),
        ({"plan": ["image_denoising", ["input_of_query"]] * 2}, "Two nodes"),
        ({"plan": ["juggling", ["input_of_query"]], "tool_exec_ms": [1], "tool_short_cpu_mb": [1],
          "tool_short_gpu_mb": [1]}, "juggling"),
        ({"tool_exec_ms": [1.0]}, "shorter|longer"),
        ({"score": "high"}, "`score`: "),
        ({"price": float("nan")}, "`price`: "),
    ],
)  # fmt: skip
def test_invalid_plan_is_reported_with_its_line(tmp_path, changes, message):
    pool = written(tmp_path / "pool.jsonl", record(), record(**changes))
    with pytest.raises(UsageError, match=message) as caught:
        bench("--pool", pool, "--constants", CONSTANTS)
    assert f"{pool}:2" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{}", '{"price_per_request": -1}', "\x00"])
def test_invalid_constants_are_refused(tmp_path, text):
    wrong = tmp_path / "constants.json"
    wrong.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"constants\.json"):
        bench("--pool", PLANS, "--constants", wrong)


def test_missing_and_empty_files_are_refused(tmp_path):
    with pytest.raises(UsageError, match="gone"):
        bench("--pool", tmp_path / "gone", "--constants", CONSTANTS)
    with pytest.raises(UsageError, match="gone"):
        bench("--pool", PLANS, "--constants", tmp_path / "gone")
    with pytest.raises(UsageError, match="no recorded plan"):
        bench("--pool", written(tmp_path / "empty.jsonl"), "--constants", CONSTANTS)
    with pytest.raises(UsageError, match="'0' is not a number"):
        bench("--pool", PLANS, "--constants", CONSTANTS, "--plans", 0)


@needs_full_data
def test_prices_of_the_full_pools_recompute_and_the_cost_model_is_close_to_hindsight():
    constants = read_constants(FULL_DATA / "constants.json")
    plans = read_plans(
        [FULL_DATA / "seq_plan_pool.jsonl", FULL_DATA / "nonseq_plan_pool.jsonl"], constants
    )
    assert len(plans) == 1_957
    assert max(map(price_error, plans)) < 1e-12
    choice = choose(plans, constants)
    assert choice is not None
    assert choice.ours - choice.average > 0.8 * (choice.best - choice.average)
    assert choice.ours > choice.cheapest - 0.002
