"""CAORL: training examples, the planner's file, and its columns in `bench catp`; without PyTorch."""

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

import bench_play
import numpy as np
import pytest

from ecoshell.cli.parser import run
from ecoshell.errors import UsageError
from ecoshell.planning.catp.rules import faults
from ecoshell.planning.catp.tpl import parse
from ecoshell_train import caorl
from ecoshell_train.caorl_data import Example, Recordings, folds_of, read_constants, read_plans
from ecoshell_train.caorl_planner import (
    VARIANTS,
    Model,
    Planner,
    fresh,
    inputs,
    read_planner,
    words_of,
)

EXCERPT = Path(__file__).parents[1] / "data" / "opencatp"
CONSTANTS, PLANS = EXCERPT / "constants.json", EXCERPT / "plans.jsonl"
MEASURE = ("catp", "--pool", PLANS, "--constants", CONSTANTS, "--plans", 1)


@pytest.fixture
def data(tmp_path) -> Path:
    """A folder of OpenCATP with an excerpt of its plans."""
    folder = tmp_path / "opencatp"
    folder.mkdir()
    shutil.copy(CONSTANTS, folder)
    shutil.copy(PLANS, folder / "seq_plan_pool.jsonl")
    return folder


@pytest.fixture(scope="module")
def recordings() -> Recordings:
    constants = read_constants(CONSTANTS)
    return Recordings(read_plans([PLANS], constants), constants)


def untrained(recordings: Recordings, *variants: str) -> Planner:
    """Return a planner with random weights."""
    tasks = {
        task: recordings.situation(task, ["Given blurry image, how to return it?"] * 100)
        for task in recordings.by_task
    }
    constants = recordings.constants
    words = tuple(sorted({word for situation in tasks.values() for word in situation.words}))
    levels = tuple(constants.image_size_levels_px)
    planner = Planner(constants.types, levels, constants.alpha, words, tasks, folds_of(tasks, 2))
    costs = np.array(recordings.costs(tasks), np.float32)
    models = {
        (name, fold): Model(fresh(planner, fold), costs, {"": 0.4}, (0.0, 1.0))
        for name in variants or VARIANTS
        for fold in range(2)
    }
    return replace(planner, models=models)


def test_output_and_its_language_form_one_word() -> None:
    words = words_of(
        "Given noisy image, how to return the caption in German and the class label in English?"
    )
    assert words[-6:] == ("the", "caption·german", "and", "the", "class", "label·english")


def test_actions_of_a_plan_can_be_parsed_back(recordings) -> None:
    def edges(plan):
        return [(node.tool, {*node.after}) for node in plan.nodes]

    for recorded in recordings.plans:
        plan = parse(recordings.language.text(recordings.language.written(recorded.plan)))
        assert edges(plan) == edges(recorded.plan)


def test_input_size_follows_from_the_memory_of_its_tools(recordings) -> None:
    sizes = {(recorded.task, tuple(recorded.tools)): recorded.size for recorded in recordings.plans}
    enlarged = sizes[68, ("image_super_resolution", "image_deblurring", "object_detection")]
    assert enlarged == pytest.approx(640 * 480 * 2371.564453125 / 2167)  # Not from the later tool.
    assert (
        sizes[
            217, ("image_denoising", "object_detection", "image_captioning", "machine_translation")
        ]
        > 600_000
    )
    assert {recordings.level(recorded) for recorded in recordings.plans} == {1, 2}


def test_plan_without_a_recording_for_a_sample_scores_0_there(recordings) -> None:
    first, second = (recorded for recorded in recordings.plans if recorded.task == 212)
    more = Recordings([first, second, replace(first, sample=4, score=1.0)], recordings.constants)
    planner = untrained(more, "caorl")
    scores = sorted(example.score for example in more.examples({212}, planner))
    assert scores == pytest.approx(sorted([(first.score + 1.0) / 2, second.score / 2]))


def test_rewards_are_the_cost_so_far_and_the_final_worth() -> None:
    example = Example(
        1, 0, (0, 31, 32, 15), ((),) * 4, score=0.8, costs=(0.2,), spent=(0.2, 0.2, 0.2, 0.2)
    )
    assert example.returns(0.5, feedback=True) == pytest.approx((0.0, 0.1, 0.2, 0.3))
    assert example.returns(0.5, feedback=False) == pytest.approx((0.3, 0.3, 0.3, 0.3))


def test_each_task_is_in_one_fold() -> None:
    parts = folds_of(range(23), 5)
    assert sorted(task for part in parts for task in part) == [*range(23)]
    assert {len(part) for part in parts} == {4, 5}
    assert folds_of(range(23), 5) == parts


def test_mask_makes_plans_of_an_untrained_planner_valid(recordings) -> None:
    planner = untrained(recordings, "caorl", "no-masking")
    for task, situation in planner.tasks.items():
        problem = planner.language.problem(situation)
        assert not faults(parse(planner.language.text(planner.plan("caorl", task, 1))), problem)
    unmasked = [planner.plan("no-masking", task, 1) for task in planner.tasks]
    assert all(len(actions) <= 32 for actions in unmasked)
    assert not all(actions[-1] == planner.language.end for actions in unmasked)


def test_planner_chooses_among_given_plans(recordings) -> None:
    planner = untrained(recordings)
    for name in VARIANTS:
        for task, plans in recordings.by_task.items():
            assert planner.plan(name, task, 2, [*plans]) in plans


def test_target_return_rises_with_the_cost_so_far(recordings, monkeypatch) -> None:
    from ecoshell_train import caorl_planner

    targets: list[list[float]] = []
    original = caorl_planner.inputs

    def spy(planner, how, model, rows):
        targets.append([*rows[0][3]])
        return original(planner, how, model, rows)

    monkeypatch.setattr(caorl_planner, "inputs", spy)
    planner = untrained(recordings)
    planner.plan("caorl", 212, 1)
    assert targets[-1][0] == 0.4
    assert targets[-1] == sorted(targets[-1])
    assert targets[-1][-1] > 0.4
    targets.clear()
    planner.plan("no-feedback", 212, 1)
    assert {*targets[-1]} == {0.4}


def test_network_inputs_depend_on_the_variant(recordings) -> None:
    planner = untrained(recordings)
    model, queries = planner.models["caorl", 0], [(planner.tasks[4], 2, (), [-0.4])]
    arrays = {name: inputs(planner, how, model, queries) for name, how in VARIANTS.items()}
    assert arrays["caorl"]["costs"].any()
    assert arrays["caorl"]["level"].tolist() == [2]
    assert not arrays["no-context"]["costs"].any()
    assert arrays["no-context"]["level"].tolist() == [0]
    assert arrays["caorl"]["returns"].any()
    assert not arrays["ift"]["returns"].any()


def test_saved_planner_makes_the_same_plans(tmp_path, recordings) -> None:
    planner = untrained(recordings)
    planner.save(tmp_path / "planner.npz")
    loaded = read_planner(tmp_path / "planner.npz")
    assert (loaded.tasks, loaded.folds, loaded.variants) == (
        planner.tasks,
        planner.folds,
        planner.variants,
    )
    again = tmp_path / "again.npz"
    loaded.save(again)
    reloaded = read_planner(again)
    for task in loaded.tasks:
        assert reloaded.plan("caorl", task, 1) == loaded.plan("caorl", task, 1)


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 broken", b"{}"])
def test_other_file_is_refused(tmp_path, content) -> None:
    file = tmp_path / "planner.npz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=r"planner\.npz is not a planner") as refused:
        bench_play.bench(*MEASURE, "--planner", file)
    assert "allow_pickle" not in str(refused.value)


def test_bench_reports_the_plans_of_a_planner(tmp_path, capsys, recordings) -> None:
    untrained(recordings).save(tmp_path / "planner.npz")
    record = bench_play.printed(capsys, *MEASURE, "--planner", tmp_path / "planner.npz")["planner"]
    assert {"qop", "ift_qop", "cheapest_qop", "best_score_qop", "ablations"} <= {*record}
    assert {*record["ablations"]} == {"no-context", "no-feedback", "no-masking"}
    assert record["valid"] == 1.0
    assert record["ablations"]["no-masking"]["valid"] < 1.0
    assert record["samples"] == 4
    best = record["chosen"]["best"]["qop"]
    assert max(record["qop"], record["cheapest_qop"], record["best_score_qop"]) <= best
    low, high = record["chosen"]["caorl"]["qop_95"]
    assert low <= record["qop"] <= high
    assert record["written"]["caorl"]["valid"] == 1.0


def test_bench_without_a_planner_has_no_such_column(capsys) -> None:
    assert "planner" not in bench_play.printed(capsys, *MEASURE)


def test_planner_of_other_tasks_is_refused(tmp_path, recordings) -> None:
    plans = [recorded for recorded in recordings.plans if recorded.task in (4, 25)]
    few = Recordings(plans, recordings.constants)
    untrained(few).save(tmp_path / "planner.npz")
    with pytest.raises(UsageError, match="does not know task 68"):
        bench_play.bench(*MEASURE, "--planner", tmp_path / "planner.npz")
    untrained(recordings, "ift").save(tmp_path / "planner.npz")
    with pytest.raises(UsageError, match="trained without the method"):
        bench_play.bench(*MEASURE, "--planner", tmp_path / "planner.npz")


def test_dry_run_estimates_without_training(tmp_path, data, capsys) -> None:
    out = tmp_path / "run"
    arguments = ("--data", data, "--folds", 2, "--steps", 3, "--out", out, "--dry-run", "--json")
    assert run(["train", "catp", *map(str, arguments)]) == 0
    estimate = json.loads(capsys.readouterr().out)
    assert [*estimate] == ["tokens", "steps", "hours", "disk_mb"]
    assert estimate["steps"] == 3 * 2 * len(VARIANTS)
    assert estimate["tokens"] > 0
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "caorl,everything"), "'everything'"),
        (("--folds", "0"), "'0' is not a number from 1 to 99"),
        (("--folds", "1"), "cannot be split into 1 folds"),
        (("--folds", "7"), "6 tasks cannot be split into 7 folds"),
    ],
)
def test_invalid_options_are_refused(data, arguments, message) -> None:
    with pytest.raises(UsageError, match=message):
        run(["train", "catp", "--data", str(data), "--dry-run", *arguments])


def test_missing_and_damaged_plans_are_reported(data) -> None:
    pool = data / "seq_plan_pool.jsonl"
    pool.write_text(pool.read_text(encoding="utf-8") + "{broken\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"seq_plan_pool\.jsonl:14 is not JSON"):
        run(["train", "catp", "--data", str(data), "--dry-run"])
    pool.unlink()
    with pytest.raises(UsageError, match="contains no recorded plans"):
        run(["train", "catp", "--data", str(data), "--dry-run"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tool_io": {}}, r":1: 'image_\w+' is missing in the constants"),
        ({"image_size_levels_px": []}, "at least 1 item"),
    ],
)
def test_incomplete_constants_are_reported(data, change, message) -> None:
    constants = data / "constants.json"
    constants.write_text(
        json.dumps(json.loads(constants.read_text(encoding="utf-8")) | change), encoding="utf-8"
    )
    with pytest.raises(UsageError, match=message):
        run(["train", "catp", "--data", str(data), "--dry-run"])


def test_unreadable_descriptions_are_reported(data) -> None:
    (data / "task_description.txt").write_bytes("größer\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"task_description\.txt cannot be read"):
        run(["train", "catp", "--data", str(data), "--dry-run"])


def test_targets_are_the_highest_returns_and_folds_are_disjoint(data) -> None:
    args = argparse.Namespace(data=data, folds=2, held=None, only=("caorl",))
    for training in caorl._trainings(*caorl._read(args), args, caorl.RECIPE):
        planner, targets = training.planner, training.model.targets
        for example in training.examples:
            kind = "+".join(planner.tasks[example.task].outputs)
            assert example.returns(0.5, feedback=True)[0] <= targets[kind]
        assert targets[""] == max(targets.values())
        training_tasks = {example.task for example in training.examples}
        assert not training_tasks & {example.task for example in training.held}


def test_baseline_learns_only_the_best_plan_of_each_task(data) -> None:
    args = argparse.Namespace(data=data, folds=2, held=1, only=("caorl", "ift"))
    every, best = (
        training.examples for training in caorl._trainings(*caorl._read(args), args, caorl.RECIPE)
    )
    assert len({example.task for example in best}) == len(best) < len(every)
    for example in best:
        worths = [other.worth(0.5) for other in every if other.task == example.task]
        assert example.worth(0.5) == max(worths)
