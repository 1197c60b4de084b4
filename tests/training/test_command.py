"""`ecoshell train`, as it is typed."""

import json
from importlib.util import find_spec

import pytest

from ecoshell.cli import main
from ecoshell.models import embedded
from ecoshell.models.embedded import embedded_path
from ecoshell.models.local_models import is_embedded, local_files

pytestmark = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="the extra `local` is not installed")
TORCH = find_spec("torch") is not None


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))


def test_a_method_must_be_named(capsys) -> None:
    assert main(["train"]) == 2
    assert "There are umi, catp" in capsys.readouterr().err


@pytest.mark.skipif(TORCH, reason="the extra `train` is installed")
def test_without_its_libraries_training_says_how_to_get_them(capsys) -> None:
    assert main(["train", "umi", "--steps", "2"]) == 2
    assert "pip install 'ecoshell[train]'" in capsys.readouterr().err


def test_numbers_are_checked_before_anything_is_loaded(capsys) -> None:
    assert main(["train", "umi", "--steps", "0"]) == 2
    assert "no number above 0" in capsys.readouterr().err


@pytest.mark.skipif(TORCH, reason="the extra `train` is installed, and the base would be loaded to measure it")
def test_a_dry_run_tells_what_it_would_take_and_trains_nothing(capsys, tmp_path) -> None:
    command = ["train", "umi", "--only", "single", "--tasks", "2", "--steps", "5", "--batch", "3", "--rank", "4"]
    assert main([*command, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["tokens", "steps", "hours", "disk_mb"]
    assert told["steps"] == 5
    assert told["hours"] is None  # nothing is there to measure it with
    assert 5 * 3 * 40 < told["tokens"] < 5 * 3 * 800
    assert told["disk_mb"] == pytest.approx(1_221_120 * 14 / 1e6)
    assert main([*command, "--out", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "hours: unknown" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["--base=local:", "--begin="])
def test_a_file_that_is_not_there_is_named_before_anything_is_played(option, capsys, tmp_path) -> None:
    file = tmp_path / "none.gguf"
    assert main(["train", "umi", f"{option}{file}", "--tasks", "1", "--dry-run"]) > 0
    assert f"There is no file {file}." in capsys.readouterr().err


def test_a_base_of_another_kind_is_refused(capsys, tmp_path) -> None:
    content = bytearray(embedded_path().read_bytes())
    place = content.index(b"general.architecture") + len("general.architecture") + 12
    content[place : place + 5] = b"qwen2"
    (tmp_path / "other.gguf").write_bytes(content)
    assert main(["train", "umi", "--base", f"local:{tmp_path / 'other.gguf'}", "--dry-run"]) == 2
    assert "for llama alone" in capsys.readouterr().err


def test_the_embedded_model_wears_what_it_is_shipped_with_unless_its_base_is_named(tmp_path, monkeypatch) -> None:
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
