"""Processes killed during a turn: every printed event is on disk, and the caps hold."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

import kill_play
import pytest
from agent_play import counts, register, say
from ledger_totals import wrong_totals

from ecoshell.budget.ledger import Ledger
from ecoshell.events import BudgetHeld, CallStarted, to_json
from ecoshell.paths import user_paths
from ecoshell.sessions import SessionStore
from ecoshell.tools.undo_log import UndoLog

LINES = [register("count_text"), *counts(200)]


def events_before_kill(
    script: Path, lines: int, *options: str, question: str = "when?"
) -> list[dict[str, object]]:
    """Run `ask` in a process that is killed after some lines; return the events it printed completely."""
    command = [
        sys.executable,
        "-m",
        "ecoshell",
        "ask",
        question,
        "--json",
        "--model",
        f"script:{script}",
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = list(islice(process.stdout, lines))
        os.kill(process.pid, signal.SIGKILL)
        printed += process.stdout.readlines()
    return [json.loads(line) for line in printed if line.endswith("\n")]


@pytest.mark.parametrize("seed", range(2))
def test_printed_events_of_a_killed_process_are_on_disk_and_the_cap_holds(home, tmp_path, seed):
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    options = ("--budget", "0.05", "--price", "1,4", "--max-steps", "500", "--workspace", str(home))
    printed = events_before_kill(script, random.Random(seed).randint(5, 120), *options)

    store = SessionStore(user_paths().sessions_file)
    session = store.list(1)[0].id
    stored = [json.loads(json.dumps(to_json(event))) for _, event in store.events(session)]
    first = next(number for number, event in enumerate(stored) if event["type"] == "turn_started")
    assert printed == stored[first : first + len(printed)]

    ledger = Ledger(user_paths().ledger_file)
    assert wrong_totals(ledger) == ()
    caps = ledger.caps(session, 1)
    assert [cap.scope for cap in caps] == ["session"]
    assert all(cap.spent + cap.held <= cap.limit for cap in caps)
    ledger.close()
    store.close()


def test_a_killed_session_can_be_resumed(home, tmp_path):
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    events_before_kill(script, 40, "--max-steps", "500", "--workspace", str(home))
    store = SessionStore(user_paths().sessions_file)
    session = store.list(1)[0].id
    store.close()

    script.write_text(json.dumps(say("It was noon.")) + "\n")
    command = [
        sys.executable,
        "-m",
        "ecoshell",
        "ask",
        "and?",
        "--model",
        f"script:{script}",
        "--resume",
        session,
    ]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert again.stdout == "It was noon.\n"


def test_the_cap_of_a_killed_custom_command_does_not_bind_later_turns(home, tmp_path):
    commands = tmp_path / "home" / "config" / "commands"
    commands.mkdir(parents=True)
    (commands / "cheap.md").write_text("---\ncap: 0.20\n---\nCount.")
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    options = ("--price", "1,4", "--max-steps", "500", "--workspace", str(home))
    printed = events_before_kill(script, 40, *options, question="/cheap")
    shown = [event for event in printed if event["type"] == "budget_changed"]
    assert [cap["limit"] for cap in shown[0]["caps"]] == [200_000_000]
    assert "turn_finished" not in [event["type"] for event in printed]
    store, ledger = SessionStore(user_paths().sessions_file), Ledger(user_paths().ledger_file)
    session = store.list(1)[0].id
    assert [ledger.caps(session, turn) for turn in (0, 1, 2)] == [(), (), ()]
    store.close()
    ledger.close()

    usage = {"input": 1000, "output": 60_000}  # $0.241
    script.write_text(json.dumps(say("It was noon.", usage=usage)) + "\n")
    command = [sys.executable, "-m", "ecoshell", "ask", "and?", "--continue", *options]
    again = subprocess.run(
        [*command, "--model", f"script:{script}"], capture_output=True, text=True, check=False
    )
    assert (again.returncode, again.stdout) == (0, "It was noon.\n"), again.stderr


KILLS = int(os.environ.get("KILLS", "8"))
"""How many turns with effects are killed; 1,000 gives a reliable result."""


def effects(number):
    """Calls that write a file, edit a file and run a command, repeated."""
    return [
        line
        for index in range(number)
        for line in (
            say("", "write_file", path=f"{index}.txt", content="x" * 1_000),
            say(
                "",
                "edit_file",
                path="private.txt",
                old=f"state {index}\n",
                new=f"state {index + 1}\n",
            ),
            say("", "run_command", command=f"echo ran > command-{index}"),
        )
    ]


def kill_during_turn(home, chance):
    """Kill a turn with effects at a random moment, often while another process locks the sessions."""
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "private.txt").write_text("state 0\n")
    (home / "workspace" / "private.txt").chmod(0o600)
    (home / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in effects(60)))
    process = kill_play.FORKS.Process(target=kill_play.play, args=(home,))
    process.start()
    for _ in range(100_000):
        if process.exitcode is not None or (home / "workspace" / "0.txt").exists():
            break
        time.sleep(0.005)
    assert process.exitcode is None
    time.sleep(chance.random() * 0.3)
    holder = sqlite3.connect(home / "home" / "data" / "sessions.sqlite", isolation_level=None)
    if chance.random() < 0.7:
        holder.execute("BEGIN IMMEDIATE")
        time.sleep(chance.random() * 0.15)
    process.kill()
    process.join()
    holder.close()


def unannounced_effects(home):
    """Effects and payments without an earlier event on disk that announces them."""
    store, ledger = (
        SessionStore(home / "home/data/sessions.sqlite"),
        Ledger(home / "home/data/ledger.sqlite"),
    )
    (session,) = store.list()
    events = [event for _, event in store.events(session.id)]
    started = [event.arguments for event in events if isinstance(event, CallStarted)]
    announced = {arguments.get("path") for arguments in started}
    announced |= {
        arguments["command"].split()[-1] for arguments in started if "command" in arguments
    }
    done = {
        file.name for file in (home / "workspace").iterdir() if not file.name.startswith(".")
    } - {"private.txt"}
    state = int((home / "workspace" / "private.txt").read_text().split()[1])
    edits = sum(1 for arguments in started if arguments.get("path") == "private.txt")
    reserved = {event.entry for event in events if isinstance(event, BudgetHeld)}
    with closing(sqlite3.connect(home / "home/data/ledger.sqlite")) as rows:
        query = "SELECT state, id FROM entries WHERE state != 'released' AND purpose != 'tool'"
        states = [*rows.execute(query)]
    paid = {entry for state, entry in states if state == "settled"}
    killed = {entry for state, entry in states if state == "unreported"}
    assert len(states) == len(paid) + len(killed)
    assert wrong_totals(ledger) == ()
    assert killed == {entry.id for entry in ledger.unreconciled()}
    assert all(cap.spent + cap.held <= cap.limit for cap in ledger.caps(session.id, 1))
    ledger.close()
    store.close()
    return (done - announced) | ({"private.txt"} if state > edits else set()) | (paid - reserved)


def remaining_processes(home):
    """Command lines of processes that run in the workspace or were started by the turn."""
    command_lines = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            folder = (process / "cwd").readlink()
            if (
                folder.is_relative_to(home)
                or str(home).encode() in (process / "environ").read_bytes()
            ):
                command_lines.append((process / "cmdline").read_bytes())
    return command_lines


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_killed_turns_leave_no_unannounced_effects_processes_or_files(tmp_path):
    def kill_and_check(number):
        home = tmp_path / str(number)
        kill_during_turn(home, random.Random(number))
        effects = unannounced_effects(home)
        UndoLog(home / "home" / "data" / "undo").sweep()  # as at the next start
        with suppress(FileNotFoundError):
            (home / "workspace/.ecoshell").rmdir()  # as after the next command in the sandbox
        temporaries = [
            *(home / "workspace").glob(".*"),
            *(home / "home" / "data" / "undo").glob(".*"),
        ]
        for _ in range(2_000):  # the watchdog gives processes a second to end
            if not (processes := remaining_processes(home)):
                break
            time.sleep(0.05)
        shutil.rmtree(home)
        return number, effects, processes, temporaries

    with ThreadPoolExecutor(2) as pool:
        assert [
            leftover for leftover in pool.map(kill_and_check, range(KILLS)) if any(leftover[1:])
        ] == []
