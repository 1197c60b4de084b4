"""`ecoshell doctor`: what is installed, what is missing, and whether the shell can run."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_play import Command
from unprivileged import closed, read_only_folder

from ecoshell.assembly import open_store
from ecoshell.cli.manage.doctor import run_checks
from ecoshell.errors import StoreError
from ecoshell.paths import Paths, user_paths

KEY = "sk-doctor-0123456789"


def doctor_report(command: Command) -> tuple[int, dict[str, dict[str, Any]]]:
    ended = command("doctor", "--json")
    report = json.loads(ended.stdout)
    assert report["ok"] == (ended.returncode == 0)
    assert KEY not in ended.stdout
    return ended.returncode, {check["name"]: check for check in report["checks"]}


def test_working_installation_passes_without_writing_anything(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ECOSHELL_MODEL", "openai/gpt-4o-mini")
    status, checks = doctor_report(command)
    assert status == 0
    assert {
        "ecoshell",
        "packages",
        "extra local",
        "llama.cpp",
        "GPU",
        "embedded model",
        "settings",
    } <= {*checks}
    assert {"servers", "terminal", "config folder", "data folder", "cache folder", "databases"} <= {
        *checks
    }
    assert checks["keys"] == {"name": "keys", "state": "ok", "found": "OPENAI_API_KEY", "fix": ""}
    assert "litellm" in checks["packages"]["found"]
    assert checks["model"]["found"] == "openai/gpt-4o-mini (has a key)"
    assert not (tmp_path / "home").exists()


def test_obstacles_are_listed_with_fixes(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    monkeypatch.setenv("ECOSHELL_MODEL", "openai/gpt-4o-mini")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/data").write_text("a file where a folder should be")
    status, checks = doctor_report(command)
    assert status == 1
    assert checks["model"]["state"] == "wrong"
    assert "OPENAI_API_KEY" in checks["model"]["fix"]
    assert checks["data folder"]["state"] == "wrong"
    assert "ECOSHELL_HOME" in checks["data folder"]["fix"]


def test_read_only_home_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        os, "access", partial(os.access, effective_ids=True)
    )  # who reads here is nobody for a while
    for _ in run_checks(user_paths()):  # imports what may be out of reach for nobody
        pass
    with read_only_folder() as folder:
        checks = {check.name: check for check in run_checks(Paths.under(folder / "home"))}
    for name in ("config", "data", "cache"):
        assert checks[f"{name} folder"].state == "wrong"
        assert f"Make {folder} a folder that you can write" in checks[f"{name} folder"].fix
    assert checks["databases"].found == "none yet; the first chat creates ledger and sessions"


def test_unreadable_home_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", partial(os.access, effective_ids=True))
    for _ in run_checks(user_paths()):
        pass
    with read_only_folder() as folder, closed(folder):
        checks = {check.name: check for check in run_checks(Paths.under(folder / "home"))}
        with pytest.raises(StoreError, match="cannot be written"):
            open_store(Paths.under(folder / "home"))
    assert f"Make {folder} a folder that you can write" in checks["data folder"].fix
    assert checks["settings"].state == "wrong"


def test_broken_settings_and_databases_are_reported(command: Command) -> None:
    command("tools")
    paths = user_paths()
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text("[budget]\nsesion = '1'\n", encoding="utf-8")
    paths.data.mkdir()
    paths.ledger_file.write_text("no database " * 500, encoding="utf-8")
    ended = command("doctor")
    assert ended.returncode == 1
    assert "wrong    settings: " in ended.stdout
    assert "wrong    databases: " in ended.stdout
    assert "did you mean budget.session?" in ended.stdout
    assert ended.stdout.endswith("The shell cannot run.\n")
    assert paths.ledger_file.read_text(encoding="utf-8").startswith("no database")
