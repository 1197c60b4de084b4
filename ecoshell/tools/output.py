"""Output of programs in bounded memory."""

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

    @property
    def ends_line(self) -> bool:
        """Whether the next byte begins a line."""
        return not self.total or (self._tail or self._head).endswith(b"\n")

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


_RECENT_BYTES = 8_000


class UnreadOutput:
    """Takes output as it arrives, and gives each part once; its last lines can be read again."""

    def __init__(self, size: int) -> None:
        """`size` is the number of bytes that are kept until they are read."""
        self._size = size
        self._window = OutputWindow(size)
        self._recent = bytearray()

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        self._window.feed(data)
        self._recent += data[-_RECENT_BYTES:]
        del self._recent[:-_RECENT_BYTES]

    def feed_line(self, text: str) -> None:
        """Add a line after the present output."""
        start = "" if self._window.ends_line else "\n"
        self.feed(f"{start}{text}\n".encode())

    def take(self) -> str:
        """Return the output since the last call, with a mark for dropped bytes."""
        window, self._window = self._window, OutputWindow(self._size)
        return window.text()

    def last_lines(self, count: int) -> str:
        """Return up to this many of the last lines, whether `take` returned them or not."""
        return "\n".join(self._recent.decode(errors="replace").splitlines()[-count:])
