"""The pseudo-terminal that programs are measured on."""

import os
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from ecoshell.errors import EcoshellError
from ecoshell_bench.speed.measuring import SIZE, Terminal

ECHO = """
import sys, termios, tty
tty.setraw(0)
print("ready", end="", flush=True)
while key := sys.stdin.read(1):
    print(f"<{key}>", end="", flush=True)
"""
LATE = """
import sys, termios, time, tty
tty.setraw(0)
time.sleep(0.3)
termios.tcflush(0, termios.TCIFLUSH)
print(f"<{sys.stdin.read(1)}>", end="", flush=True)
sys.stdin.read(1)
"""

Start = Callable[..., Terminal]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python program on a terminal."""
    open_ones: list[Terminal] = []

    def begin(code: str, *, reports: bool = False) -> Terminal:
        terminal = Terminal((sys.executable, "-c", code), environ=os.environ, reports=reports)
        open_ones.append(terminal)
        return terminal

    yield begin
    for terminal in open_ones:
        terminal.close()


def test_what_is_typed_is_shown_and_it_is_known_when(start: Start) -> None:
    terminal = start(ECHO)
    ready = terminal.wait_for("ready")
    typed, since = time.monotonic(), terminal.length
    terminal.type("ø")
    shown = terminal.wait_for("<ø>", since)
    assert terminal.started < ready <= typed < shown <= time.monotonic()


def test_text_shown_before_is_not_taken_for_what_comes(start: Start) -> None:
    terminal = start(ECHO)
    terminal.wait_for("ready")
    terminal.type("a")
    terminal.wait_for("<a>")
    since = terminal.length
    first = terminal.wait_for("<a>")
    terminal.type("a")
    assert terminal.wait_for("<a>", since) > first


def test_a_key_is_typed_until_the_program_shows_it_and_never_shown_by_the_terminal_itself(start: Start) -> None:
    terminal = start(LATE)
    shown = terminal.type_until_shown("x")
    assert shown - terminal.started > 0.3
    assert terminal.wait_for("<x>") == shown


def test_the_program_sees_a_terminal_of_the_measured_size(start: Start) -> None:
    terminal = start("import os; print(*os.get_terminal_size(1), sep='x')")
    assert terminal.wait_for(f"{SIZE[0]}x{SIZE[1]}") > terminal.started


def test_a_program_that_reports_does_so_beside_its_terminal(start: Start) -> None:
    terminal = start("import sys; print(sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.isatty())", reports=True)
    assert terminal.report() == "False True True\n"


def test_a_program_that_ends_instead_of_showing_something_is_named_with_its_last_words(start: Start) -> None:
    terminal = start("print('no such file')")
    with pytest.raises(EcoshellError, match=r"did not show 'ready' and cannot be measured.*no such file"):
        terminal.wait_for("ready")
    reporting = start("pass", reports=True)
    with pytest.raises(EcoshellError, match="its report"):
        reporting.report()
