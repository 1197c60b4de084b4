"""Run `ecoshell bench` from its command line and write its input files."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ecoshell.cli.parser import run


def bench(*arguments: object) -> int:
    """Run `ecoshell bench …`; raises EcoshellError."""
    return run(["bench", *map(str, arguments)])


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Run a benchmark with --json and return the printed record."""
    capsys.readouterr()
    assert bench(*arguments, "--json") == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def written(path: Path, *records: Any) -> Path:
    """Write records to a file as JSON Lines and return its path."""
    path.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records),
        encoding="utf-8",
    )
    return path


SAME_ANSWERS = [{"text": "It is 1,204."}] * 40
"""A script for tests in which the order of the replies does not matter."""


def task(name: str, **changes: Any) -> dict[str, Any]:
    """Return a task that the answer 1,204 passes."""
    return {
        "id": name,
        "kind": "sums",
        "request": f"Sum {name}?",
        "check": {"answer_contains": ["1204"]},
        **changes,
    }


def without_seconds(value: Any) -> Any:
    """Remove measured times from a record, at every level."""
    if isinstance(value, dict):
        return {name: without_seconds(entry) for name, entry in value.items() if name != "seconds"}
    return [without_seconds(entry) for entry in value] if isinstance(value, list) else value


class Bench:
    """Runs `bench tasks` with a suite and scripted models; `notes` is the standard error of the last run."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.out = folder / "results.jsonl"
        self.capsys = capsys
        self.status = 0

    def script(self, name: str, *replies: Any) -> str:
        return f"script:{written(self.folder / name, *replies)}"

    def run(
        self, tasks: Iterable[Any] | None, *arguments: str, script: Iterable[Any] = ()
    ) -> dict[str, Any]:
        """Run these tasks, or the packaged ones if None, and return the printed record."""
        suite = (
            [] if tasks is None else ["--suite", str(written(self.folder / "suite.jsonl", *tasks))]
        )
        model = self.script("model.jsonl", *script)
        self.capsys.readouterr()
        self.status = bench(
            "tasks", *suite, "--model", model, "--registration", "names", "--json", *arguments
        )
        printed = self.capsys.readouterr()
        self.notes = printed.err
        record: dict[str, Any] = json.loads(printed.out)
        return record
