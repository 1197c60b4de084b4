"""A question opens only the connections of its model and tools."""

import json
import os
import subprocess
import sys
from pathlib import Path

BAN = """
import os, sys

def record(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[-1] if event.startswith(("socket.con", "socket.send")) else arguments[0]
        if not isinstance(address, (str, bytes)) or not event.startswith(("socket.con", "socket.send")):
            with open(os.environ["TRIED"], "a") as file:
                file.write(f"{event} {address}\\n")
            raise OSError("no connection is allowed here")

sys.addaudithook(record)
"""
"""Runs in every Python process; Unix sockets, which connect to a path, stay on this machine."""


def run_question(
    place: Path, script: list[dict[str, object]], *options: str
) -> tuple[dict[str, object], str]:
    """Return the result of a question, and the addresses that any process tried to reach."""
    (place / "banned").mkdir()
    (place / "banned" / "sitecustomize.py").write_text(BAN)
    (place / "work").mkdir()
    (place / "work" / "notes.txt").write_text("one\ntwo\n")
    (place / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in script))
    connections = place / "tried.txt"
    connections.touch()
    paths = [str(place / "banned"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "ECOSHELL_HOME": str(place / "home"), "TRIED": str(connections)}
    done = subprocess.run(
        [sys.executable, "-m", "ecoshell", "ask", "--json", "--model", f"script:{place / 'script.jsonl'}", *options,
         "--yes", "--registration", "all", "How many lines?"],
        cwd=place / "work", env={**environment, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True,
        check=False, timeout=600,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), connections.read_text()


def test_question_with_tools_in_other_processes_opens_no_connection(tmp_path: Path) -> None:
    script = [
        {"call": {"name": "count_text", "arguments": {"path": "notes.txt"}}},
        {"call": {"name": "calculate", "arguments": {"expression": "17 * 23"}}},
        {"call": {"name": "run_command", "arguments": {"command": "cat notes.txt"}}},
        {"call": {"name": "finish", "arguments": {"answer": "2"}}},
    ]
    result, connections = run_question(tmp_path, script, "--budget", "0.50", "--price", "1,2")
    assert (result["answer"], connections) == ("2", "")


def test_connection_of_a_tool_is_detected(tmp_path: Path) -> None:
    script = [
        {"call": {"name": "fetch_url", "arguments": {"url": "http://192.0.2.1/"}}},
        {"call": {"name": "finish", "arguments": {"answer": "nothing"}}},
    ]
    _, connections = run_question(tmp_path, script)
    assert "192.0.2.1" in connections
