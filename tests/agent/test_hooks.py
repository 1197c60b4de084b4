"""Hooks: commands around tools, turns and sessions, and at a cap."""

import json
import os

import pytest
from agent_play import User, counts, of, say, turn

from ecoshell.events import CallFinished, HookRan, LimitHit, Notice, TrustWanted, TurnFinished

READ = say("", "read_file", path="notes.txt")
STEPS = [READ, say("Done."), say("Again.")]
ALL = ("session_start", "turn_start", "before_tool", "after_tool", "turn_end", "session_end")


def table(name, on, command, **more):
    lines = [f"[{name}]", f'on = "{on}"', f"command = {json.dumps(command)}"]
    return (
        "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in more.items())]) + "\n"
    )


@pytest.fixture
def own(home, tmp_path):
    """Write the user's hooks: `own(table(…), …)`."""

    def write(*tables):
        folder = tmp_path / "home" / "config"
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(entry.replace("[", "[hooks.commands.", 1) for entry in tables)
        (folder / "config.toml").write_text(text)

    return write


def read_events(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_hooks_run_at_every_point_with_the_event_as_json(play, own, home):
    own(*(table(f"on-{on}", on, "cat >> events.jsonl; echo >> events.jsonl") for on in ALL))
    async with play(STEPS) as shell:
        events = await turn(shell, "Read it.")
        await turn(shell, "Again.")
        session = shell.session
        assert isinstance(events[-1], TurnFinished)
        ran = of(events, HookRan)
        assert [(event.event, event.status, event.blocked) for event in ran] == [
            (on, 0, False) for on in ALL[:-1]
        ]
        assert "on-before_tool" in (await shell.command("/hooks")).text
    inputs = read_events(home / "events.jsonl")
    assert [event["event"] for event in inputs] == [
        *ALL[:-1],
        "turn_start",
        "turn_end",
        "session_end",
    ]
    assert {event["session"] for event in inputs} == {session}
    assert {event["workspace"] for event in inputs} == {str(home)}
    assert inputs[1]["question"] == "Read it."
    assert (inputs[2]["tool"], inputs[2]["arguments"]) == ("read_file", {"path": "notes.txt"})
    assert (inputs[3]["ok"], "two" in inputs[3]["result"]) == (True, True)
    assert (inputs[4]["status"], inputs[4]["answer"]) == ("answered", "Done.")


async def test_exit_status_2_refuses_a_call_with_the_reason(play, own):
    own(
        table(
            "secrets",
            "before_tool",
            "grep -q notes && { echo 'notes are secret' >&2; exit 2; }",
            tools=["read_*"],
        ),
        table("later", "before_tool", "echo later >> later.txt"),
        table("other", "before_tool", "exit 2", tools=["write_file"]),
    )
    async with play(STEPS) as shell:
        events = await turn(shell, "Read it.")
        result = of(events, CallFinished)[0]
        assert (result.refused, result.ok) == ("hook", False)
        assert "the hook secrets blocks it: notes are secret" in result.observation
        assert "notes are secret" in shell.requests[1].messages[-1].text
        assert [(event.name, event.blocked) for event in of(events, HookRan)] == [("secrets", True)]
        assert of(events, TurnFinished)[0].status == "answered"


async def test_what_a_hook_says_after_a_tool_is_read_with_the_result(play, own):
    own(table("lint", "after_tool", "echo noise; echo 'line 2 is too long' >&2; exit 2"))
    async with play(STEPS) as shell:
        events = await turn(shell, "Read it.")
        text = of(events, CallFinished)[0].observation
        assert "two" in text
        assert text.endswith("The hook lint says: line 2 is too long")
        assert not of(events, HookRan)[0].blocked


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        ("sleep 60", None, "stopped after 0.5 s"),
        ("no-such-program", 127, "not found"),
        ("yes | head -c 1000000000", 0, ""),
        ("yes | head -c 100000000 >&2; exit 1", 1, "bytes"),
        ("kill -9 $$", -9, ""),
        ("exec 0<&-; exit 3", 3, ""),
        ("sleep 60 & exit 1", 1, ""),
        ("printf '\\033[2J\\377' >&2; exit 1", 1, "␛[2J"),
    ],
)
async def test_a_failing_hook_breaks_no_turn(play, own, command, status, text):
    own(table("bad", "before_tool", command, seconds=0.5 if status is None else 20))
    async with play(STEPS) as shell:
        events = await turn(shell, "Read it.")
        ran = of(events, HookRan)[0]
        assert (ran.status, ran.blocked, text in ran.text) == (status, False, True)
        assert len(ran.text) < 5_000
        assert of(events, CallFinished)[0].ok
        assert of(events, TurnFinished)[0].status == "answered"


async def test_a_failing_hook_of_a_sessions_end_is_reported_and_recorded(play, own):
    own(table("bye", "session_end", "exit 3"))
    async with play(STEPS) as shell:
        shown, first = [], shell.session
        shell.on_event = shown.append
        await turn(shell, "Read it.")
        await shell.command("/new")
        assert [(event.name, event.status) for event in shown] == [("bye", 3)]
        assert of(shell.store.history(first), HookRan) == shown
        await turn(shell, "Again.")
    assert [event.name for event in shown] == ["bye", "bye"]


async def test_a_hook_sees_no_secrets(play, own, home, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", "sk-12345678901234567890")
    (home / "notes.txt").write_text("key sk-12345678901234567890\n")
    own(table("spy", "after_tool", "env > env.txt; cat > event.json"))
    async with play(STEPS) as shell:
        await turn(shell, "Read it.")
    assert "sk-1234567890" not in (home / "env.txt").read_text() + (home / "event.json").read_text()


async def test_a_hook_runs_at_a_cap(play, own, home):
    own(table("cap", "cap", "cat > cap.json"))
    async with play([*counts(4), say("Done.")], budget="600tok") as shell:
        events = await turn(shell, "Count.")
        assert of(events, LimitHit)
        assert [event.event for event in of(events, HookRan)] == ["cap"] * len(of(events, LimitHit))
        assert read_events(home / "cap.json")[0]["scope"] == "session"


async def test_hooks_of_the_project_need_trust_until_they_change(play, home):
    file = home / ".ecoshell" / "hooks.toml"
    file.parent.mkdir()
    file.write_text(table("note", "turn_start", "echo started >> started.txt"))
    user = User("later", "yes", "no")
    for decision in ("later", "yes", "trusted", "no"):
        async with play(STEPS, user=user) as shell:
            assert "read with the next question" in (await shell.command("/hooks")).text
            if decision == "no":
                file.write_text(table("note", "turn_start", "rm -rf ~"))
            events = await turn(shell, "Read it.")
            requests = of(events, TrustWanted)
            assert [(request.use, request.changed) for request in requests] == (
                [] if decision == "trusted" else [("run", decision == "no")]
            )
            assert len(of(events, HookRan)) == (decision in ("yes", "trusted"))
            assert not of(await turn(shell, "Again."), TrustWanted)
            assert ("not trusted" in (await shell.command("/hooks")).text) is (
                decision in ("later", "no")
            )
    assert (home / "started.txt").read_text() == "started\n" * 4


@pytest.mark.parametrize("trust", [True, False])
async def test_without_a_user_an_option_trusts_the_hooks(play, home, trust):
    (home / ".ecoshell").mkdir()
    (home / ".ecoshell/hooks.toml").write_text(table("note", "turn_start", "true"))
    async with play(STEPS, trust_project=trust) as shell:
        assert len(of(await turn(shell, "Read it."), HookRan)) == trust


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[a", "is not TOML"),
        (b"a = 1", "hooks.toml, a"),
        (b'[a]\non = "never"\ncommand = "x"', "a.on"),
        (b'[a]\non = "cap"', "a.command"),
        (b"\0", "binary file"),
        (b"#" * 200_000, "too large"),
        (None, "outside the workspace"),
    ],
)
async def test_a_faulty_file_is_a_sentence_and_the_turn_goes_on(
    play, home, tmp_path, content, reason
):
    file = home / ".ecoshell" / "hooks.toml"
    file.parent.mkdir()
    if content is None:
        (tmp_path / "hooks.toml").write_text(table("a", "cap", "x"))
        os.symlink(tmp_path / "hooks.toml", file)  # noqa: PTH211
    else:
        file.write_bytes(content)
    async with play(STEPS, trust_project=True) as shell:
        events = await turn(shell, "Read it.")
        notes = [note.text for note in of(events, Notice) if "Hooks of this project" in note.text]
        assert [reason in note for note in notes] == [True]
        assert of(events, TurnFinished)[0].status == "answered"
        assert reason in (await shell.command("/hooks")).text
        assert not [
            note for note in of(await turn(shell, "Again."), Notice) if "Hooks of" in note.text
        ]


async def test_without_hooks_nothing_is_around_the_tools(play):
    async with play(STEPS) as shell:
        assert shell.deps.hooks() is None
        assert not of(await turn(shell, "Read it."), HookRan)
        assert "There are no hooks" in (await shell.command("/hooks")).text


async def test_hooks_created_during_a_session_run_with_the_next_question(play, home):
    file = home / ".ecoshell" / "hooks.toml"
    async with play([READ, say("Done.")] * 2, trust_project=True) as shell:
        assert of(await turn(shell, "Read it."), CallFinished)[0].ok
        file.parent.mkdir()
        file.write_text(table("guard", "before_tool", "echo not now >&2; exit 2"))
        assert "read with the next question" in (await shell.command("/hooks")).text
        events = await turn(shell, "Again.")
        assert [event.name for event in of(events, HookRan)] == ["guard"]
        assert of(events, CallFinished)[0].refused == "hook"
        assert "guard" in (await shell.command("/hooks")).text
        file.unlink()
        assert not of(await turn(shell, "Again."), HookRan)
        assert "There are no hooks" in (await shell.command("/hooks")).text


async def test_stopping_a_turn_ends_a_running_hook(play, own):
    own(table("slow", "before_tool", "sleep 60", seconds=60))
    async with play(STEPS) as shell:
        events = []
        async for event in shell.ask("Read it."):
            events.append(event)
            if type(event).__name__ == "CallStarted":
                await shell.stop()
        assert of(events, TurnFinished)[0].status == "interrupted"
