"""Programs started by tools end with the process that started them, even if it is killed."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from agent_play import finish, register, say

from ecoshell.tools.builtin.commands import Finished, Watchdog, run_process

STARTER = """
import asyncio, os, sys
from pathlib import Path
from ecoshell.tools.builtin.commands import run_process

command = ["/bin/sh", "-c", "exec 3>life; trap '' TERM; (sleep 300) & echo up >&3; sleep 300; sleep 300"]
asyncio.run(run_process(command, folder=Path(sys.argv[1]), environment=os.environ, seconds=300, window=99))
"""


@pytest.fixture
def life(tmp_path):
    """The reading end of a FIFO, which ends when all programs that write to it have ended."""
    os.mkfifo(tmp_path / "life")
    reading = os.open(tmp_path / "life", os.O_RDONLY | os.O_NONBLOCK)
    yield reading
    os.close(reading)


def sign(life: int) -> bytes:
    assert select.select([life], [], [], 120)[0], (
        "neither output nor the end of the programs within two minutes"
    )
    return os.read(life, 100)


async def run(folder: Path, *command: str) -> Finished:
    return await run_process(
        command, folder=folder, environment=os.environ, seconds=30, window=2_000
    )


def test_programs_and_descendants_end_when_the_process_is_killed(tmp_path, life):
    with subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)]) as process:
        assert sign(life) == b"up\n"
        os.kill(process.pid, signal.SIGKILL)
    assert sign(life) == b""


def test_a_command_ends_when_the_shell_is_killed_during_a_turn(tmp_path, life, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    script = tmp_path / "script.jsonl"
    call = say("Wait.", "run_command", command="exec 3>life; echo up >&3; sleep 300")
    script.write_text(
        "".join(json.dumps(line) + "\n" for line in [register("run_command"), call, finish("ok")])
    )
    options = ["--model", f"script:{script}", "--workspace", str(tmp_path), "--yes"]
    command = [sys.executable, "-m", "ecoshell", "ask", "wait", "--json", *options]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2]
    ) as process:
        assert sign(life) == b"up\n"
        os.kill(process.pid, signal.SIGKILL)
    assert sign(life) == b""


async def test_a_program_has_its_own_group_and_no_descriptor_of_the_watchdog(tmp_path):
    code = """if True:
        import os
        open_files = [fd for fd in range(64) if os.path.exists(f"/dev/fd/{fd}")]
        outputs = [os.fstat(fd).st_ino for fd in (1, 2)]
        print(open_files, outputs[0] == outputs[1], os.getpid() == os.getpgid(0) == os.getsid(0))
    """
    assert (await run(tmp_path, sys.executable, "-I", "-c", code)).output == "[0, 1, 2] True True\n"


async def test_a_killed_watchdog_is_restarted(tmp_path, monkeypatch):
    watchdog = Watchdog()
    monkeypatch.setattr("ecoshell.tools.builtin.commands.watchdog", watchdog)
    assert (await run(tmp_path, "/bin/echo", "one")).output == "one\n"
    first = watchdog._process
    first.kill()
    first.wait()
    assert (await run(tmp_path, "/bin/echo", "two")).output == "two\n"
    assert watchdog._process is not first
    assert watchdog._process.poll() is None
    watchdog._process.stdin.close()
    assert watchdog._process.wait(120) == 0  # no groups remain


async def test_programs_run_without_a_watchdog(tmp_path, monkeypatch):
    watchdog = Watchdog()
    monkeypatch.setattr("ecoshell.tools.builtin.commands.watchdog", watchdog)
    none = SimpleNamespace(
        DEVNULL=subprocess.DEVNULL, PIPE=subprocess.PIPE, Popen=Mock(side_effect=OSError)
    )
    monkeypatch.setattr("ecoshell.tools.builtin.commands.subprocess", none)
    assert (await run(tmp_path, "/bin/echo", "one")).output == "one\n"


def deafen(watchdog: Watchdog) -> None:
    """Close the watchdog's pipe, as the end of its process does."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, watchdog._process.stdin.fileno())
    os.close(nowhere)


def test_a_new_watchdog_knows_the_running_groups():
    watchdog = Watchdog()
    with (
        subprocess.Popen(["sleep", "300"], start_new_session=True) as program,
        watchdog.watching(program.pid),
    ):
        watchdog.wrap([], 1)
        watchdog._process.kill()
        watchdog._process.wait()
        watchdog.wrap([], 1)
        deafen(watchdog)
        assert program.wait(120) == -signal.SIGTERM


def test_a_group_is_not_ended_after_watching():
    watchdog = Watchdog()
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as program:
        with watchdog.watching(program.pid):
            watchdog.wrap([], 1)
        deafen(watchdog)
        assert watchdog._process.wait(120) == 0
        assert program.poll() is None
        program.kill()
