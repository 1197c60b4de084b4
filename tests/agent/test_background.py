"""Commands in the background: started, read, stopped, and ended with the session."""

import asyncio
import os
import re
import select

import pytest
from agent_play import User, finish, of, say, turn

from ecoshell.events import BackgroundEnded, BackgroundStarted, CallFinished


def begin(command: str) -> dict[str, object]:
    return say("", "run_command", command=command, background=True)


def output(name: str = "b1", wait: int = 60) -> dict[str, object]:
    return say("", "command_output", id=name, wait=wait)


def stop(name: str = "b1") -> dict[str, object]:
    return say("", "command_stop", id=name)


def observations(events) -> list[str]:
    return [event.observation for event in of(events, CallFinished)]


@pytest.fixture(params=["auto", "off"])
def mode(request, monkeypatch):
    monkeypatch.setenv("ECOSHELL_SANDBOX_MODE", request.param)


async def test_a_command_is_started_read_and_ends(play, mode):
    lines = [
        begin("echo one; read x < gate; echo two; exit 3"),
        say("", "run_command", command="echo go > gate"),
    ]
    async with play([*lines, output(), output(), finish()], yes=True) as shell:
        os.mkfifo(shell.deps.workspace._workspace.root / "gate")
        events = await turn(shell)
    started, _, first, second = observations(events)
    assert (
        started
        == "Started b1. Read it with command_output(id=b1), end it with command_stop(id=b1)."
    )
    assert first == "one\ntwo\n[b1: exit status 3]"
    assert second == "[b1: exit status 3]"
    assert [event.command for event in of(events, BackgroundStarted)] == [
        "echo one; read x < gate; echo two; exit 3"
    ]
    assert [(event.id, event.status) for event in of(events, BackgroundEnded)] == [("b1", 3)]


async def test_a_running_command_is_stopped_with_all_its_processes(play, home, mode):
    os.mkfifo(home / "life")
    pipe = os.open(home / "life", os.O_RDONLY | os.O_NONBLOCK)
    lines = [
        begin("exec 9>life; echo up >&9; sleep 1000 & sleep 1000"),
        finish("up"),
        output(wait=0),
        stop(),
        stop(),
    ]
    async with play([*lines, finish()], yes=True) as shell:
        events = await turn(shell)
        assert select.select([pipe], [], [], 10)[0]
        assert os.read(pipe, 10) == b"up\n"
        events += await turn(shell, "stop it")
        assert shell.deps.workspace.background.running == ()
        assert select.select([pipe], [], [], 10)[0]
        assert os.read(pipe, 10) == b""
    os.close(pipe)
    _, running, stopped, again = observations(events)
    assert re.fullmatch(r"\[b1: running for \d+ s\]", running)
    assert stopped == "[b1: stopped]"
    assert "[b1: stopped]" in again
    assert [event.status for event in of(events, BackgroundEnded)] == [None]


async def test_commands_end_with_the_session_and_their_end_is_recorded(play, mode):
    async with play([begin("sleep 1000"), finish()], yes=True) as shell:
        await turn(shell)
        assert [command.id for command in shell.deps.workspace.background.running] == ["b1"]
        assert (await shell.status()).background == 1
        assert "b1  running for" in (await shell.command("/background")).text
        shown: list[object] = []
        shell.on_event = shown.append
        before = shell.session
        await shell.open()
        ends = [
            event for _, event in shell.store.events(before) if isinstance(event, BackgroundEnded)
        ]
        assert ends == shown
        assert [end.status for end in ends] == [None]
        assert "No command runs" in (await shell.command("/background")).text


async def test_an_end_between_turns_is_shown(play, mode):
    async with play([begin("read x < gate"), finish()], yes=True) as shell:
        gate = shell.deps.workspace._workspace.root / "gate"
        os.mkfifo(gate)
        await turn(shell)
        shown = asyncio.get_running_loop().create_future()
        shell.on_event = shown.set_result
        await asyncio.to_thread(gate.write_text, "go\n")
        assert (await asyncio.wait_for(shown, 30)).status == 0


async def test_the_user_stops_a_command(play, mode):
    async with play([begin("sleep 1000"), finish()], yes=True) as shell:
        await turn(shell)
        assert (await shell.command("/background stop b1")).text == "b1 is stopped: sleep 1000"


async def test_tools_in_worker_processes_run_beside_it(play):
    lines = [
        begin("sleep 1000"),
        say("", "list_files"),
        say("", "search_text", text="two"),
        finish("done"),
    ]
    async with play(lines, yes=True) as shell:
        events = await turn(shell)
    assert "notes.txt" in observations(events)[1]
    assert observations(events)[2] == "notes.txt:2: two"


async def test_starting_needs_approval_and_reading_does_not(play):
    user = User("once")
    async with play([begin("echo x"), output(), stop(), finish()], user=user) as shell:
        events = await turn(shell)
    assert [request.arguments for request in user.asked] == [
        {"command": "echo x", "background": True}
    ]
    assert [event.ok for event in of(events, CallFinished)] == [True, True, True]


async def test_output_is_bounded_and_the_rest_is_marked(play, mode):
    lines = [begin("yes | head -c 50000000; echo end"), output(), finish()]
    async with play(lines, yes=True) as shell:
        events = await turn(shell)
    text = observations(events)[1]
    assert len(text) < 60_000
    assert "[truncated:" in text
    assert text.endswith("end\n[b1: exit status 0]")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([output("b7")], "No background command has the ID 'b7'; there are: none was started."),
        ([begin("echo x"), stop("2")], "No background command has the ID '2'; there are: b1."),
        (
            [begin(f"sleep 4321{number}") for number in range(9)],
            "8 commands run in the background (b1, b2, b3, b4, b5, b6, b7, b8): end one",
        ),
        ([begin(" ")], "There is nothing to run"),
    ],
)
async def test_mistakes_are_explained(play, lines, message, monkeypatch):
    monkeypatch.setenv("ECOSHELL_SANDBOX_MODE", "off")
    lines = [{**line, "text": f"step {number}"} for number, line in enumerate(lines)]
    async with play([*lines, finish()], yes=True) as shell:
        events = await turn(shell)
    assert message in observations(events)[-1], of(events, BackgroundEnded)
