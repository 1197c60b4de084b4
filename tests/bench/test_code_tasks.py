"""The packaged programming tasks: reference solutions pass the checks, untouched workspaces fail them."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_play import Bench

from ecoshell.errors import UsageError
from ecoshell_bench.tasks.report import Result
from ecoshell_bench.tasks.suite import SPLITS, Task, read_code_tasks, read_suite
from ecoshell_bench.tasks.workspace import Sandbox, failures, sandbox

SOLUTIONS = Path(__file__).parent / "code_solutions"
TASKS = read_code_tasks()
STYLES = {"spec": 10, "fix": 9, "api": 6, "report": 6}


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with sandbox() as box:
        yield box


async def check(task: Task, box: Sandbox) -> list[str]:
    return await failures(task, box.workspace, Result(task.id, task.kind, "ecoshell", task.digest))


def solve(task: Task, workspace: Path) -> None:
    """Apply the reference solution: a patch, or for reports a program that writes the file."""
    program, patch = SOLUTIONS / f"{task.id}.py", SOLUTIONS / f"{task.id}.patch"
    command = (
        [sys.executable, "-B", str(program)] if program.exists() else ["git", "apply", str(patch)]
    )
    subprocess.run(command, cwd=workspace, check=True)


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, id=task.id, marks=pytest.mark.slow if number % 4 else ())
        for number, task in enumerate(TASKS)
    ],
)
async def test_reference_solution_passes_and_untouched_workspace_fails(
    task: Task, box: Sandbox
) -> None:
    assert not await box.prepare(task)
    assert await check(task, box)
    assert not await box.prepare(task)
    assert not any((box.workspace / name).exists() for name in task.check.files)
    solve(task, box.workspace)
    assert await check(task, box) == []


def test_every_style_has_enough_tasks_in_both_halves() -> None:
    assert Counter(task.id.split("-")[1] for task in TASKS) == STYLES
    assert {task.kind for task in TASKS} == {"code"}
    for style, count in STYLES.items():
        halves = Counter(task.split for task in TASKS if task.id.startswith(f"code-{style}-"))
        assert min(halves[split] for split in SPLITS) >= 0.3 * count, style
    assert {task.id for task in TASKS} == {
        file.stem for file in SOLUTIONS.iterdir() if file.is_file()
    }


def test_halves_share_no_file() -> None:
    texts = {
        split: {text for task in TASKS if task.split == split for text in task.files.values()}
        for split in SPLITS
    }
    assert not (texts["dev"] & texts["test"]) - {""}


def test_some_workspaces_have_files_longer_than_reading_limits() -> None:
    long_files = [
        task.id for task in TASKS if any(text.count("\n") > 300 for text in task.files.values())
    ]
    assert len(long_files) >= 10
    assert all(task.check.files and len(task.request) > 80 for task in TASKS)


def test_default_suite_stays_without_programming_tasks() -> None:
    assert "code" not in {task.kind for task in read_suite(None)}
    assert sum(task.split == "test" for task in read_suite(None)) == 84


def test_packaged_programming_tasks_are_played_with_kind_code(play: Bench) -> None:
    record = play.run(
        None, "--kind", "code", "--split", "test", "--limit", "1", script=[{"text": "Done."}]
    )
    (row,) = record["rows"]
    assert (row["id"].startswith("code-"), row["kind"], row["ok"]) == (True, "code", False)
    assert "the command exits with 1" in row["wrong"][0]
    record = play.run(None, "--only", row["id"], script=[{"text": "Done."}])
    assert [each["id"] for each in record["rows"]] == [row["id"]]


def folder_of(parent: Path, toml: str, files: dict[str, str], hidden: dict[str, str]) -> Path:
    for name, text in {
        "task.toml": toml,
        **files,
        **{f"hidden/{name}": text for name, text in hidden.items()},
    }.items():
        file = parent / "mine" / "task-1" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return parent / "mine"


HIDDEN_TEST = """\
import unittest
import m

class T(unittest.TestCase):
    def test(self):
        self.assertEqual(m.x, 1)
"""


@pytest.mark.parametrize(
    ("module", "passes"),
    [
        ("x = 1\n", True),
        ("x = 2\n", False),
        ("import sys\nsys.exit(0)\n", False),
        ("import\n", False),
    ],
)
async def test_hidden_tests_decide_also_if_the_module_ends_the_interpreter(
    module: str, passes: bool, tmp_path: Path, box: Sandbox
) -> None:
    toml = "request = 'Write m.py.'\n"
    (task,) = read_suite(
        folder_of(tmp_path, toml, {"files/m.py": module}, {"test_m.py": HIDDEN_TEST})
    )
    assert (task.id, task.kind, task.split) == ("task-1", "code", "dev")
    assert not await box.prepare(task)
    assert (await check(task, box) == []) is passes


async def test_files_of_a_check_replace_those_in_the_workspace(
    tmp_path: Path, box: Sandbox
) -> None:
    record: dict[str, Any] = {
        "id": "a",
        "request": "Make ok.",
        "files": {"t.sh": "exit 0\n"},
        "check": {"command": "sh t.sh", "files": {"t.sh": "test -e ok\n"}},
    }
    (tmp_path / "suite.jsonl").write_text(json.dumps(record))
    (task,) = read_suite(tmp_path / "suite.jsonl")
    assert not await box.prepare(task)
    assert await check(task, box)
    (box.workspace / "ok").touch()
    assert await check(task, box) == []


def test_files_of_a_task_override_those_of_its_base(tmp_path: Path) -> None:
    suite = folder_of(
        tmp_path,
        "request = 'x'\nbase = 'shared/b'\n",
        {"files/b.py": "task", "files/d.py": ""},
        {"test_m.py": "task"},
    )
    for name in ("files/a.py", "files/b.py", "files/c/e.py", "hidden/test_m.py", "hidden/data.txt"):
        path = suite / "shared" / "b" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("base")
    (task,) = read_suite(suite)
    assert list(task.files.items()) == [
        ("a.py", "base"),
        ("b.py", "task"),
        ("c/e.py", "base"),
        ("d.py", ""),
    ]
    assert (task.check.files["_check/test_m.py"], task.check.files["_check/data.txt"]) == (
        "task",
        "base",
    )


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("request = ", "cannot be read"),
        ("split = 'dev'\n", "`request`"),
        ("request = 'x'\n[check]\ncommand = ''\n", "needs a `command`"),
        ("request = 'x'\nbase = 'absent'\n", "base 'absent' is not a folder"),
        ("request = 'x'\nbase = '../mine'\n", "not a path inside"),
        ("request = 'x'\nbase = 1\n", "base 1 is not a folder"),
    ],
)
def test_task_folder_that_cannot_be_read_is_named(toml: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"task-1.*{message}"):
        read_suite(folder_of(tmp_path, toml, {}, {"test_m.py": HIDDEN_TEST}))
