"""A process that is killed in the middle of a turn: what it had said is on disk, and its caps hold."""

import json
import os
import random
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from agent_play import counts, register, say

from ecoshell.budget.ledger import Ledger
from ecoshell.events import to_json
from ecoshell.paths import user_paths
from ecoshell.sessions.store import SessionStore

LINES = [register("count_text"), *counts(200)]


def killed_after(script: Path, lines: int, *options: str) -> list[dict[str, object]]:
    """Ask in a process that is killed once it has printed so many lines; give back what it printed whole."""
    command = [sys.executable, "-m", "ecoshell", "ask", "when?", "--json", "--model", f"script:{script}", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = list(islice(process.stdout, lines))
        os.kill(process.pid, signal.SIGKILL)
        printed += process.stdout.readlines()
    return [json.loads(line) for line in printed if line.endswith("\n")]


@pytest.mark.parametrize("seed", range(4))
def test_what_a_killed_process_had_said_is_on_disk_and_the_cap_holds(home, tmp_path, seed):
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    options = ("--budget", "0.05", "--price", "1,4", "--max-steps", "500", "--workspace", str(home))
    said = killed_after(script, random.Random(seed).randint(5, 120), *options)

    store = SessionStore(user_paths().sessions_file)
    session = store.list(1)[0].id
    kept = [json.loads(json.dumps(to_json(event))) for _, event in store.events(session)]
    first = next(number for number, event in enumerate(kept) if event["type"] == "turn_started")
    assert said == kept[first : first + len(said)]

    ledger = Ledger(user_paths().ledger_file)
    assert ledger.verify() == ()
    caps = ledger.caps(session, 1)
    assert [cap.scope for cap in caps] == ["session"]
    assert all(cap.spent + cap.held <= cap.limit for cap in caps)
    ledger.close()
    store.close()


def test_a_killed_session_goes_on_where_it_was(home, tmp_path):
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    killed_after(script, 40, "--max-steps", "500", "--workspace", str(home))
    store = SessionStore(user_paths().sessions_file)
    session = store.list(1)[0].id
    store.close()

    script.write_text(json.dumps(say("It was noon.")) + "\n")
    command = [sys.executable, "-m", "ecoshell", "ask", "and?", "--model", f"script:{script}", "--resume", session]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert again.stdout == "It was noon.\n"
