"""Commands in the background: started, read, stopped, and ended with the session."""

import asyncio
import os
import re
import select

import pytest
from agent_play import User, finish, is_replayed, of, register, say, turn, with_traits

from ecoshell.errors import UsageError
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


def opening(shell) -> str:
    """The last question as the model read it."""
    return [each.text for each in shell.requests[-1].messages if each.speaker == "user"][-1]


async def ended_between_turns(shell, gate: str = "gate") -> None:
    """End the command that waits for this pipe, after the turn."""
    shown = asyncio.get_running_loop().create_future()
    shell.on_event = shown.set_result
    path = shell.deps.workspace._workspace.root / gate
    await asyncio.to_thread(path.write_text, "go\n")
    await asyncio.wait_for(shown, 30)


@pytest.mark.parametrize("registration", ["names", "all"])
async def test_the_model_reads_once_that_a_command_has_ended(play, home, registration):
    os.mkfifo(home / "gate")
    first = [register("run_command")] if registration == "names" else []
    lines = [*first, begin("read x < gate; exit 1"), *[finish("ok")] * 4]
    async with play(lines, yes=True, registration=registration) as shell:
        await turn(shell)
        before = shell.requests[-1].messages
        await ended_between_turns(shell)
        await turn(shell, "And now?")
        line = (
            "[Background command b1 (read x < gate; exit 1) has ended: exit status 1. "
            "command_output(id=b1) shows the rest.]"
        )
        assert opening(shell).endswith(f"{line}\n\nAnd now?")
        assert shell.requests[-1].messages[: len(before)] == before
        assert is_replayed(shell)
        await turn(shell, "Again?")
        assert "has ended" not in opening(shell)
        assert is_replayed(shell)
        await shell.command("/undo")
        await shell.command("/undo")
        await turn(shell, "Once more?")
        assert opening(shell).endswith(f"{line}\n\nOnce more?")
        assert is_replayed(shell)


@pytest.mark.parametrize("reading", [output, stop])
async def test_an_end_that_the_model_has_read_is_not_repeated(play, reading):
    lines = [begin("echo one"), output(), reading(), finish("ok"), finish("ok")]
    async with play(lines, yes=True) as shell:
        await turn(shell)
        await turn(shell, "And now?")
        assert "Background command" not in opening(shell)
        assert is_replayed(shell)


async def test_a_small_model_reads_of_an_end_once_it_can_read_the_output(play, home):
    os.mkfifo(home / "gate")
    lines = [register("run_command"), begin("read x < gate"), *[finish("ok")] * 3]
    async with play(lines, yes=True, registration="names") as shell:
        with_traits(shell, small=True)
        await turn(shell)
        await ended_between_turns(shell)
        await turn(shell, "And now?")
        assert "Background command" not in opening(shell)
        await shell.command("/register command_output")
        await turn(shell, "Again?")
        assert "[Background command b1 (read x < gate) has ended" in opening(shell)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_resumed_session_reads_that_its_commands_ended_with_it(
    play, home, is_killed, monkeypatch
):
    os.mkfifo(home / "gate")
    lines = [
        begin("sleep 1000"),
        begin("read x < gate; exit 3"),
        finish("ok"),
        begin("echo new"),
        finish("ok"),
    ]
    async with play(lines, yes=True) as shell:
        await turn(shell)
        await ended_between_turns(shell)
        shell.on_event = lambda event: None
        with monkeypatch.context() as patched:
            if is_killed:  # nothing records the end
                patched.setattr(shell.deps.workspace.background, "report", lambda event: None)
            await shell.open(shell.session)
        events = await turn(shell, "And now?")
        assert [event.id for event in of(events, BackgroundStarted)] == ["b3"]
        expected = (
            "[Background command b1 (sleep 1000) ended with the session; its output is gone.]\n"
            "[Background command b2 (read x < gate; exit 3) has ended: exit status 3. "
            "Its output is gone.]\n\nAnd now?"
        )
        assert opening(shell).endswith(expected)
        assert is_replayed(shell)
        await shell.open(shell.session)
        assert list(shell.conversation.memory.ends) == ["b3"]
        await shell.open()
        assert shell.deps.workspace.background.count == 0


async def test_the_user_reads_the_last_output_without_taking_it_from_the_model(play, home, mode):
    os.mkfifo(home / "gate")
    lines = [begin("seq 30; read x < gate"), finish("ok"), output(), finish("ok")]
    async with play(lines, yes=True) as shell:
        await turn(shell)
        async with asyncio.timeout(60):
            while not (text := (await shell.command("/background b1")).text).endswith("\n30"):  # noqa: ASYNC110 - output has no event
                await asyncio.sleep(0.01)
        first, *rest = text.splitlines()
        assert first.startswith("b1  running for")
        assert rest == [str(number) for number in range(11, 31)]
        await ended_between_turns(shell)
        events = await turn(shell, "What did it print?")
        assert observations(events)[0].startswith("1\n2\n3\n")
        text = (await shell.command("/background b1")).text
        assert text.startswith("b1  exit status 0  seq 30")
        assert text.endswith("\n29\n30")
        with pytest.raises(UsageError, match="No background command has the ID 'b7'"):
            await shell.command("/background b7")


async def test_the_user_stops_a_command(play, mode):
    async with play([begin("sleep 1000"), finish()], yes=True) as shell:
        await turn(shell)
        assert (await shell.command("/background b1")).text.endswith("It has printed nothing.")
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
