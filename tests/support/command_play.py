"""Commands run inside the test process; pipes, signals and terminals need a real process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ecoshell.cli import main


@dataclass(frozen=True)
class Ended:
    """Exit status and output of a command, under the names of `subprocess`."""

    returncode: int
    stdout: str
    stderr: str


CALCULATE = (
    {
        "text": "I need a calculator.",
        "call": {"name": "tool_register", "arguments": {"tool_name": "calculate"}},
    },
    {"call": {"name": "calculate", "arguments": {"expression": "17 * 23"}}},
    {"text": "391", "usage": {"input": 400, "cached": 0, "output": 10}},
)
SLEEP = (
    {"call": {"name": "tool_register", "arguments": {"tool_name": "run_command"}}},
    {"call": {"name": "run_command", "arguments": {"command": "sleep 600"}}},
    {"text": "slept"},
)

Command = Callable[..., Ended]


def commands(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run commands in a folder of `place`, next to their home, with `typed` as standard input instead of a terminal."""
    monkeypatch.setenv("ECOSHELL_HOME", str(place / "home"))

    def run(*arguments: str, folder: str = "workspace", typed: str = "") -> Ended:
        (place / folder).mkdir(exist_ok=True)
        (place / "typed.txt").write_text(typed, encoding="utf-8")
        capsys.readouterr()
        with monkeypatch.context() as patch, (place / "typed.txt").open(encoding="utf-8") as stdin:
            patch.chdir(place / folder)
            patch.setattr(sys, "stdin", stdin)
            try:
                status = main([*arguments])
            except SystemExit as ended:  # as argparse does where it cannot read the options
                status = int(ended.code or 0)
        printed = capsys.readouterr()
        return Ended(status, printed.out, printed.err)

    return run
