"""`ecoshell bench` from its command line, and the files it reads."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ecoshell.cli.parser import run


def bench(*arguments: object) -> int:
    """Carry out `ecoshell bench …` as the command line would; raises EcoshellError."""
    return run(["bench", *map(str, arguments)])


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What a benchmark prints as JSON."""
    capsys.readouterr()
    assert bench(*arguments, "--json") == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def written(path: Path, *records: Any) -> Path:
    """A new file of JSON Lines."""
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), encoding="utf-8")
    return path


SAID = [{"text": "It is 1,204."}] * 40
"""A script in which it does not matter who speaks which line."""


def task(name: str, **changes: Any) -> dict[str, Any]:
    """A task that the answer 1,204 does."""
    return {"id": name, "kind": "sums", "request": f"Sum {name}?", "check": {"answer_contains": ["1204"]}, **changes}


def timeless(found: Any) -> Any:
    """Figures but for the seconds that something took."""
    if isinstance(found, dict):
        return {name: timeless(value) for name, value in found.items() if name != "seconds"}
    return [timeless(one) for one in found] if isinstance(found, list) else found


class Bench:
    """`bench tasks` with a suite and the scripts of those who play it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.out = folder / "results.jsonl"
        self.capsys = capsys
        self.status = 0

    def script(self, name: str, *replies: Any) -> str:
        return f"script:{written(self.folder / name, *replies)}"

    def run(self, tasks: Iterable[Any] | None, *arguments: str, script: Iterable[Any] = ()) -> dict[str, Any]:
        """Play tasks, or the packaged ones if they are None, and return the printed record."""
        suite = [] if tasks is None else ["--suite", str(written(self.folder / "suite.jsonl", *tasks))]
        model = self.script("model.jsonl", *script)
        self.capsys.readouterr()
        self.status = bench("tasks", *suite, "--model", model, "--registration", "names", "--json", *arguments)
        printed = self.capsys.readouterr()
        self.told = printed.err
        record: dict[str, Any] = json.loads(printed.out)
        return record
