"""ecoshell on a real pseudo-terminal: keys go to the process, and its screen is emulated."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pyte
from rich.cells import cell_len

LIMIT_S = 240
ROWS, COLUMNS = 30, 100


class Terminal:
    """A process on a pseudo-terminal with its emulated screen."""

    def __init__(self, child: "pexpect.spawn[bytes]") -> None:
        self.child = child
        self.raw = b""
        self._screen = pyte.HistoryScreen(COLUMNS, ROWS, history=1000)
        self._stream = pyte.ByteStream(self._screen)
        self._text: str | None = None

    @property
    def text(self) -> str:
        """The screen as text, without trailing blanks."""
        if self._text is None:
            self._text = "\n".join(self._line(y) for y in range(ROWS)).rstrip()
        return self._text

    def _line(self, y: int) -> str:
        """One line; the remaining half of an overwritten wide character is a blank, as in a terminal."""
        cells = [self._screen.buffer[y][x].data for x in range(COLUMNS)]
        followed = zip(["", *cells], cells, strict=False)
        return "".join(
            cell or ("" if cell_len(previous) == 2 else " ") for previous, cell in followed
        ).rstrip()

    def type(self, text: str) -> None:
        self.child.send(text.encode())

    def wait(self, pattern: str) -> str:
        """Read until the screen shows the pattern; return the screen."""
        return self._until(
            lambda: re.search(pattern, self.text, re.MULTILINE) is not None,
            f"{pattern!r} never came",
        )

    def ended(self) -> int:
        """Read until the process ends; return its exit status."""
        self._until(lambda: not self.child.isalive(), "it did not end")
        self.child.close()
        assert self.child.exitstatus is not None, f"ended by signal {self.child.signalstatus}"
        return self.child.exitstatus

    def _until(self, met: Callable[[], bool], complaint: str) -> str:
        deadline = time.monotonic() + LIMIT_S
        while not met():
            assert time.monotonic() < deadline, f"{complaint}:\n{self.text}"
            try:
                piece = self.child.read_nonblocking(4096, timeout=0.1)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                assert met() or not self.child.isalive(), f"{complaint}:\n{self.text}"
                if not met() and complaint != "it did not end":
                    raise AssertionError(f"it ended before {complaint}:\n{self.text}") from None
                continue
            self.raw += piece
            self._stream.feed(piece)
            self._text = None
            self._answer(piece)
        return self.text

    def _answer(self, piece: bytes) -> None:
        """Report the cursor position on request, as every terminal does."""
        if b"\x1b[6n" in piece:
            row, column = self._screen.cursor.y + 1, self._screen.cursor.x + 1
            self.child.send(f"\x1b[{row};{column}R".encode())


def opened(home: Path, workspace: Path, *arguments: str, **environment: str) -> Terminal:
    """Start `ecoshell` with these arguments in a given workspace and home."""
    env: dict[str, Any] = {
        **{
            name: value
            for name, value in os.environ.items()
            if name not in ("NO_COLOR", "FORCE_COLOR")
        },
        "ECOSHELL_HOME": str(home),
        "TERM": "xterm-256color",
        "PYTHONUTF8": "1",
        **environment,
    }
    child = pexpect.spawn(
        sys.executable,
        ["-m", "ecoshell", *arguments, "--workspace", str(workspace)],
        env=env,
        cwd=str(Path(__file__).parents[2]),
        dimensions=(ROWS, COLUMNS),
        timeout=LIMIT_S,
    )
    return Terminal(child)


def closed(terminal: Terminal) -> None:
    """Kill the process if it still runs, and close the terminal."""
    if terminal.child.isalive():
        terminal.child.kill(signal.SIGKILL)
        terminal.child.wait()
    terminal.child.close()
