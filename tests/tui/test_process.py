"""The chat as a process: imports, and the state of the terminal afterwards."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pyte
import pytest

SCRIPT = '{"text": "It is done."}\n'
LEAVES_THE_SCREEN = "\x1b[?1049l"


def environment(home) -> dict[str, str]:
    return {**os.environ, "ECOSHELL_HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8"}


def test_first_frame_loads_nothing_heavy(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "ecoshell_bench.speed.first_frame"],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        check=True,
    )
    measured = json.loads(done.stdout)
    assert measured["heavy"] == []
    assert measured["seconds"] > 0


@pytest.fixture
def chat(tmp_path):
    """The chat over a script model, on a pseudo-terminal."""
    script = tmp_path / "script.jsonl"
    script.write_text(SCRIPT)
    code = (
        "import sys; from ecoshell.options import Options; from ecoshell.tui.app import run;"
        f"sys.exit(run(Options(model='script:{script}')))"
    )
    child = pexpect.spawn(
        sys.executable,
        ["-c", code],
        env=environment(tmp_path),
        dimensions=(24, 80),
        encoding="utf-8",
        timeout=600,
        cwd=Path.cwd(),
    )
    yield child
    if not child.closed:
        child.close(force=True)


def test_question_is_answered_on_a_real_terminal_after_invalid_bytes(chat):
    screen = pyte.Screen(80, 24)
    terminal = pyte.Stream(screen)
    chat.expect("one model ·")
    terminal.feed(chat.before + chat.after)
    os.write(chat.child_fd, b"\xff\xfe\x80")
    chat.send("is it done?\r")
    chat.expect("It is done")
    chat.expect("1 step")
    terminal.feed(chat.before + chat.after)
    chat.send("\x11")
    chat.expect(pexpect.EOF)
    chat.wait()
    assert chat.exitstatus == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["terminated", "hung-up"])
def test_signal_leaves_the_terminal_clean_and_keeps_the_draft(chat, number, tmp_path):
    chat.expect("one model ·")
    chat.send("half a thought")
    chat.expect("thought")
    chat.kill(number)
    chat.expect_exact(LEAVES_THE_SCREEN)
    chat.expect(pexpect.EOF)
    chat.wait()
    assert chat.exitstatus == 128 + number
    assert (tmp_path / "data" / "draft.txt").read_text() == "half a thought"


def test_closed_terminal_ends_the_chat(chat):
    chat.expect("one model ·")
    chat.ptyproc.fileobj.close()
    chat.closed = chat.ptyproc.closed = True
    assert _ends(chat.pid)


def _ends(pid: int) -> bool:
    ended, _ = os.waitpid(pid, 0)
    return ended == pid
