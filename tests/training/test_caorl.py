"""CAORL: what is learned of recorded plans, the planner's file, and its columns in `bench catp`; without PyTorch."""

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
from ecoshell_train.caorl_planner import VARIANTS, Model, Planner, fresh, inputs, read_planner, words_of

EXCERPT = Path(__file__).parents[1] / "data" / "opencatp"
CONSTANTS, PLANS = EXCERPT / "constants.json", EXCERPT / "plans.jsonl"
MEASURE = ("catp", "--pool", PLANS, "--constants", CONSTANTS, "--plans", 1)


@pytest.fixture
def data(tmp_path) -> Path:
    """The excerpt as a folder of OpenCATP."""
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
    """A planner that has learned nothing."""
    tasks = {
        task: recordings.situation(task, ["Given blurry image, how to return it?"] * 100) for task in recordings.by_task
    }
    constants = recordings.constants
    words = tuple(sorted({word for one in tasks.values() for word in one.words}))
    levels = tuple(constants.image_size_levels_px)
    planner = Planner(constants.types, levels, constants.alpha, words, tasks, folds_of(tasks, 2))
    costs = np.array(recordings.costs(tasks), np.float32)
    models = {
        (name, fold): Model(fresh(planner, fold), costs, {"": 0.4}, (0.0, 1.0))
        for name in variants or VARIANTS
        for fold in range(2)
    }
    return replace(planner, models=models)


def test_a_language_is_one_word_with_what_is_wanted_in_it() -> None:
    words = words_of("Given noisy image, how to return the caption in German and the class label in English?")
    assert words[-6:] == ("the", "caption·german", "and", "the", "class", "label·english")


def test_a_recorded_plan_written_as_actions_is_read_back_as_the_same_plan(recordings) -> None:
    for one in recordings.plans:
        plan = parse(recordings.language.text(recordings.language.written(one.plan)))
        assert [(node.tool, {*node.after}) for node in plan.nodes] == [
            (node.tool, {*node.after}) for node in one.plan.nodes
        ]


def test_the_size_of_an_input_is_read_from_the_memory_of_tools_that_work_on_it(recordings) -> None:
    sizes = {(one.task, tuple(one.tools)): one.size for one in recordings.plans}
    enlarged = sizes[68, ("image_super_resolution", "image_deblurring", "object_detection")]
    assert enlarged == pytest.approx(640 * 480 * 2371.564453125 / 2167)  # not by the tool behind it
    assert sizes[217, ("image_denoising", "object_detection", "image_captioning", "machine_translation")] > 600_000
    assert {recordings.level(one) for one in recordings.plans} == {1, 2}


def test_a_plan_that_is_not_recorded_for_a_sample_scored_nothing_there(recordings) -> None:
    one, other = (one for one in recordings.plans if one.task == 212)
    more = Recordings([one, other, replace(one, sample=4, score=1.0)], recordings.constants)
    planner = untrained(more, "caorl")
    scores = sorted(example.score for example in more.examples({212}, planner))
    assert scores == pytest.approx(sorted([(one.score + 1.0) / 2, other.score / 2]))


def test_every_action_brings_what_the_plan_costs_so_far_and_the_last_what_it_is_worth() -> None:
    example = Example(1, 0, (0, 31, 32, 15), ((),) * 4, score=0.8, costs=(0.2,), spent=(0.2, 0.2, 0.2, 0.2))
    assert example.returns(0.5, feedback=True) == pytest.approx((0.0, 0.1, 0.2, 0.3))
    assert example.returns(0.5, feedback=False) == pytest.approx((0.3, 0.3, 0.3, 0.3))


def test_each_task_is_held_back_once() -> None:
    parts = folds_of(range(23), 5)
    assert sorted(task for part in parts for task in part) == [*range(23)]
    assert {len(part) for part in parts} == {4, 5}
    assert folds_of(range(23), 5) == parts


def test_an_untrained_planner_writes_valid_plans_under_the_mask_and_hardly_any_without(recordings) -> None:
    planner = untrained(recordings, "caorl", "no-masking")
    for task, situation in planner.tasks.items():
        problem = planner.language.problem(situation)
        assert not faults(parse(planner.language.text(planner.plan("caorl", task, 1))), problem)
    loose = [planner.plan("no-masking", task, 1) for task in planner.tasks]
    assert all(len(actions) <= 32 for actions in loose)
    assert not all(actions[-1] == planner.language.end for actions in loose)


def test_of_given_plans_one_is_taken(recordings) -> None:
    planner = untrained(recordings)
    for name in VARIANTS:
        for task, own in recordings.by_task.items():
            assert planner.plan(name, task, 2, [*own]) in own


def test_what_was_spent_lifts_the_return_that_is_still_asked_for(recordings, monkeypatch) -> None:
    from ecoshell_train import caorl_planner

    asked: list[list[float]] = []
    given = caorl_planner.inputs

    def spy(planner, how, model, rows):
        asked.append([*rows[0][3]])
        return given(planner, how, model, rows)

    monkeypatch.setattr(caorl_planner, "inputs", spy)
    planner = untrained(recordings)
    planner.plan("caorl", 212, 1)
    assert asked[-1][0] == 0.4
    assert asked[-1] == sorted(asked[-1])
    assert asked[-1][-1] > 0.4
    asked.clear()
    planner.plan("no-feedback", 212, 1)
    assert {*asked[-1]} == {0.4}


def test_costs_and_level_reach_the_network_unless_left_out(recordings) -> None:
    planner = untrained(recordings)
    model, asked = planner.models["caorl", 0], [(planner.tasks[4], 2, (), [-0.4])]
    told = {name: inputs(planner, how, model, asked) for name, how in VARIANTS.items()}
    assert told["caorl"]["costs"].any()
    assert told["caorl"]["level"].tolist() == [2]
    assert not told["no-context"]["costs"].any()
    assert told["no-context"]["level"].tolist() == [0]
    assert told["caorl"]["returns"].any()
    assert not told["ift"]["returns"].any()


def test_a_saved_planner_plans_as_before(tmp_path, recordings) -> None:
    planner = untrained(recordings)
    planner.save(tmp_path / "planner.npz")
    same = read_planner(tmp_path / "planner.npz")
    assert (same.tasks, same.folds, same.variants) == (planner.tasks, planner.folds, planner.variants)
    again = tmp_path / "again.npz"
    same.save(again)
    twice = read_planner(again)
    assert [twice.plan("caorl", task, 1) for task in same.tasks] == [same.plan("caorl", task, 1) for task in same.tasks]


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 broken", b"{}"])
def test_a_file_that_is_no_planner_is_named(tmp_path, content) -> None:
    file = tmp_path / "planner.npz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=r"planner\.npz is no planner") as refused:
        bench_play.bench(*MEASURE, "--planner", file)
    assert "allow_pickle" not in str(refused.value)


def test_bench_tells_what_the_plans_of_a_planner_were_worth(tmp_path, capsys, recordings) -> None:
    untrained(recordings).save(tmp_path / "planner.npz")
    told = bench_play.printed(capsys, *MEASURE, "--planner", tmp_path / "planner.npz")["planner"]
    assert {"qop", "ift_qop", "cheapest_qop", "best_score_qop", "ablations"} <= {*told}
    assert {*told["ablations"]} == {"no-context", "no-feedback", "no-masking"}
    assert told["valid"] == 1.0
    assert told["ablations"]["no-masking"]["valid"] < 1.0
    assert told["samples"] == 4
    best = told["chosen"]["best"]["qop"]
    assert max(told["qop"], told["cheapest_qop"], told["best_score_qop"]) <= best
    low, high = told["chosen"]["caorl"]["qop_95"]
    assert low <= told["qop"] <= high
    assert told["written"]["caorl"]["valid"] == 1.0


def test_bench_without_a_planner_is_as_it_was(capsys) -> None:
    assert "planner" not in bench_play.printed(capsys, *MEASURE)


def test_a_planner_of_other_tasks_is_refused(tmp_path, recordings) -> None:
    few = Recordings([one for one in recordings.plans if one.task in (4, 25)], recordings.constants)
    untrained(few).save(tmp_path / "planner.npz")
    with pytest.raises(UsageError, match="does not know task 68"):
        bench_play.bench(*MEASURE, "--planner", tmp_path / "planner.npz")
    untrained(recordings, "ift").save(tmp_path / "planner.npz")
    with pytest.raises(UsageError, match="trained without the method"):
        bench_play.bench(*MEASURE, "--planner", tmp_path / "planner.npz")


def test_a_dry_run_tells_what_a_run_takes_and_trains_nothing(tmp_path, data, capsys) -> None:
    out = tmp_path / "run"
    arguments = ("--data", data, "--folds", 2, "--steps", 3, "--out", out, "--dry-run", "--json")
    assert run(["train", "catp", *map(str, arguments)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [*told] == ["tokens", "steps", "hours", "disk_mb"]
    assert told["steps"] == 3 * 2 * len(VARIANTS)
    assert told["tokens"] > 0
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "caorl,everything"), "'everything'"),
        (("--folds", "0"), "'0' is not a number of parts"),
        (("--folds", "1"), "cannot be in 1 parts"),
        (("--folds", "7"), "6 tasks cannot be in 7 parts"),
    ],
)
def test_what_cannot_be_trained_is_named(data, arguments, said) -> None:
    with pytest.raises(UsageError, match=said):
        run(["train", "catp", "--data", str(data), "--dry-run", *arguments])


def test_a_folder_without_plans_or_with_a_broken_line_is_named(data) -> None:
    pool = data / "seq_plan_pool.jsonl"
    pool.write_text(pool.read_text(encoding="utf-8") + "{broken\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"seq_plan_pool\.jsonl:14 is not JSON"):
        run(["train", "catp", "--data", str(data), "--dry-run"])
    pool.unlink()
    with pytest.raises(UsageError, match="has no recorded plans"):
        run(["train", "catp", "--data", str(data), "--dry-run"])


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"tool_io": {}}, r":1: 'image_\w+' is missing in the constants"),
        ({"image_size_levels_px": []}, "at least 1 item"),
    ],
)
def test_constants_that_lack_something_are_named(data, odd, said) -> None:
    constants = data / "constants.json"
    constants.write_text(json.dumps(json.loads(constants.read_text(encoding="utf-8")) | odd), encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        run(["train", "catp", "--data", str(data), "--dry-run"])


def test_descriptions_that_are_no_text_are_named(data) -> None:
    (data / "task_description.txt").write_bytes("größer\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"task_description\.txt cannot be read"):
        run(["train", "catp", "--data", str(data), "--dry-run"])


def test_the_highest_return_of_such_tasks_is_asked_for_and_no_task_is_learned_from_and_held(data) -> None:
    args = argparse.Namespace(data=data, folds=2, held=None, only=("caorl",))
    for training in caorl._trainings(*caorl._read(args), args, caorl.RECIPE):
        planner, targets = training.planner, training.model.targets
        for one in training.examples:
            assert one.returns(0.5, feedback=True)[0] <= targets["+".join(planner.tasks[one.task].wanted)]
        assert targets[""] == max(targets.values())
        assert not {one.task for one in training.examples} & {one.task for one in training.held}


def test_the_baseline_learns_the_best_plan_of_each_task_alone(data) -> None:
    args = argparse.Namespace(data=data, folds=2, held=1, only=("caorl", "ift"))
    every, best = (one.examples for one in caorl._trainings(*caorl._read(args), args, caorl.RECIPE))
    assert len({one.task for one in best}) == len(best) < len(every)
    for one in best:
        assert one.worth(0.5) == max(other.worth(0.5) for other in every if other.task == one.task)
