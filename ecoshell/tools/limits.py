"""How long a tool may run and how much it may say."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call of a tool may take."""

    seconds: float = 20.0
    characters: int = 8_000
    """Of the observation the model reads."""
    changes: int = 50_000
    """Characters of the changes in files that a person is shown."""


UNSTATED = Limits(seconds=120.0)
"""Of a tool that states none."""


def stopped(name: str, seconds: float, *, lasting: bool, runs_on: bool = False) -> str:
    """What the model reads of a tool that took too long; `lasting` says that it may have changed something."""
    ended = " It does not let itself be ended: it runs on, and what comes of it is dropped." if runs_on else ""
    left = "What it had changed by then stays: look at that before you call it again."
    advice = left if lasting else "Give it less to do, or go on without it."
    return f"{name} was stopped: it took longer than {seconds:g} s.{ended} {advice}"


def truncation_mark(shown: int, total: int | None, what: str = "characters") -> str:
    """The words that stand where something was left out; `total` is None where nobody has counted."""
    if total is None:
        return f"[truncated: only the first {shown} {what} shown]"
    return f"[truncated: {shown} of {total} {what} shown]"


def clip(text: str, characters: int) -> tuple[str, bool]:
    """The text, or its beginning and the mark; and whether anything was left out."""
    if len(text) <= characters:
        return text, False
    return f"{text[:characters].rstrip()}\n{truncation_mark(characters, len(text))}", True


class OutputWindow:
    """Keeps the beginning and the end of a stream of bytes, whatever its length, and counts the rest.

    The end is kept because that is where programs say what went wrong.
    """

    def __init__(self, size: int) -> None:
        self._head_size = size * 2 // 3
        self._tail_size = size - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Bytes fed so far."""

    @property
    def truncated(self) -> bool:
        """Whether bytes were dropped."""
        return self.total > len(self._head) + len(self._tail)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-self._tail_size :]
        del self._tail[: max(0, len(self._tail) - self._tail_size)]

    def text(self) -> str:
        """What was kept, decoded as UTF-8, with the mark where bytes were dropped."""
        if not self.truncated:
            return bytes(self._head + self._tail).decode(errors="replace")
        shown = len(self._head) + len(self._tail)
        head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        return f"{head}\n{truncation_mark(shown, self.total, 'bytes')}\n{tail}"
