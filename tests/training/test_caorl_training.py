"""The training of planners, with PyTorch."""

import argparse
import json
import shutil
from pathlib import Path

import bench_play
import numpy as np
import pytest

from ecoshell.cli.parser import run
from ecoshell_train import caorl
from ecoshell_train.caorl_planner import VARIANTS, forward, inputs, read_planner

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
pytest.importorskip("peft", reason="the extra `train` is not installed")

EXCERPT = Path(__file__).parents[1] / "data" / "opencatp"
CONSTANTS, PLANS = EXCERPT / "constants.json", EXCERPT / "plans.jsonl"


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "opencatp"
    folder.mkdir()
    shutil.copy(CONSTANTS, folder)
    shutil.copy(PLANS, folder / "seq_plan_pool.jsonl")
    return folder


def test_what_is_trained_reaches_the_bench_and_plans_as_in_training(tmp_path, data, capsys) -> None:
    arguments = (
        "--data",
        data,
        "--folds",
        2,
        "--held",
        1,
        "--steps",
        8,
        "--only",
        "caorl,ift",
        "--out",
        tmp_path / "run",
        "--json",
    )
    assert run(["train", "catp", *map(str, arguments)]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["variants"] == ["caorl", "ift"]
    assert made["mb"] < 10
    rows = [json.loads(line) for line in (tmp_path / "run" / "caorl" / "0" / "curve.jsonl").open()]
    assert rows[-1]["loss"] < rows[0]["loss"]
    pool = ("--pool", PLANS, "--constants", CONSTANTS, "--plans", 1)
    told = bench_play.printed(capsys, "catp", *pool, "--planner", made["planner"])["planner"]
    assert told["valid"] == 1.0
    assert told["ift_qop"] is not None
    assert told["ablations"] == {}
    planner = read_planner(Path(made["planner"]))
    kept = torch.load(tmp_path / "run" / "caorl" / "0" / "checkpoint.pt")["trained"]["tool"].numpy()
    assert np.allclose(planner.models["caorl", 0].weights["tool"], kept, atol=1e-3)


def test_numpy_and_pytorch_give_the_same_scores(data) -> None:
    args = argparse.Namespace(data=data, folds=2, held=None, only=("caorl",))
    training = next(caorl._trainings(*caorl._read(args), args, caorl.RECIPE))
    planner, model = training.planner, training.model
    asked = [
        (planner.tasks[one.task], one.level, one.actions, one.returns(planner.alpha, feedback=True))
        for one in training.examples
    ]
    given = inputs(planner, VARIANTS["caorl"], model, asked)
    tensors = {name: torch.from_numpy(values) for name, values in given.items()}
    with torch.no_grad():
        theirs = forward(training.trained(), tensors, torch).numpy()
    assert np.allclose(forward(model.weights, given, np), theirs, atol=1e-4)


def test_without_the_mask_an_action_is_learned_against_its_whole_head(data) -> None:
    args = argparse.Namespace(data=data, folds=2, held=1, only=("caorl", "no-masking"))
    runs = {one.variant: one for one in caorl._trainings(*caorl._read(args), args, caorl.RECIPE)}
    example = runs["caorl"].examples[0]
    assert runs["no-masking"].weight(example) == len(example.actions)
    assert runs["caorl"].weight(example) < len(example.actions)
