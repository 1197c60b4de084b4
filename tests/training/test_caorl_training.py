"""Training of planners with PyTorch."""

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


def test_trained_planner_can_be_measured(tmp_path, data, capsys) -> None:
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
    results = json.loads(capsys.readouterr().out)
    assert results["variants"] == ["caorl", "ift"]
    assert results["mb"] < 10
    rows = [json.loads(line) for line in (tmp_path / "run" / "caorl" / "0" / "curve.jsonl").open()]
    assert rows[-1]["loss"] < rows[0]["loss"]
    pool = ("--pool", PLANS, "--constants", CONSTANTS, "--plans", 1)
    record = bench_play.printed(capsys, "catp", *pool, "--planner", results["planner"])["planner"]
    assert record["valid"] == 1.0
    assert record["ift_qop"] is not None
    assert record["ablations"] == {}
    planner = read_planner(Path(results["planner"]))
    weights = torch.load(tmp_path / "run" / "caorl" / "0" / "checkpoint.pt")["trained"][
        "tool"
    ].numpy()
    assert np.allclose(planner.models["caorl", 0].weights["tool"], weights, atol=1e-3)


def test_numpy_and_pytorch_agree(data) -> None:
    args = argparse.Namespace(data=data, folds=2, held=None, only=("caorl",))
    training = next(caorl._trainings(*caorl._read(args), args, caorl.RECIPE))
    planner, model = training.planner, training.model
    queries = [
        (
            planner.tasks[example.task],
            example.level,
            example.actions,
            example.returns(planner.alpha, feedback=True),
        )
        for example in training.examples
    ]
    arrays = inputs(planner, VARIANTS["caorl"], model, queries)
    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
    with torch.no_grad():
        theirs = forward(training.trained(), tensors, torch).numpy()
    assert np.allclose(forward(model.weights, arrays, np), theirs, atol=1e-4)


def test_without_masking_every_action_is_a_choice(data) -> None:
    args = argparse.Namespace(data=data, folds=2, held=1, only=("caorl", "no-masking"))
    runs = {
        training.variant: training
        for training in caorl._trainings(*caorl._read(args), args, caorl.RECIPE)
    }
    example = runs["caorl"].examples[0]
    assert runs["no-masking"].weight(example) == len(example.actions)
    assert runs["caorl"].weight(example) < len(example.actions)
