"""`ecoshell bench catp`, on an excerpt of OpenCATP's recorded plans and, where they are at hand, on all of them."""

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
from ecoshell_bench.catp import QopModel, choose, price_error, printed_rows, read_constants, read_plans

bench = partial(bench_play.bench, "catp")
EXCERPT = Path(__file__).parents[1] / "data" / "opencatp"
CONSTANTS, PLANS = EXCERPT / "constants.json", EXCERPT / "plans.jsonl"
_BESIDE = Path(__file__).parents[2].parent / "shared" / "data"
WHOLE = Path(os.environ.get("ECOSHELL_DATA", _BESIDE)) / "opencatp"
needs_all = pytest.mark.skipif(
    not (WHOLE / "constants.json").is_file(), reason="no recorded plans: set ECOSHELL_DATA to the folder of opencatp/"
)


def record(**changes):
    given = json.loads(PLANS.read_text(encoding="utf-8").splitlines()[0])
    return {**given, **changes}


def test_qop_of_all_44_printed_rows_recomputes_within_what_rounding_leaves():
    rows = printed_rows()
    assert [sum(row.table == table for row in rows) for table in (2, 3)] == [22, 22]
    assert len({(row.table, row.tasks, row.method) for row in rows}) == 44
    assert max(row.error for row in rows) <= 0.0015
    ours = next(row for row in rows if row.tasks == "image-in-image-text-out" and row.method.startswith("CATP-LLM"))
    assert (ours.score, str(ours.price), ours.qop) == (0.528, "0.134", 0.145)


def test_prices_of_recorded_plans_recompute():
    plans = read_plans([PLANS], read_constants(CONSTANTS))
    assert len(plans) == 13
    assert max(map(price_error, plans)) < 1e-12
    assert plans[-1].plan.nodes[0].after == (TASK,)


def test_the_json_is_what_others_rely_on(capsys):
    assert bench("--pool", PLANS, "--constants", CONSTANTS, "--plans", 20, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["price_error_max", "qop_rows", "qop_error_max", "validity", "choice", "parallel"]
    assert told["price_error_max"] < 0.001
    assert told["qop_rows"] == 44
    assert told["qop_error_max"] <= 0.0015
    assert [set(row) for row in told["validity"]] == [{"task", "masked", "unmasked"}] * 9
    assert {row["masked"] for row in told["validity"]} == {1.0}
    assert max(row["unmasked"] for row in told["validity"]) < 0.5
    assert told["choice"]["cheapest"] <= told["choice"]["best"]
    assert told["choice"]["ours"] <= told["choice"]["best"]
    parallel = told["parallel"]
    assert parallel["critical_s"] < parallel["sum_s"]
    assert parallel["clock_s"] >= parallel["critical_s"]


def test_people_read_the_same_as_a_table(capsys):
    assert bench("--pool", PLANS, "--constants", CONSTANTS, "--plans", 5) == 0
    told = capsys.readouterr().out
    assert "13 recorded plans" in told
    assert "image→text+text" in told
    assert "choice.cheapest" in told


def test_a_pool_without_branches_or_choices_leaves_those_figures_unknown(tmp_path, capsys):
    pool = written(tmp_path / "pool.jsonl", record())
    assert bench("--pool", pool, "--constants", CONSTANTS, "--plans", 1, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["choice"], told["parallel"]) == (None, None)


def test_what_the_plans_of_a_task_scored_and_cost_is_not_looked_at_when_one_is_chosen():
    constants = read_constants(CONSTANTS)
    plans = read_plans([PLANS], constants)
    own = [one for one in plans if one.task == 68]
    turned = [
        replace(one, score=1 - one.score, price=other.price, prices=tuple(reversed(other.prices)))
        for one, other in zip(own, reversed(own), strict=True)
    ]
    model = QopModel.of([one for one in plans if one.task != 68], constants)
    assert [*map(model.estimate, turned)] == [*map(model.estimate, own)]
    assert len({*map(model.estimate, plans)}) > 1


@pytest.mark.parametrize(
    ("changes", "said"),
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
def test_a_wrong_line_is_named(tmp_path, changes, said):
    pool = written(tmp_path / "pool.jsonl", record(), record(**changes))
    with pytest.raises(UsageError, match=said) as caught:
        bench("--pool", pool, "--constants", CONSTANTS)
    assert f"{pool}:2" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{}", '{"price_per_request": -1}', "\x00"])
def test_wrong_constants_are_named(tmp_path, text):
    wrong = tmp_path / "constants.json"
    wrong.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"constants\.json"):
        bench("--pool", PLANS, "--constants", wrong)


def test_files_that_are_not_there_or_empty_are_named(tmp_path):
    with pytest.raises(UsageError, match="gone"):
        bench("--pool", tmp_path / "gone", "--constants", CONSTANTS)
    with pytest.raises(UsageError, match="gone"):
        bench("--pool", PLANS, "--constants", tmp_path / "gone")
    with pytest.raises(UsageError, match="no recorded plan"):
        bench("--pool", written(tmp_path / "empty.jsonl"), "--constants", CONSTANTS)
    with pytest.raises(UsageError, match="'0' is not a number"):
        bench("--pool", PLANS, "--constants", CONSTANTS, "--plans", 0)


@needs_all
def test_prices_of_both_whole_pools_recompute_and_the_cost_model_chooses_nearly_as_well_as_hindsight():
    constants = read_constants(WHOLE / "constants.json")
    plans = read_plans([WHOLE / "seq_plan_pool.jsonl", WHOLE / "nonseq_plan_pool.jsonl"], constants)
    assert len(plans) == 1_957
    assert max(map(price_error, plans)) < 1e-12
    choice = choose(plans, constants)
    assert choice is not None
    assert choice.ours - choice.average > 0.8 * (choice.best - choice.average)
    assert choice.ours > choice.cheapest - 0.002
