"""Damaged GGUF files raise an error and never end the shell, because a subprocess opens them first."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ecoshell.errors import ModelBroken
from ecoshell.models import llama
from ecoshell.models.embedded import embedded_path
from ecoshell.models.llama import Vocabulary

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    return Path(shutil.copy(embedded_path(), tmp_path / "model.gguf"))


def test_a_file_that_crashes_llama_is_an_error(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "_TRY", "import os; os.abort()")
    with pytest.raises(
        ModelBroken, match=r"model\.gguf is damaged: llama\.cpp fails on it \(signal 6\)"
    ):
        Vocabulary(copy)
    assert not (tmp_path / "home/cache/tried").exists()


def test_a_sound_file_is_tried_once(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llama.try_file(copy)
    monkeypatch.setattr(llama, "_TRY", "import os; os.abort()")
    llama.try_file(copy)
    copy.touch()
    with pytest.raises(ModelBroken):
        llama.try_file(copy)


@pytest.mark.parametrize(
    ("built", "extra"), [(b"AVX2 = 1 | AMX_INT8 = 1 | ", False), (b"AVX2 = 1 | ", True)]
)
def test_a_llama_built_for_the_matrix_unit_does_not_use_it(
    monkeypatch: pytest.MonkeyPatch, built: bytes, extra: bool
) -> None:
    library, buffer_settings = llama.llama_library(), []
    load = library.llama_model_load_from_file
    monkeypatch.setattr(library, "llama_print_system_info", lambda: built)
    monkeypatch.setattr(
        library,
        "llama_model_load_from_file",
        lambda path, params: load(path, buffer_settings.append(params.use_extra_bufts) or params),
    )
    Vocabulary(embedded_path()).close()
    assert buffer_settings == [extra]


DAMAGED = int(os.environ.get("DAMAGED", "64"))
"""Number of files, with eight kinds of damage."""


@pytest.mark.slow
def test_every_damaged_file_is_an_error_or_works(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the package gguf is not installed")
    done = subprocess.run(
        [sys.executable, "tests/support/damaged_gguf.py", str(tmp_path), str(DAMAGED)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ECOSHELL_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    sound, *rows = map(json.loads, done.stdout.splitlines())
    assert (sound["tried"], sound["said"]) == (0, "answered")
    assert len(rows) == DAMAGED
    assert [row for row in rows if row["opened"]] == [], "the file ended the process that opened it"
    crashes = [
        row
        for row in rows
        if row["tried"] >= 0 and not row["said"].startswith(("error: ", "answered"))
    ]
    assert crashes == []
    errors = sum(row["said"].startswith("error: ") or row["tried"] < 0 for row in rows)
    assert errors > DAMAGED / 2, "too few files were damaged"
