"""The training loop with a tiny model; needs PyTorch."""

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
    """Fits a line with dropout, so that the result depends on the seed."""

    def __init__(self, batch_limit: int = 100) -> None:
        torch.manual_seed(0)
        self.line = torch.nn.Linear(8, 1)
        self.batch_limit = batch_limit

    def trained(self):
        return dict(self.line.named_parameters())

    def tokens(self, example):
        return 2

    def weight(self, example):
        return 1

    def loss(self, examples):
        if len(examples) > self.batch_limit:
            raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate much")
        x = torch.tensor([[x] * 8 for x, _ in examples])
        y = torch.tensor([[y] for _, y in examples])
        x = torch.nn.functional.dropout(x, 0.1, training=torch.is_grad_enabled())
        return ((self.line(x) - y) ** 2).sum()


def trained(folder: Path, recipe: Recipe = RECIPE, line: Line | None = None, examples=EXAMPLES):
    reports: list[Progress] = []
    line = line or Line()
    rows = trainer.train(line, examples, EXAMPLES[:4], recipe, folder, reports.append)
    return rows, {name: value.tolist() for name, value in line.trained().items()}, reports


def test_loss_falls_and_the_curve_has_every_step(tmp_path) -> None:
    rows, _, reports = trained(tmp_path)
    assert rows[-1]["loss"] < rows[0]["loss"] / 4
    assert [row["step"] for row in curve_of(tmp_path)] == [*range(1, 25)]
    assert [row["step"] for row in rows if "validation" in row] == [8, 16, 24]
    assert reports[-1].step == 24
    assert reports[-1].seconds_left == 0


def test_result_depends_on_the_seed(tmp_path) -> None:
    first, again = trained(tmp_path / "first"), trained(tmp_path / "again")
    assert first[:2] == again[:2]
    assert trained(tmp_path / "other", replace(RECIPE, seed=4))[1] != first[1]


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


def test_killed_and_continued_run_ends_like_an_uninterrupted_one(tmp_path) -> None:
    killed = _KILLED.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "killed"))
    ended = subprocess.run(
        [sys.executable, "-c", killed], check=False, timeout=600, env={**os.environ}
    )
    assert ended.returncode == -signal.SIGKILL
    curve = curve_of(tmp_path / "killed")
    assert 8 <= curve[-1]["step"] < 24
    rows, weights, reports = trained(tmp_path / "killed")
    assert "Continuing from step 8" in reports[0].note
    assert (rows, weights) == trained(tmp_path / "uninterrupted")[:2]
    assert curve_of(tmp_path / "killed") == rows


def test_folder_of_another_run_is_refused(tmp_path) -> None:
    trained(tmp_path)
    content = (tmp_path / CHECKPOINT).read_bytes()
    with pytest.raises(UsageError, match="other examples or options"):
        trained(tmp_path, examples=EXAMPLES[1:])
    assert (tmp_path / CHECKPOINT).read_bytes() == content


def test_short_memory_halves_passes_with_the_same_result(tmp_path) -> None:
    _, weights, reports = trained(tmp_path / "short", line=Line(batch_limit=1))
    assert any("at most 2 tokens" in report.note for report in reports)
    _, expected, _ = trained(tmp_path / "usual")
    assert weights["weight"][0] == pytest.approx(expected["weight"][0], abs=0.1)
    with pytest.raises(ModelBroken, match="A single example"):
        trained(tmp_path / "none", line=Line(batch_limit=0))


def test_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch) -> None:
    trained(tmp_path / "half", replace(RECIPE, every=100))
    original, failures = trainer.replacement, []

    def replacement(file, mode=0o600):
        if file.name == CHECKPOINT and (tmp_path / "full" / CHECKPOINT).exists() and not failures:
            failures.append(1)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(file, mode)

    monkeypatch.setattr(trainer, "replacement", replacement)
    _, weights, reports = trained(tmp_path / "full")
    assert failures
    assert any("the previous one is unchanged" in report.note for report in reports)
    monkeypatch.undo()
    assert weights == trained(tmp_path / "uninterrupted")[1]


def test_incomplete_line_of_a_curve_is_skipped(tmp_path) -> None:
    rows, _, _ = trained(tmp_path)
    with (tmp_path / CURVE).open("a") as curve:
        curve.write('{"step": 25, "lo')
    assert curve_of(tmp_path) == rows


def test_estimate_of_a_run(tmp_path) -> None:
    estimate = trainer.estimate(Line(), EXAMPLES, RECIPE, numbers=9)
    assert (estimate.tokens, estimate.steps) == (24 * 4 * 2, 24)
    assert estimate.hours
    assert estimate.disk_mb == pytest.approx(9 * 12 / 1e6)
