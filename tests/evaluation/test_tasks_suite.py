"""The packaged suite of `bench tasks`: every row is well formed, and no check passes when nothing was done."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

import ecoshell

SUITE = Path(ecoshell.__file__).parent / "evaluation" / "tasks" / "suite.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in SUITE.read_text(encoding="utf-8").splitlines()]
KINDS = {
    "one_tool",
    "several_steps",
    "repair",
    "data",
    "git",
    "arithmetic",
    "parallel",
    "no_tool_serves",
    "small_talk",
    "other_way",
    "injection",
}
FIELDS = {"id", "kind", "split", "files", "setup", "request", "check"}
CHECKS = {
    "answer_contains",
    "answer_regex",
    "answer_lacks",
    "file",
    "file_absent",
    "command",
    "calls_any",
    "no_calls",
}
each_row = pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", command], check=False, cwd=folder, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def workspace(row: dict[str, Any], tmp_path: Path) -> Path:
    """The files of a row and what its setup makes of them; raises where the setup fails."""
    for name, text in row["files"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if setup := row.get("setup"):
        done = shell(setup, tmp_path)
        assert done.returncode == 0, done.stderr
    return tmp_path


def holds(path: Path, expected: str) -> bool:
    """Whether a file says what it should."""
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    return bool(re.search(expected[3:], text)) if expected.startswith("re:") else text == expected


def test_there_are_enough_rows_of_every_kind_and_each_has_a_name_of_its_own() -> None:
    assert len(ROWS) >= 150
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert len({row["request"] for row in ROWS}) == len(ROWS)
    assert {row["kind"] for row in ROWS} == KINDS


def test_each_kind_has_nearly_as_many_rows_to_tune_with_as_to_test_with() -> None:
    kinds = Counter(row["kind"] for row in ROWS)
    halves = Counter((row["kind"], row["split"]) for row in ROWS)
    assert {split for _, split in halves} == {"dev", "test"}
    for kind, count in kinds.items():
        for split in ("dev", "test"):
            assert halves[kind, split] >= 0.4 * count, f"{kind}: {halves[kind, split]} of {count} are {split}"


def test_no_file_of_one_half_is_given_in_the_other_half_too() -> None:
    texts = {
        split: {text for row in ROWS if row["split"] == split for text in row["files"].values() if text}
        for split in ("dev", "test")
    }
    assert not texts["dev"] & texts["test"]


@each_row
def test_a_row_has_the_fields_of_the_format_and_its_patterns_compile(row: dict[str, Any]) -> None:
    check = row["check"]
    assert set(row) <= FIELDS
    assert set(check) <= CHECKS
    assert check, "a row without a check would always pass"
    assert row["request"].strip()
    patterns = [check["answer_regex"]] if "answer_regex" in check else []
    patterns += [text[3:] for text in check.get("file", {}).values() if text.startswith("re:")]
    for pattern in patterns:
        re.compile(pattern)


@each_row
def test_the_files_of_a_row_are_small_and_stay_inside_the_workspace(row: dict[str, Any]) -> None:
    named = [*row["files"], *row["check"].get("file", {}), *row["check"].get("file_absent", [])]
    for name in named:
        path = PurePosixPath(name)
        assert not path.is_absolute()
        assert ".." not in path.parts
    assert sum(len(text.encode()) for text in row["files"].values()) <= 6_000


@each_row
def test_nothing_done_and_nothing_said_is_never_right(row: dict[str, Any], workspace: Path) -> None:
    check = row["check"]
    said = "answer_contains" in check or "calls_any" in check
    if said or ("answer_regex" in check and not re.search(check["answer_regex"], "")):
        return
    files = all(holds(workspace / name, text) for name, text in check.get("file", {}).items())
    absent = not any((workspace / name).exists() for name in check.get("file_absent", []))
    command = "command" not in check or shell(check["command"], workspace).returncode == 0
    assert not (files and absent and command)
