"""Output of programs in bounded memory."""

from collections.abc import Callable
from typing import Protocol

from ecoshell.tools.running import truncation_mark


class Sink(Protocol):
    """Receives the output of a program."""

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        ...


class OutputWindow:
    """Keeps the beginning and the end of a stream of bytes; programs report errors at the end."""

    def __init__(self, size: int) -> None:
        self._head_size = size * 2 // 3
        self._tail_size = size - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Number of bytes fed."""

    @property
    def truncated(self) -> bool:
        """Whether bytes were dropped."""
        return self.total > len(self._head) + len(self._tail)

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-self._tail_size :]
        del self._tail[: max(0, len(self._tail) - self._tail_size)]

    def text(self) -> str:
        """Return the text with a mark for dropped bytes."""
        if not self.truncated:
            return bytes(self._head + self._tail).decode(errors="replace")
        size = len(self._head) + len(self._tail)
        head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        return f"{head}\n{truncation_mark(size, self.total, 'bytes')}\n{tail}"


class UnreadOutput:
    """Takes output as it arrives, and gives each part once."""

    def __init__(self, size: int) -> None:
        """`size` is the number of bytes that are kept until they are read."""
        self._new_window: Callable[[], OutputWindow] = lambda: OutputWindow(size)
        self._window = self._new_window()

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        self._window.feed(data)

    def take(self) -> str:
        """Return the output since the last call, with a mark for dropped bytes."""
        window, self._window = self._window, self._new_window()
        return window.text()
