"""A program on a pseudo-terminal of its own: what is typed goes to it, and when which output came is known."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from ecoshell.errors import EcoshellError
from ecoshell_bench.speed.apps import SIZE

_PATIENCE = 60.0
"""Seconds after which a program that has not shown something is given up."""
_GOODBYE = 10.0
_BETWEEN_KEYS = 0.02
_LFLAG = 3
"""The place of the local modes in the attributes of a terminal."""


class Terminal:
    """A program that was started this moment, and everything it has written since; close it in the end.

    With `reports`, its standard output is a pipe that `report` reads, and it draws on standard error alone.
    """

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str], reports: bool = False) -> None:
        self._command = command
        self._master, slave = pty.openpty()
        _prepare(slave)
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=slave,
            stdout=subprocess.PIPE if reports else slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._written = bytearray()
        self._chunks: list[tuple[int, float]] = []
        """How much had been written at which time."""
        self._news = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._process.pid

    @property
    def length(self) -> int:
        """Bytes written so far: a place to wait from."""
        return len(self._written)

    def type(self, text: str) -> None:
        """Type some text."""
        os.write(self._master, text.encode())

    def wait_for(self, shown: str, since: int = 0) -> float:
        """When a text was shown that came after this many bytes; raises EcoshellError when it does not come."""
        when = self._shown(shown.encode(), since, _PATIENCE)
        if when is None:
            raise self._disappointed(shown)
        return when

    def type_until_shown(self, key: str) -> float:
        """Type a key again and again, and say when it was first shown; raises EcoshellError when it never is."""
        for _ in range(round(_PATIENCE / _BETWEEN_KEYS)):
            self.type(key)
            when = self._shown(key.encode(), 0, _BETWEEN_KEYS)
            if when is not None:
                return when
        raise self._disappointed(key)

    def report(self) -> str:
        """The next line of a program that reports; raises EcoshellError when it ends instead."""
        output: IO[bytes] | None = self._process.stdout
        line = output.readline() if output else b""
        if not line:
            raise self._disappointed("its report")
        return line.decode()

    def close(self) -> None:
        """End the program."""
        self._process.terminate()
        try:
            self._process.wait(_GOODBYE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        os.close(self._master)
        if self._process.stdout:
            self._process.stdout.close()

    def _shown(self, wanted: bytes, since: int, patience: float) -> float | None:
        """When it was shown; None when it was not for so long, or cannot be any more."""
        at, give_up = since, time.monotonic() + patience
        with self._news:
            while (found := self._written.find(wanted, at)) < 0:
                at = max(since, len(self._written) - len(wanted))
                if self._over or not self._news.wait(max(0.0, give_up - time.monotonic())):
                    return None
            return next(when for length, when in self._chunks if length >= found + len(wanted))

    def _read(self) -> None:
        with suppress(OSError):  # what reading the terminal of a program that has ended comes to
            while data := os.read(self._master, 1 << 16):
                with self._news:
                    self._written += data
                    self._chunks.append((len(self._written), time.monotonic()))
                    self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def _disappointed(self, what: str) -> EcoshellError:
        last = bytes(self._written[-200:])
        return EcoshellError(
            f"{' '.join(self._command)[-80:]!r} did not show {what!r} and cannot be measured; it last wrote {last!r}."
        )


def _prepare(terminal: int) -> None:
    """Give it its size, and keep it from showing what is typed before a program has taken it over."""
    columns, lines = SIZE
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    attributes = termios.tcgetattr(terminal)
    attributes[_LFLAG] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
