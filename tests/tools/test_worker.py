import asyncio
import contextlib
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ecoshell import worker
from ecoshell.errors import ToolError
from ecoshell.tools import Limits, ToolOptions, limits_of
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.diffs import unified
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.running import contained
from ecoshell.tools.workspace import Workspace
from ecoshell.worker import MEMORY_BYTES, in_worker

ROOT = Path(__file__).parents[2]


def tools_of(workspace: Workspace, seconds: float):
    builtin = builtin_tools(workspace, options=ToolOptions(file_seconds=seconds))
    return {tool.schema.name: tool for tool in builtin}


async def run(tool, **arguments):
    return await contained(tool, arguments, limits_of(tool))


def waiting_for(pipe: Path) -> FunctionTool:
    """Return a tool that blocks in a worker."""

    def wait() -> str:
        """Wait without end."""
        return str(in_worker(Path.read_bytes, pipe, seconds=600))

    return FunctionTool(wait, effects=(), limits=Limits(seconds=600))


async def at_work(pipe: Path) -> int:
    """Wait until a worker reads from the pipe, and return the descriptor of the other end."""
    while True:
        with contextlib.suppress(OSError):
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        await asyncio.sleep(0.01)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def workers_of(pid: int) -> set[int]:
    """Return the worker processes of a process."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    return {
        child
        for child in children
        if b"worker import serve" in Path(f"/proc/{child}/cmdline").read_bytes()
    }


BOMBS = int(os.environ.get("BOMBS", "100"))
"""Number of calls, up to 300, that would use all time or memory; most take half a second."""


def test_bombs_end_within_their_limits_of_time_and_memory():
    ended = subprocess.run(
        [sys.executable, "tests/support/bombs.py", str(BOMBS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=6000,
        check=True,
    )
    *rows, memory = map(json.loads, ended.stdout.splitlines())
    assert len(rows) == BOMBS
    late = [
        row for row in rows if row["over"] > 1 + 3 * row["waited"]
    ]  # a busy machine delays everything
    assert late == []
    assert memory["worker_bytes"] < MEMORY_BYTES
    assert memory["shell_bytes"] < MEMORY_BYTES
    stopped = sum("stopped" in row["said"] for row in rows)
    assert stopped > BOMBS / 3, "most bombs have no effect"


def test_a_worker_is_reused_and_its_memory_is_limited():
    assert in_worker(os.getpid) == in_worker(os.getpid) != os.getpid()
    assert in_worker(resource.getrlimit, resource.RLIMIT_AS) == (MEMORY_BYTES, MEMORY_BYTES)


def test_messages_to_a_worker_raise_no_signal():
    """The system may raise it after the message was read, which would end the worker in the middle of its job."""
    assert not in_worker(fcntl.fcntl, 0, fcntl.F_GETFL) & os.O_ASYNC


def test_a_single_use_worker_is_not_reused():
    single_use = [in_worker(os.getpid, once=True) for _ in range(2)]
    assert len({*single_use, in_worker(os.getpid)}) == 3


def test_the_time_limit_of_a_diff_starts_when_its_worker_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On a busy machine a process starts late; here it waits for a pipe."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'pipe')!r}).read()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("ecoshell.worker._workers", worker._Workers())
    monkeypatch.setattr("ecoshell.tools.diffs._SECONDS", 1.0)
    release = threading.Timer(1.5, (tmp_path / "pipe").write_text, ["now"])
    release.start()
    assert unified("a", "x\n", "y\n").endswith("-x\n+y")
    assert not release.is_alive(), "the worker did not wait"


def test_waiting_for_a_worker_that_never_starts_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'pipe')!r}).read()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("ecoshell.worker._workers", workers := worker._Workers())
    monkeypatch.setattr("ecoshell.worker._START_SECONDS", 0.3)
    with pytest.raises(ToolError, match="No worker process was ready"):
        in_worker(abs, -3)
    for idle in workers._idle:
        idle.end()


def test_too_much_memory_is_an_error_and_the_next_call_works():
    pid = in_worker(os.getpid)
    with pytest.raises(ToolError, match="more than 512 MB"):
        in_worker(bytearray, 600_000_000)
    assert in_worker(os.getpid) not in (pid, os.getpid())


def test_a_timeout_kills_the_worker_and_the_next_call_works():
    pid = in_worker(os.getpid)
    with pytest.raises(ToolError, match=r"longer than 0\.2 s"):
        in_worker(time.sleep, 60, seconds=0.2)
    wait_until(lambda: not runs(pid))
    assert in_worker(abs, -3) == 3


def test_a_crashed_worker_is_reported_and_replaced():
    with pytest.raises(ToolError, match="crashed"):
        in_worker(os.kill, in_worker(os.getpid), signal.SIGSEGV)
    pid = in_worker(os.getpid)
    os.kill(pid, signal.SIGKILL)  # while it waits
    wait_until(lambda: not runs(pid))
    assert in_worker(abs, -3) == 3


def test_errors_are_passed_on(workspace: Workspace):
    with pytest.raises(ToolError, match="outside the workspace"):
        in_worker(workspace.resolve, "..")
    with pytest.raises(ToolError, match="Failed: ZeroDivisionError: "):
        in_worker(divmod, 1, 0)


async def test_a_search_in_the_worker_is_confined_to_the_workspace(
    workspace: Workspace, outside: Path
):
    (workspace.root / "notes.txt").write_text("here todo\n")
    (workspace.root / "link").symlink_to(outside)
    (outside / "more.txt").write_text("todo\n")
    tools = tools_of(workspace, 20)
    assert (await run(tools["search_text"], text="todo")).text == "notes.txt:1: here todo"
    for path in ("..", "link", "link/more.txt", str(outside)):
        observation = await run(tools["search_text"], text="todo", path=path)
        assert not observation.ok
        assert "outside the workspace" in observation.text
        observation = await run(tools["json_query"], query="a", path=path)
        assert "outside the workspace" in observation.text


async def test_the_memory_of_a_call_is_that_of_its_worker(workspace: Workspace):
    (workspace.root / "large.json").write_text(json.dumps([list(range(300_000))]))
    observation = await run(
        tools_of(workspace, 20)["json_query"], query="length([0])", path="large.json"
    )
    assert observation.text == "300000"
    assert observation.footprint is not None
    assert observation.footprint.cpu_instant_mb is not None
    assert observation.footprint.cpu_instant_mb > 5


async def test_cancelling_a_call_ends_its_worker(tmp_path: Path):
    pid = in_worker(os.getpid)
    os.mkfifo(tmp_path / "pipe")
    calling = asyncio.create_task(run(waiting_for(tmp_path / "pipe")))
    pipe_end = await at_work(tmp_path / "pipe")
    calling.cancel()
    await asyncio.wait([calling])
    wait_until(lambda: not runs(pid))
    os.close(pipe_end)
    assert in_worker(abs, -3) == 3


async def test_concurrent_calls_have_separate_workers(workspace: Workspace, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    waiting = [asyncio.create_task(run(waiting_for(tmp_path / "pipe"))) for _ in range(2)]
    pipe_end = await at_work(tmp_path / "pipe")
    observation = await run(tools_of(workspace, 60)["calculate"], expression="6 * 7")
    assert observation.text == "6 * 7 = 42"
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    os.close(pipe_end)


def test_a_worker_does_not_inherit_keys():
    code = "import os; from ecoshell.worker import in_worker; print(in_worker(os.getenv, 'SOME_KEY', 'unknown'))"
    environment = {**os.environ, "SOME_KEY": "sk-123", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, timeout=600, check=True
    )
    assert ended.stdout == b"unknown\n"


@pytest.mark.parametrize(
    "work", ["time.sleep(60)", "in_worker(regex.match, '(a|aa)+$', 'a' * 99 + 'b', seconds=60)"]
)
def test_a_worker_ends_with_a_killed_shell(work: str):
    code = "import os, time, regex; from ecoshell.worker import in_worker; print(in_worker(os.getpid), flush=True)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shell = subprocess.Popen(
        [sys.executable, "-c", f"{code}; {work}"], env=environment, stdout=subprocess.PIPE
    )
    assert shell.stdout is not None
    with shell, shell.stdout:
        pid = int(shell.stdout.readline())
        time.sleep(0.3)
        assert runs(pid)
        assert workers_of(shell.pid) == {pid}
        shell.kill()
        wait_until(lambda: not runs(pid))


def _never_ends(*_: object) -> str:
    time.sleep(600)
    return ""


def test_a_slow_diff_is_not_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ecoshell.tools.diffs._body", _never_ends)
    monkeypatch.setattr("ecoshell.tools.diffs._SECONDS", 0.1)
    assert unified("a", "x\ny\n", "x\n") == "--- a/a\n+++ b/a\n[too large to show]"
