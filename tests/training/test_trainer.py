"""The loop of training, with a model of a few numbers; what needs PyTorch is skipped without it."""

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshell.errors import ModelBroken, UsageError
from ecoshell_train import trainer
from ecoshell_train.trainer import CHECKPOINT, CURVE, Progress, Recipe, curve_of

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
pytest.importorskip("transformers", reason="the extra `train` is not installed")

RECIPE = Recipe(steps=24, batch=4, rate=0.05, tokens=8, every=8, seed=3)
EXAMPLES = [(x / 10, 3 * x / 10 + 1) for x in range(-10, 10)]


class Line:
    """Learns a straight line from points, with some dropout, so that chance matters."""

    def __init__(self, most: int = 100) -> None:
        torch.manual_seed(0)
        self.line = torch.nn.Linear(8, 1)
        self.most, self.asked = most, 0

    def trained(self):
        return dict(self.line.named_parameters())

    def tokens(self, example):
        return 2

    def weight(self, example):
        return 1

    def loss(self, examples):
        self.asked += 1
        if len(examples) > self.most:
            raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate much")
        x = torch.tensor([[x] * 8 for x, _ in examples])
        y = torch.tensor([[y] for _, y in examples])
        x = torch.nn.functional.dropout(x, 0.1, training=torch.is_grad_enabled())
        return ((self.line(x) - y) ** 2).sum()


def trained(folder: Path, recipe: Recipe = RECIPE, line: Line | None = None, examples=EXAMPLES):
    told: list[Progress] = []
    line = line or Line()
    rows = trainer.train(line, examples, EXAMPLES[:4], recipe, folder, told.append)
    return rows, {name: value.tolist() for name, value in line.trained().items()}, told


def test_the_loss_falls_and_every_step_is_a_row_of_the_curve(tmp_path) -> None:
    rows, _, told = trained(tmp_path)
    assert rows[-1]["loss"] < rows[0]["loss"] / 4
    assert [row["step"] for row in curve_of(tmp_path)] == [*range(1, 25)]
    assert [row["step"] for row in rows if "validation" in row] == [8, 16, 24]
    assert told[-1].step == 24
    assert told[-1].seconds_left == 0


def test_the_same_seed_gives_the_same_result_and_another_seed_another_one(tmp_path) -> None:
    one, again = trained(tmp_path / "one"), trained(tmp_path / "again")
    assert one[:2] == again[:2]
    assert trained(tmp_path / "other", replace(RECIPE, seed=4))[1] != one[1]


_KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import test_trainer
from pathlib import Path
line, steps = test_trainer.Line(), []
derive = line.loss
def loss(examples):
    steps.append(1)
    if len(steps) == 14:
        os.kill(os.getpid(), signal.SIGKILL)
    return derive(examples)
line.loss = loss
test_trainer.trained(Path({folder!r}), line=line)
"""


def test_a_run_that_was_killed_ends_as_one_that_was_not(tmp_path) -> None:
    killed = _KILLED.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "killed"))
    ended = subprocess.run([sys.executable, "-c", killed], check=False, timeout=600, env={**os.environ})
    assert ended.returncode == -signal.SIGKILL
    left = curve_of(tmp_path / "killed")
    assert 8 <= left[-1]["step"] < 24
    rows, weights, told = trained(tmp_path / "killed")
    assert "Going on from step 8" in told[0].note
    assert (rows, weights) == trained(tmp_path / "whole")[:2]
    assert curve_of(tmp_path / "killed") == rows


def test_a_folder_of_another_run_is_left_alone(tmp_path) -> None:
    trained(tmp_path)
    before = (tmp_path / CHECKPOINT).read_bytes()
    with pytest.raises(UsageError, match="other examples or numbers"):
        trained(tmp_path, examples=EXAMPLES[1:])
    assert (tmp_path / CHECKPOINT).read_bytes() == before


def test_short_memory_halves_what_is_computed_at_once_and_changes_the_result_by_no_more_than_rounding(tmp_path) -> None:
    _, weights, told = trained(tmp_path / "short", line=Line(most=1))
    assert any("at most 2 tokens" in one.note for one in told)
    _, whole, _ = trained(tmp_path / "whole")
    assert weights["weight"][0] == pytest.approx(whole["weight"][0], abs=0.1)
    with pytest.raises(ModelBroken, match="a single example"):
        trained(tmp_path / "none", line=Line(most=0))


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch) -> None:
    trained(tmp_path / "half", replace(RECIPE, every=100))
    real, full = trainer.replacement, []

    def replacement(file, mode=0o600):
        if file.name == CHECKPOINT and (tmp_path / "full" / CHECKPOINT).exists() and not full:
            full.append(1)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, mode)

    monkeypatch.setattr(trainer, "replacement", replacement)
    _, weights, told = trained(tmp_path / "full")
    assert full
    assert any("the one before is still there" in one.note for one in told)
    monkeypatch.undo()
    assert weights == trained(tmp_path / "whole")[1]


def test_half_a_line_of_a_curve_is_left_out(tmp_path) -> None:
    rows, _, _ = trained(tmp_path)
    with (tmp_path / CURVE).open("a") as curve:
        curve.write('{"step": 25, "lo')
    assert curve_of(tmp_path) == rows


def test_what_a_run_takes_is_told_before(tmp_path) -> None:
    foreseen = trainer.estimate(Line(), EXAMPLES, RECIPE, numbers=9)
    assert (foreseen.tokens, foreseen.steps) == (24 * 4 * 2, 24)
    assert foreseen.hours
    assert foreseen.disk_mb == pytest.approx(9 * 12 / 1e6)
