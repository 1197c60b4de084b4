"""A complete session in a pseudo-terminal."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from real_terminal import Terminal, closed, opened

from ecoshell.models.embedded import NAME
from ecoshell.sessions import SessionStore

Open = Callable[..., Terminal]


@pytest.fixture
def open_chat(tmp_path: Path) -> Iterator[Open]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    terminals: list[Terminal] = []

    def open_chat(*arguments: str) -> Terminal:
        terminals.append(opened(tmp_path / "home", workspace, *arguments))
        return terminals[-1]

    yield open_chat
    for terminal in terminals:
        closed(terminal)


def test_whole_session_survives_a_cap_and_a_kill(open_chat: Open, tmp_path: Path) -> None:
    terminal = open_chat("--model", NAME)
    terminal.wait(r"embedded, demo model")
    terminal.type("What is 17 * 23?\r")
    terminal.wait(r"6 tools loaded, \d+ known by name")
    terminal.wait(r"\+ +calculate registered · \d+ tokens · 7 of \d+ loaded")
    terminal.wait(r"► +calculate\(.*17 \* 23")
    terminal.wait(r"√ .*391")
    terminal.wait(r"tok · \d+ steps?")

    terminal.type("/budget 700tok\r")
    terminal.wait(r"session +700 tokens")
    terminal.type("What is 12 * 12?\r")
    terminal.wait(r"limit reached")
    terminal.wait(r"answer with results so far")
    terminal.type("r")
    terminal.wait(r"^│ \d+tok +│$")
    terminal.type("\x15200000tok\r")
    terminal.wait(r"the cap is raised")
    terminal.wait(r"√ .*144")

    terminal.type("/cost\r")
    terminal.wait(r"spent \$0")
    terminal.type("a thought that is not sent")
    terminal.wait(r"› +a thought that is not sent")
    _until((tmp_path / "home" / "data" / "draft.txt").exists)
    terminal.child.kill(signal.SIGKILL)
    terminal.child.wait()

    again = open_chat("--resume", _only_session(tmp_path / "home"))
    again.wait(r"› +a thought that is not sent")
    again.wait(r"√ .*144")
    again.wait(r"calculate\(expression=12 \* 12\)")
    again.type("\x15What is 20 - 3?\r")
    again.wait(r"√ .*17\b")
    again.type("/quit\r")
    again.wait(r"Session \S+ is kept\. Resume it with: ecoshell --resume \S+")
    assert again.ended() == 0


def test_failing_hook_of_a_sessions_end_is_shown_after_new_and_after_quit(
    open_chat: Open, tmp_path: Path
) -> None:
    config = tmp_path / "home" / "config"
    config.mkdir(parents=True)
    command = "echo run >> runs; cat runs | tr '\\n' ' ' >&2; exit 3"
    hook = f'[hooks.commands.bye]\non = "session_end"\ncommand = "{command}"\n'
    (config / "config.toml").write_text(hook.replace("\\", "\\\\"))
    terminal = open_chat("--model", NAME)
    terminal.wait(r"embedded, demo model")
    terminal.type("What is 17 * 23?\r")
    terminal.wait(r"tok · \d+ steps?")
    terminal.type("/new\r")
    wrapped = r"( |.*\n +)"  # the transcript is about as wide as the notice
    terminal.wait(rf"the hook bye \(session_end\) ended with exit status 3 ·{wrapped}run\b")
    terminal.type("What is 20 - 3?\r")
    terminal.wait(r"tok · \d+ steps?")
    terminal.type("/quit\r")
    terminal.wait(r"the hook bye \(session_end\) ended with exit status 3 · run run\b")
    assert terminal.ended() == 0


def _only_session(home: Path) -> str:
    with closing(SessionStore(home / "data" / "sessions.sqlite")) as store:
        (session,) = store.list()
    return session.id


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
