"""The files built by `make dist`, installed into a new environment."""

import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from ecoshell import __version__

ROOT = Path(__file__).parent.parent
BUILT = os.environ.get("ECOSHELL_DIST", "")
pytestmark = pytest.mark.skipif(
    not BUILT, reason="`make dist` builds the files and sets ECOSHELL_DIST"
)


@pytest.fixture(scope="module")
def dist() -> Path:
    return ROOT / BUILT


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs folder of an environment with only the wheel and its dependencies."""
    place = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(place, with_pip=True)
    programs = place / ("Scripts" if sys.platform == "win32" else "bin")
    wheel = dist / f"ecoshell-{__version__}-py3-none-any.whl"
    command = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        str(ROOT / "constraints.txt"),
        str(wheel),
    ]
    subprocess.run([programs / "python", *command], check=True, timeout=1800)
    return programs


@pytest.fixture
def run_installed(installed: Path, tmp_path: Path):
    """Runs the installed ecoshell in a temporary folder."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ECOSHELL_", "PYTHON"))
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [installed / "ecoshell", *arguments],
            cwd=tmp_path, env={**environ, "ECOSHELL_HOME": str(tmp_path / "home")}, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, check=False, timeout=600,
        )  # fmt: skip

    return run


def test_the_version_is_printed(run_installed) -> None:
    done = run_installed("--version")
    assert (done.returncode, done.stdout) == (0, f"ecoshell {__version__}\n")


def test_a_question_is_answered_with_a_tool(run_installed, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    script = [
        {"call": {"name": "tool_register", "arguments": {"tool_name": "count_text"}}},
        {"call": {"name": "count_text", "arguments": {"path": "notes.txt"}}},
        {"text": "It has 2 lines."},
    ]
    (tmp_path / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in script))
    options = (
        "--model",
        "script:script.jsonl",
        "--registration",
        "names",
        "How many lines has notes.txt?",
    )
    done = run_installed("ask", "--quiet", *options)
    assert (done.returncode, done.stdout) == (0, "It has 2 lines.\n"), done.stderr
    session = json.loads(run_installed("sessions", "--json").stdout)["rows"][0]["id"]
    assert "notes.txt: 2 lines" in run_installed("sessions", "show", session).stdout


def test_tools_of_the_default_catalog_need_no_extra(run_installed, tmp_path: Path) -> None:
    calls = {
        "current_time": {"timezone": "Tokyo"},
        "convert_units": {"value": "3", "from_unit": "m", "to_unit": "cm"},
        "json_query": {"text": '{"a": 1}', "query": "a"},
        "search_text": {"text": "one"},
        "calculate": {"expression": "6 * 7"},
    }
    names = {row["name"] for row in json.loads(run_installed("tools", "--json").stdout)["rows"]}
    assert {*calls, "fetch_url", "web_extract", "git_status", "run_command"} <= names
    script = [{"call": {"name": name, "arguments": calls[name]}} for name in calls]
    lines = [*script, {"text": "Done."}]
    (tmp_path / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run_installed("ask", "--json", "--model", "script:script.jsonl", "What?")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    finished = [event["ok"] for event in events if event["type"] == "call_finished"]
    assert finished == [True] * len(calls), done.stdout


def test_doctor_reports_missing_extras_and_complete_packages(run_installed) -> None:
    report = json.loads(run_installed("doctor", "--json").stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["packages"]["state"] == "ok", checks["packages"]
    assert checks["extra local"]["state"] == "missing"
    assert "ecoshell[local]" in checks["extra local"]["fix"]


def test_the_screen_can_be_drawn(run_installed, tmp_path: Path) -> None:
    (tmp_path / "script.jsonl").write_text("")
    (tmp_path / "home" / "config").mkdir(parents=True)
    (tmp_path / "home" / "config" / "config.toml").write_text('model = "script:script.jsonl"\n')
    done = run_installed("screenshot", "screen.svg")
    assert done.returncode == 0, done.stderr
    assert "ecoshell" in (tmp_path / "screen.svg").read_text(encoding="utf-8")


def test_the_source_distribution_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"ecoshell-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "again"]
    subprocess.run(command, cwd=unpacked, check=True, capture_output=True)
    (again,) = (unpacked / "again").iterdir()
    assert again.read_bytes() == (dist / again.name).read_bytes()
