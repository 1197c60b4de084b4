"""`ecoshell bench` from its command line, and the files it reads."""

import json
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
