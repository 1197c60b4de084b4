import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ecoshell.errors import ToolError
from ecoshell.tools import ResultSize, ToolOptions
from ecoshell.tools.builtin.commands import CommandTools, passes, safe_environment
from ecoshell.tools.workspace import Workspace


@pytest.fixture
def commands(workspace: Workspace) -> CommandTools:
    return CommandTools(workspace, ToolOptions(command_seconds=20, result=ResultSize(1_200)))


@pytest.fixture
def hasty(workspace: Workspace) -> CommandTools:
    return CommandTools(workspace, ToolOptions(command_seconds=0.5))


class Life:
    """Detects the end of all processes that opened a pipe for writing."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def sign(self) -> bytes:
        """Return the next written bytes; empty once all writers have ended."""
        assert select.select([self._end], [], [], 10)[0], (
            "neither output nor the end of the processes within 10 s"
        )
        return os.read(self._end, 100)

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def life(workspace: Workspace) -> Iterator[Life]:
    pipe = Life(workspace.root / "life")
    yield pipe
    pipe.close()


async def test_a_command_runs_in_the_workspace_with_interleaved_outputs(
    commands: CommandTools, workspace: Workspace
):
    result = await commands.run_command("pwd; echo oops >&2; echo done")
    assert (result.ok, result.text) == (True, f"{workspace.root}\noops\ndone")


async def test_exit_statuses_and_signals_are_reported(commands: CommandTools):
    failed = await commands.run_command("echo bad; exit 3")
    assert (failed.ok, failed.text) == (False, "bad\n[exit status 3]")
    killed = await commands.run_command("kill -9 $$")
    assert (killed.ok, killed.text) == (False, "[no output]\n[ended by signal 9]")


async def test_python_imports_modules_of_the_workspace(
    commands: CommandTools, workspace: Workspace
):
    (workspace.root / "prices.py").write_text("TEA = 4.2")
    result = await commands.run_python(
        "from __future__ import annotations\nimport prices, sys\nprint(prices.TEA, sys.argv)"
    )
    assert result.text == "4.2 ['-c']"


async def test_python_runs_isolated_and_gives_a_hint_without_output(
    commands: CommandTools, workspace: Workspace
):
    (workspace.root / "json.py").write_text("raise SystemExit('the wrong module')")
    result = await commands.run_python("import json, sys; print(json.dumps([sys.flags.isolated]))")
    assert result.text == "[1]"
    assert (
        await commands.run_python("1 + 1")
    ).text == "[no output. Use print(...) to see a value.]"
    assert "ZeroDivisionError" in (await commands.run_python("1 / 0")).text


async def test_a_command_has_no_input_and_no_terminal(commands: CommandTools):
    assert (await commands.run_command("cat; wc -c </dev/null; tty")).text.splitlines()[1:] == [
        "not a tty",
        "[exit status 1]",
    ]
    assert not (await commands.run_command("echo x >/dev/tty")).ok


async def test_endless_output_is_bounded_in_memory_and_time(hasty: CommandTools):
    result = await hasty.run_command("yes")
    assert result.truncated
    assert len(result.text) < 8_200
    assert "[stopped: the time limit of 0.5 s was reached]" in result.text


async def test_long_output_keeps_its_beginning_and_end(commands: CommandTools):
    result = await commands.run_command(
        "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last"
    )
    assert result.ok
    assert result.text.startswith("first\nxxx")
    assert result.text.endswith("xxx\nlast")
    assert "[truncated: 1000 of 50000012 bytes shown]" in result.text


async def test_invalid_utf8_in_output_is_replaced(commands: CommandTools):
    assert (await commands.run_command(r"printf 'a\377b'")).text == "a\ufffdb"


async def test_the_time_limit_ends_the_whole_group_and_keeps_the_output(
    hasty: CommandTools, life: Life
):
    result = await hasty.run_command(
        "exec 3>life; echo before; (trap '' TERM; sleep 300) & sleep 300"
    )
    assert not result.ok
    assert result.text == "before\n[stopped: the time limit of 0.5 s was reached]"
    assert life.sign() == b""


async def test_a_command_that_ignores_the_first_signal_is_killed(hasty: CommandTools, life: Life):
    await hasty.run_command("exec 3>life; trap '' TERM; while :; do sleep 0.1; done")
    assert life.sign() == b""


async def test_cancelling_a_call_ends_the_whole_group(commands: CommandTools, life: Life):
    task = asyncio.create_task(
        commands.run_command("exec 3>life; sleep 300 & echo up >&3; sleep 300")
    )
    assert await asyncio.to_thread(life.sign) == b"up\n"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert life.sign() == b""


async def test_cancelling_a_call_while_it_starts_ends_the_whole_group(
    commands: CommandTools, life: Life, monkeypatch: pytest.MonkeyPatch
):
    start, released = asyncio.create_subprocess_exec, asyncio.Event()

    async def slow_start(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*arguments, **options)
        await released.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow_start)
    task = asyncio.create_task(
        commands.run_command("exec 3>life; sleep 300 & echo up >&3; sleep 300")
    )
    assert await asyncio.to_thread(life.sign) == b"up\n"
    task.cancel()
    await asyncio.sleep(0)
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert life.sign() == b""


async def test_background_processes_end_with_the_command(commands: CommandTools, life: Life):
    result = await commands.run_command("exec 3>life; sleep 300 & echo gone")
    assert (result.ok, result.text) == (True, "gone")
    assert life.sign() == b""


async def test_a_daemon_that_keeps_the_output_open_does_not_block(commands: CommandTools):
    code = """
import os, time
read_end, write_end = os.pipe()
if pid := os.fork():
    os.read(read_end, 1)
    print(pid)
else:
    os.setsid()
    os.write(write_end, b"!")
    time.sleep(300)
"""
    result = await commands.run_python(code)
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(result.text), signal.SIGKILL)
    assert result.ok, "the command waited for the daemon"


@pytest.mark.parametrize("text", ["", "  \n", "echo \0", "x" * 200_000])
async def test_invalid_commands_are_errors(commands: CommandTools, text: str):
    with pytest.raises(ToolError):
        await commands.run_command(text)


async def test_a_deleted_workspace_is_an_error(commands: CommandTools, workspace: Workspace):
    workspace.root.rmdir()
    with pytest.raises(ToolError, match="could not be started"):
        await commands.run_command("echo hello")


async def test_commands_leave_no_open_files(commands: CommandTools):
    await commands.run_command("true")
    count = open_files()
    for _ in range(5):
        await commands.run_command("echo hello")
    assert open_files() == count


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_a_command_sees_no_secrets(commands: CommandTools, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not-to-be-seen")
    monkeypatch.setenv("HARMLESS", "to-be-seen")
    result = await commands.run_command("env")
    assert "not-to-be-seen" not in result.text
    assert "HARMLESS=to-be-seen" in result.text


@pytest.mark.parametrize(
    "variable",
    [
        "ANTHROPIC_API_KEY=x",
        "AWS_SECRET_ACCESS_KEY=x",
        "GITHUB_TOKEN=x",
        "PGPASSWORD=x",
        "MYSQL_PWD=x",
        "GOOGLE_APPLICATION_CREDENTIALS=x",
        "SSH_AUTH_SOCK=x",
        "DATABASE_URL=postgres://me:pw@host/db",
        "PIP_INDEX_URL=https://user:pw@pypi.example/simple",
        "SOMETHING=sk-proj-abcdefghijklmnopqrstuv",
        "SOMETHING=ghp_abcdefghijklmnopqrstuv",
        "SOMETHING=eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e30.x",
    ],
)
def test_variables_that_look_like_secrets_are_removed_unless_allowed(variable: str):
    name, _, value = variable.partition("=")
    assert name not in safe_environment({name: value})
    assert safe_environment({name: value}, frozenset({name}))[name] == value


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "PWD", "OLDPWD", "LANG", "KEYBOARD", "EDITOR", "VIRTUAL_ENV"]
)
def test_ordinary_variables_are_kept(name: str):
    assert (
        safe_environment({name: "/usr/bin:https://example.org/a"})[name]
        == "/usr/bin:https://example.org/a"
    )


OPTIONS = ToolOptions(command_seconds=20)


@pytest.mark.parametrize(
    ("command", "passed"),
    [
        ("grep -q 391", True),
        ("grep -q 392", False),
        ("exit 3", False),
        ("true", True),
        ("yes | head -c 1000000", True),
    ],
)
async def test_a_checker_reads_the_text_and_decides_by_its_exit_status(tmp_path, command, passed):
    assert await passes(command, "It is 391.\n", folder=tmp_path, options=OPTIONS) is passed


async def test_a_checker_need_not_read_a_long_text(tmp_path):
    assert await passes("true", "x" * 5_000_000, folder=tmp_path, options=OPTIONS)
    assert await passes(
        "test $(wc -c) = 5000000", "x" * 5_000_000, folder=tmp_path, options=OPTIONS
    )


async def test_a_checker_gets_utf8_also_for_unpaired_surrogates(tmp_path):
    assert await passes("grep -qx 'é?'", "é\ud800", folder=tmp_path, options=OPTIONS)


async def test_a_checker_runs_in_the_workspace_without_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    (tmp_path / "expected.txt").write_text("391")
    command = 'test "$(cat)" = "$(cat expected.txt)" && test -z "$SOME_API_KEY"'
    assert await passes(command, "391", folder=tmp_path, options=OPTIONS)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/nowhere/checker", "cannot be run"),
        ("kill -9 $$", "signal 9"),
        ("sleep 600", "longer than 0.2 s"),
    ],
)
async def test_a_checker_that_fails_to_decide_is_an_error(tmp_path, command, reason):
    options = ToolOptions(command_seconds=0.2 if "sleep" in command else 20)
    with pytest.raises(ToolError, match=reason):
        await passes(command, "391", folder=tmp_path, options=options)


async def test_cancelling_a_checker_ends_its_program(tmp_path):
    os.mkfifo(tmp_path / "started")
    options = ToolOptions(command_seconds=600)
    checking = asyncio.create_task(
        passes("echo $$ > started; exec sleep 600", "391", folder=tmp_path, options=options)
    )
    process = int(await asyncio.to_thread((tmp_path / "started").read_text))
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
