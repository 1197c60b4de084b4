"""`ecoshell line` from end to end: a real process on a pseudo-terminal."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_terminal import Terminal, closed, opened

from ecoshell.events import ApprovalGiven, CallStarted, TurnFinished
from ecoshell.sessions import SessionStore

REPLIES = (
    {
        "text": "I need a calculator.",
        "call": {"name": "tool_register", "arguments": {"tool_name": "calculate"}},
    },
    {"call": {"name": "calculate", "arguments": {"expression": "17 * 23"}}},
    {"text": "It is 391."},
    {"call": {"name": "tool_register", "arguments": {"tool_name": "run_command"}}},
    {"call": {"name": "run_command", "arguments": {"command": "echo $((40 + 2))"}}},
    {"call": {"name": "run_command", "arguments": {"command": "sleep 600"}}},
    {"text": "Still here."},
)
COLOUR = re.compile(rb"\x1b\[(?:\d+;)*(?:3[1-8]|9[0-7])[;m]")

Open = Callable[..., Terminal]


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Open]:
    """Open ecoshell on a script in a temporary workspace and home."""
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(reply) + "\n" for reply in REPLIES))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    terminals: list[Terminal] = []

    def open_terminal(*command: str, **environment: str) -> Terminal:
        options = (
            "--model",
            f"script:{script}",
            "--registration",
            "names",
            "--price",
            "1,2",
            "--budget",
            "0.50",
        )
        terminals.append(opened(tmp_path / "home", workspace, *command, *options, **environment))
        return terminals[-1]

    yield open_terminal
    for terminal in terminals:
        closed(terminal)


def test_user_asks_approves_stops_and_quits(open_terminal: Open, tmp_path: Path) -> None:
    terminal = open_terminal("line")
    terminal.wait(r"^›")
    terminal.wait(r"session: spent \$0, held \$0, left \$0\.50")

    terminal.type("what is 17 * 23?\r")
    screen = terminal.wait(r"√ \$0\.\d+ · ")
    assert screen.count("It is 391.") == 1
    assert "◊ I need a calculator." in screen
    assert "+ calculate registered" in screen
    assert "► call calculate(expression=17 * 23)" in screen
    assert re.search(r"└ result: \d+ ms · 17 \* 23 = 391", screen)
    terminal.wait(r"session: spent \$0\.\d+, held \$0, left \$0\.4")

    terminal.type("run two commands\r")
    terminal.wait(r"\[1\] once.*instead:")
    terminal.type("y\r")
    terminal.wait(r"result: \d+ ms · 42")
    terminal.wait(
        r"may run_command run\n  run_command\(command=\"sleep 600\"\)\n(?:.*\n){1,2}\[1\] once.*instead: *$"
    )
    terminal.type("y\r")
    terminal.wait(r"► call run_command\(command=sleep 600\)")
    terminal.type("\x03")
    terminal.wait(r"■ stopped")

    terminal.type("are you there?\r")
    terminal.wait(r"Still here\.\n√ \$0\.\d+ · .*\n›")
    terminal.type("\x03")
    terminal.wait(r"Ctrl-D or /quit quits.*\n›")  # before the prompt, Ctrl-D is not read as a key
    terminal.type("\x04")
    assert terminal.ended() == 0
    history = tmp_path / "home" / "data" / "history.txt"
    assert "+what is 17 * 23?" in history.read_text().splitlines()
    assert "+y" not in history.read_text().splitlines()
    assert history.stat().st_mode & 0o077 == 0


def test_line_typed_during_a_turn_is_asked_after_it(open_terminal: Open, tmp_path: Path) -> None:
    terminal = open_terminal("line")
    terminal.wait(r"^›")
    terminal.type("what is 17 * 23?\r")
    terminal.wait(r"√ \$0\.\d+ · ")
    terminal.wait(r"^› *$")
    terminal.type("run two commands\ry\r")
    terminal.wait(
        r"may run_command run\n  run_command\(command=\"echo.*\n(?:.*\n){1,2}\[1\] once.*instead: *$"
    )
    terminal.type("n\r")
    terminal.wait(r"denied · run_command was not run")
    terminal.wait(
        r"may run_command run\n  run_command\(command=\"sleep 600\"\)\n(?:.*\n){1,2}\[1\] once.*instead: *$"
    )
    terminal.type("no, do nothing\r")
    terminal.wait(r"Do this instead: do nothing")
    terminal.wait(r"Still here\.(.|\n)*^› y$")
    store = SessionStore(tmp_path / "home" / "data" / "sessions.sqlite")
    events = [event for _, event in store.events(store.list()[0].id)]
    approvals = [(event.decision, event.by) for event in events if isinstance(event, ApprovalGiven)]
    assert approvals == [("no", "person")] * 2


def test_closing_the_terminal_during_a_turn_loses_nothing(
    open_terminal: Open, tmp_path: Path
) -> None:
    terminal = open_terminal("line", "--yes")
    terminal.wait(r"^›")
    terminal.type("what is 17 * 23?\r")
    terminal.wait(r"√ \$0\.\d+ · ")
    terminal.type("run two commands\r")
    terminal.wait(r"► call run_command\(command=sleep 600\)")
    terminal.child.ptyproc.fileobj.close()
    terminal.child.wait()
    assert terminal.child.signalstatus is None, "it was killed rather than ended"

    store = SessionStore(tmp_path / "home" / "data" / "sessions.sqlite")
    (session,) = store.list()
    events = [event for _, event in store.events(session.id)]
    assert [event.status for event in events if isinstance(event, TurnFinished)] == [
        "answered",
        "interrupted",
    ]
    assert [event.name for event in events if isinstance(event, CallStarted)][-1] == "run_command"


def test_slash_commands_are_completed_without_colours_with_no_color(open_terminal: Open) -> None:
    terminal = open_terminal("line", NO_COLOR="1")
    terminal.wait(r"^›")
    terminal.type("/bud")
    terminal.wait(r"/budget .*\n")
    terminal.type("\t\r")
    assert "$0.5" in terminal.wait(r"session +\$0\.50? +\$0")
    terminal.type("what is 17 * 23?\r")
    terminal.wait(r"√ \$0\.\d+ · ")
    assert COLOUR.search(terminal.raw) is None


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_progress_of_ask_has_colours_unless_no_color_is_set(
    open_terminal: Open, environment: dict[str, str], coloured: bool
) -> None:
    terminal = open_terminal("ask", "what is 17 * 23?", **environment)
    terminal.wait(r"√ \$0\.\d+ · ")
    assert terminal.ended() == 0
    assert (COLOUR.search(terminal.raw) is not None) == coloured


def test_quiet_question_on_a_terminal_prints_only_the_answer(open_terminal: Open) -> None:
    terminal = open_terminal("ask", "--quiet", "what is 17 * 23?")
    assert terminal.ended() == 0
    assert terminal.raw.strip() == b"It is 391."


def test_dumb_terminal_gets_ascii_without_escapes(open_terminal: Open) -> None:
    terminal = open_terminal("line", TERM="dumb")
    terminal.wait(r"^> *$")
    terminal.type("what is 17 * 23?\n")
    terminal.wait(r"^ok: \$0")
    terminal.type("/quit\n")
    assert terminal.ended() == 0
    assert b"\x1b" not in terminal.raw
    assert terminal.raw.isascii()


def test_failing_hook_of_the_sessions_end_is_printed_last(
    open_terminal: Open, tmp_path: Path
) -> None:
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    hook = '[hooks.commands.bye]\non = "session_end"\ncommand = "exit 3"\n'
    (config / "config.toml").write_text(hook)
    terminal = open_terminal("line")
    terminal.wait(r"› *$")
    terminal.type("What is 17 * 23?\r")
    terminal.wait(r"It is 391")
    terminal.type("/quit\r")
    terminal.wait(r"the hook bye \(session_end\) ended with exit status 3")
    assert terminal.ended() == 0
