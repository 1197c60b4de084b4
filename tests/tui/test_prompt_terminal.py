"""The prompt in a real terminal: pastes, key sequences and the external editor."""

import json
import os
import random
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Paste

from ecoshell.tui.terminal import TerminalParser

START, END = "\x1b[200~", "\x1b[201~"
PROGRAM = Path(__file__).parents[1] / "support" / "prompt_process.py"
Spawn = Callable[..., "Terminal"]


class Terminal:
    """A process, its output, and a thread that reads the output so that the process never blocks."""

    def __init__(self, folder: Path, **environment: str) -> None:
        paths = os.pathsep.join((str(PROGRAM.parents[2]), str(PROGRAM.parent)))
        env = {
            **os.environ,
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PYTHONPATH": paths,
            **environment,
        }
        self._child = pexpect.spawn(
            sys.executable, [str(PROGRAM), str(folder)], env=env, dimensions=(24, 80), timeout=600
        )
        self._file = folder / "sent.jsonl"
        self._written = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, text: str) -> None:
        """Send keys as a terminal does."""
        data = memoryview(text.encode())
        while data:
            data = data[os.write(self._child.child_fd, data[:4096]) :]

    def shows(self, text: str) -> None:
        """Wait until this text was written after the last match."""
        deadline = time.monotonic() + 600
        while (at := self._written.find(text.encode())) < 0:
            assert time.monotonic() < deadline, f"{text!r} never came: {self._written[-2000:]!r}"
            self._reader.join(0.02)
        self._written = self._written[at + 1 :]

    def sent(self, count: int) -> list[dict[str, Any]]:
        """Wait until this much was sent."""
        deadline = time.monotonic() + 600
        while (text := self._file.read_text() if self._file.exists() else "").count("\n") < count:
            assert time.monotonic() < deadline, (
                f"only {text[:200]!r} was sent: {self._written[-2000:]!r}"
            )
            self._reader.join(0.02)
        return [json.loads(line) for line in text.splitlines()]

    def close(self) -> None:
        """End the process and the thread."""
        self._child.close(force=True)
        self._reader.join(10)

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self._child.child_fd, 65536)
            except OSError:
                return
            if not read:
                return
            self._written += read


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    opened: list[Terminal] = []

    def spawn(**environment: str) -> Terminal:
        opened.append(Terminal(tmp_path, **environment))
        opened[-1].shows("Ask anything"[1:])
        return opened[-1]

    yield spawn
    for terminal in opened:
        terminal.close()


def editor(tmp_path: Path, script: str) -> str:
    file = tmp_path / "editor.sh"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def test_ten_megabyte_paste_is_fast(spawn):
    terminal = spawn()
    line = "x" * 79
    terminal.type(f"see {START}" + f"{line}\r" * 125_000 + f"{END}!\r")
    draft = terminal.sent(1)[0]
    assert draft["text"] == "see [paste-1 · 125,000 lines]!"
    assert draft["attachments"][0]["text"] == f"{line}\n" * 125_000


def test_escape_sequences_in_a_paste_are_harmless(spawn):
    terminal = spawn()
    terminal.type(f"a{START}b\x1b[D\x1b[Dc\x00\r\nd{END}e\r")
    assert terminal.sent(1)[0]["text"] == "ab␛[D␛[Dc\nde"


def test_key_sequences_of_terminals_are_parsed(spawn):
    terminal = spawn()
    terminal.type("one two\x1bb\x1b\x7fzero \x05!\r")  # alt+b, alt+backspace, ctrl+e
    assert terminal.sent(1)[0]["text"] == "zero two!"
    terminal.type("first\x1b\rsecond\nthird\x01>\r")  # alt+enter, ctrl+j, ctrl+a
    assert terminal.sent(2)[1]["text"] == "first\nsecond\n>third"
    terminal.type(
        "gone kept\x01" + "\x1b[3~" * 5 + "\x05, lost\x1b[1;5D\x1b[1;5D\x0b.\r"
    )  # delete, ctrl+left, ctrl+k
    assert terminal.sent(3)[2]["text"] == "kept."
    terminal.type("kept\x15\x1a\r")  # ctrl+u, ctrl+z
    assert terminal.sent(4)[3]["text"] == "kept"


def test_editor_edits_the_draft(spawn, tmp_path):
    terminal = spawn(
        EDITOR=editor(tmp_path, 'cat "$1" > "$1.old" && echo "$(cat "$1.old"), edited" > "$1"')
    )
    terminal.type("a draft\x07")
    terminal.shows("edited")
    terminal.type("!\r")
    assert terminal.sent(1)[0]["text"] == "a draft, edited!"


@pytest.mark.parametrize(
    ("script", "why"), [("exit 3", "ended with status 3"), (None, "No such file")]
)
def test_failing_editor_leaves_the_draft_unchanged(spawn, tmp_path, script, why):
    terminal = spawn(EDITOR=editor(tmp_path, script) if script else "no-such-editor", VISUAL="")
    terminal.type("a draft\x07")
    terminal.shows(why)
    terminal.type("\r")
    assert terminal.sent(1)[0]["text"] == "a draft"


def test_keys_typed_after_a_broken_character_arrive(spawn):
    terminal = spawn()
    os.write(terminal._child.child_fd, b"a\xff\xfe\x80b\r")
    assert terminal.sent(1)[0]["text"] == "ab"


def events_of(*pieces: str) -> list[tuple[str, str]]:
    parser = TerminalParser()
    matches = [message for piece in pieces for message in parser.feed(piece)]
    return [
        ("paste", item.text) if isinstance(item, Paste) else ("key", getattr(item, "key", ""))
        for item in matches
    ]


@given(st.randoms(use_true_random=False))
def test_paste_is_parsed_wherever_it_is_split(chance: random.Random):
    typed = f"ab{START}hé\r\nwor\rld\x1b[A\x1b[20{END}c\x1b[A{START}{END}{START}x{END}\r"
    cuts = sorted(chance.sample(range(1, len(typed)), chance.randint(0, 9)))
    pieces = [typed[a:b] for a, b in zip([0, *cuts], [*cuts, len(typed)], strict=True)]
    assert events_of(*pieces) == [
        ("key", "a"),
        ("key", "b"),
        ("paste", "hé\nwor\nld\x1b[A\x1b[20"),
        ("key", "c"),
        ("key", "up"),
        ("paste", ""),
        ("paste", "x"),
        ("key", "enter"),
    ]
