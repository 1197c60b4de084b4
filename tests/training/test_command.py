"""The command `ecoshell train`."""

import json
from importlib.util import find_spec

import pytest

from ecoshell.cli import main
from ecoshell.models import embedded
from ecoshell.models.embedded import embedded_path
from ecoshell.models.local_models import is_embedded, local_files

pytestmark = pytest.mark.skipif(
    find_spec("llama_cpp") is None, reason="the extra `local` is not installed"
)
TORCH = find_spec("torch") is not None


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))


def test_train_requires_a_method(capsys) -> None:
    assert main(["train"]) == 2
    assert "Available: umi, catp" in capsys.readouterr().err


@pytest.mark.skipif(TORCH, reason="the extra `train` is installed")
def test_missing_libraries_name_the_extra(capsys) -> None:
    assert main(["train", "umi", "--steps", "2"]) == 2
    assert "pip install 'ecoshell[train]'" in capsys.readouterr().err


def test_numbers_are_validated(capsys) -> None:
    assert main(["train", "umi", "--steps", "0"]) == 2
    assert "not a number above 0" in capsys.readouterr().err


@pytest.mark.skipif(
    TORCH, reason="the extra `train` is installed, and the base would be loaded to measure it"
)
def test_dry_run_estimates_without_training(capsys, tmp_path) -> None:
    command = [
        "train",
        "umi",
        "--only",
        "single",
        "--tasks",
        "2",
        "--steps",
        "5",
        "--batch",
        "3",
        "--rank",
        "4",
    ]
    assert main([*command, "--dry-run", "--json"]) == 0
    estimate = json.loads(capsys.readouterr().out)
    assert list(estimate) == ["tokens", "steps", "hours", "disk_mb"]
    assert estimate["steps"] == 5
    assert estimate["hours"] is None  # PyTorch is missing.
    assert 5 * 3 * 40 < estimate["tokens"] < 5 * 3 * 800
    assert estimate["disk_mb"] == pytest.approx(1_221_120 * 14 / 1e6)
    assert main([*command, "--out", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "hours: unknown" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [("--base=local:", "There is no file {}."), ("--begin=", "{} does not exist.")],
)
def test_missing_file_is_reported_first(option, message, capsys, tmp_path) -> None:
    file = tmp_path / "none.gguf"
    assert main(["train", "umi", f"{option}{file}", "--tasks", "1", "--dry-run"]) > 0
    assert message.format(file) in capsys.readouterr().err


def test_base_with_another_architecture_is_refused(capsys, tmp_path) -> None:
    content = bytearray(embedded_path().read_bytes())
    start = content.index(b"general.architecture") + len("general.architecture") + 12
    content[start : start + 5] = b"qwen2"
    (tmp_path / "other.gguf").write_bytes(content)
    assert main(["train", "umi", "--base", f"local:{tmp_path / 'other.gguf'}", "--dry-run"]) == 2
    assert "only be trained for llama" in capsys.readouterr().err


def test_embedded_model_uses_its_adapters_and_embedded_base_does_not(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(embedded, "ADAPTERS", tmp_path)
    assert local_files("embedded") == local_files("embedded-base")
    assert embedded.embedded_as("planner") == "embedded"
    (tmp_path / "single.gguf").write_bytes(b"")
    assert local_files("embedded").adapter == tmp_path / "single.gguf"
    assert local_files("embedded-base").adapter is None
    assert is_embedded("embedded-base")
    assert embedded.embedded_as("planner") == "embedded"
    (tmp_path / "planner.gguf").write_bytes(b"")
    assert embedded.embedded_as("planner") == f"embedded+{tmp_path / 'planner.gguf'}"
