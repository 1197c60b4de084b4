"""The pseudo-terminal on which programs are measured."""

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
    terminals: list[Terminal] = []

    def begin(code: str, *, reports: bool = False) -> Terminal:
        terminal = Terminal((sys.executable, "-c", code), environ=os.environ, reports=reports)
        terminals.append(terminal)
        return terminal

    yield begin
    for terminal in terminals:
        terminal.close()


def test_typed_keys_are_shown_with_their_times(start: Start) -> None:
    terminal = start(ECHO)
    ready = terminal.wait_for("ready")
    typed, since = time.monotonic(), terminal.length
    terminal.type("ø")
    shown_at = terminal.wait_for("<ø>", since)
    assert terminal.started < ready <= typed < shown_at <= time.monotonic()


def test_earlier_output_does_not_count_as_new(start: Start) -> None:
    terminal = start(ECHO)
    terminal.wait_for("ready")
    terminal.type("a")
    terminal.wait_for("<a>")
    since = terminal.length
    first = terminal.wait_for("<a>")
    terminal.type("a")
    assert terminal.wait_for("<a>", since) > first


def test_a_key_is_repeated_until_the_program_shows_it_without_terminal_echo(start: Start) -> None:
    terminal = start(LATE)
    shown_at = terminal.type_until_shown("x")
    assert shown_at - terminal.started > 0.3
    assert terminal.wait_for("<x>") == shown_at


def test_the_program_has_a_terminal_of_the_configured_size(start: Start) -> None:
    terminal = start("import os; print(*os.get_terminal_size(1), sep='x')")
    assert terminal.wait_for(f"{SIZE[0]}x{SIZE[1]}") > terminal.started


def test_a_report_is_separate_from_the_terminal(start: Start) -> None:
    terminal = start(
        "import sys; print(sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.isatty())",
        reports=True,
    )
    assert terminal.report() == "False True True\n"


def test_a_program_that_ends_early_is_reported_with_its_output(start: Start) -> None:
    terminal = start("print('no such file')")
    with pytest.raises(
        EcoshellError, match=r"did not show 'ready' and cannot be measured.*no such file"
    ):
        terminal.wait_for("ready")
    reporting = start("pass", reports=True)
    with pytest.raises(EcoshellError, match="its report"):
        reporting.report()
