"""The plugin `train`: imported only when its command or its judge is used."""

import subprocess
import sys

import pytest

from ecoshell.agent.judge import JUDGES
from ecoshell.errors import UsageError
from ecoshell.messages import Call, Observation
from ecoshell.paths import user_paths
from ecoshell.plugin_discovery import find_user_plugins
from ecoshell.plugin_host import Plugins

RUN = """
import sys
from ecoshell.cli import main
status = main(sys.argv[1:])
print("imported" if any(name.split(".")[0] == "ecoshell_train" for name in sys.modules) else "not imported")
sys.exit(status)
"""


def judges():
    return Plugins(find_user_plugins(user_paths()), pytest.fail).judges(JUDGES)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("judge", ["rules", "classifier"])
def test_plugin_is_imported_when_its_judge_judges(tmp_path, monkeypatch, judge):
    (tmp_path / "a.txt").write_text("one\n")
    script = tmp_path / "script.jsonl"
    script.write_text(
        '{"call": {"name": "read_file", "arguments": {"path": "a.txt"}}}\n{"text": "One."}\n'
    )
    monkeypatch.setenv("ECOSHELL_PLAN_JUDGE", judge)
    monkeypatch.setenv("ECOSHELL_PLAN_MODE", "btp")
    options = [
        "--model",
        f"script:{script}",
        "--registration",
        "all",
        "--price",
        "1,1",
        "--budget",
        "0.50",
    ]
    words = ["ask", "--json", *options, "What does a.txt say?"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    imported = done.stdout.splitlines()[-1] == "imported"
    assert (imported, "No classifier has been trained yet" in done.stdout) == (
        judge == "classifier",
    ) * 2


def test_shipped_judge_raises_while_untrained():
    judge = judges()["classifier"]
    with pytest.raises(UsageError, match="No classifier has been trained"):
        judge("Ships?", Call("search"), Observation("Offers"))


def test_disabled_plugin_provides_no_judge(monkeypatch):
    monkeypatch.setenv("ECOSHELL_PLUGINS_DISABLED", '["train"]')
    assert judges() == {}


def test_enabled_plugin_provides_its_judge_itself(monkeypatch):
    monkeypatch.setenv("ECOSHELL_PLUGINS_ENABLED", '["train"]')
    assert [*judges()] == ["classifier"]
