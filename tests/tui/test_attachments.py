"""A result that becomes the answer is unchanged on the screen, after a restart, in the line shell and in an export."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from real_terminal import closed, opened

from ecoshell.sessions import SessionStore

TEXT = "name,sum\n__name__,2*3*4\n- not a list,_x_\n"


def test_attachments_look_the_same_live_resumed_and_exported(tmp_path: Path) -> None:
    home, workspace, script = tmp_path / "home", tmp_path / "workspace", tmp_path / "script.jsonl"
    workspace.mkdir()
    (workspace / "odd.csv").write_text(TEXT)
    read = {"call": {"name": "read_file", "arguments": {"path": "odd.csv"}}}
    script.write_text(
        "".join(json.dumps(item) + "\n" for item in (read, {"text": ""}, {"text": ""}))
    )
    model = ("--model", f"script:{script}", "--registration", "all")

    terminal = opened(home, workspace, *model)
    try:
        terminal.wait(r"one model")
        terminal.type("What is in it?\r")
        terminal.wait(r"tok · \d+ steps?")
        _has_all_lines(terminal.text.partition("√")[2])
        terminal.type("/quit\r")
        assert terminal.ended() == 0
    finally:
        closed(terminal)

    with closing(SessionStore(home / "data" / "sessions.sqlite")) as store:
        (session,) = store.list()
    terminal = opened(home, workspace, *model, "--resume", session.id)
    try:
        terminal.wait(r"tok · \d+ steps?")
        _has_all_lines(terminal.text.partition("√")[2])
    finally:
        closed(terminal)

    exported = _run(home, workspace, "sessions", "export", session.id)
    assert f"```\n{TEXT}```\n" in exported.partition("**Answer**")[2]
    _has_all_lines(_run(home, workspace, "line", *model, typed="What is in it?\n/quit\n"))
    assert _run(home, workspace, "ask", *model, "What is in it?") == f"```\n{TEXT}```\n"


def _has_all_lines(output: str) -> None:
    parts = [part.strip() for line in output.splitlines() for part in line.split("│")]
    for line in TEXT.splitlines():
        assert any(part.endswith(line) for part in parts), (line, output)


def _run(home: Path, workspace: Path, *arguments: str, typed: str = "") -> str:
    env = {**os.environ, "ECOSHELL_HOME": str(home), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "ecoshell", *arguments]
    env["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        command, cwd=workspace, env=env, input=typed, text=True, capture_output=True, check=True
    )
    return done.stdout
