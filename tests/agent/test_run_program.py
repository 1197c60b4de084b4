"""Programs that call tools: through the same checks, with results that stay out of the context."""

import asyncio
import os
from pathlib import Path

import pytest
from agent_play import User, finish, is_replayed, of, say, turn

from ecoshell.events import ApprovalWanted, CallFinished, CallStarted, TurnFinished
from ecoshell.messages import PROGRAM
from ecoshell.tools.builtin.commands import created_mark
from ecoshell.tools.sandbox import backend


def program(code: str) -> list[dict[str, object]]:
    return [say("", "run_program", code=code), finish("done")]


@pytest.fixture(params=["auto", "off"])
def mode(request, monkeypatch):
    monkeypatch.setenv("ECOSHELL_SANDBOX_MODE", request.param)


async def test_a_program_calls_tools_and_only_its_output_is_read(play, home, mode):
    for number in range(5):
        (home / f"part{number}.txt").write_text(f"hidden {number}\n" * number)
    code = """
total = 0
for number in range(5):
    total += tools.read_file(path=f"part{number}.txt").count("hidden")
tools.write_file(path="total.txt", content=str(total))
print("total", total)
"""
    async with play(program(code), yes=True) as shell:
        events = await turn(shell)
        assert is_replayed(shell)
        sent = "".join(str(request.messages) for request in shell.requests)
    assert (home / "total.txt").read_text() == "10"
    outer = of(events, CallFinished)[-1]
    assert (outer.name, outer.ok, outer.observation) == (
        "run_program",
        True,
        "total 10\n[6 tool calls: read_file 5, write_file 1]",
    )
    inner = [event for event in of(events, CallStarted) if event.role == PROGRAM]
    assert [event.name for event in inner] == ["read_file"] * 5 + ["write_file"]
    assert "hidden 4" not in sent
    assert "total 10" in sent


async def test_calls_of_a_program_need_the_usual_approval(play, home):
    user = User("once", "no", "once")
    code = """
try:
    tools.write_file(path="a.txt", content="a")
except ToolFailed as failure:
    print(failure)
print(tools.run_command(command="echo b"))
"""
    async with play(program(code), user=user) as shell:
        events = await turn(shell)
    assert [event.name for event in of(events, ApprovalWanted)] == [
        "run_program",
        "write_file",
        "run_command",
    ]
    assert "write_file was not run: it was not approved" in of(events, CallFinished)[-1].observation
    assert "\nb\n" in of(events, CallFinished)[-1].observation
    assert not list(home.glob("a.txt"))


async def test_rules_hold_for_calls_of_a_program(play, home, monkeypatch):
    monkeypatch.setenv("ECOSHELL_APPROVAL_DENY", '["read:notes.txt"]')
    code = 'print(tools.count_text(text="one two"))\nprint(tools.read_file(path="./notes.txt"))'
    async with play(program(code), yes=True) as shell:
        events = await turn(shell)
    outer = of(events, CallFinished)[-1]
    assert not outer.ok
    assert (
        "ToolFailed: read_file was not run: a rule in the settings forbids it (read:notes.txt)."
        in outer.observation
    )
    assert "2 words" in outer.observation


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            "while True: pass",
            "[stopped: the program reached its time limit; calls that it made are done]",
        ),
        ("while True: tools.current_time()", "The program made 100 calls, which is the limit."),
        (
            "while True: print('x' * 1000)",
            "[stopped: the program reached its time limit; calls that it made are done]",
        ),
        ('print(\'\\x1e{"name": "a record"}\')', '{"name": "a record"}\n[0 tool calls]'),
        ("input()", "EOFError"),
        ("import subprocess\nsubprocess.run('cat')\nprint('read')", "read\n[0 tool calls]"),
        (
            "tools.write_file(path='a', content='x' * 2_000_000)",
            "The arguments of write_file are too long: 2,000,",
        ),
        ("tools.run_program(code='1')", "A program cannot run another one."),
        ("tools.nothing()", "There is no tool called 'nothing'."),
        ("tools.read_file()", "'path' is a required property"),
        ("tools.read_file('notes.txt')", "tools.read_file takes named arguments only"),
        ("import tools\nprint(tools.count_text(text='a b'))", "2 words"),
        (
            "print(tools.run_command(command='exit 3'))",
            "[exit status 3]\n[1 tool call: run_command 1]",
        ),
        ("tools.read_file(path='long.txt')", "too long for one call: ask for parts"),
        (
            "tools.read_file(path='notes.txt')\ntools.read_file(path='missing.txt')",
            "[2 tool calls: read_file 1; failed: read_file 1]",
        ),
        ("tools.read_file(path='missing.txt')", "no such file or folder"),
        ("tools.read_file(path=object())", "ToolFailed"),
        ("1 / 0", "ZeroDivisionError"),
        ("import sys; sys.exit(4)", "[exit status 4]"),
        ("pass", "[no output; print what you want to see]\n[0 tool calls]"),
        (" ", "There is nothing to run"),
    ],
)
async def test_mistakes_end_in_a_sentence_and_the_turn_goes_on(play, home, monkeypatch, code, text):
    monkeypatch.setenv("ECOSHELL_TOOLS_COMMAND_SECONDS", "2")
    (home / "long.txt").write_text("a line of text\n" * 100_000)
    async with play(program(code), yes=True) as shell:
        events = await turn(shell)
    outer = of(events, CallFinished)[-1]
    assert text in outer.observation
    assert len(outer.observation) < 60_000
    assert 'File "<string>"' not in outer.observation
    assert of(events, TurnFinished)[0].answer == "done"


async def test_calls_between_parts_of_a_line_and_in_threads_get_their_own_results(play, home):
    code = """
from concurrent.futures import ThreadPoolExecutor
for number in range(8):
    print(number, end=": ")
    print(tools.count_text(text="a " * number).split()[1])
def words(number):
    return tools.count_text(text="a " * number).split(", ")[1]
with ThreadPoolExecutor(8) as pool:
    print(list(pool.map(words, range(40))) == [f"{n} word{'s' * (n != 1)}" for n in range(40)])
"""
    async with play(program(code), yes=True) as shell:
        events = await turn(shell)
    lines = of(events, CallFinished)[-1].observation.splitlines()
    assert [line.partition(":")[0] for line in lines[:8]] == [f"{number}" for number in range(8)]
    assert lines[8:] == ["True", "[48 tool calls: count_text 48]"]


async def test_stopping_the_turn_stops_the_program(play, home):
    code = 'tools.write_file(path="started", content="x")\nimport time\ntime.sleep(1000)'
    async with play(program(code), yes=True) as shell:
        async for event in shell.ask("go"):
            if isinstance(event, CallFinished) and event.name == "write_file":
                await shell.stop()
        assert shell.conversation.busy is False


@pytest.mark.skipif(bool(backend(Path("/nowhere")).problem), reason="no sandbox works here")
@pytest.mark.parametrize("ending", ["", "import time; time.sleep(1000)"])
async def test_a_program_names_new_files_that_other_programs_execute(play, home, ending):
    os.mkfifo(home / "gate")
    code = f"import os\nos.mkdir('.husky')\nopen('gate', 'w').close()\n{ending}"
    async with play(program(code), yes=True) as shell:
        asking = asyncio.create_task(turn(shell))
        await asyncio.to_thread((home / "gate").read_text)
        if ending:
            await shell.stop()
        events = await asking
    outer = of(events, CallFinished)[-1]
    assert outer.observation.splitlines()[-1] == created_mark([".husky"])
