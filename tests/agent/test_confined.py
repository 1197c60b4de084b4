"""Turns whose commands run in the sandbox: approval, what the user may allow, and rules."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_play import User, finish, of, say, turn

from ecoshell.events import ApprovalGiven, ApprovalWanted, CallFinished, Notice, SandboxBlocked
from ecoshell.tools.sandbox import backend

WORKS = sys.platform in ("linux", "darwin") and not backend(Path("/nowhere")).problem
pytestmark = pytest.mark.skipif(not WORKS, reason="no sandbox works on this machine")
OUTSIDE = f"/var/tmp/ecoshell-test-confined-{os.getpid()}"


@pytest.fixture
def connect() -> Iterator[str]:
    """A command that connects to this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        program = f"import socket; socket.create_connection({address}); print('connected')"
        yield f'{sys.executable} -c "{program}"'


@pytest.fixture
def write_outside() -> Iterator[str]:
    Path(OUTSIDE).unlink(missing_ok=True)
    yield f"echo x > {OUTSIDE} && echo written"
    Path(OUTSIDE).unlink(missing_ok=True)


@pytest.fixture
def settings(tmp_path: Path, home: Path):
    def write(**tables: object) -> None:
        file = tmp_path / "home/config/config.toml"
        file.parent.mkdir(parents=True)
        lines = (f"[{name}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
                 for name, table in tables.items())  # fmt: skip
        file.write_text("\n".join(lines))

    return write


def script(*commands: str) -> list[dict[str, object]]:
    return [*(say("", "run_command", command=command) for command in commands), finish("done")]


async def test_network_is_allowed_by_the_user_after_a_failure(play, connect):
    user = User("once", "once")
    async with play(script(connect), user=user) as shell:
        events = await turn(shell)
    first, second = of(events, ApprovalWanted)
    assert "in the sandbox, which writes only the workspace and has no network" in first.reason
    assert "the sandbox has no network. It would run again with network access." in second.reason
    assert [(event.lacked, event.allowed) for event in of(events, SandboxBlocked)] == [
        ("network", True)
    ]
    result = of(events, CallFinished)[0]
    assert result.ok
    assert "connected" in result.observation
    assert "The user allowed running it with network" in result.observation


async def test_both_questions_about_a_command_of_a_subagent_name_it(
    play, settings, connect, tmp_path
):
    child = tmp_path / "child.jsonl"
    child.write_text("".join(json.dumps(line) + "\n" for line in script(connect)))
    settings(agent={"task_model": f"script:{child}"})
    async with play([finish("unused")], user=User("once", "once")) as shell:
        events = await turn(shell, "/task Connect.")
    assert len(of(events, ApprovalWanted)) == 2
    decisions = of(events, ApprovalWanted | ApprovalGiven)
    assert [event.agent for event in decisions] == ["subagent"] * 4


@pytest.mark.parametrize("yes", [False, True])
async def test_refused_or_unasked_network_is_told_to_the_model(play, connect, yes):
    user = User() if yes else User("once", "no")
    async with play(script(connect), user=user, yes=yes) as shell:
        events = await turn(shell)
    result = of(events, CallFinished)[0]
    assert not result.ok
    assert (
        "[The sandbox has no network. The user did not allow running it with network;"
        in result.observation
    )
    assert "connected" not in result.observation
    assert len(user.asked) == (0 if yes else 2)


async def test_files_outside_are_written_only_outside_the_sandbox(play, write_outside):
    async with play(script(write_outside), user=User("once", "once")) as shell:
        events = await turn(shell)
    assert of(events, SandboxBlocked)[0].lacked == "outside"
    assert "written" in of(events, CallFinished)[0].observation
    assert os.access(OUTSIDE, os.F_OK)


async def test_strict_never_leaves_the_sandbox(play, settings, write_outside):
    settings(sandbox={"mode": "strict"})
    async with play(script(write_outside), user=User("once")) as shell:
        events = await turn(shell)
    assert not of(events, SandboxBlocked)
    assert not os.access(OUTSIDE, os.F_OK)


async def test_network_allowed_for_the_session_is_there_at_once(play, connect):
    user = User("session", "session")
    async with play(
        [*script(connect, f"{connect} ", connect), finish("again")], user=user
    ) as shell:
        await turn(shell)
        events = await turn(shell, "again")
        results = [event.observation for event in of(events, CallFinished)]
    assert not any("failed first" in result for result in results)


async def test_commands_named_in_the_settings_have_network_or_run_outside(
    play, settings, connect, write_outside
):
    settings(sandbox={"network": [connect], "outside": [write_outside]})
    async with play(script(connect, write_outside), user=User("once", "once")) as shell:
        events = await turn(shell)
    assert all(event.ok for event in of(events, CallFinished)), of(events, CallFinished)
    assert not of(events, SandboxBlocked)


async def test_accepted_commands_need_no_approval_and_rules_still_apply(play, settings, home):
    settings(
        sandbox={"auto_accept": True},
        approval={"ask": ["run_command:rm *"], "deny": ["run_command:mv *"]},
    )
    user = User("no")
    commands = script("echo x > made", "rm made", "mv made moved")
    async with play(commands, user=user) as shell:
        events = await turn(shell)
    made, removed, moved = of(events, CallFinished)
    assert made.ok
    assert removed.refused == moved.refused == "unapproved"
    assert [event.arguments["command"] for event in of(events, ApprovalWanted)] == ["rm made"]
    assert (home / "made").exists()


async def test_accepted_commands_with_more_than_the_sandbox_need_approval(play, settings, connect):
    settings(sandbox={"auto_accept": True, "network": [connect]})
    async with play(script(connect), user=User("no")) as shell:
        events = await turn(shell)
    assert of(events, CallFinished)[0].refused == "unapproved"


async def test_missing_sandbox_is_reported_once(play, tmp_path, monkeypatch):
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bwrap"))
    backend.cache_clear()
    async with play(script("echo a", "echo b"), user=User("once", "once")) as shell:
        events = await turn(shell)
    backend.cache_clear()
    notices = [event.text for event in of(events, Notice) if "sandbox" in event.text]
    assert len(notices) == 1
    assert notices[0].startswith("Commands run without a sandbox. No sandbox works on this machine")
    assert [event.ok for event in of(events, CallFinished)] == [True, True]
